from __future__ import annotations

import pytest

from rdma_vm.machine import Machine


@pytest.fixture(scope="session")
def vm() -> Machine:
    """A test hands it one shell command that does all its work, for each boots anew."""
    return Machine()

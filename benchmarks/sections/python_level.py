"""One host, Python with numpy arrays: dicomm against Open MPI through mpi4py."""

from __future__ import annotations

import importlib.util

from measure import Budget, M
from report import Section
from sections import beside
from sections.beside import Limit

NAME = "one host, Python API, against Open MPI"


def run(budget: Budget) -> Section:
    if importlib.util.find_spec("mpi4py") is None:
        return Section(NAME, skipped="mpi4py is not installed: pip install 'dicomm[mpi]'")
    return beside.run(NAME, "dicomm", "mpi", lambda ranks: [Limit(1, 0, 64 * M)], budget)

"""Our transport and a program of pyverbs: what frame.h says is enough to speak with it."""

from __future__ import annotations

import shlex

import pytest

from rdma_vm.jobs import PROGRAMS, native_tests, needs_native_tests
from rdma_vm.machine import Machine

pytestmark = [pytest.mark.rdma_vm, pytest.mark.timeout(600)]


@needs_native_tests
def test_messages_and_their_echoes_between_dicomm_and_pyverbs(vm: Machine) -> None:
    """Small ones, some of several frames, and written ones, both ways; pyverbs leads, then follows."""
    native = native_tests("-tc=transport rdma echoes*", "--no-skip")
    done = vm.run(
        f"""
        said=$(mktemp)
        ip netns exec hostA {native} >$said 2>&1 &
        until grep -q ^listening $said; do
            kill -0 $! || break
            sleep 0.1
        done
        set -- $(sed -n 's/^listening //p' $said)
        ip netns exec hostB /usr/bin/python3 {shlex.quote(str(PROGRAMS / "verbs_peer.py"))} rxeB $1 $2 $4 $5
        peer=$?
        wait $! && [ $peer = 0 ]
        status=$?
        cat $said
        exit $status
        """,
        400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "led: 26 messages" in done.stdout
    assert "followed: 26 messages" in done.stdout

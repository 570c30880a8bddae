"""Blocking native calls that do not return on a signal: init, split and opening a store.

Requests need none of this: their waits return at every signal.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def call(function: Callable[[], T], on_interrupt: Callable[[], Any] | None = None) -> T:
    """Runs a function so that Python's signal handlers run at once, also while it blocks.

    Handlers run in the main thread, so there it runs in a thread of its own, which ends with the process.
    When a handler raises (KeyboardInterrupt), the exception leaves here: with on_interrupt, after calling it,
    which must make the function return; without, while the function goes on and keeps what it uses.
    """
    if threading.current_thread() is not threading.main_thread():
        return function()
    results: list[T] = []
    failures: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:
            failures.append(error)
        done.set()

    thread = threading.Thread(target=run, name="dicomm-call", daemon=True)
    thread.start()
    try:
        done.wait()
    except BaseException:
        if on_interrupt is not None:
            on_interrupt()
            thread.join()
        raise
    thread.join()
    if failures:
        raise failures[0]
    return results[0]

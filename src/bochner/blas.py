"""One BLAS thread at a time: our own threads share out the rows, and bits do not depend on them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import joblib
from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def thread_share() -> int:
    """Threads that this process may use: its cores, or what joblib or the user left it."""
    return _HOLDERS.share or _share_now()


def _share_now() -> int:
    blas = [lib["num_threads"] for lib in _controller().info() if lib["user_api"] == "blas"]
    return int(max(1, min([joblib.cpu_count(), *blas])))


def _take_control() -> None:
    """Let this thread restore what another thread has limited.

    Newer threadpoolctl lets only the thread that set a limit of OpenBLAS change it again, and
    silently ignores all others; the last to leave here may be any thread.
    """
    for library in _controller().lib_controllers:
        release = getattr(library, "clear_controlling_thread", None)
        if release is not None:
            release(force=True)


class _Holders:
    """Counts the users of the limit, since it belongs to the whole process.

    Saving and restoring it independently in two threads would leave it at one for ever.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.share = 0  # threads of this process while the limit hides them
        self.limit: Any = None

    def enter(self) -> None:
        with self.lock:
            if self.count == 0:
                self.share = _share_now()
                self.limit = _controller().limit(limits=1, user_api="blas")
                self.limit.__enter__()
            self.count += 1

    def leave(self) -> None:
        with self.lock:
            self.count -= 1
            if self.count == 0:
                self._release()

    def forget(self) -> None:
        """In a forked child: whoever held the limit lives in the parent alone."""
        self.lock = threading.Lock()
        if self.limit is not None:
            self._release()
        self.count = 0

    def _release(self) -> None:
        _take_control()
        self.limit.__exit__(None, None, None)
        self.limit, self.share = None, 0


_HOLDERS = _Holders()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_HOLDERS.forget)


@contextmanager
def sequential_blas() -> Iterator[None]:
    """Hold BLAS to one thread; nests, and may be entered from several threads."""
    _HOLDERS.enter()
    try:
        yield
    finally:
        _HOLDERS.leave()

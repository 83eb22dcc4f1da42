"""One BLAS thread at a time: our own threads share out the rows, and bits do not depend on them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import joblib
import numpy as np
from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@cache
def thread_share() -> int:
    """Threads that this process may use: its cores, or what joblib or the user left it."""
    blas = [lib["num_threads"] for lib in _controller().info() if lib["user_api"] == "blas"]
    return int(max(1, min([joblib.cpu_count(), *blas])))


KERNEL_CHOICE = "OPENBLAS_CORETYPE"
"""Environment variable by which OpenBLAS, when it is loaded, lets itself be told its kernels."""


def faster_kernels() -> str | None:
    """Kernels that OpenBLAS should be told to use, where it has not recognised the processor.

    Some of its releases take processors with AVX-512 that are newer than they are for one with
    AVX2 alone, and run products at half speed. By now it is loaded: only who starts the process
    can tell it.
    """
    if os.environ.get(KERNEL_CHOICE):
        return None
    known: Any = np.show_config(mode="dicts")
    found = known.get("SIMD Extensions", {}).get("found", [])
    wide = any(name == "X86_V4" or name.startswith("AVX512") for name in found)
    used = {lib.get("architecture") for lib in _controller().info()}
    return "SkylakeX" if wide and used & {"Haswell", "Zen"} else None


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
        self.limit: Any = None

    def enter(self) -> None:
        with self.lock:
            if self.count == 0:
                thread_share()  # read before the limit hides it
                self.limit = _controller().limit(limits=1, user_api="blas")
                self.limit.__enter__()
            self.count += 1

    def leave(self) -> None:
        with self.lock:
            self.count -= 1
            if self.count == 0:
                _take_control()
                self.limit.__exit__(None, None, None)
                self.limit = None


_HOLDERS = _Holders()


@contextmanager
def sequential_blas() -> Iterator[None]:
    """Hold BLAS to one thread; nests, and may be entered from several threads."""
    _HOLDERS.enter()
    try:
        yield
    finally:
        _HOLDERS.leave()

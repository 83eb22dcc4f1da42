"""Where the rows live. Everything else sees only sums over them.

``Rows.reduce(task, *args)`` runs a pure function on every block of rows and returns the sum of
what it returns. The engine here uses threads; any other place where rows can live (files, a
cluster, a GPU) is another class with the same members.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from bochner.blas import sequential_blas, thread_share
from bochner.features import Block, FeatureSource, Frequencies, fourier
from bochner.kernel import Array

BLOCK_ROWS = 1024
"""Rows in a block: with some hundred features it stays in a core's cache."""

KEEP_BYTES = 1 << 30
"""Memory that an engine may use to keep features between the two passes of an evaluation."""

_MAX_CHUNKS = 32
_SMALL_ROWS = 256  # fewer are one block: a second thread would cost more than it saves
_MAX_THREADS = 256


class Rows(Protocol):
    """Rows of inputs and outputs, wherever they are."""

    dtype: np.dtype[Any]

    @property
    def n_rows(self) -> int:
        """Number of rows, N."""
        ...

    def reduce(self, task: Callable[..., Any], frequencies: Frequencies, *args: Any) -> Any:
        """Sum of ``task(features, block, frequencies, *args)`` over all blocks."""
        ...

    def at_precision(self, dtype: str) -> Rows:
        """The same rows computed with in another precision."""
        ...

    def sample(self, n: int, rng: np.random.Generator) -> Rows:
        """So many random rows; all of them where there are no more."""
        ...


class ThreadedRows:
    """Rows in memory, shared out among threads.

    Block boundaries depend on the number of rows alone and sums are added in a fixed order, so
    results are the same to the last bit for any ``n_threads`` and any ``keep_bytes``.

    Parameters
    ----------
    X : array of shape (N, D)
    Y : array of shape (N, P)
    dtype : precision of the blocks; sums are float64 always
    n_threads : threads to use; None takes what this process has been given
    block_rows : rows in a block, at most
    keep_bytes : memory for features kept between the passes of an evaluation
    """

    def __init__(
        self,
        X: Array,
        Y: Array,
        dtype: str = "float32",
        n_threads: int | None = None,
        block_rows: int = BLOCK_ROWS,
        keep_bytes: int = KEEP_BYTES,
    ) -> None:
        self.X, self.Y = X, Y
        self.dtype = np.dtype(dtype)
        self.n_threads = n_threads
        self.block_rows = block_rows
        self.keep_bytes = keep_bytes
        n_blocks = 1 if len(X) < _SMALL_ROWS else 2 * -(-len(X) // (2 * block_rows))
        self._edges = np.linspace(0, len(X), n_blocks + 1).astype(np.int64)
        n_chunks = min(_MAX_CHUNKS, max(n_blocks // 2, min(n_blocks, 2)))
        self._chunks = np.linspace(0, n_blocks, n_chunks + 1).astype(np.int64)
        self._blocks = [self._block(i) for i in range(n_blocks)]
        self._kept = _Kept(n_blocks, keep_bytes)
        self._other: ThreadedRows | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows, N."""
        return int(self.X.shape[0])

    def at_precision(self, dtype: str) -> ThreadedRows:
        """The same rows computed with in another precision; made once, then remembered.

        The memory for features is for all precisions together: asking for one frees the other's.
        """
        if self.dtype == dtype:
            if self._other is not None:
                self._other._kept.release()
            return self
        self._kept.release()
        if self._other is None:
            self._other = ThreadedRows(
                self.X, self.Y, dtype, self.n_threads, self.block_rows, self.keep_bytes
            )
        return self._other

    def sample(self, n: int, rng: np.random.Generator) -> ThreadedRows:
        """So many random rows; all of them where there are no more."""
        if n >= self.n_rows:
            return self
        kept = np.sort(rng.permutation(self.n_rows)[:n])
        return ThreadedRows(
            self.X[kept],
            self.Y[kept],
            self.dtype.name,
            self.n_threads,
            self.block_rows,
            self.keep_bytes,
        )

    def reduce(self, task: Callable[..., Any], frequencies: Frequencies, *args: Any) -> Any:
        """Sum of ``task(features, block, frequencies, *args)`` over all blocks."""
        n_chunks, edges = len(self._chunks) - 1, self._chunks
        source = self._kept.source if frequencies.again else _computed
        if frequencies.again:
            self._kept.make_room(self._blocks, frequencies)

        def chunk_sum(k: int) -> Any:
            total = None
            for i in range(edges[k], edges[k + 1]):
                part = task(source(i), self._blocks[i], frequencies, *args)
                total = _added(total, part)
            return total

        with sequential_blas():
            total = None
            for part in ordered_map(chunk_sum, n_chunks, self.n_threads):
                total = _added(total, part)
        return total

    def _block(self, i: int) -> Block:
        rows = slice(self._edges[i], self._edges[i + 1])
        return Block.of(self.X[rows], self.Y[rows], self.dtype)


def _computed(i: int) -> FeatureSource:
    """Features computed for the occasion."""
    return fourier


class _Kept:
    """Features of the first blocks, as many as the budget holds, at the latest frequencies."""

    def __init__(self, n_blocks: int, budget: int) -> None:
        self.budget = budget
        self.buffers: list[Array | None] = [None] * n_blocks
        self.at: list[Frequencies | None] = [None] * n_blocks
        self.n_points = -1

    def make_room(self, blocks: list[Block], frequencies: Frequencies) -> None:
        """Forget buffers of another size; give buffers to the blocks that the budget reaches."""
        if frequencies.S.shape[0] == self.n_points:
            return
        self.n_points = frequencies.S.shape[0]
        left = self.budget
        for i, block in enumerate(blocks):
            shape = (2 * self.n_points + block.YT.shape[0], block.XT.shape[1])
            left -= shape[0] * shape[1] * block.XT.itemsize
            self.buffers[i] = np.empty(shape, block.XT.dtype) if left >= 0 else None
            self.at[i] = None

    def release(self) -> None:
        """Give the memory back."""
        self.buffers = [None] * len(self.buffers)
        self.n_points = -1

    def source(self, i: int) -> FeatureSource:
        """Function that gives the features of block i, computing them only when they are new."""

        def features(block: Block, frequencies: Frequencies) -> Array:
            buffer, at = self.buffers[i], self.at[i]
            if buffer is None:
                return fourier(block, frequencies)
            if at is None or at.S is not frequencies.S:
                self.at[i] = None  # interrupted half way, the buffer must not pass for ready
                fourier(block, frequencies, out=buffer)
                self.at[i] = frequencies
            return buffer

        return features


class _Workers(NamedTuple):
    """One supply of threads for a process, and permits for as many as it may use at once.

    Fits side by side share them; a forked process has none of its parent's threads.
    """

    pool: ThreadPoolExecutor
    permits: threading.Semaphore


@cache
def _workers_of(process: int) -> _Workers:
    pool = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix=f"bochner-{process}")
    return _Workers(pool, threading.Semaphore(thread_share()))


def _workers() -> _Workers:
    return _workers_of(os.getpid())


def ordered_map(
    function: Callable[[int], Any], n: int, n_threads: int | None = None
) -> Iterator[Any]:
    """``function(0), ..., function(n - 1)`` computed by threads, yielded in that order."""
    workers = _workers()
    helpers = max(min(n, n_threads or thread_share()) - 1, 0)
    results = _InOrder(function, n, helpers, workers.permits)
    for _ in range(helpers):
        workers.pool.submit(results.help)
    try:
        for k in range(n):
            yield results.get(k)
    finally:
        results.stop()


class _InOrder:
    """Tasks taken from one counter by the caller and its helpers, results given out in order."""

    def __init__(
        self, function: Callable[[int], Any], n: int, helpers: int, permits: threading.Semaphore
    ) -> None:
        self.function, self.n, self.permits = function, n, permits
        self.changed = threading.Condition()
        self.done: dict[int, Any] = {}
        self.next, self.helping = 0, helpers
        self.failure: BaseException | None = None

    def get(self, k: int) -> Any:
        """Result k, computing whatever is still to be taken, or the failure of any task."""
        while True:
            with self.changed:
                if self.failure is not None:
                    raise self.failure
                if k in self.done:
                    return self.done.pop(k)
            if not self._one():
                with self.changed:
                    self.changed.wait_for(lambda: k in self.done or self.failure is not None)

    def help(self) -> None:
        """What a helper does: the next task, until none is left."""
        try:
            while self._one():
                pass
        except BaseException as failure:  # handed to the caller, whatever it is
            with self.changed:
                self.failure, self.next = failure, self.n
        finally:
            with self.changed:
                self.helping -= 1
                self.changed.notify_all()

    def stop(self) -> None:
        """Wait until the helpers have finished what they are at; they take nothing more."""
        with self.changed:
            self.next = self.n
            self.changed.wait_for(lambda: self.helping == 0)

    def _one(self) -> bool:
        """Do the next task, if there is one."""
        with self.changed:
            k, self.next = self.next, min(self.next + 1, self.n)
        if k == self.n:
            return False
        with self.permits:
            result = self.function(k)
        with self.changed:
            self.done[k] = result
            self.changed.notify_all()
        return True


def _added(total: Any, part: Any) -> Any:
    """``total + part`` in float64, field by field for a named tuple."""
    if isinstance(part, tuple):
        fields = part if total is None else map(_added, total, part)
        return type(part)(*(np.asarray(f, np.float64) for f in fields))
    if total is None:
        return np.array(part, np.float64)
    total += part
    return total

"""Cholesky factor of a large matrix, in place, panel by panel, by our own threads.

The lower triangle becomes L; the part above the diagonal blocks is left alone, so that a symmetric
matrix and its factor fit into one square. The same bits come out for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from bochner.kernel import Array
from bochner.rows import ordered_map

PANEL = 384
"""Columns that are eliminated at once; what lies above these diagonal blocks stays as it is."""

_TASK_ROWS = 1024


class Factor(NamedTuple):
    """``A = L L^T``; L below the diagonal blocks of ``square``, the blocks apart and inverted."""

    square: Array  # (N, N)
    inverses: list[Array]  # L_kk^-1 of each diagonal block
    n_threads: int | None

    def half_solve(self, B: Array) -> Array:
        """``L^-1 B`` (N, T), in the precision of the factor; threads share out the columns."""
        out = np.array(B, self.square.dtype)
        self._by_columns(out, self._forward)
        return out

    def solve(self, B: Array) -> Array:
        """``A^-1 B``."""
        out = np.array(B, self.square.dtype)
        self._by_columns(out, self._forward)
        self._by_columns(out, self._backward)
        return out

    def _by_columns(self, B: Array, work: Callable[[Array], None]) -> None:
        step = max(-(-B.shape[1] // 8), 16)
        starts = range(0, B.shape[1], step)
        tasks = ordered_map(
            lambda k: work(B[:, starts[k] : starts[k] + step]), len(starts), self.n_threads
        )
        for _ in tasks:
            pass

    def _forward(self, B: Array) -> None:
        for k, inverse in enumerate(self.inverses):
            at = k * PANEL
            rows = slice(at, at + len(inverse))
            right = B[rows] - self.square[rows, :at] @ B[:at] if at else B[rows]
            B[rows] = inverse @ right

    def _backward(self, B: Array) -> None:
        for k, inverse in reversed(list(enumerate(self.inverses))):
            at = k * PANEL
            rows, below = slice(at, at + len(inverse)), slice(at + len(inverse), None)
            right = B[rows] - self.square[below, rows].T @ B[below]
            B[rows] = inverse.T @ right


def factorise(
    square: Array,
    diagonal: float,
    n_threads: int | None = None,
    told: Callable[[int, int], None] = lambda done, total: None,
) -> Factor | None:
    """Factor ``square + diagonal I`` in place; None where it is not positive definite.

    Left-looking: a panel is brought up to date by all columns before it, then eliminated. Its
    diagonal block is factored in float64 whatever the rest.
    """
    n = len(square)
    inverses = []
    for at in range(0, n, PANEL):
        panel = slice(at, min(at + PANEL, n))
        _each(_update, square, panel, n_threads)
        corner = square[panel, panel].astype(np.float64)
        corner[np.diag_indices_from(corner)] += diagonal
        L, failed = lapack.dpotrf(corner, lower=1, clean=1)
        if failed or not np.all(np.isfinite(np.diag(L))):
            return None
        inverse = lapack.dtrtri(L, lower=1)[0].astype(square.dtype)
        inverses.append(inverse)
        _each(_eliminate, square, panel, n_threads, inverse)
        told(panel.stop, n)
    return Factor(square, inverses, n_threads)


def _each(
    work: Callable[..., None], square: Array, panel: slice, n_threads: int | None, *args: Array
) -> None:
    """``work`` on the rows of a panel from the diagonal down, shared out among threads."""
    starts = range(panel.start, len(square), _TASK_ROWS)
    tasks = ordered_map(
        lambda k: work(square, panel, slice(starts[k], starts[k] + _TASK_ROWS), *args),
        len(starts),
        n_threads,
    )
    for _ in tasks:
        pass


def _update(square: Array, panel: slice, rows: slice) -> None:
    """Take off what the columns before the panel explain."""
    done = slice(0, panel.start)
    if panel.start:
        square[rows, panel] -= square[rows, done] @ square[panel, done].T


def _eliminate(square: Array, panel: slice, rows: slice, inverse: Array) -> None:
    """Rows below the diagonal block, by its inverse."""
    below = slice(max(rows.start, panel.stop), rows.stop)
    square[below, panel] = square[below, panel] @ inverse.T

"""Conjugate gradients on the exact covariance, where no factor of it fits into memory.

Products with the covariance K never need all of it at once: panels of its lower half are kept as
far as a budget of memory reaches, and computed again where it ends. Several right-hand sides share
every tile. The preconditioner is a low-rank approximation of K, plus the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from bochner.cholesky import PANEL
from bochner.covariance import Side, block, covariance
from bochner.kernel import Array
from bochner.rows import ordered_map

PANEL_ROWS = 2 * PANEL
"""Rows of a panel of tiles; whole panels of a factor, that may share a square with the tiles."""

_MOST_TASKS, _SQUARE_TASKS = 16, 4
_JITTER = 1e-6  # of k(0), on the landmarks' own covariance
_INNER = 1e-3  # by which one run of conjugate gradients lowers the residual
_LEAST = 1e-200
_STALLED = 0.5  # a run that gains less than this has met the end of the precision

Told = Callable[[int, float], None]
"""Called after every iteration with its number and the relative residual."""


class HalfGram:
    """The covariance of all rows with themselves as products see it: its lower half, in tiles.

    Row i of ``tiles`` holds those of panel i against all panels up to its own; None where it is
    to be computed at every product.
    """

    def __init__(self, side: Side, n_threads: int | None = None) -> None:
        self.side, self.n_threads = side, n_threads
        n = side.n_rows
        self.panels = [slice(i, min(i + PANEL_ROWS, n)) for i in range(0, n, PANEL_ROWS)]
        self.tiles: list[list[Array] | None] = [None] * len(self.panels)

    @classmethod
    def kept(cls, side: Side, keep_bytes: int, n_threads: int | None = None) -> HalfGram:
        """With as many tiles kept as fit into so much memory."""
        gram = cls(side, n_threads)
        sizes = [r.stop * (r.stop - r.start) * side.dtype.itemsize for r in gram.panels]
        fitting = int(np.searchsorted(np.cumsum(sizes), keep_bytes, side="right"))
        for i, row in enumerate(ordered_map(gram._row, fitting, n_threads)):
            gram.tiles[i] = row
        return gram

    @property
    def stored_bytes(self) -> int:
        """Memory that the kept tiles take."""
        return sum(tile.nbytes for row in self.tiles if row is not None for tile in row)

    def times(self, V: Array, dtype: str = "float32") -> Array:
        """``K V`` (N, T); sums of tiles are float64, products in ``dtype``."""
        n_tasks = min(len(self.panels), _MOST_TASKS)
        W = V.astype(dtype)

        def share(task: int) -> Array:
            total = np.zeros(V.shape)
            # From the longest panel to the shortest, so that threads end together.
            for i in range(len(self.panels) - 1 - task, -1, -n_tasks):
                self._add_row(i, W, total)
            return total

        out = np.zeros(V.shape)
        for part in ordered_map(share, n_tasks, self.n_threads):
            out += part
        return out

    def _row(self, i: int) -> list[Array]:
        return [self._tile(i, j) for j in range(i + 1)]

    def _tile(self, i: int, j: int) -> Array:
        return covariance(self.side, self.panels[i], self.panels[j])

    def _add_row(self, i: int, W: Array, total: Array) -> None:
        """The tiles of one panel and their mirror images, while the cache has them."""
        rows, kept = self.panels[i], self.tiles[i]
        for j, columns in enumerate(self.panels[: i + 1]):
            tile = (self._tile(i, j) if kept is None else kept[j]).astype(W.dtype, copy=False)
            total[rows] += tile @ W[columns]
            if j < i:
                total[columns] += tile.T @ W[rows]


class LowRank(NamedTuple):
    """``(F F^T + s2 I)^-1`` as a preconditioner."""

    F: Array  # (N, r) float32
    inner: tuple[Array, bool]  # factor of F^T F + s2 I
    noise_variance: float
    n_threads: int | None

    @classmethod
    def of(cls, F: Array, noise_variance: float, n_threads: int | None = None) -> LowRank:
        """From any ``F F^T`` near the covariance."""

        def share(task: int) -> Array:
            total = np.zeros((F.shape[1], F.shape[1]))
            for i in range(task * PANEL_ROWS, len(F), _SQUARE_TASKS * PANEL_ROWS):
                part = F[i : i + PANEL_ROWS].astype(np.float64)
                total += part.T @ part
            return total

        G = np.zeros((F.shape[1], F.shape[1]))
        for part in ordered_map(share, _SQUARE_TASKS, n_threads):
            G += part
        G[np.diag_indices_from(G)] += noise_variance
        return cls(F, cho_factor(G, lower=True), noise_variance, n_threads)

    def apply(self, R: Array) -> Array:
        """The preconditioned residual; in float64, since what is left is small beside the noise."""

        def panels(task: int) -> list[slice]:
            starts = range(task * PANEL_ROWS, len(self.F), _SQUARE_TASKS * PANEL_ROWS)
            return [slice(i, i + PANEL_ROWS) for i in starts]

        def onto(task: int) -> Array:
            total = np.zeros((self.F.shape[1], R.shape[1]))
            for rows in panels(task):
                total += self.F[rows].astype(np.float64).T @ R[rows]
            return total

        def back(task: int) -> None:
            for rows in panels(task):
                out[rows] -= self.F[rows].astype(np.float64) @ inside

        inside = np.zeros((self.F.shape[1], R.shape[1]))
        for part in ordered_map(onto, _SQUARE_TASKS, self.n_threads):
            inside += part
        inside, out = cho_solve(self.inner, inside), np.array(R, np.float64)
        for _ in ordered_map(back, _SQUARE_TASKS, self.n_threads):
            pass
        return np.asarray(out / self.noise_variance)


def landmark_features(
    side: Side, n_landmarks: int, rng: np.random.Generator, n_threads: int | None = None
) -> Array:
    """F of Nystrom's approximation: covariance with random rows times the root of their own."""
    chosen = np.sort(rng.permutation(side.n_rows)[:n_landmarks])
    few = side.rows(chosen)
    K = block(few, few).astype(np.float64)
    K[np.diag_indices_from(K)] = side.variance * (1.0 + _JITTER * len(K) ** 0.5)
    L = np.linalg.cholesky(K)
    F = np.empty((side.n_rows, len(chosen)), np.float32)

    def fill(k: int) -> None:
        rows = slice(k * PANEL_ROWS, (k + 1) * PANEL_ROWS)
        C = block(side.rows(rows), few)
        F[rows] = solve_triangular(L, C.T, lower=True, check_finite=False).T

    for _ in ordered_map(fill, -(-side.n_rows // PANEL_ROWS), n_threads):
        pass
    return F


class Solved(NamedTuple):
    """What conjugate gradients reached."""

    X: Array
    residual: float  # the largest of the columns, relative to the right-hand side
    iterations: int
    converged: bool
    interrupted: bool = False


class System(NamedTuple):
    """``(K + s2 I) X = B``, by products with K and a preconditioner."""

    times: Callable[[Array, str], Array]
    precondition: Callable[[Array], Array]
    noise_variance: float

    def residual(self, X: Array, B: Array) -> Array:
        """What is missing, in float64."""
        return np.asarray(B - self.times(X, "float64") - self.noise_variance * X)

    def energy(self, R: Array) -> Array:
        """``R^T A^-1 R`` of each column, as far as the preconditioner is A."""
        return np.asarray(np.sum(R * self.precondition(R), axis=0))


Excess = Callable[[Array, Array], float]
"""How many times too large a residual is, from the residual and its energy, the worst column."""


def solve(
    system: System, B: Array, excess: Excess, max_iterations: int, told: Told | None = None
) -> Solved:
    """Solve for all columns at once, until the residual is small enough.

    Runs of conjugate gradients in float32, each started from a residual computed in float64: what
    one loses in precision the next finds. Where somebody is told of progress, an interruption
    keeps what there is.
    """
    size = np.maximum(np.linalg.norm(B, axis=0), np.finfo(float).tiny)

    def relative(R: Array) -> float:
        return float(np.max(np.linalg.norm(R, axis=0) / size, initial=0.0))

    X: Array = np.zeros(B.shape)
    R: Array = np.array(B, np.float64)
    best, done, last = Solved(X, 1.0, 0, False), 0, np.inf
    try:
        while True:
            off = excess(R, system.energy(R))
            if off < last:
                best = Solved(X, relative(R), done, off <= 1.0)
            if off <= 1.0 or done >= max_iterations or off > _STALLED * last:
                return best._replace(iterations=done)
            last, goal = off, 0.5 * max(1.0, _INNER * off)
            for step in _run(system, R):
                X, done = X + step.move, done + 1
                if told is not None:
                    told(done, relative(step.residual))
                if excess(step.residual, step.energy) <= goal or done >= max_iterations:
                    break
            R = system.residual(X, B)
    except KeyboardInterrupt:
        if told is None:
            raise
        return Solved(X, relative(system.residual(X, B)), done, False, interrupted=True)


class _Step(NamedTuple):
    """One iteration: what to add to the solution, and what then remains."""

    move: Array
    residual: Array
    energy: Array


def _run(system: System, R: Array) -> Iterator[_Step]:
    """Preconditioned conjugate gradients from zero, each column by itself."""
    Z = system.precondition(R)
    P, energy = Z, np.sum(R * Z, axis=0)
    while True:
        AP = system.times(P, "float32") + system.noise_variance * P
        length = _ratio(energy, np.sum(P * AP, axis=0))
        R = R - length * AP
        Z = system.precondition(R)
        before, energy = energy, np.sum(R * Z, axis=0)
        yield _Step(length * P, R, energy)
        P = Z + _ratio(energy, before) * P


def _ratio(above: Array, below: Array) -> Array:
    """``above / below``; zero where rounding left nothing positive: that column stands still."""
    sound = (above > 0) & (below > _LEAST)
    return np.asarray(np.where(sound, above / np.where(sound, below, 1.0), 0.0))

"""Exact prediction: the learned kernel in a Gaussian process on all rows, without features.

``mean = k* A^-1 Y`` and ``var = k(0) - k* A^-1 k*^T`` with ``A = K + s2 I``. A solver stands
behind: a factor where it fits into memory, conjugate gradients where it does not.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from bochner.cholesky import Factor, factorise
from bochner.conjugate import HalfGram, LowRank, Solved, System, landmark_features, solve
from bochner.covariance import Side, block, covariance
from bochner.kernel import Array, SpectralMixture
from bochner.posterior import Moments
from bochner.rows import ordered_map

_TEST_ROWS = 256  # test rows whose mean a thread computes at once
_BATCH_BYTES = 1 << 28  # for covariances of test rows with all training rows, in float64
_TRAIN_ROWS = 2048
_JITTERS = (0.0, 1e-12, 1e-10, 1e-8)  # of k(0), float64
_COARSE_JITTERS = (0.0, 1e-6, 1e-5, 1e-4, 1e-3)  # of k(0), float32: as a preconditioner
_MEAN_GOAL = 1e-3  # of the noise's sd: y changed by so much has the mean that is given
_FLOAT32_EPS = 2.0**-24
_NOISE_OVER_ERROR = 200.0
_NO_BETTER_THAN_NOTHING = 0.5
_VARIANCE_GOAL = 1e-2  # of the noise variance
_MOST_ITERATIONS = 1_000
_FEW_ITERATIONS = 60  # where the preconditioner is a factor
LANDMARKS = 4_000
"""Most rows that stand for all in the preconditioner."""

Told = Callable[[str, int, int, float], None]
"""Stage, what is done of it, its total, and the residual (NaN where there is none)."""


def batch_rows(n_rows: int) -> int:
    """Test rows whose covariance with all training rows is held at once."""
    return int(np.clip(_BATCH_BYTES // (8 * n_rows), 64, 1_024))


class Solver(Protocol):
    """Whatever can apply ``A^-1``."""

    def solve(self, B: Array, told: Told | None = None) -> Solved:
        """``A^-1 B`` in float64."""
        ...

    def explained(self, B: Array) -> Array:
        """Diagonal of ``B^T A^-1 B``."""
        ...

    def explained_jointly(self, B: Array) -> Array:
        """All of ``B^T A^-1 B``."""
        ...


class Direct(NamedTuple):
    """A factor that is as precise as the answer must be."""

    factor: Factor

    def solve(self, B: Array, told: Told | None = None) -> Solved:
        """``A^-1 B``."""
        return Solved(self.factor.solve(B).astype(np.float64), 0.0, 0, True)

    def explained(self, B: Array) -> Array:
        """Diagonal of ``B^T A^-1 B``, as squares: it cannot be negative."""
        return np.asarray(np.square(self.factor.half_solve(B), dtype=np.float64).sum(axis=0))

    def explained_jointly(self, B: Array) -> Array:
        """All of ``B^T A^-1 B``."""
        V = self.factor.half_solve(B).astype(np.float64)
        return np.asarray(V.T @ V)


class Iterative(NamedTuple):
    """Conjugate gradients, for the mean and, column by column of the test rows, for variances."""

    system: System
    most_iterations: int = _MOST_ITERATIONS

    def solve(self, B: Array, told: Told | None = None) -> Solved:
        """``A^-1 B``, until it is exact for data that differ by a small part of the noise."""
        goal = _MEAN_GOAL * np.sqrt(self.system.noise_variance * len(B))

        def excess(R: Array, energy: Array) -> float:
            return float(np.max(np.linalg.norm(R, axis=0), initial=0.0) / goal)

        heard = None if told is None else partial(self._iteration, told)
        return solve(self.system, B, excess, self.most_iterations, heard)

    def explained(self, B: Array) -> Array:
        """Diagonal of ``B^T A^-1 B`` from below: what is missing makes the variance larger."""
        X = self._columns(B)
        return np.asarray(np.sum(X * (B + self.system.residual(X, B)), axis=0))

    def explained_jointly(self, B: Array) -> Array:
        """All of ``B^T A^-1 B``, from below."""
        X = self._columns(B)
        M = X.T @ (B + self.system.residual(X, B))
        return np.asarray(0.5 * (M + M.T))

    def _columns(self, B: Array) -> Array:
        """``A^-1 B``, some columns at a time: a dozen arrays of their size are held at once."""
        goal = _VARIANCE_GOAL * self.system.noise_variance
        X, worst = np.empty(B.shape), 0.0

        def excess(R: Array, energy: Array) -> float:
            return float(np.max(energy, initial=0.0) / goal)

        for columns in _pieces(B.shape[1], batch_rows(len(B)) // 8):
            solved = solve(self.system, B[:, columns], excess, self.most_iterations)
            X[:, columns] = solved.X
            worst = worst if solved.converged else max(worst, solved.residual)
        if worst:
            warnings.warn(
                f"Variances are too large where conjugate gradients have not converged (residual "
                f"{worst:.1e}); fit with posterior='features', or with more memory for a factor.",
                stacklevel=6,
            )
        return X

    def _iteration(self, told: Told, done: int, residual: float) -> None:
        told("iterations", done, self.most_iterations, residual)


class Refined(NamedTuple):
    """A float32 factor as it is where that suffices, else as a preconditioner."""

    direct: Direct
    iterative: Iterative
    suffices: bool  # for variances; the mean is refined in any case

    def solve(self, B: Array, told: Told | None = None) -> Solved:
        """``A^-1 B`` beyond the precision of the factor."""
        return self.iterative.solve(B, told)

    def explained(self, B: Array) -> Array:
        """Diagonal of ``B^T A^-1 B``."""
        return (self.direct if self.suffices else self.iterative).explained(B)

    def explained_jointly(self, B: Array) -> Array:
        """All of ``B^T A^-1 B``."""
        return (self.direct if self.suffices else self.iterative).explained_jointly(B)


class ExactPosterior(NamedTuple):
    """The Gaussian process conditioned on all rows; holds them, as any exact one must."""

    kernel: SpectralMixture
    noise_variance: float
    train: Side
    outputs: Array  # (N, P), Y
    weights: Array  # (N, P), A^-1 Y
    solver: Solver
    solved: Solved
    n_threads: int | None

    def mean(self, X: Array) -> Array:
        """Predictive mean (n, P)."""
        return self._in_blocks(X, self._mean)

    def moments(self, X: Array) -> Moments:
        """Mean (n, P) and latent variance (n, P)."""
        means, explained = [], []
        for rows in _pieces(len(X), batch_rows(self.train.n_rows)):
            B = self._cross(X[rows])
            means.append(B.astype(np.float64, copy=False).T @ self.weights)
            explained.append(self.solver.explained(B))
        mean = np.concatenate(means)
        left = np.clip(self.kernel.variance - np.concatenate(explained), 0.0, self.kernel.variance)
        return Moments(mean, np.repeat(left[:, None], mean.shape[1], axis=1))

    def log_density(self, X: Array, Y: Array) -> Array:
        """Log predictive density (n,) of noisy outputs Y (n, P), the outputs jointly."""
        mean, variance = self.moments(X)
        total = variance + self.noise_variance
        terms = -0.5 * (np.square(Y - mean) / total + np.log(2.0 * np.pi * total))
        return np.asarray(terms.sum(axis=1))

    def covariance(self, X: Array) -> Array:
        """Joint latent covariance (n, n, P)."""
        K = self.kernel(X) - self.solver.explained_jointly(self._cross(X))
        K[np.diag_indices_from(K)] = np.maximum(np.diag(K), 0.0)
        return np.repeat(K[:, :, None], self.weights.shape[1], axis=2)

    def sample(self, X: Array, n_samples: int, rng: np.random.Generator) -> Array:
        """Joint latent samples (n, P, n_samples)."""
        mean, cov = self.mean(X), self.covariance(X)[:, :, 0]
        values, vectors = np.linalg.eigh(cov)  # as good as singular where rows lie close
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        z = rng.standard_normal((len(X), mean.shape[1] * n_samples))
        return np.asarray(mean[:, :, None] + (root @ z).reshape(len(X), -1, n_samples))

    def leave_one_out(self) -> Moments:
        """Mean and noisy variance of every training row from all others, at this kernel.

        ``mean_i = y_i - (A^-1 y)_i / (A^-1)_ii`` and ``var_i = 1 / (A^-1)_ii``.
        """
        n, p = self.outputs.shape
        diagonal = np.empty(n)
        for rows in _pieces(n, batch_rows(n)):
            unit = np.zeros((n, rows.stop - rows.start))
            unit[np.arange(rows.start, rows.stop), np.arange(unit.shape[1])] = 1.0
            diagonal[rows] = self.solver.explained(unit)
        variance = np.repeat(1.0 / diagonal[:, None], p, axis=1)
        return Moments(self.outputs - self.weights * variance, variance)

    def _cross(self, X: Array) -> Array:
        """Covariance (N, n) of all training rows with a few others."""
        other = Side.of(self.kernel, X, self.train.dtype.name, like=self.train)
        K = np.empty((self.train.n_rows, len(X)), self.train.dtype)

        def fill(rows: slice) -> None:
            block(self.train.rows(rows), other, K[rows])

        _each(fill, _pieces(len(K), _TRAIN_ROWS), self.n_threads)
        return K

    def _mean(self, X: Array) -> Array:
        other = Side.of(self.kernel, X, self.train.dtype.name, like=self.train)
        total = np.zeros((len(X), self.weights.shape[1]))
        for rows in _pieces(self.train.n_rows, _TRAIN_ROWS):
            K = block(other, self.train.rows(rows)).astype(np.float64, copy=False)
            total += K @ self.weights[rows]
        return total

    def _in_blocks(self, X: Array, of_rows: Callable[[Array], Array]) -> Array:
        pieces = _pieces(len(X), _TEST_ROWS)
        done = ordered_map(lambda k: of_rows(X[pieces[k]]), len(pieces), self.n_threads)
        return np.concatenate(list(done))


class Plan(NamedTuple):
    """How the exact posterior is to be had; see `cost`."""

    method: str  # "cholesky", "cholesky-float32" or "iterative"
    keep_bytes: int = 0  # for tiles, of the iterative method


def condition_exactly(
    kernel: SpectralMixture,
    noise_variance: float,
    X: Array,
    Y: Array,
    plan: Plan,
    rng: np.random.Generator,
    n_threads: int | None,
    told: Told,
) -> ExactPosterior:
    """Condition on all rows."""
    dtype = "float64" if plan.method == "cholesky" else "float32"
    side = Side.of(kernel, X, dtype)
    solver: Solver
    if plan.method == "iterative":
        solver = _iterative(side, noise_variance, n_threads, told, plan.keep_bytes, rng)
    else:
        make = _direct if plan.method == "cholesky" else _refined
        solver = make(side, noise_variance, n_threads, told)
    solved = solver.solve(Y, told)
    if solved.residual > _NO_BETTER_THAN_NOTHING:
        if solved.interrupted:
            raise KeyboardInterrupt
        raise FloatingPointError("the noise is too small for float32")
    return ExactPosterior(kernel, noise_variance, side, Y, solved.X, solver, solved, n_threads)


def float32_suffices(variance: float, noise_variance: float, n_rows: int) -> bool:
    """Whether a float32 factor of the covariance resolves the noise: its error grows as a walk."""
    error = _FLOAT32_EPS * np.sqrt(n_rows) * variance
    return bool(noise_variance > _NOISE_OVER_ERROR * error)


def _direct(side: Side, noise: float, n_threads: int | None, told: Told) -> Solver:
    for jitter in _JITTERS:
        square = _square(side, n_threads, told)
        factor = _factor(square, noise + jitter * side.variance, n_threads, told)
        if factor is not None:
            return Direct(factor)
        del square  # before the next one is made
    raise FloatingPointError("the covariance of the rows has no Cholesky factor")


def _refined(side: Side, noise: float, n_threads: int | None, told: Told) -> Solver:
    """Covariance above the diagonal, factor below it, in one square."""
    square = _square(side, n_threads, told)
    gram = HalfGram(side, n_threads)
    corners = [square[rows, rows].copy() for rows in gram.panels]
    for i, rows in enumerate(gram.panels):
        before = gram.panels[:i]
        gram.tiles[i] = [*(square[columns, rows].T for columns in before), corners[i]]
    for jitter in _COARSE_JITTERS:
        factor = _factor(square, noise + jitter * side.variance, n_threads, told)
        if factor is not None:
            system = System(gram.times, factor.solve, noise)
            iterative = Iterative(system, _FEW_ITERATIONS)
            suffices = not jitter and float32_suffices(side.variance, noise, side.n_rows)
            return Refined(Direct(factor), iterative, suffices)
        for rows, corner in zip(gram.panels, corners, strict=True):
            square[rows, : rows.start] = square[: rows.start, rows].T
            square[rows, rows] = corner
    raise FloatingPointError("the covariance of the rows has no Cholesky factor")


def _iterative(
    side: Side,
    noise: float,
    n_threads: int | None,
    told: Told,
    keep_bytes: int,
    rng: np.random.Generator,
) -> Solver:
    told("landmarks", 0, 1, np.nan)
    n_landmarks = min(LANDMARKS, max(side.n_rows // 4, 1))
    near = LowRank.of(landmark_features(side, n_landmarks, rng, n_threads), noise, n_threads)
    told("covariance", 0, 1, np.nan)
    gram = HalfGram.kept(side, keep_bytes, n_threads)
    return Iterative(System(gram.times, near.apply, noise))


def _square(side: Side, n_threads: int | None, told: Told) -> Array:
    """The covariance of all rows with themselves, its lower half computed and mirrored."""
    n = side.n_rows
    square = np.empty((n, n), side.dtype)
    panels = _pieces(n, _TRAIN_ROWS // 4)

    def fill(rows: slice) -> None:
        covariance(side, rows, slice(0, rows.stop), square[rows, : rows.stop])
        square[: rows.start, rows] = square[rows, : rows.start].T

    for done, _ in enumerate(ordered_map(lambda k: fill(panels[k]), len(panels), n_threads), 1):
        told("covariance", done, len(panels), np.nan)
    return square


def _factor(square: Array, diagonal: float, n_threads: int | None, told: Told) -> Factor | None:
    def heard(done: int, total: int) -> None:
        told("factor", done, total, np.nan)

    return factorise(square, diagonal, n_threads, heard)


def _pieces(n: int, size: int) -> list[slice]:
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]


def _each(work: Callable[[slice], None], pieces: list[slice], n_threads: int | None) -> None:
    for _ in ordered_map(lambda k: work(pieces[k]), len(pieces), n_threads):
        pass

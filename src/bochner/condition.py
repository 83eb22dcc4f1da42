"""From a learned kernel to a posterior: one pass over all rows for each draw of the points."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bochner.evidence import Solution, Statistics, residual_from_sums, solve
from bochner.kernel import Array, Counts
from bochner.objective import (
    Problem,
    fold_features,
    frequencies_at,
    rows_for,
    statistics,
    sum_by_component,
)
from bochner.parameters import LOG_NOISE_BOUNDS, LOG_WEIGHT_BOUNDS, Parameters
from bochner.points import SpectralPoints
from bochner.posterior import Draw, FeaturePosterior
from bochner.rows import ordered_map

_RELEARN_STEPS = 12
_LONGEST_STEP = 4.0  # in the log of a weight or of the noise
_SETTLED = 0.02


class Conditioned(NamedTuple):
    """The posterior and the parameters that it was made with."""

    posterior: FeaturePosterior
    parameters: Parameters


def condition(
    problem: Problem,
    p: Parameters,
    points: list[SpectralPoints],
    relearn: bool,
    n_threads: int | None,
) -> Conditioned:
    """Condition on all rows, one draw after the other; weights and noise learned again first.

    More points than in learning explain more, so that the noise found there is too large.
    Re-learning needs no further pass: the sums over the rows do not know of weights or noise.
    """
    kernel, m = p.kernel, len(points[0].normals)
    frequencies = [frequencies_at(one.locations(kernel), problem.input_squares) for one in points]

    def at_precision_for(p: Parameters) -> np.dtype[Any]:
        return rows_for(problem, p.kernel.variance, p.noise_variance, m).dtype

    dtype = at_precision_for(p)
    while True:
        rows = problem.rows.at_precision(dtype.name)
        stats = [statistics(rows, problem.n_outputs, f) for f in frequencies]
        solutions = _Solutions(stats, points, n_threads)
        found = _relearned(p, points, stats, solutions) if relearn else p
        # Noise that has fallen may ask for more precision than the sums have.
        if dtype == np.float64 or at_precision_for(found) == dtype:
            break
        dtype = np.dtype(np.float64)
    p = found
    draws = [
        Draw(f.S, s.coefficients, (np.sqrt(s.noise_variance) * s.root).astype(dtype))
        for f, s in zip(frequencies, solutions(p), strict=True)
    ]
    squares = problem.input_squares
    posterior = FeaturePosterior(draws, p.noise_variance, squares, n_threads)
    return Conditioned(posterior, p)


class _Solutions(NamedTuple):
    """The linear algebra of all draws at once, by threads."""

    stats: list[Statistics]
    points: list[SpectralPoints]
    n_threads: int | None

    def __call__(self, p: Parameters) -> list[Solution]:
        def one(t: int) -> Solution:
            return _solved(self.stats[t], self.points[t], p)

        return list(ordered_map(one, len(self.stats), self.n_threads))


def _solved(stats: Statistics, points: SpectralPoints, p: Parameters) -> Solution:
    """Solve; where noise and weights are too far apart for the arithmetic, with more noise."""
    a = points.amplitudes(np.exp(p.log_weights))
    noise = p.noise_variance
    for _ in range(20):
        solution = solve(stats, a, noise)
        if solution is not None:
            return solution
        noise *= 10.0
    raise FloatingPointError("the sums over the rows are not finite")


def _relearned(
    p: Parameters,
    points: list[SpectralPoints],
    stats: list[Statistics],
    solutions: _Solutions,
) -> Parameters:
    """MacKay's fixed point for weights and noise, pooled over the draws.

    Where the gradient is zero, ``w_q <- w_q sum(V^2) / sum(gamma)`` over the features of q and
    ``s2 <- rho / (N - sum gamma)`` do not move. From far away, as
    where there is no noise, that takes several steps.
    """
    counts, n_outputs = points[0].counts, stats[0].b.shape[1]
    for _ in range(_RELEARN_STEPS):
        solved = solutions(p)
        squares = _pooled([np.square(s.V).sum(axis=1) for s in solved], counts)
        gamma = _pooled([s.gamma for s in solved], counts)
        rho = sum(residual_from_sums(t, s).sum() for t, s in zip(stats, solved, strict=True))
        free = n_outputs * max(sum(t.n_rows for t in stats) - gamma.sum(), 1e-3)
        step = np.log(np.maximum(squares, 1e-12) / np.maximum(n_outputs * gamma, 1e-12))
        step = np.clip(step, -_LONGEST_STEP, _LONGEST_STEP)
        noise_step = np.log(max(rho / free, np.exp(LOG_NOISE_BOUNDS[0]))) - p.log_noise
        noise_step = float(np.clip(noise_step, -_LONGEST_STEP, _LONGEST_STEP))
        p = p._replace(
            log_weights=np.clip(p.log_weights + step, *LOG_WEIGHT_BOUNDS),
            log_noise=p.log_noise + noise_step,
        )
        if max(np.abs(step).max(), abs(noise_step)) < _SETTLED:
            break
    return p


def _pooled(by_draw: list[Array], counts: Counts) -> Array:
    """Sum over draws and over the features of each component."""
    return sum_by_component(fold_features(np.sum(by_draw, axis=0)), counts)

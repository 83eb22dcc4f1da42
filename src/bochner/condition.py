"""From a learned kernel to a posterior: one pass over all rows for each draw of the points."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

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

_RELEARN_STEPS = 4
_LONGEST_STEP = 2.0  # in the log of a weight or of the noise
_SETTLED = 1e-3
_NOISE_MARGIN = 0.2  # the noise may fall to this part of its value when it is learned again


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
    lowest_noise = p.noise_variance * (_NOISE_MARGIN if relearn else 1.0)
    rows = rows_for(problem, kernel.variance, lowest_noise, m)
    frequencies = [frequencies_at(one.locations(kernel), problem.input_squares) for one in points]
    stats = [statistics(rows, problem.n_outputs, f) for f in frequencies]

    def solutions(p: Parameters) -> list[Solution]:
        return list(ordered_map(lambda t: _solved(stats[t], points[t], p), len(stats), n_threads))

    if relearn:
        p = _relearned(p, points, stats, solutions)
    dtype = rows.dtype
    draws = [
        Draw(f.S, s.coefficients, (np.sqrt(s.noise_variance) * s.root).astype(dtype))
        for f, s in zip(frequencies, solutions(p), strict=True)
    ]
    squares = problem.input_squares
    posterior = FeaturePosterior(draws, p.noise_variance, squares, n_threads)
    return Conditioned(posterior, p)


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
    solutions: Callable[[Parameters], list[Solution]],
) -> Parameters:
    """MacKay's fixed point for weights and noise, pooled over the draws.

    Where the gradient is zero, ``w_q <- w_q sum(V^2) / sum(gamma)`` over the features of q and
    ``s2 <- rho / (N - sum gamma)`` do not move; a few steps come near enough.
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

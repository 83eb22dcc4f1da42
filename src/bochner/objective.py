"""The learning objective: log evidence of the features less the divergence from the prior.

With independent points and unit weight its expectation bounds the evidence of the M-feature
model. With any other points, or points held fixed, it is an objective and no bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bochner import evidence
from bochner.features import FLOAT32_TURNS, Frequencies, gram, pullback
from bochner.kernel import Array, Counts
from bochner.parameters import Parameters
from bochner.points import SpectralPoints
from bochner.prior import Prior, divergence
from bochner.rows import BLOCK_ROWS, Rows

_FLOAT32_EPS = 2.0**-24
_NOISE_OVER_ERROR = 100.0


class Objective(NamedTuple):
    """Value and gradient; ``value`` is minus infinity where the algebra failed."""

    value: float
    gradient: Parameters | None
    log_evidence: float
    divergence: float


class Problem(NamedTuple):
    """What stays the same while parameters move: rows and prior."""

    rows: Rows
    n_outputs: int
    input_squares: Array  # (D,) mean square of each input, for the size of phases
    prior: Prior


_FAILED = Objective(-np.inf, None, -np.inf, np.nan)


def frequencies_at(S: Array, input_squares: Array, again: bool = False) -> Frequencies:
    """Points with the choice of how their phases are formed."""
    typical = np.sqrt(np.max(np.square(S) @ input_squares, initial=0.0))
    return Frequencies.of(S, wide=bool(typical > FLOAT32_TURNS), again=again)


def rows_for(problem: Problem, prior_variance: float, noise_variance: float, m: int) -> Rows:
    """The rows, in float64 where float32's error in G would matter against the noise.

    That error is random from block to block: in A its norm is about
    ``eps sqrt(N n_block) k(0) / sqrt(2M)``, which must stay a hundred times below the noise.
    """
    n = problem.rows.n_rows
    error = _FLOAT32_EPS * np.sqrt(n * min(n, BLOCK_ROWS)) * prior_variance / np.sqrt(2 * m)
    exact_enough = noise_variance > _NOISE_OVER_ERROR * error
    return problem.rows.at_precision(problem.rows.dtype.name if exact_enough else "float64")


def statistics(rows: Rows, n_outputs: int, frequencies: Frequencies) -> evidence.Statistics:
    """One pass over the rows."""
    ZZ = rows.reduce(gram, frequencies)
    return evidence.Statistics.from_gram(ZZ, n_outputs, rows.n_rows)


def evaluate(problem: Problem, p: Parameters, points: SpectralPoints) -> Objective:
    """Objective and gradient at one set of standardised points: two passes over the rows."""
    kernel, counts = p.kernel, points.counts
    rows = rows_for(problem, kernel.variance, p.noise_variance, len(points.normals))
    frequencies = frequencies_at(points.locations(kernel), problem.input_squares, again=True)
    stats = statistics(rows, problem.n_outputs, frequencies)
    solution = evidence.solve(stats, points.amplitudes(kernel.weights), p.noise_variance)
    if solution is None:
        return _FAILED
    back = rows.reduce(pullback, frequencies, evidence.adjoint(solution, rows.dtype))
    fit = evidence.log_evidence(stats, solution, back.residual)
    kl = divergence(p, counts, problem.prior)
    S_bar = 2.0 * np.pi * back.omega_bar
    by_scale = sum_by_component(S_bar * points.normals, counts) * kernel.scales
    gradient = Parameters(
        0.5 * sum_by_component(fold_features(fit.log_a_bar), counts),
        sum_by_component(S_bar, counts) - kl.means_bar,
        by_scale - kl.log_scales_bar,
        fit.log_noise_bar,
    )
    value = fit.value - kl.value
    finite = np.isfinite(value) and all(bool(np.all(np.isfinite(g))) for g in gradient)
    return Objective(value, gradient, fit.value, kl.value) if finite else _FAILED


def evaluate_mean(problem: Problem, p: Parameters, points: list[SpectralPoints]) -> Objective:
    """Mean of the objective and its gradient over draws (Eq. 7); failed ones are left out."""
    results = [evaluate(problem, p, one) for one in points]
    good = [r for r in results if r.gradient is not None]
    if not good:
        return results[0]
    gradients = [r.gradient for r in good if r.gradient is not None]
    mean = Parameters(*(sum(g[1:], g[0]) / len(g) for g in zip(*gradients, strict=True)))
    return Objective(
        float(np.mean([r.value for r in good])),
        mean,
        float(np.mean([r.log_evidence for r in good])),
        float(np.mean([r.divergence for r in good])),
    )


def fold_features(values: Array) -> Array:
    """Sum over the cosine and the sine of each point: (2M,) to (M,)."""
    return np.asarray(values.reshape(2, -1).sum(axis=0))


def sum_by_component(values: Array, counts: Counts) -> Array:
    """Sum over the points of each component."""
    return np.asarray(np.add.reduceat(values, np.cumsum(counts) - counts, axis=0))

"""Learning under the exact marginal likelihood, for few rows or a sample of many.

    log p(Y) = -1/2 [ tr(Y^T A^-1 Y) + P log|A| + P N log 2 pi ],      A = K + s2 I

With ``W = (alpha alpha^T - P A^-1) / 2``, the derivative by any parameter is ``sum(W * dK)``. For
component q, ``K_q = E_q cos(u - u')``; all that its parameters need of the N x N matrix
``G = W * E_q`` is its product with 2 + 4 D columns, since cosines and sines of differences are sums
of products.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from bochner.covariance import Side, covariance, envelope
from bochner.kernel import Array, Counts
from bochner.learn import Search, maximise
from bochner.objective import Objective
from bochner.parameters import Coordinates, Parameters
from bochner.prior import Prior, divergence
from bochner.progress import Best, Stop, Watch
from bochner.rows import ordered_map

_PANEL_ROWS = 256
HELD_EVALS, FREE_EVALS, REFINING_EVALS = 12, 25, 60
"""Evaluations: of weights and noise alone, of the whole kernel on a sample, and when asked for."""

_TOL = 1e-5  # gain a row, over ten iterations, that is worth going on for
KL_WEIGHT = 0.3
"""Of the divergence from the empirical prior, under the exact likelihood."""

_FAILED = Objective(-np.inf, None, -np.inf, np.nan)


class _Pieces(NamedTuple):
    """What a panel of rows adds to the gradient."""

    log_weights: Array  # (Q,)
    means: Array  # (Q, D)
    squares: Array  # (Q, D), sum of M_ij (x_i - x_j)^2 with M = W * K_q


def exact_evidence(X: Array, Y: Array, p: Parameters, n_threads: int | None = None) -> Objective:
    """Log marginal likelihood of Y (N, P) at X (N, D), and its gradient."""
    n, n_outputs = Y.shape
    kernel, noise = p.kernel, p.noise_variance
    side = Side.of(kernel, X, "float64")
    panels = [slice(i, min(i + _PANEL_ROWS, n)) for i in range(0, n, _PANEL_ROWS)]
    A = np.empty((n, n))
    for _ in ordered_map(
        lambda k: covariance(side, panels[k], slice(0, n), A[panels[k]]), len(panels), n_threads
    ):
        pass
    A[np.diag_indices(n)] += noise
    L, failed = lapack.dpotrf(A.T, lower=1, overwrite_a=1)
    if failed:
        return _FAILED
    log_det = 2.0 * float(np.log(np.diag(L)).sum())
    alpha = lapack.dpotrs(L, Y, lower=1)[0]
    value = -0.5 * (np.sum(alpha * Y) + n_outputs * (log_det + n * np.log(2.0 * np.pi)))
    inverse = np.tril(lapack.dpotri(L, lower=1, overwrite_c=1)[0])
    inverse += np.tril(inverse, -1).T
    W = 0.5 * (alpha @ alpha.T - n_outputs * inverse)
    total = _Pieces(*(np.zeros(s) for s in ((len(p.log_weights),), *[p.means.shape] * 2)))
    for part in ordered_map(lambda k: _panel(side, X, W, panels[k]), len(panels), n_threads):
        total = _Pieces(*(a + b for a, b in zip(total, part, strict=True)))
    gradient = Parameters(
        total.log_weights,
        -4.0 * np.pi * total.means,
        -4.0 * np.pi**2 * np.square(kernel.scales) * total.squares,
        noise * float(np.trace(W)),
    )
    finite = np.isfinite(value) and all(bool(np.all(np.isfinite(g))) for g in gradient)
    return Objective(float(value), gradient, float(value), 0.0) if finite else _FAILED


def _panel(side: Side, X: Array, W: Array, rows: slice) -> _Pieces:
    """Sums over the pairs of some rows with all."""
    weights, means, squares = [], [], []
    some, x, d = side.rows(rows), X[rows], X.shape[1]
    for q, (wave, waves) in enumerate(zip(some.waves, side.waves, strict=True)):
        G = envelope(some, side, q)
        G *= W[rows]
        (cosine, sine), (c, s) = (w.T[:, :, None] for w in (waves, wave))
        columns = (cosine, sine, cosine * X, sine * X, cosine * X**2, sine * X**2)
        parts = np.split(G @ np.concatenate(columns, axis=1), np.cumsum([1, 1, d, d, d]), axis=1)
        sums, odd = c * parts[0] + s * parts[1], s * parts[0] - c * parts[1]
        by_x, by_square = c * parts[2] + s * parts[3], c * parts[4] + s * parts[5]
        apart = (sums * x**2 - 2.0 * by_x * x + by_square).sum(axis=0)
        for far in np.flatnonzero(side.is_far):  # the same for those that would cancel
            M = G * (wave @ waves.T)
            apart[far] = np.sum(M * np.square(x[:, far, None] - X[:, far]))
        weights.append(sums.sum())
        means.append((odd * x).sum(axis=0))
        squares.append(apart)
    return _Pieces(np.array(weights), np.array(means), np.array(squares))


class Ascent(NamedTuple):
    """How the exact likelihood is climbed."""

    coordinates: Coordinates
    counts: Counts  # points of each component, which weigh the divergence
    kl_weight: float
    n_threads: int | None
    watch: Watch

    def climb(
        self,
        stage: str,
        X: Array,
        Y: Array,
        p: Parameters,
        evals: int,
        hold_kernel: bool = False,
    ) -> Best:
        """A few quasi-Newton steps; with ``hold_kernel`` in weights and noise alone.

        Where the kernel's shape moves, a part of the divergence from the empirical prior stays in
        the objective: the likelihood of few rows alone would over-fit its many parameters.
        """
        prior = Prior(0.0 if hold_kernel else self.kl_weight)

        def objective(p: Parameters) -> Objective:
            result = _less_divergence(
                exact_evidence(X, Y, p, self.n_threads), p, self.counts, prior
            )
            self.watch.seen(stage, len(X), p, result)
            return result

        best = Best(p)
        with suppress(KeyboardInterrupt, Stop):  # what was found until then is kept
            maximise(Search(self.coordinates, len(X), evals, _TOL, hold_kernel), best, objective)
        return best


def _less_divergence(result: Objective, p: Parameters, counts: Counts, prior: Prior) -> Objective:
    if result.gradient is None or not prior.weight:
        return result
    kl, g = divergence(p, counts, prior), result.gradient
    gradient = g._replace(means=g.means - kl.means_bar, log_scales=g.log_scales - kl.log_scales_bar)
    return Objective(result.value - kl.value, gradient, result.value, kl.value)

"""Prediction through features: a mixture over draws of the spectral points.

For each draw ``mean = phi* V`` and ``var = s2 phi* A^-1 phi*^T``. The predictive is their mixture:
mean of means, mean of variances plus variance of means, density by log-mean-exp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from bochner.features import Block, fourier
from bochner.kernel import Array
from bochner.objective import frequencies_at
from bochner.rows import BLOCK_ROWS, ordered_map


class Draw(NamedTuple):
    """The model conditioned on all rows, for one draw of the points."""

    S: Array  # (M, D)
    coefficients: Array  # (2M, P) of the unscaled features
    root: Array  # (2M, 2M): ``sqrt(s2) L^-1 diag(a)``: latent variance is ``|root phi|^2``


class Moments(NamedTuple):
    """Mean (n, P) and latent variance (n, P) of the mixture."""

    mean: Array
    variance: Array


class FeaturePosterior(NamedTuple):
    """The conditioned mixture; inputs and outputs as they were learned from. Holds no rows.

    Means are float64 throughout, so that a row's prediction does not depend on its neighbours;
    the large products behind variances are made in the precision of ``root``.
    """

    draws: list[Draw]
    noise_variance: float
    input_squares: Array
    n_threads: int | None

    def mean(self, X: Array) -> Array:
        """Predictive mean (n, P); pays for no variance."""
        return self._in_blocks(len(X), lambda rows: self._means(X[rows]).mean(axis=0))

    def moments(self, X: Array) -> Moments:
        """Mean and latent variance of the mixture."""

        def stacked(rows: slice) -> Array:
            means, variances = self._by_draw(X[rows])
            spread = variances.mean(axis=0)[:, None] + means.var(axis=0)
            return np.stack([means.mean(axis=0), spread], axis=1)

        both = self._in_blocks(len(X), stacked)
        return Moments(both[:, 0], both[:, 1])

    def log_density(self, X: Array, Y: Array) -> Array:
        """Log predictive density (n,) of noisy outputs Y (n, P), the outputs jointly."""

        def of_rows(rows: slice) -> Array:
            means, variances = self._by_draw(X[rows])
            total = (variances + self.noise_variance)[:, :, None]
            terms = -0.5 * (np.square(Y[rows] - means) / total + np.log(2.0 * np.pi * total))
            return np.asarray(logsumexp(terms.sum(axis=2), axis=0) - np.log(len(self.draws)))

        return self._in_blocks(len(X), of_rows)

    def covariance(self, X: Array) -> Array:
        """Joint latent covariance (n, n, P) of the mixture."""
        within = np.zeros((len(X), len(X)))
        for draw in self.draws:
            h = draw.root.astype(np.float64) @ self._features(X, draw)
            within += h.T @ h / len(self.draws)
        means = self._means(X)
        off = means - means.mean(axis=0)
        between = np.einsum("tip,tjp->ijp", off, off) / len(self.draws)
        return np.asarray(within[:, :, None] + between)

    def sample(self, X: Array, n_samples: int, rng: np.random.Generator) -> Array:
        """Joint latent samples (n, P, n_samples), each from one draw of the mixture."""
        p = self.draws[0].coefficients.shape[1]
        out = np.empty((len(X), p, n_samples))
        chosen = rng.integers(len(self.draws), size=n_samples)
        for t in np.unique(chosen):
            draw, which = self.draws[t], np.flatnonzero(chosen == t)
            z = rng.standard_normal((draw.root.shape[0], p * len(which)))
            spread = draw.root.T.astype(np.float64) @ z
            weights = draw.coefficients[:, :, None] + spread.reshape(-1, p, len(which))
            for start in range(0, len(X), BLOCK_ROWS):
                rows = slice(start, start + BLOCK_ROWS)
                C = self._features(X[rows], draw)
                out[rows, :, which] = np.tensordot(C.T, weights, axes=1)
        return out

    def _features(self, X: Array, draw: Draw) -> Array:
        block = Block.of(X, np.empty((len(X), 0)), X.dtype)
        return fourier(block, frequencies_at(draw.S, self.input_squares))

    def _means(self, X: Array) -> Array:
        """Mean of each draw (T, n, P)."""
        return np.stack([(draw.coefficients.T @ self._features(X, draw)).T for draw in self.draws])

    def _by_draw(self, X: Array) -> tuple[Array, Array]:
        """Mean (T, n, P) and latent variance (T, n) of each draw."""
        means, variances = [], []
        for draw in self.draws:
            C = self._features(X, draw)
            h = draw.root @ C.astype(draw.root.dtype)
            means.append((draw.coefficients.T @ C).T)
            variances.append(np.square(h, out=h).sum(axis=0, dtype=np.float64))
        return np.stack(means), np.stack(variances)

    def _in_blocks(self, n_rows: int, of_rows: Callable[[slice], Array]) -> Array:
        """``of_rows`` applied by threads to blocks of rows, the results put end to end."""
        starts = range(0, n_rows, BLOCK_ROWS)

        def one(k: int) -> Array:
            return of_rows(slice(starts[k], min(starts[k] + BLOCK_ROWS, n_rows)))

        return np.concatenate(list(ordered_map(one, len(starts), self.n_threads)))

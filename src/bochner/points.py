"""Spectral points: standard normal draws, one sequence a component, mapped to frequencies.

``s_qi = mu_q + sigma_q * eps_qi`` with ``eps`` from one of four draws. All four are unbiased:
``E[Phi Phi^T] = K``; they differ in variance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from scipy.stats import chi, qmc

from bochner.kernel import Array, Counts, SpectralMixture

SOBOL_INPUTS = qmc.Sobol.MAXDIM
"""Most inputs that Sobol points are known for."""

_CLIP = 2.0**-33  # keeps uniforms away from 0 and 1: the normal quantile stays within 6.3


class SpectralPoints(NamedTuple):
    """Standardised spectral points of a mixture.

    ``normals`` (M, D) holds eps; the first ``counts[0]`` rows belong to component 0, and so on.
    """

    normals: Array
    counts: Counts

    @property
    def owner(self) -> Counts:
        """Component of each point, shape (M,)."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def locations(self, kernel: SpectralMixture) -> Array:
        """Frequencies ``S`` (M, D) of the points under a kernel."""
        q = self.owner
        return np.asarray(kernel.means[q] + kernel.scales[q] * self.normals)

    def amplitudes(self, weights: Array) -> Array:
        """``a_i = sqrt(w_q / m_q)`` for the 2M features, cosines first."""
        a = np.sqrt(weights / self.counts)[self.owner]
        return np.concatenate([a, a])


def _iid(m: int, d: int, rng: np.random.Generator) -> Array:
    return rng.standard_normal((m, d))


def _antithetic(m: int, d: int, rng: np.random.Generator) -> Array:
    """Pairs eps, -eps: odd errors cancel. At mu = 0 a pair is one feature twice."""
    half = rng.standard_normal(((m + 1) // 2, d))
    return np.stack([half, -half], axis=1).reshape(-1, d)[:m]


def _orthogonal(m: int, d: int, rng: np.random.Generator) -> Array:
    """Blocks of orthogonal directions with the lengths of Gaussian vectors."""
    blocks = []
    for _ in range(-(-m // d)):
        q, r = np.linalg.qr(rng.standard_normal((d, d)))
        q *= np.where(np.diag(r) < 0, -1.0, 1.0)  # the sign that makes q uniform (Haar)
        blocks.append(q * chi.rvs(d, size=(d, 1), random_state=rng))
    return np.concatenate(blocks)[:m]


def _sobol(m: int, d: int, rng: np.random.Generator) -> Array:
    """Scrambled Sobol points through the normal quantile (randomised quasi-Monte Carlo)."""
    # A whole power of two, then the first m: SciPy warns about any other size.
    uniforms = qmc.Sobol(d, scramble=True, rng=rng).random_base2(max(1, int(m - 1).bit_length()))
    return np.asarray(ndtri(np.clip(uniforms[:m], _CLIP, 1.0 - _CLIP)))


DRAWS: dict[str, Callable[[int, int, np.random.Generator], Array]] = {
    "iid": _iid,
    "antithetic": _antithetic,
    "orthogonal": _orthogonal,
    "sobol": _sobol,
}


def draw_points(
    draw: str, counts: Counts, n_inputs: int, rng: np.random.Generator
) -> SpectralPoints:
    """Draw standardised points: ``counts[q]`` of them for component q, independently."""
    normals = [DRAWS[draw](int(m), n_inputs, rng) for m in counts]
    return SpectralPoints(np.concatenate(normals), np.asarray(counts))

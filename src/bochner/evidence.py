"""Log evidence and its gradient, by hand, from sums over the rows. No data in sight.

With amplitudes ``a`` and noise variance ``s2``: ``A = diag(a) G diag(a) + s2 I = L L^T``,
``V = A^-1 (a * b)`` and, for P outputs that share one noise,

    log p(Y|S) = -1/2 [ rho/s2 + sum(V^2) + P log|A| + P (N - 2M) log s2 + P N log 2 pi ]

where ``rho = R.R`` is the residual sum of squares. The gradient needs no matrix beyond A^-1:
with ``gamma_i = 1 - s2 (A^-1)_ii``, the part of feature i that the data determine,

    a_i d/da_i = sum_p V_ip^2 - P gamma_i,      d/dlog s2 = 1/2 [ rho/s2 - P (N - sum gamma) ].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from bochner.kernel import Array

_JITTERS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6)


class Statistics(NamedTuple):
    """Sums over the rows: ``G = C C^T`` (2M, 2M), ``b = C Y`` (2M, P), ``yy`` (P,), N."""

    G: Array
    b: Array
    yy: Array
    n_rows: int

    @classmethod
    def from_gram(cls, ZZ: Array, n_outputs: int, n_rows: int) -> Statistics:
        """Split the symmetric product ``Z Z^T`` of `features.gram`."""
        k = ZZ.shape[0] - n_outputs
        return cls(ZZ[:k, :k], ZZ[:k, k:], np.diag(ZZ)[k:].copy(), n_rows)


class Solution(NamedTuple):
    """The linear algebra of one evaluation."""

    a: Array  # (2M,) amplitudes
    noise_variance: float
    root: Array  # (2M, 2M), L^-1 diag(a): its columns turn features into standard deviations
    V: Array  # (2M, P)
    gamma: Array  # (2M,)
    log_det: float

    @property
    def coefficients(self) -> Array:
        """Coefficients of the unscaled features, ``a * V`` (2M, P)."""
        return self.a[:, None] * self.V


class EvidenceGradient(NamedTuple):
    """Log evidence with its gradient in amplitudes and noise, the points held fixed."""

    value: float
    log_a_bar: Array  # (2M,)
    log_noise_bar: float


def solve(stats: Statistics, a: Array, noise_variance: float) -> Solution | None:
    """Factor A and solve for the coefficients; None where A has no Cholesky factor."""
    A = a[:, None] * stats.G * a
    A[np.diag_indices_from(A)] += noise_variance
    L = _cholesky(A)
    if L is None:
        return None
    L_inv, _ = lapack.dtrtri(L, lower=1)
    V = L_inv.T @ (L_inv @ (a[:, None] * stats.b))
    gamma = 1.0 - noise_variance * np.square(L_inv).sum(axis=0)
    log_det = 2.0 * float(np.log(np.diag(L)).sum())
    return Solution(a, noise_variance, L_inv * a, V, np.clip(gamma, 0.0, 1.0), log_det)


def _cholesky(A: Array) -> Array | None:
    """Lower factor of A, with the least jitter (relative to its mean diagonal) that serves."""
    scale = float(np.mean(np.diag(A)))
    if not np.isfinite(scale):
        return None
    for jitter in _JITTERS:
        shifted = A + np.diag(np.full(len(A), jitter * scale)) if jitter else A
        L, failed = lapack.dpotrf(shifted, lower=1, clean=1)
        if not failed and np.isfinite(L[-1, -1]):
            return np.asarray(L)
    return None


def residual_from_sums(stats: Statistics, solution: Solution) -> Array:
    """``rho = Y^T Y - (a*b)^T V - s2 V^T V`` of each output; loses digits near a perfect fit."""
    ab = solution.a[:, None] * stats.b
    explained = np.sum((ab + solution.noise_variance * solution.V) * solution.V, axis=0)
    return np.asarray(np.maximum(stats.yy - explained, 0.0))


def adjoint(solution: Solution, dtype: np.dtype[np.floating]) -> Array:
    """Matrix B (2M + P, 2M + P) with ``B Z = [Cbar; R]``, what the pullback needs besides rows.

    ``R = Y^T - v^T C`` and ``Cbar = W C + u R`` with ``W = -P diag(a) A^-1 diag(a)``,
    ``v = a V``, ``u = v / s2``; so the rows of B are ``[W - u v^T, u]`` and ``[-v^T, I]``.
    """
    v = solution.coefficients
    k, p = v.shape
    root = solution.root.astype(dtype)
    B = np.empty((k + p, k + p), dtype)
    B[:k, :k] = -p * (root.T @ root) - (v @ v.T) / solution.noise_variance
    B[:k, k:] = v / solution.noise_variance
    B[k:, :k] = -v.T
    B[k:, k:] = np.eye(p)
    return B


def log_evidence(
    stats: Statistics, solution: Solution, residual: Array | None = None
) -> EvidenceGradient:
    """Value and gradient; ``residual`` (P,) is ``R.R`` from the pullback where one was made."""
    rho = residual_from_sums(stats, solution) if residual is None else residual
    s2, V, gamma = solution.noise_variance, solution.V, solution.gamma
    n, p = stats.n_rows, V.shape[1]
    squares = np.square(V).sum(axis=1)
    misfit = float(rho.sum()) / s2
    value = -0.5 * (
        misfit
        + float(squares.sum())
        + p * solution.log_det
        + p * (n - len(V)) * np.log(s2)
        + p * n * np.log(2.0 * np.pi)
    )
    return EvidenceGradient(
        value, squares - p * gamma, 0.5 * (misfit - p * (n - float(gamma.sum())))
    )

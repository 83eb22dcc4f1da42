"""The spectral mixture kernel: what is learned, and what a person reads afterwards.

Symbols are those of the paper (see docs/notation.md): Q components, D inputs, weights ``w``,
means ``mu`` and scales ``sigma`` of the Gaussians that make up the spectral density.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.floating]
Counts = NDArray[np.integer]

_TILE_ELEMENTS = 4_000_000  # lags held at once when a dense covariance is built: 32 MB


@dataclass(frozen=True, eq=False)
class SpectralMixture:
    """Spectral mixture kernel with ``Q`` components on ``D`` inputs.

    ``k(tau) = sum_q w_q exp(-2 pi^2 sum_d sigma_qd^2 tau_d^2) cos(2 pi mu_q . tau)``

    Differs from the paper: Eq. 2 prints ``(sigma_q . tau)^2`` in the exponent, which is not the
    Fourier transform of the stated density when D > 1. Frequencies may have any sign.

    Parameters
    ----------
    weights : array of shape (Q,), positive
        Variance that each component contributes; ``k(0)`` is their sum.
    means : array of shape (Q, D)
        Centre of each component, in cycles per unit of the input.
    scales : array of shape (Q, D), positive
        Width of each component, in cycles per unit of the input.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import SpectralMixture
    >>> kernel = SpectralMixture(weights=[2.0], means=[[0.5]], scales=[[0.0001]])
    >>> kernel.periods
    array([[2.]])
    >>> bool(np.isclose(kernel(np.array([[0.0]]), np.array([[2.0]]))[0, 0], 2.0, atol=1e-4))
    True
    """

    weights: Array
    means: Array
    scales: Array

    def __init__(self, weights: ArrayLike, means: ArrayLike, scales: ArrayLike) -> None:
        w = np.atleast_1d(np.array(weights, dtype=np.float64))
        mu = np.atleast_2d(np.array(means, dtype=np.float64))
        sigma = np.atleast_2d(np.array(scales, dtype=np.float64))
        if w.ndim != 1 or mu.ndim != 2 or mu.shape != sigma.shape or mu.shape[0] != w.shape[0]:
            raise ValueError(
                f"weights, means and scales have shapes {w.shape}, {mu.shape} and {sigma.shape}; "
                "expected (Q,), (Q, D) and (Q, D). Give one row of means and scales a component."
            )
        for name, value in (("weights", w), ("scales", sigma)):
            if not (np.all(np.isfinite(value)) and np.all(value > 0)):
                raise ValueError(f"{name} must be finite and positive, got {value!r}.")
        if not np.all(np.isfinite(mu)):
            raise ValueError(f"means must be finite, got {mu!r}.")
        for array in (w, mu, sigma):
            array.setflags(write=False)
        object.__setattr__(self, "weights", w)
        object.__setattr__(self, "means", mu)
        object.__setattr__(self, "scales", sigma)

    @property
    def n_components(self) -> int:
        """Number of components, Q."""
        return int(self.weights.shape[0])

    @property
    def n_features_in(self) -> int:
        """Number of inputs, D."""
        return int(self.means.shape[1])

    @property
    def variance(self) -> float:
        """``k(0)``, the prior variance of the function."""
        return float(self.weights.sum())

    @property
    def periods(self) -> Array:
        """Period of each component along each input, ``1/|mu|``; infinite where mu is 0."""
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / np.abs(self.means))

    @property
    def length_scales(self) -> Array:
        """Distance over which each component forgets, ``1/(2 pi sigma)``, for each input."""
        return np.asarray(1.0 / (2.0 * np.pi * self.scales))

    def components_of_lag(self, tau: ArrayLike) -> Array:
        """``k_q(tau)`` of every component with unit weight; shape (Q,) + leading shape of tau."""
        lag = self._vectors("tau", tau)
        decay = np.stack([np.square(lag * s).sum(axis=-1) for s in self.scales])
        phase = np.stack([lag @ m for m in self.means])
        return np.asarray(np.exp(-2.0 * np.pi**2 * decay) * np.cos(2.0 * np.pi * phase))

    def of_lag(self, tau: ArrayLike) -> Array:
        """``k(tau)`` for signed lags ``tau`` of shape (..., D)."""
        return np.asarray(np.tensordot(self.weights, self.components_of_lag(tau), axes=1))

    def __call__(self, X: ArrayLike, Z: ArrayLike | None = None) -> Array:
        """Covariance between the rows of X and those of Z (of X when Z is not given)."""
        left = self._rows(X)
        right = left if Z is None else self._rows(Z)
        K = np.empty((left.shape[0], right.shape[0]))
        step = max(1, _TILE_ELEMENTS // max(1, right.size))
        for i in range(0, left.shape[0], step):
            K[i : i + step] = self.of_lag(left[i : i + step, None, :] - right[None, :, :])
        return K

    def diag(self, X: ArrayLike) -> Array:
        """Diagonal of ``self(X)``: k(0) for every row, since the kernel is stationary."""
        return np.full(len(self._rows(X)), self.variance)

    def _rows(self, X: ArrayLike) -> Array:
        rows = np.atleast_2d(np.asarray(X, dtype=np.float64))
        if rows.ndim != 2 or rows.shape[1] != self.n_features_in:
            raise ValueError(
                f"X has shape {np.shape(X)}; this kernel wants rows of {self.n_features_in} "
                "input(s), an array of shape (n_rows, n_inputs)."
            )
        return rows

    def _vectors(self, name: str, value: ArrayLike) -> Array:
        vectors = np.asarray(value, dtype=np.float64)
        if vectors.ndim == 0 or vectors.shape[-1] != self.n_features_in:
            raise ValueError(
                f"{name} has shape {vectors.shape}; its last axis must hold the "
                f"{self.n_features_in} input(s) of this kernel, as in {name}[..., None] for one."
            )
        return vectors

    def density(self, s: ArrayLike) -> Array:
        """Symmetrised spectral density at frequencies ``s`` of shape (..., D); its mass is k(0)."""
        at = self._vectors("s", s)
        total = np.zeros(at.shape[:-1])
        for w, m, sigma in zip(self.weights, self.means, self.scales, strict=True):
            log_norm = -np.sum(np.log(sigma)) - 0.5 * at.shape[-1] * np.log(2.0 * np.pi)
            for side in (m, -m):
                z = (at - side) / sigma
                total += 0.5 * w * np.exp(log_norm - 0.5 * np.square(z).sum(axis=-1))
        return total

    def rescaled(self, input_scale: ArrayLike, output_scale: float) -> SpectralMixture:
        """The same kernel for inputs and outputs measured in other units.

        A kernel learned on ``(x / input_scale, y / output_scale)`` becomes one on ``(x, y)``.
        """
        unit = np.asarray(input_scale, dtype=np.float64)
        return SpectralMixture(
            self.weights * output_scale**2, self.means / unit, self.scales / unit
        )


def feature_error_bound(
    kernel: SpectralMixture, counts: ArrayLike, gram_norm: float, n_rows: int, error: float
) -> float:
    """Bound on ``P(||Phi Phi^T - K||_2 >= error)`` for independent points (Prop. 1, corrected).

    Differs from the paper: matrix Bernstein gives
    ``2 N exp(-3 e^2 / (N max_q(w_q / m_q) (6 ||K|| + 2 e)))``; the printed factor is N for 2 N.
    Far too cautious to choose the number of points by; it says how the error scales.

    Examples
    --------
    >>> from bochner import SpectralMixture, feature_error_bound
    >>> kernel = SpectralMixture([1.0], [[0.0]], [[1.0]])
    >>> feature_error_bound(kernel, [10_000], gram_norm=5.0, n_rows=10, error=1.0) < 1e-3
    True
    """
    m = np.asarray(counts, dtype=np.float64)
    if m.shape != kernel.weights.shape or not np.all(m >= 1):
        raise ValueError(
            f"counts={counts!r}; give the number of points, at least 1, of each of the "
            f"{kernel.n_components} component(s)."
        )
    if not (n_rows >= 1 and error > 0 and gram_norm >= 0):
        raise ValueError(
            f"n_rows={n_rows!r}, error={error!r}, gram_norm={gram_norm!r}; they must be at least "
            "1, positive, and not negative."
        )
    heaviest = float(np.max(kernel.weights / m))
    exponent = -3.0 * error**2 / (n_rows * heaviest * (6.0 * gram_norm + 2.0 * error))
    return float(min(1.0, 2.0 * n_rows * np.exp(exponent)))

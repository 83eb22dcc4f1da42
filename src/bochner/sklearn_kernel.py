"""The spectral mixture as a scikit-learn kernel, for its GaussianProcessRegressor and others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel, StationaryKernelMixin

from bochner.kernel import Array, SpectralMixture

_ROOM = 1e4  # by which bounds are wider than what was learned


class SpectralMixtureKernel(StationaryKernelMixin, Kernel):
    """Spectral mixture kernel with scikit-learn's interface.

    ``theta`` holds means as they are (they have a sign), log scales and log weights, in the order
    in which scikit-learn lists hyperparameters. Hyperparameters can be fixed by bounds of "fixed".

    Parameters
    ----------
    weights : array of shape (Q,)
    means : array of shape (Q, D)
    scales : array of shape (Q, D)
    weights_bounds, scales_bounds : pair of positive floats or "fixed"
    means_bounds : pair of floats or "fixed"

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process import GaussianProcessRegressor
    >>> from bochner import SpectralMixture, SpectralMixtureKernel
    >>> learned = SpectralMixture([1.0], [[0.5]], [[0.1]])
    >>> kernel = SpectralMixtureKernel.of(learned)
    >>> X = np.linspace(0, 3, 20)[:, None]
    >>> gp = GaussianProcessRegressor(kernel, alpha=1e-4, optimizer=None)
    >>> round(float(gp.fit(X, np.cos(np.pi * X[:, 0])).predict([[2.0]])[0]), 2)
    1.0
    """

    def __init__(
        self,
        weights: ArrayLike,
        means: ArrayLike,
        scales: ArrayLike,
        weights_bounds: Any = (1e-6, 1e6),
        means_bounds: Any = (-1e4, 1e4),
        scales_bounds: Any = (1e-6, 1e4),
    ) -> None:
        self.weights = weights
        self.means = means
        self.scales = scales
        self.weights_bounds = weights_bounds
        self.means_bounds = means_bounds
        self.scales_bounds = scales_bounds

    @classmethod
    def of(cls, mixture: SpectralMixture) -> SpectralMixtureKernel:
        """Adapter for a kernel, such as ``SpectralMixtureRegressor().fit(X, y).kernel_``.

        The bounds leave room around what was learned, whatever its units.
        """
        farthest = _ROOM * float(np.max(np.abs(mixture.means) + mixture.scales))
        return cls(
            mixture.weights,
            mixture.means,
            mixture.scales,
            weights_bounds=(mixture.weights.min() / _ROOM, mixture.weights.max() * _ROOM),
            means_bounds=(-farthest, farthest),
            scales_bounds=(mixture.scales.min() / _ROOM, mixture.scales.max() * _ROOM),
        )

    @property
    def mixture(self) -> SpectralMixture:
        """The kernel that this one stands for."""
        return SpectralMixture(self.weights, self.means, self.scales)

    @property
    def hyperparameter_means(self) -> Hyperparameter:
        """Means; unlike the others they enter ``theta`` without a logarithm."""
        return self._hyperparameter("means")

    @property
    def hyperparameter_scales(self) -> Hyperparameter:
        """Scales."""
        return self._hyperparameter("scales")

    @property
    def hyperparameter_weights(self) -> Hyperparameter:
        """Weights."""
        return self._hyperparameter("weights")

    @property
    def theta(self) -> Array:
        """Free hyperparameters, flat: means, log scales, log weights."""
        mixture = self.mixture
        values = (mixture.means, np.log(mixture.scales), np.log(mixture.weights))
        return np.concatenate(
            [v.ravel() for v, free in zip(values, self._free, strict=True) if free] or [np.empty(0)]
        )

    @theta.setter
    def theta(self, theta: Array) -> None:
        q, d = self.mixture.means.shape
        at = 0
        shapes = {"means": (q, d), "scales": (q, d), "weights": (q,)}
        for (name, shape), free in zip(shapes.items(), self._free, strict=True):
            if free:
                part = np.reshape(theta[at : at + int(np.prod(shape))], shape)
                setattr(self, name, part.copy() if name == "means" else np.exp(part))
                at += part.size

    @property
    def bounds(self) -> Array:
        """Bounds of ``theta``, shape (n_dims, 2)."""
        q, d = self.mixture.means.shape
        parts = [np.empty((0, 2))]
        for name, size in (("means", q * d), ("scales", q * d), ("weights", q)):
            pair = self._bounds_of(name)
            if not isinstance(pair, str):
                low_high = np.asarray(pair if name == "means" else np.log(pair), np.float64)
                parts.append(np.broadcast_to(low_high, (size, 2)))
        return np.concatenate(parts)

    def __call__(
        self, X: ArrayLike, Y: ArrayLike | None = None, eval_gradient: bool = False
    ) -> Array | tuple[Array, Array]:
        """Covariance, and with ``eval_gradient`` its derivative (n, n, n_dims) by ``theta``."""
        K = self.mixture(X, Y)
        if not eval_gradient:
            return K
        if Y is not None:
            raise ValueError("Gradient can only be evaluated when Y is None; leave Y out.")
        return K, self._gradient(np.atleast_2d(np.asarray(X, np.float64)))

    def diag(self, X: ArrayLike) -> Array:
        """Diagonal of the covariance."""
        return self.mixture.diag(X)

    def __eq__(self, other: object) -> bool:
        """Whether class, hyperparameters and bounds are the same."""
        if type(self) is not type(other) or not isinstance(other, SpectralMixtureKernel):
            return False
        mine, theirs = self.get_params(), other.get_params()
        return all(np.array_equal(mine[name], theirs[name]) for name in mine)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Short: components and inputs."""
        q, d = self.mixture.means.shape
        return (
            f"SpectralMixtureKernel({q} components, {d} inputs, k(0)={self.mixture.variance:.3g})"
        )

    @property
    def _free(self) -> list[bool]:
        names = ("means", "scales", "weights")
        return [not isinstance(self._bounds_of(name), str) for name in names]

    def _bounds_of(self, name: str) -> Any:
        pair = getattr(self, f"{name}_bounds")
        if pair != "fixed" if isinstance(pair, str) else np.shape(pair) != (2,):
            raise ValueError(f"{name}_bounds={pair!r}; give a pair (lowest, highest), or 'fixed'.")
        return pair

    def _hyperparameter(self, name: str) -> Hyperparameter:
        value = np.asarray(getattr(self, name))
        bounds = self._bounds_of(name)
        return Hyperparameter(name, "numeric", bounds, value.size)

    def _gradient(self, X: Array) -> Array:
        """One pair of columns after the other, so that no (n, n, Q, D) array is made twice."""
        mixture, n = self.mixture, len(X)
        q, d = mixture.means.shape
        tau = X[:, None, :] - X[None, :, :]
        by_weight = np.empty((n, n, q))
        by_mean, by_scale = np.empty((n, n, q, d)), np.empty((n, n, q, d))
        for k, (w, mu, sigma) in enumerate(
            zip(mixture.weights, mixture.means, mixture.scales, strict=True)
        ):
            decay = w * np.exp(-2.0 * np.pi**2 * np.square(tau * sigma).sum(axis=-1))
            phase = 2.0 * np.pi * (tau @ mu)
            by_weight[:, :, k] = decay * np.cos(phase)
            by_mean[:, :, k] = -2.0 * np.pi * (decay * np.sin(phase))[:, :, None] * tau
            squares = np.square(tau * sigma)
            by_scale[:, :, k] = -4.0 * np.pi**2 * by_weight[:, :, k, None] * squares
        parts = (by_mean.reshape(n, n, -1), by_scale.reshape(n, n, -1), by_weight)
        kept = [part for part, free in zip(parts, self._free, strict=True) if free]
        return np.concatenate([np.empty((n, n, 0)), *kept], axis=2)

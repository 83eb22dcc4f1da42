"""What is learned: weights, means, scales and noise, and how an optimiser sees them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bochner.kernel import Array, SpectralMixture

LOG_WEIGHT_BOUNDS = (-18.0, 10.0)
LOG_NOISE_BOUNDS = (-18.5, 3.0)  # 1e-8 .. 20 times the variance of y
_REACH = 15.0  # how far a log scale may move from where it starts


class Parameters(NamedTuple):
    """Kernel and noise in the coordinates that gradients are taken in.

    The same shape holds a gradient: each field is then the derivative with respect to it.
    """

    log_weights: Array  # (Q,)
    means: Array  # (Q, D)
    log_scales: Array  # (Q, D)
    log_noise: float  # log of the noise variance

    @classmethod
    def of(cls, kernel: SpectralMixture, noise_variance: float) -> Parameters:
        """Parameters of a kernel and a noise variance."""
        return cls(
            np.log(kernel.weights),
            kernel.means,
            np.log(kernel.scales),
            float(np.log(noise_variance)),
        )

    @property
    def kernel(self) -> SpectralMixture:
        """The kernel that they stand for."""
        return SpectralMixture(np.exp(self.log_weights), self.means, np.exp(self.log_scales))

    @property
    def noise_variance(self) -> float:
        """Variance of the noise, in the units of y squared."""
        return float(np.exp(self.log_noise))


class Coordinates(NamedTuple):
    """Flat vector for an optimiser.

    ``frequencies`` "signed" takes the means as they are, "positive" their logarithms. With
    ``relative`` each input also gets one coordinate ``c_d`` of its own, and the components are
    expressed in units of ``exp(c_d)``: ``sigma_qd = exp(c_d + delta_qd)``, ``mu_qd = exp(c_d)
    nu_qd``. One step along ``c_d`` then makes an input matter more or less to all components at
    once, which plain coordinates need 2 Q concerted steps for; quasi-Newton methods reach far
    better optima in the same number of evaluations (see docs/choices.md).
    """

    n_components: int
    n_inputs: int
    frequencies: str = "signed"
    relative: bool = True

    def pack(self, p: Parameters) -> Array:
        """Parameters to a vector."""
        c = p.log_scales.mean(axis=0) if self.relative else np.zeros(self.n_inputs)
        means = p.means / np.exp(c) if self.frequencies == "signed" else np.log(p.means) - c
        shared = c if self.relative else c[:0]
        parts = [p.log_weights, means.ravel(), (p.log_scales - c).ravel(), shared, [p.log_noise]]
        return np.concatenate(parts)

    def unpack(self, theta: Array) -> Parameters:
        """A vector to parameters."""
        log_weights, means, delta, c, log_noise = self._split(theta)
        signed = self.frequencies == "signed"
        mu = means * np.exp(c) if signed else np.exp(means + c)
        return Parameters(log_weights, mu, delta + c, log_noise)

    def pack_gradient(self, p: Parameters, gradient: Parameters, theta: Array) -> Array:
        """Gradient at ``p``, which is ``unpack(theta)``, to a vector by the chain rule."""
        c = self._split(theta)[3]
        by_log = gradient.means * p.means
        means = gradient.means * np.exp(c) if self.frequencies == "signed" else by_log
        shared = (gradient.log_scales + by_log).sum(axis=0) if self.relative else c[:0]
        parts = [gradient.log_weights, means.ravel(), gradient.log_scales.ravel(), shared]
        return np.concatenate([*parts, [gradient.log_noise]])

    def bounds(self, theta: Array) -> list[tuple[float, float]]:
        """Floors and ceilings for a search from ``theta``."""
        q = self.n_components
        inner = [(t - _REACH, t + _REACH) for t in theta[q:-1]]
        if self.frequencies == "signed":
            reach = float(np.exp(_REACH))
            inner[: q * self.n_inputs] = [(-reach, reach)] * (q * self.n_inputs)
        return [LOG_WEIGHT_BOUNDS] * q + inner + [LOG_NOISE_BOUNDS]

    def _split(self, theta: Array) -> tuple[Array, Array, Array, Array, float]:
        q, size = self.n_components, self.n_components * self.n_inputs
        shape = (q, self.n_inputs)
        c = theta[q + 2 * size : -1] if self.relative else np.zeros(self.n_inputs)
        return (
            theta[:q],
            theta[q : q + size].reshape(shape),
            theta[q + size : q + 2 * size].reshape(shape),
            c,
            float(theta[-1]),
        )

"""What is learned: weights, means, scales and noise, and how an optimiser sees them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bochner.kernel import Array, SpectralMixture

LOG_WEIGHT_BOUNDS = (-18.0, 10.0)
LOG_NOISE_BOUNDS = (-18.5, 3.0)  # 1e-8 .. 20 times the variance of y
_SOUND_LOG = 60.0  # far beyond any learned value, within what float32 holds
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
    def sound(self) -> bool:
        """Whether a kernel can be made of them: nothing has run away."""
        logs = np.concatenate([self.log_weights, self.log_scales.ravel(), [self.log_noise]])
        return bool(
            np.all(np.abs(logs) < _SOUND_LOG) and np.all(np.abs(self.means) < np.exp(_SOUND_LOG))
        )

    @property
    def noise_variance(self) -> float:
        """Variance of the noise, in the units of y squared."""
        return float(np.exp(self.log_noise))


class Coordinates(NamedTuple):
    """Flat vector for an optimiser.

    ``frequencies`` "signed" takes the means as they are, "positive" their logarithms; "zero"
    leaves them out. With ``relative`` each input also gets one coordinate ``c_d`` of its own, and
    the components are expressed in units of ``exp(c_d)``: ``sigma_qd = exp(c_d + delta_qd)``,
    ``mu_qd = exp(c_d) nu_qd``. One step along ``c_d`` then makes an input matter more or less to
    all components at once, which plain coordinates need 2 Q concerted steps for; quasi-Newton
    methods reach far better optima in the same number of evaluations (see docs/choices.md).
    """

    n_components: int
    n_inputs: int
    frequencies: str = "signed"
    relative: bool = True

    def pack(self, p: Parameters) -> Array:
        """Parameters to a vector."""
        c = p.log_scales.mean(axis=0) if self.relative else np.zeros(self.n_inputs)
        means = np.empty(0)
        if self.frequencies == "signed":
            means = p.means / np.exp(c)
        elif self.frequencies == "positive":
            means = np.log(p.means) - c
        return self._joined(p.log_weights, means, p.log_scales - c, c, p.log_noise)

    def unpack(self, theta: Array) -> Parameters:
        """A vector to parameters."""
        log_weights, means, delta, c, log_noise = self._split(theta)
        if self.frequencies == "signed":
            mu = means * np.exp(c)
        elif self.frequencies == "positive":
            mu = np.exp(means + c)
        else:
            mu = np.zeros_like(delta)
        return Parameters(log_weights, mu, delta + c, log_noise)

    def pack_gradient(self, p: Parameters, gradient: Parameters, theta: Array) -> Array:
        """Gradient at ``p``, which is ``unpack(theta)``, to a vector by the chain rule."""
        c = self._split(theta)[3]
        by_log = gradient.means * p.means
        by_unit = {"signed": gradient.means * np.exp(c), "positive": by_log, "zero": np.empty(0)}
        shared = (gradient.log_scales + by_log).sum(axis=0)
        means, scales = by_unit[self.frequencies], gradient.log_scales
        return self._joined(gradient.log_weights, means, scales, shared, gradient.log_noise)

    def bounds(self, theta: Array) -> list[tuple[float, float]]:
        """Floors and ceilings for a search from ``theta``."""
        logs = [(t - _REACH, t + _REACH) for t in theta]
        if self.frequencies == "signed":
            reach = float(np.exp(_REACH))
            logs[self._means] = [(-reach, reach)] * (self.n_components * self.n_inputs)
        logs[: self.n_components] = [LOG_WEIGHT_BOUNDS] * self.n_components
        return [*logs[:-1], LOG_NOISE_BOUNDS]

    @property
    def _means(self) -> slice:
        """Where the means stand in the vector."""
        size = 0 if self.frequencies == "zero" else self.n_components * self.n_inputs
        return slice(self.n_components, self.n_components + size)

    def _joined(
        self, log_weights: Array, means: Array, delta: Array, c: Array, log_noise: float
    ) -> Array:
        shared = c if self.relative else c[:0]
        return np.concatenate([log_weights, means.ravel(), delta.ravel(), shared, [log_noise]])

    def _split(self, theta: Array) -> tuple[Array, Array, Array, Array, float]:
        shape = (self.n_components, self.n_inputs)
        at = self._means.stop
        end = at + self.n_components * self.n_inputs
        means = theta[self._means].reshape(shape) if self.frequencies != "zero" else np.empty(0)
        c = theta[end:-1] if self.relative else np.zeros(self.n_inputs)
        delta = theta[at:end].reshape(shape)
        return theta[: self.n_components], means, delta, c, float(theta[-1])

"""Fresh spectral points for learning: shares of the components, then a draw."""

from __future__ import annotations

import numpy as np

from bochner.kernel import Array, SpectralMixture
from bochner.points import SpectralPoints, draw_points
from bochner.settings import Settings
from bochner.shares import optimal_shares, round_shares


class PointSource:
    """Draws points by the rules of a fit; remembers the last shares, to smooth them."""

    def __init__(self, settings: Settings, inputs: Array, rng: np.random.Generator) -> None:
        self.settings, self.inputs, self.rng = settings, inputs, rng
        self.shares: Array | None = None

    def draw(self, kernel: SpectralMixture, total: int) -> list[SpectralPoints]:
        """One set of ``total`` points for each Monte Carlo sample."""
        rule, draw = self.settings.shares, self.settings.method.draw
        shares = optimal_shares(kernel, self.inputs, rule, self.rng)
        if self.shares is not None:
            shares = rule.smoothing * self.shares + (1.0 - rule.smoothing) * shares
        self.shares = shares
        counts = round_shares(shares, total, rule.floor)
        n_inputs = self.inputs.shape[1]
        return [
            draw_points(draw, counts, n_inputs, self.rng) for _ in range(self.settings.mc_samples)
        ]

"""Units: what the estimator learns in, and the way back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bochner.kernel import Array, Counts

LIMIT = 10.0
"""Standardised inputs are held within this many scales of the centre, in fit and in predict."""

_GAUSSIAN_RANGE = 4.652695748081682  # of the 1% to 99% range of a normal variable with sd 1
_MAX_QUANTILE_ROWS = 20_000


class InputScaler(NamedTuple):
    """Standardises inputs; extreme ones are moved to `LIMIT`.

    The scale of a column is its standard deviation, or what the range from 1% to 99% implies for
    a normal variable where that is smaller: one wild value then cannot squash all others. A
    column that never changes has scale 1 and so says nothing.
    """

    centre: Array
    scale: Array
    low: Array  # least and greatest training values
    high: Array
    limit: float

    @classmethod
    def of(cls, X: Array) -> InputScaler:
        """Scaler of training inputs."""
        centre, sd = X.mean(axis=0), X.std(axis=0)
        rows = X[:: -(-len(X) // _MAX_QUANTILE_ROWS)]
        low, high = np.quantile(rows, [0.01, 0.99], axis=0)
        robust = (high - low) / _GAUSSIAN_RANGE
        scale = np.where((robust > 0) & (robust < sd), robust, sd)
        shifted = robust < 0.5 * sd  # a mean pulled away by what the scale ignores
        centre = np.where(shifted & (robust > 0), np.median(rows, axis=0), centre)
        tiny = 1e-12 * np.maximum(np.abs(centre), np.finfo(float).tiny)
        scale = np.where(scale > tiny, scale, 1.0)
        return cls(centre, scale, X.min(axis=0), X.max(axis=0), LIMIT)

    @classmethod
    def identity(cls, n_inputs: int) -> InputScaler:
        """Leaves everything as it is."""
        zero, far = np.zeros(n_inputs), np.full(n_inputs, np.inf)
        return cls(zero, np.ones(n_inputs), -far, far, np.inf)

    def transform(self, X: Array) -> Array:
        """Standardised inputs within the limit."""
        Z = (X - self.centre) / self.scale
        return np.asarray(np.clip(Z, -self.limit, self.limit, out=Z))

    def extreme_columns(self, X: Array) -> Counts:
        """Columns in which some row lies beyond the limit and beyond all training rows."""
        outside = (self.low > X) | (self.high < X)
        far = np.abs(X - self.centre) > self.limit * self.scale
        return np.flatnonzero((outside & far).any(axis=0))


class OutputScaler(NamedTuple):
    """Standardises outputs (N, P)."""

    centre: Array
    scale: Array

    @classmethod
    def of(cls, Y: Array) -> OutputScaler:
        """Scaler of training outputs; a constant output keeps its scale."""
        centre, sd = Y.mean(axis=0), Y.std(axis=0)
        tiny = 1e-12 * np.maximum(np.abs(centre), np.finfo(float).tiny)
        return cls(centre, np.where(sd > tiny, sd, 1.0))

    @classmethod
    def identity(cls, n_outputs: int) -> OutputScaler:
        """Leaves everything as it is."""
        return cls(np.zeros(n_outputs), np.ones(n_outputs))

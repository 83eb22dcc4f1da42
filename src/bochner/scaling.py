"""Units: what the estimator learns in, and the way back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from bochner.kernel import Array, Counts

LIMIT = 10.0
"""Standardised inputs are held within this many scales of the centre, in fit and in predict."""

_MAX_QUANTILE_ROWS = 20_000
_FEWEST_QUANTILE_ROWS = 8
_WILD = 3.0  # times by which the sd must exceed what the bulk of a column implies


class InputScaler(NamedTuple):
    """Standardises inputs; extreme ones are moved to `LIMIT`.

    The scale of a column is its standard deviation, unless that is far larger than what the
    values without the outermost percent on either side imply for a normal variable: then it is
    the latter, and the centre the median, for one wild value must not squash all others. A
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
        centre, scale = X.mean(axis=0), X.std(axis=0)
        if len(X) >= _FEWEST_QUANTILE_ROWS:
            median, bulk = _bulk(X[:: -(-len(X) // _MAX_QUANTILE_ROWS)])
            wild = (bulk > 0) & (scale > _WILD * bulk)
            centre, scale = np.where(wild, median, centre), np.where(wild, bulk, scale)
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


def _bulk(X: Array) -> tuple[Array, Array]:
    """Median, and the sd that the range without the outermost values implies for a normal."""
    n = len(X)
    left_out = max(n // 100, 1)
    ranked = np.partition(X, [left_out, n // 2, n - 1 - left_out], axis=0)
    implied = -2.0 * ndtri((left_out + 0.5) / n)  # their distance in standard deviations
    return ranked[n // 2], (ranked[n - 1 - left_out] - ranked[left_out]) / implied


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

"""Units: what the estimator learns in, and the way back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from bochner.kernel import Array, Counts

LIMIT = 10.0
"""Standardised inputs are held within this many scales of the centre, in fit and in predict."""

_FEWEST_QUANTILE_ROWS = 8
_ROUNDING = 2.0 * np.finfo(np.float64).eps
_LARGEST = 1e150
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
        centre, scale = _moments(X)
        if len(X) >= _FEWEST_QUANTILE_ROWS:
            median, bulk = np.array([_bulk(column) for column in X.T]).T
            wild = (bulk > 0) & (scale > _WILD * bulk)
            centre, scale = np.where(wild, median, centre), np.where(wild, bulk, scale)
        scale = np.where(scale > 0, scale, 1.0)
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


def _moments(X: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of each column; zero where it varies by rounding alone.

    Squares are taken of what is scaled to one: no column is too large or too small for them.
    """
    low, high = X.min(axis=0), X.max(axis=0)
    reach = high / 2 - low / 2
    centre = low + reach
    unit = np.where(reach > 0, reach, 1.0)
    Z = (X - centre) / unit
    varies = reach > _ROUNDING * np.maximum(np.abs(low), np.abs(high))
    return centre + unit * Z.mean(axis=0), np.where(varies, unit * Z.std(axis=0), 0.0)


def _bulk(column: Array) -> tuple[float, float]:
    """Median, and the sd that the range without the outermost values implies for a normal."""
    n = len(column)
    left_out = max(n // 100, 1)
    ranked = np.partition(column, [left_out, n // 2, n - 1 - left_out])
    implied = -2.0 * ndtri((left_out + 0.5) / n)  # their distance in standard deviations
    spread = ranked[n - 1 - left_out] / implied - ranked[left_out] / implied
    return float(ranked[n // 2]), float(spread)


class OutputScaler(NamedTuple):
    """Standardises outputs (N, P)."""

    centre: Array
    scale: Array

    @classmethod
    def of(cls, Y: Array) -> OutputScaler:
        """Scaler of training outputs; a constant output keeps its scale."""
        centre, sd = _moments(Y)
        return cls(centre, np.where(sd > 0, sd, 1.0))

    @classmethod
    def uncentred(cls, Y: Array) -> OutputScaler:
        """Scale alone: where a person wants no mean taken off."""
        size = np.abs(Y).max(axis=0)
        size = np.where(size > 0, size, 1.0)
        rms = size * np.sqrt(np.mean(np.square(Y / size), axis=0))
        return cls(np.zeros(Y.shape[1]), np.where(rms > 0, rms, 1.0))

    def transform(self, Y: Array) -> Array:
        """Outputs in learning's units."""
        return np.asarray((Y - self.centre) / self.scale)


class Units(NamedTuple):
    """Of inputs and outputs."""

    x: InputScaler
    y: OutputScaler

    @classmethod
    def of(cls, X: Array, Y: Array, standardize: bool) -> Units:
        """Units of training rows; without ``standardize`` only the size of outputs is taken out.

        Whatever their size, noise and weights then start and stay within sensible bounds.
        """
        if standardize:
            units = cls(InputScaler.of(X), OutputScaler.of(Y))
        else:
            units = cls(InputScaler.identity(X.shape[1]), OutputScaler.uncentred(Y))
        scale = units.y.scale
        if np.any((scale > _LARGEST) | (scale < 1.0 / _LARGEST)):
            raise ValueError(
                f"y has standard deviation {scale.max():.3g}, whose square float64 cannot hold; "
                "measure y in another unit, so that it lies within 1e-150 and 1e150."
            )
        return units

"""The exact covariance between blocks of rows: what the features approximate.

For a row x of one side and x' of the other, with ``a = 2 pi sigma_q x`` and ``u = 2 pi mu_q . x``,

    k_q = exp(a.a' + h + h') (cos u cos u' + sin u sin u'),    h = (log w_q - |a|^2) / 2

so that a block costs two products, an exponential and a few passes over its entries for each
component: all of it at the speed of the libraries behind. Inputs that are far apart in units of
their length scale would lose their small differences in ``|a|^2 - 2 a.a' + |a'|^2``; those are
subtracted one by one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bochner.kernel import Array, Counts, SpectralMixture

_TILE_ROWS = 256  # the temporary arrays of a tile stay in a core's cache
_FAR = 32.0  # |a| of one input beyond which differences are taken first
_FLOAT32_SQUARES = 16.0  # |a|^2 beyond which exponents are formed in float64


class Side(NamedTuple):
    """Rows prepared to be either side of a block, component by component."""

    a: Array  # (Q, n, near inputs), float64 where float32 would lose too much
    h: Array  # (Q, n, 1)
    far: Array  # (Q, n, far inputs)
    waves: Array  # (Q, n, 2)
    is_far: Counts  # (D,) bool
    dtype: np.dtype[Any]
    variance: float  # k(0)

    @classmethod
    def of(cls, kernel: SpectralMixture, X: Array, dtype: str, like: Side | None = None) -> Side:
        """Rows X (n, D) under a kernel, for blocks in the precision asked for.

        Two sides of a block must agree on which inputs are far: the second is made like the first.
        """
        a = 2.0 * np.pi * kernel.scales[:, None, :] * X
        largest = np.abs(a).max(axis=(0, 1), initial=0.0)
        is_far = largest > _FAR if like is None else like.is_far
        near, far = a[:, :, ~is_far], a[:, :, is_far]
        squares = np.square(near).sum(axis=2, keepdims=True)
        h = 0.5 * (np.log(kernel.weights)[:, None, None] - squares)
        turns = np.einsum("nd,qd->qn", X, kernel.means)
        u = 2.0 * np.pi * (turns - np.rint(turns))
        waves = np.stack([np.cos(u), np.sin(u)], axis=2)
        large = np.max(squares, initial=0.0) > _FLOAT32_SQUARES
        inner = np.float64 if large else np.dtype(dtype)
        arrays = (near.astype(inner), h.astype(inner), far.astype(dtype), waves.astype(dtype))
        return cls(*arrays, is_far, np.dtype(dtype), kernel.variance)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.h.shape[1])

    def rows(self, rows: slice | Counts) -> Side:
        """Some of the rows."""
        a, h, far, waves = (x[:, rows] for x in self[:4])
        return self._replace(a=a, h=h, far=far, waves=waves)


def envelope(left: Side, right: Side, q: int) -> Array:
    """``exp(a.a' + h + h')``: component q without its wave."""
    E = left.a[q] @ right.a[q].T
    E += left.h[q]
    E += right.h[q].T
    E = E.astype(left.dtype, copy=False)
    for d in range(left.far.shape[2]):
        E -= 0.5 * np.square(left.far[q, :, d, None] - right.far[q, :, d])
    return np.asarray(np.exp(E, out=E))


def tile(left: Side, right: Side) -> Array:
    """Covariance (n, n') between the rows of two sides, not larger than what a cache holds."""
    total = envelope(left, right, 0)
    total *= left.waves[0] @ right.waves[0].T
    for q in range(1, len(left.h)):
        K = envelope(left, right, q)
        K *= left.waves[q] @ right.waves[q].T
        total += K
    return total


def block(left: Side, right: Side, out: Array | None = None) -> Array:
    """Covariance between the rows of two sides of any size, tile by tile."""
    n, m = left.n_rows, right.n_rows
    K = np.empty((n, m), left.dtype) if out is None else out
    for i in range(0, n, _TILE_ROWS):
        for j in range(0, m, _TILE_ROWS):
            rows, columns = slice(i, i + _TILE_ROWS), slice(j, j + _TILE_ROWS)
            K[rows, columns] = tile(left.rows(rows), right.rows(columns))
    return K


def covariance(side: Side, rows: slice, columns: slice, out: Array | None = None) -> Array:
    """Part of the covariance of one side with itself; k(0) to the last bit on the diagonal."""
    K = block(side.rows(rows), side.rows(columns), out)
    same = np.arange(max(rows.start, columns.start), min(rows.stop, columns.stop))
    K[same - rows.start, same - columns.start] = side.variance
    return K

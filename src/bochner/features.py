"""Random Fourier features on one block of rows: the two hot functions.

Blocks are held transposed, one row a feature, so that cosines and sines are contiguous and every
product runs at the speed of the library behind it:

    Z = [C; Y^T]   (2M + P, n),   C = [cos(2 pi S X^T); sin(2 pi S X^T)]

``Z Z^T`` then holds ``G = C C^T``, ``b = C Y`` and ``Y^T Y`` in one symmetric product. Features
carry no amplitude here: weights and noise never touch the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bochner.kernel import Array

FLOAT32_TURNS = 8.0
"""Typical phase, in turns, beyond which float32 phases are formed in float64 and reduced."""

_MANY_INPUTS = 64  # from here on a second layout of the inputs pays for its memory


class Block(NamedTuple):
    """Some rows: inputs ``X`` (n, D) in float64; the others in the precision computed with."""

    X: Array
    XT: Array  # (D, n)
    XN: Array  # (n, D), the same numbers; with many inputs each product has its faster layout
    YT: Array  # (P, n)

    @classmethod
    def of(cls, X: Array, Y: Array, dtype: np.dtype[np.floating]) -> Block:
        """Rows laid out for the products."""
        XT = np.ascontiguousarray(X.T, dtype)
        XN = np.ascontiguousarray(X, dtype) if X.shape[1] >= _MANY_INPUTS else XT.T
        return cls(X, XT, XN, np.ascontiguousarray(Y.T, dtype))


class Frequencies(NamedTuple):
    """Spectral points ``S`` (M, D), and how their features are to be had."""

    S: Array
    omega: Array  # 2 pi S in float32, made once and not in every block
    wide: bool  # phases are large: form them in float64 and reduce
    again: bool  # the same features will be asked for once more

    @classmethod
    def of(cls, S: Array, wide: bool = False, again: bool = False) -> Frequencies:
        """Frequencies of some points."""
        return cls(S, (2.0 * np.pi * S).astype(np.float32), wide, again)


class Pullback(NamedTuple):
    """Gradient with respect to ``omega``, and the residual sum of squares of each output."""

    omega_bar: Array  # (M, D)
    residual: Array  # (P,)


FeatureSource = Callable[[Block, Frequencies], Array]


def fourier(block: Block, frequencies: Frequencies, out: Array | None = None) -> Array:
    """``Z = [C; Y^T]`` of a block, written to ``out`` if given."""
    S, omega, wide, _ = frequencies
    m, (p, n) = S.shape[0], block.YT.shape
    Z = np.empty((2 * m + p, n), block.XT.dtype) if out is None else out
    cosines, sines = Z[:m], Z[m : 2 * m]
    if Z.dtype == np.float64:
        _circle64(_reduced(S, block.XT), cosines, sines)
    else:
        theta = 2.0 * np.pi * _reduced(S, block.X.T) if wide else omega @ block.XT
        theta = theta.astype(np.float32, copy=False)
        np.cos(theta, out=cosines)
        np.sin(theta, out=sines)
    Z[2 * m :] = block.YT
    return Z


def _reduced(S: Array, XT: Array) -> Array:
    """Phases in turns, within half a turn of zero."""
    turns = S @ XT
    turns -= np.rint(turns)
    return np.asarray(turns)


def _circle64(turns: Array, cosines: Array, sines: Array) -> None:
    """Cosine and sine from one tangent of the half angle.

    NumPy's float64 sine and cosine are scalar code, its tangent is not: eight times faster, and
    as exact in absolute terms, ``cos = 2/(1+t^2) - 1``, ``sin = t 2/(1+t^2)``.
    """
    t = np.tan(np.multiply(turns, np.pi, out=turns), out=turns)
    np.multiply(t, t, out=cosines)
    cosines += 1.0
    np.divide(2.0, cosines, out=cosines)
    np.multiply(t, cosines, out=sines)
    cosines -= 1.0


def gram(features: FeatureSource, block: Block, frequencies: Frequencies) -> Array:
    """``Z Z^T``: all that the evidence needs to know of these rows."""
    Z = features(block, frequencies)
    return np.asarray(Z @ Z.T)


def pullback(features: FeatureSource, block: Block, frequencies: Frequencies, B: Array) -> Pullback:
    """Carry the adjoint of the features back to the points.

    One product gives ``[Cbar; R] = B Z`` (see `evidence.adjoint`); then
    ``Tbar = Cbar_sin * cos - Cbar_cos * sin`` and ``omegabar = Tbar X``.
    """
    m = frequencies.S.shape[0]
    Z = features(block, frequencies)
    Z_bar = B @ Z
    T_bar = np.multiply(Z_bar[m : 2 * m], Z[:m], out=Z_bar[m : 2 * m])
    T_bar -= np.multiply(Z_bar[:m], Z[m : 2 * m], out=Z_bar[:m])
    return Pullback(T_bar @ block.XN, np.square(Z_bar[2 * m :], dtype=np.float64).sum(axis=1))

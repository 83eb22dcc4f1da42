"""How many of the M spectral points each component gets (Prop. 2, corrected)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bochner.kernel import Array, Counts, SpectralMixture

SHARES = ("equal", "weight", "variance", "printed")
_MAX_PAIRS = 1_000_000


class ShareRule(NamedTuple):
    """Rule for sharing out the points.

    ``rate`` is the fraction of all pairs of rows that Prop. 2 looks at, never more than
    ``max_pairs``; ``floor`` the fewest points a component keeps; ``smoothing`` the part of the
    previous shares that is kept, which stops the feedback "few points, noisy, less weight".
    """

    name: str = "equal"
    rate: float = 0.05
    max_pairs: int = 4_000
    floor: int = 1
    smoothing: float = 0.0


def round_shares(shares: Array | Counts, total: int, floor: int = 1) -> Counts:
    """Whole counts that sum to ``total``: ``floor`` each, then largest remainder.

    Differs from the paper: the printed ``max(1, round(M p_q))`` misses the total in a third or
    more of all cases.
    """
    n = len(shares)
    if total < n * floor:
        raise ValueError(
            f"n_points={total} is too few for {n} components with at least {floor} each; "
            f"give at least {n * floor}."
        )
    ideal = shares / shares.sum() * total
    counts = np.maximum(floor, np.floor(ideal)).astype(np.int64)
    while counts.sum() > total:  # the floor took more than was there: take from the richest
        excess = np.where(counts > floor, counts - ideal, -np.inf)
        counts[np.argmax(excess)] -= 1
    for q in np.argsort(counts - ideal, kind="stable")[: total - counts.sum()]:
        counts[q] += 1
    return np.asarray(counts)


def component_spread(kernel: SpectralMixture, tau: Array, printed: bool = False) -> Array:
    """``g_q(tau)``, the variance of one point of component q at each lag; shape (Q, P).

    ``g_q = 1 + k_q(2 tau) - 2 k_q(tau)^2``. Differs from the paper: the printed
    ``1 + k_q(2 tau) + k_q(tau)^2`` tends to 3 where the variance tends to 0.
    """
    factor = 1.0 if printed else -2.0
    g = 1.0 + kernel.components_of_lag(2.0 * tau)
    return np.asarray(np.maximum(g + factor * np.square(kernel.components_of_lag(tau)), 0.0))


def random_lags(X: Array, rule: ShareRule, rng: np.random.Generator) -> Array:
    """Signed differences of random pairs of distinct rows."""
    n = X.shape[0]
    n_pairs = min(n * (n - 1) // 2, _MAX_PAIRS)
    size = int(np.clip(np.ceil(rule.rate * n_pairs), 1, rule.max_pairs))
    i = rng.integers(n, size=size)
    j = (i + rng.integers(1, max(n, 2), size=size)) % n
    return np.asarray(X[i] - X[j])


def optimal_shares(
    kernel: SpectralMixture, X: Array, rule: ShareRule, rng: np.random.Generator
) -> Array:
    """Fractions ``p_q`` of the points by the named rule (Eq. 8 for ``variance``)."""
    w = kernel.weights
    if rule.name == "equal":
        return np.full(len(w), 1.0 / len(w))
    if rule.name == "weight":
        return np.asarray(w / w.sum())
    g = component_spread(kernel, random_lags(X, rule, rng), printed=rule.name == "printed")
    p = w * np.sqrt(g.sum(axis=1))
    return np.asarray(p / p.sum()) if p.sum() > 0 else np.full(len(w), 1.0 / len(w))

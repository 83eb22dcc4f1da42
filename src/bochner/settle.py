"""Before exact prediction: whether what features have taught is right without them.

Parameters tuned to a finite number of features can hurt exactly. Under the exact likelihood of a
sample of the rows, weights and noise are learned again, then the whole kernel. Whatever predicts
rows outside the sample best is taken; the parameters as they came are among the candidates. Where
the sample is all rows, only weights and noise are learned again, and taken where the gain is clear.
"""

from __future__ import annotations

import numpy as np

from bochner.exact import Plan, condition_exactly
from bochner.kernel import Array, Counts
from bochner.parameters import Parameters
from bochner.refine import FREE_EVALS, HELD_EVALS, Ascent

_FEWEST, _MOST, _PART = 1_000, 3_000, 6
_UNSEEN = 1_000  # rows that candidates are compared on, at most
_FEWEST_UNSEEN = 200
_MANY = 10_000  # rows from which noise is looked at again
_NOISE_FACTORS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_CLEAR = 2.0  # nats of gain for each parameter, where all rows are the sample


def sample_rows(n_rows: int) -> int:
    """A sixth of all rows, within bounds: it then costs about as much as the factor to come."""
    return min(max(n_rows // _PART, min(n_rows, _FEWEST)), _MOST)


def settled(
    X: Array, Y: Array, p: Parameters, ascent: Ascent, rng: np.random.Generator
) -> Parameters:
    """The parameters to predict exactly with."""
    n = sample_rows(len(X))
    order = rng.permutation(len(X))
    sample, unseen = np.sort(order[:n]), np.sort(order[n : n + _UNSEEN])
    held = ascent.climb("weights", X[sample], Y[sample], p, HELD_EVALS, hold_kernel=True)
    if len(unseen) < _FEWEST_UNSEEN:  # what so many parameters gain by chance is not taken
        gain = (held.value - held.first) * len(sample)
        return held.parameters if gain > _CLEAR * (len(p.log_weights) + 1) else p
    free = ascent.climb("kernel", X[sample], Y[sample], held.parameters, FREE_EVALS)
    candidates = [p, held.parameters, free.parameters]
    scores = [_density(c, X, Y, sample, unseen, ascent, rng) for c in candidates]
    best = candidates[int(np.argmax(scores))]
    if best is p or len(X) < _MANY:
        return best
    more = np.sort(order[n + _UNSEEN :][: _MANY - _UNSEEN])
    return _with_noise_for_more(best, X, Y, more, unseen, ascent, rng)


def _with_noise_for_more(
    p: Parameters,
    X: Array,
    Y: Array,
    more: Counts,
    unseen: Counts,
    ascent: Ascent,
    rng: np.random.Generator,
) -> Parameters:
    """Noise that predicts unseen rows best given many more rows than it was learned from.

    A kernel that is not quite right leaves errors that do not shrink as fast as its variance does;
    from few rows they look like a function, from many like noise.
    """
    best, score = p, -np.inf
    for factor in _NOISE_FACTORS:
        tried = p._replace(log_noise=p.log_noise + float(np.log(factor)))
        density = _density(tried, X, Y, more, unseen, ascent, rng)
        if density < score:
            break
        best, score = tried, density
    return best


def _density(
    p: Parameters,
    X: Array,
    Y: Array,
    sample: Counts,
    unseen: Counts,
    ascent: Ascent,
    rng: np.random.Generator,
) -> float:
    """Mean log density of unseen rows given the sample; minus infinity where there is none."""

    def told(*event: object) -> None:
        """Too short to be told of."""

    plan = Plan("cholesky" if len(sample) <= _MOST else "cholesky-float32")
    try:
        posterior = condition_exactly(
            p.kernel, p.noise_variance, X[sample], Y[sample], plan, rng, ascent.n_threads, told
        )
    except FloatingPointError:
        return -np.inf
    return float(posterior.log_density(X[unseen], Y[unseen]).mean())

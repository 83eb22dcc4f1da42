"""One fit: learn from standardised rows, condition, and predict exactly where that is asked for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bochner.condition import condition
from bochner.costs import Cost, cost, free_memory, in_float64
from bochner.exact import ExactPosterior, condition_exactly, float32_suffices
from bochner.kernel import Array
from bochner.learn import Learned, learn_in_rounds
from bochner.objective import Problem
from bochner.parameters import Coordinates, Parameters
from bochner.points import draw_points
from bochner.posterior import FeaturePosterior
from bochner.prior import make_prior
from bochner.progress import Watch
from bochner.refine import KL_WEIGHT, REFINING_EVALS, Ascent
from bochner.rows import ThreadedRows
from bochner.sampling import PointSource
from bochner.settings import Settings
from bochner.settle import settled
from bochner.shares import round_shares
from bochner.start import starts_for
from bochner.stochastic import learn_by_steps

_PAIR_ROWS = 4_096  # rows whose differences stand for all lags


class Fitted(NamedTuple):
    """What came out."""

    parameters: Parameters
    features: FeaturePosterior
    exact: ExactPosterior | None
    cost: Cost
    learned: Learned
    remarks: list[str]  # what a person should be warned of


def fit(
    Z: Array,
    T: Array,
    settings: Settings,
    rng: np.random.Generator,
    watch: Watch,
    n_threads: int | None,
) -> Fitted:
    """Learn from inputs Z (N, D) and outputs T (N, P) in learning's units."""
    expected = _affordable(Z, settings, n_threads)
    rows = ThreadedRows(Z, T, settings.method.dtype, n_threads)
    starts = starts_for(Z, T, settings, rng)
    prior = make_prior(settings.method.prior, settings.kl_weight, starts[0], rng)
    problem = Problem(rows, T.shape[1], np.mean(np.square(Z), axis=0), prior)
    source = PointSource(settings, rows.sample(_PAIR_ROWS, rng).X, rng)
    if settings.method.optimiser == "adam":
        learned = learn_by_steps(problem, starts[0], settings, source, watch)
    else:
        learned = learn_in_rounds(problem, starts, settings, source, rng, watch)
    remarks = []
    if learned.interrupted:
        remarks.append(
            f"Learning was interrupted after {len(watch.trace)} evaluations; the model uses the "
            "best kernel found until then. Fit again for a better one."
        )
    counts = round_shares(learned.counts, settings.n_prediction_points, settings.shares.floor)
    points = [
        draw_points(settings.method.draw, counts, Z.shape[1], rng) for _ in range(settings.n_draws)
    ]
    done = condition(problem, learned.parameters, points, settings.method.relearn, n_threads)
    found = Fitted(done.parameters, done.posterior, None, expected, learned, remarks)
    return _with_exact(found, Z, T, settings, rng, watch, n_threads)


def _affordable(Z: Array, settings: Settings, n_threads: int | None) -> Cost:
    """What the fit will cost; a ValueError with figures and a remedy where it cannot be had."""
    asked = settings.posterior
    if asked == "auto" and settings.refine:
        asked = "exact"
    elif asked == "auto" and settings.method.optimiser == "adam":
        asked = "features"  # as the paper predicts
    expected = cost(
        *Z.shape,
        n_components=settings.n_components,
        n_points=settings.n_points,
        posterior=asked,
        n_jobs=n_threads,
    )
    free = free_memory()
    if expected.posterior == "exact" and expected.bytes > free:
        raise ValueError(
            f"posterior='exact' for {len(Z)} rows needs about {expected.bytes / 1e9:.2g} GB and "
            f"{free / 1e9:.2g} GB are free; give posterior='features', or fewer rows."
        )
    return expected


def _with_exact(
    found: Fitted,
    Z: Array,
    T: Array,
    settings: Settings,
    rng: np.random.Generator,
    watch: Watch,
    n_threads: int | None,
) -> Fitted:
    """Exact prediction at the learned kernel, its noise and weights checked exactly first.

    Where it is interrupted, or the arithmetic fails, prediction through features is what is left.
    """
    plan, p = found.cost.plan, found.parameters
    q, d = p.means.shape
    coordinates = Coordinates(q, d, settings.method.frequencies)
    if plan is None:
        return found
    weight = KL_WEIGHT if settings.method.prior != "none" else 0.0
    counts = round_shares(np.ones(q), settings.n_points)
    ascent = Ascent(coordinates, counts, weight, n_threads, watch)
    if settings.refine:
        p = ascent.climb("refining", Z, T, p, REFINING_EVALS).parameters
    elif settings.method.relearn:
        p = settled(Z, T, p, ascent, rng)
    noise = p.noise_variance
    if not float32_suffices(p.kernel.variance, noise, len(Z)):
        found = found._replace(cost=in_float64(found.cost, len(Z)))
    plan = found.cost.plan or plan
    try:
        exact = condition_exactly(p.kernel, noise, Z, T, plan, rng, n_threads, watch.told)
    except (KeyboardInterrupt, FloatingPointError) as trouble:
        why = str(trouble) or "interrupted"
        said = f"Exact prediction was given up ({why}); the model predicts through features."
        left = found.cost._replace(posterior="features", plan=None, reason=said)
        return found._replace(cost=left, remarks=[*found.remarks, said])
    remarks = list(found.remarks)
    if not exact.solved.converged:
        how = "were interrupted" if exact.solved.interrupted else "ended"
        remarks.append(
            f"Conjugate gradients {how} after {exact.solved.iterations} iterations with a relative "
            f"residual of {exact.solved.residual:.1e}, more than the noise allows; means are that "
            "inexact. Give posterior='features', or more memory."
        )
    return found._replace(parameters=p, exact=exact, remarks=remarks)

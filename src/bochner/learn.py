"""Learning by quasi-Newton rounds: sample-average approximation (the method ``auto``).

With the points held fixed the objective is a smooth deterministic function. Several starts are
tried on a sample of the rows, the best goes on there, then on all rows in rounds with fresh
points. What the rounds return is compared on points that none of them has seen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from bochner.kernel import Array, Counts
from bochner.objective import Problem, evaluate_mean
from bochner.parameters import Coordinates, Parameters
from bochner.points import SpectralPoints
from bochner.progress import Best, Stop, Watch
from bochner.sampling import PointSource
from bochner.settings import Settings

_SAMPLE_ROWS = 2_048
_SAMPLE_POINTS = 0.75  # of n_points, while on the sample
_TRIAL, _POLISH = 0.4, 0.6  # evaluations on the sample, as parts of max_evals
_ROUNDS = 2
_PATIENCE = 10  # iterations that must together gain ``tol`` a row
_FAILED_VALUE = 1e10


class Learned(NamedTuple):
    """Where learning ended."""

    parameters: Parameters
    counts: Counts  # points of each component
    interrupted: bool


class Stage(NamedTuple):
    """One search: from the best so far, with fresh points."""

    name: str
    problem: Problem
    n_points: int
    max_evals: int


def planned_evaluations(settings: Settings) -> int:
    """Most evaluations that `learn_in_rounds` makes."""
    e = settings.max_evals
    return settings.n_restarts * int(_TRIAL * e) + int(_POLISH * e) + _ROUNDS * (e // _ROUNDS + 1)


def learn_in_rounds(
    problem: Problem,
    starts: list[Parameters],
    settings: Settings,
    source: PointSource,
    rng: np.random.Generator,
    watch: Watch,
) -> Learned:
    """Learn by L-BFGS with the points held fixed; an interruption returns the best so far."""
    q, d = settings.n_components, len(problem.input_squares)
    coordinates = Coordinates(q, d, settings.method.frequencies, relative=True)

    def search(stage: Stage, start: Parameters, points: list[SpectralPoints], best: Best) -> None:
        maximise(stage, start, points, coordinates, settings.tol, best, watch)

    trial, *stages = _stages(problem, settings, rng)
    best = Best(starts[0])
    points = source.draw(starts[0].kernel, trial.n_points)
    try:
        for start in starts:
            search(trial, start, points, best)
        ends = []
        for stage in stages:
            points = source.draw(best.parameters.kernel, stage.n_points)
            best = Best(best.parameters)
            search(stage, best.parameters, points, best)
            ends.append(best.parameters)
        points = source.draw(best.parameters.kernel, settings.n_points)
        last = Best(best.parameters)
        for p in ends[-_ROUNDS:]:
            last.offer(p, watch.seen("comparison", problem, p, evaluate_mean(problem, p, points)))
        return Learned(last.parameters, points[0].counts, interrupted=False)
    except (KeyboardInterrupt, Stop):
        return Learned(best.parameters, points[0].counts, interrupted=True)


def _stages(problem: Problem, settings: Settings, rng: np.random.Generator) -> list[Stage]:
    sample = problem._replace(rows=problem.rows.sample(_SAMPLE_ROWS, rng))
    m, e = settings.n_points, settings.max_evals
    few = max(int(_SAMPLE_POINTS * m), settings.n_components * settings.shares.floor)
    return [
        Stage("start", sample, few, int(_TRIAL * e)),
        Stage("sample", sample, few, int(_POLISH * e)),
        *(Stage(f"round {r + 1}", problem, m, e // _ROUNDS) for r in range(_ROUNDS)),
    ]


def maximise(
    stage: Stage,
    start: Parameters,
    points: list[SpectralPoints],
    coordinates: Coordinates,
    tol: float,
    best: Best,
    watch: Watch,
) -> None:
    """L-BFGS from ``start``; every evaluation is offered to ``best``."""
    n_rows = stage.problem.rows.n_rows
    gains: list[float] = []

    def descend(theta: Array) -> tuple[float, Array]:
        p = coordinates.unpack(theta)
        result = evaluate_mean(stage.problem, p, points)
        best.offer(p, watch.seen(stage.name, stage.problem, p, result))
        if result.gradient is None:
            return _FAILED_VALUE, np.zeros_like(theta)
        gradient = coordinates.pack_gradient(p, result.gradient, theta)
        return -result.value / n_rows, -gradient / n_rows

    def enough(intermediate_result: object) -> None:
        gains.append(best.value)
        if len(gains) > _PATIENCE and gains[-1] - gains[-1 - _PATIENCE] < tol:
            raise StopIteration

    theta = coordinates.pack(start)
    minimize(
        descend,
        theta,
        jac=True,
        method="L-BFGS-B",
        bounds=coordinates.bounds(theta),
        callback=enough,
        options={"maxfun": max(stage.max_evals, 1), "maxcor": 20, "ftol": 0.0, "gtol": 0.0},
    )

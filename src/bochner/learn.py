"""Learning by quasi-Newton rounds: sample-average approximation (the method ``auto``).

With the points held fixed the objective is a smooth deterministic function. Several starts are
tried on a sample of the rows, the best goes on there, then on all rows in rounds with fresh
points. What the rounds return is compared on points that none of them has seen.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from bochner.kernel import Array, Counts
from bochner.objective import Objective, Problem, evaluate_mean
from bochner.parameters import Coordinates, Parameters
from bochner.points import SpectralPoints
from bochner.progress import Best, Stop, Watch
from bochner.sampling import PointSource
from bochner.settings import Settings
from bochner.shares import round_shares

_SAMPLE_ROWS = 2_048
_SAMPLE_POINTS = 0.75  # of n_points, while on the sample
_TRIAL, _POLISH = 0.4, 0.6  # evaluations on the sample, as parts of max_evals
_ROUNDS = 2
_UNSEEN_SETS = 3  # sets of points that candidates are compared on
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


class _Spent(Exception):  # noqa: N818
    """A search has made all the evaluations that it may."""


def planned_evaluations(settings: Settings) -> int:
    """Most evaluations that learning makes."""
    if settings.method.optimiser == "adam":
        return settings.max_evals
    e, n = settings.max_evals, settings.n_restarts + 1  # one start more for series
    trial, polish, rounds = max(int(_TRIAL * e), 1), max(int(_POLISH * e), 1), max(e // _ROUNDS, 1)
    selections = n + 2 + 1 + _ROUNDS
    return n * trial + 2 * polish + _ROUNDS * rounds + selections


def learn_in_rounds(
    problem: Problem,
    starts: list[Parameters],
    settings: Settings,
    source: PointSource,
    rng: np.random.Generator,
    watch: Watch,
) -> Learned:
    """Learn by L-BFGS with the points held fixed; an interruption returns the best so far."""
    trial, polish, *rounds = _stages(problem, settings, rng)
    learner = _Rounds(settings, source, watch, starts[0])
    try:
        points = learner.fresh_points(trial)
        tried = [learner.search(trial, start, points) for start in starts]
        # The best on the points that it was fitted to has found most structure; the best on
        # unseen points has over-fitted least. Which matters differs from set to set.
        finalists = [max(tried, key=lambda best: best.value), learner.select(trial, tried)]
        points = learner.fresh_points(polish)
        polished = [learner.search(polish, one.parameters, points) for one in _distinct(finalists)]
        ends = [learner.select(polish, polished)]
        for stage in rounds:
            points = learner.fresh_points(stage)
            ends.append(learner.search(stage, ends[-1].parameters, points))
        best = learner.select(rounds[-1], ends)
        return Learned(best.parameters, learner.counts, interrupted=False)
    except (KeyboardInterrupt, Stop):
        return Learned(learner.current.parameters, learner.counts, interrupted=True)


def _stages(problem: Problem, settings: Settings, rng: np.random.Generator) -> list[Stage]:
    sample = problem._replace(rows=problem.rows.sample(_SAMPLE_ROWS, rng))
    m, e = settings.n_points, settings.max_evals
    few = max(int(_SAMPLE_POINTS * m), settings.n_components * settings.shares.floor)
    return [
        Stage("start", sample, few, int(_TRIAL * e)),
        Stage("sample", sample, few, int(_POLISH * e)),
        *(Stage(f"round {r + 1}", problem, m, e // _ROUNDS) for r in range(_ROUNDS)),
    ]


def _distinct(candidates: list[Best]) -> list[Best]:
    return [c for k, c in enumerate(candidates) if c not in candidates[:k]]


class _Rounds:
    """The steps that learning is made of; knows what to return after an interruption."""

    def __init__(
        self, settings: Settings, source: PointSource, watch: Watch, start: Parameters
    ) -> None:
        self.settings, self.source, self.watch = settings, source, watch
        q, d = start.means.shape
        self.coordinates = Coordinates(q, d, settings.method.frequencies, relative=True)
        self.current, self.stage = Best(start), ""
        self.counts = round_shares(np.ones(q), settings.n_points, settings.shares.floor)

    def fresh_points(self, stage: Stage) -> list[SpectralPoints]:
        """Points for a stage, shared out by the kernel that is best so far."""
        points = self.source.draw(self.current.parameters.kernel, stage.n_points)
        self.counts = points[0].counts
        return points

    def search(self, stage: Stage, start: Parameters, points: list[SpectralPoints]) -> Best:
        """The best that one search finds."""
        best = Best(start)
        try:
            maximise(self._search_of(stage), best, partial(self._seen, stage, points))
        finally:
            if stage.name != self.stage or best.value > self.current.value:
                self.current, self.stage = best, stage.name
        return best

    def _search_of(self, stage: Stage) -> Search:
        n_rows, tol = stage.problem.rows.n_rows, self.settings.tol
        return Search(self.coordinates, n_rows, stage.max_evals, tol)

    def _seen(self, stage: Stage, points: list[SpectralPoints], p: Parameters) -> Objective:
        """The objective of a stage, told to whoever watches."""
        result = evaluate_mean(stage.problem, p, points)
        self.watch.seen(stage.name, stage.problem.rows.n_rows, p, result)
        return result

    def select(self, stage: Stage, candidates: list[Best]) -> Best:
        """The best of them on points that none has seen."""
        if len(_distinct(candidates)) == 1:
            return candidates[0]
        unseen = [p for _ in range(_UNSEEN_SETS) for p in self.fresh_points(stage)]
        values = []
        for candidate in candidates:
            p = candidate.parameters
            result = evaluate_mean(stage.problem, p, unseen)
            n_rows = stage.problem.rows.n_rows
            values.append(self.watch.seen("selection", n_rows, p, result))
        return candidates[int(np.argmax(values))]


class Search(NamedTuple):
    """How a maximum is looked for."""

    coordinates: Coordinates
    n_rows: int  # the objective is taken per row
    max_evals: int
    tol: float
    hold_kernel: bool = False  # move weights and noise alone


def maximise(search: Search, best: Best, objective: Callable[[Parameters], Objective]) -> None:
    """L-BFGS from where ``best`` stands; every evaluation is offered to it."""
    gains: list[float] = []
    left = max(search.max_evals, 1)

    def descend(theta: Array) -> tuple[float, Array]:
        nonlocal left
        if left == 0:
            raise _Spent  # SciPy looks at its own limit only between line searches
        left -= 1
        p = search.coordinates.unpack(theta)
        result = objective(p)
        best.offer(p, result.value / search.n_rows)
        if result.gradient is None:
            return _FAILED_VALUE, np.zeros_like(theta)
        gradient = search.coordinates.pack_gradient(p, result.gradient, theta)
        if search.hold_kernel:
            gradient[search.coordinates.n_components : -1] = 0.0
        return -result.value / search.n_rows, -gradient / search.n_rows

    def enough(intermediate_result: object) -> None:
        gains.append(best.value)
        if len(gains) > _PATIENCE and gains[-1] - gains[-1 - _PATIENCE] < search.tol:
            raise StopIteration

    theta = search.coordinates.pack(best.parameters)
    with suppress(_Spent):
        minimize(
            descend,
            theta,
            jac=True,
            method="L-BFGS-B",
            bounds=search.coordinates.bounds(theta),
            callback=enough,
            options={"maxfun": left + 1, "maxiter": left, "maxcor": 20, "ftol": 0.0, "gtol": 0.0},
        )

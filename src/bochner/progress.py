"""What a search tells the outside, and how the outside stops it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from bochner.objective import Objective, Problem
from bochner.parameters import Parameters


class Progress(NamedTuple):
    """One evaluation of the objective."""

    stage: str
    evaluation: int
    total: int
    objective: float  # per row
    noise_variance: float
    seconds: float


_PRINT_EVERY = 20

Callback = Callable[[Progress], "bool | None"]
"""Called after every evaluation; returning True stops learning with the best state so far."""


class Stop(Exception):  # noqa: N818
    """Raised inside a search when the callback asks for the end."""


class Watch:
    """Counts evaluations, keeps the trace, and carries events out."""

    def __init__(self, total: int, listeners: Sequence[Callback] = ()) -> None:
        self.total, self.listeners = total, listeners
        self.stages: list[str] = []
        self.trace: list[float] = []
        self.began = time.perf_counter()

    def seen(self, stage: str, problem: Problem, p: Parameters, result: Objective) -> float:
        """Record one evaluation and tell the callback; gives the objective per row."""
        value = result.value / problem.rows.n_rows
        self.stages.append(stage)
        self.trace.append(value if np.isfinite(value) else np.nan)
        if self.listeners:
            seconds = time.perf_counter() - self.began
            n = len(self.trace)
            event = Progress(stage, n, self.total, value, p.noise_variance, seconds)
            answers = [listener(event) for listener in self.listeners]
            if any(isinstance(answer, bool | np.bool_) and answer for answer in answers):
                raise Stop
        return value


class Best:
    """The best finite state of one search: what is returned after trouble."""

    def __init__(self, start: Parameters) -> None:
        self.parameters, self.value = start, -np.inf

    def offer(self, p: Parameters, value: float) -> None:
        """Keep ``p`` if it is finite and better."""
        if np.isfinite(value) and value > self.value:
            self.parameters, self.value = p, value


def printing(event: Progress) -> None:
    """A callback that says in a line, now and then, how learning goes."""
    if event.evaluation % _PRINT_EVERY == 1:
        print(
            f"[bochner] {event.stage:<10} evaluation {event.evaluation:>4} of at most "
            f"{event.total}, objective {event.objective:.4f} a row, "
            f"noise {event.noise_variance:.3g}, {event.seconds:.1f} s",
            file=sys.stderr,
        )

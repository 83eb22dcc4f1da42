"""What a search tells the outside, and how the outside stops it."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from bochner.objective import Objective
from bochner.parameters import Parameters


class Progress(NamedTuple):
    """One evaluation of the objective, or one step of exact prediction.

    What a stage does not have is NaN: building and factoring the covariance have no objective, only
    conjugate gradients a residual.
    """

    stage: str
    evaluation: int
    total: int
    objective: float  # per row
    noise_variance: float
    seconds: float
    residual: float = math.nan  # relative to the right-hand side


_PRINT_EVERY = 1.0  # seconds

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

    def seen(self, stage: str, n_rows: int, p: Parameters, result: Objective) -> float:
        """Record one evaluation and tell the callback; gives the objective per row."""
        value = result.value / n_rows
        self.stages.append(stage)
        self.trace.append(value if np.isfinite(value) else np.nan)
        total = max(self.total, len(self.trace))
        event = Progress(stage, len(self.trace), total, value, p.noise_variance, self.seconds)
        if self._tell(event):
            raise Stop
        return value

    def told(self, stage: str, done: int, total: int, residual: float) -> None:
        """Pass on how far a stage that learns nothing has come; it is not for callbacks to end."""
        self._tell(Progress(stage, done, total, math.nan, math.nan, self.seconds, residual))

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.perf_counter() - self.began

    def _tell(self, event: Progress) -> bool:
        """Whether somebody wants learning to end."""
        answers = [listener(event) for listener in self.listeners]
        return any(isinstance(answer, bool | np.bool_) and bool(answer) for answer in answers)


class Best:
    """The best finite state of one search: what is returned after trouble."""

    def __init__(self, start: Parameters) -> None:
        self.parameters, self.value = start, -np.inf
        self.first = np.nan  # value of the first offer: of the start

    def offer(self, p: Parameters, value: float) -> None:
        """Keep ``p`` if it is finite and better."""
        self.first = value if np.isnan(self.first) else self.first
        if np.isfinite(value) and value > self.value:
            self.parameters, self.value = p, value


class Printing:
    """A callback that says in a line, about once a second, how a fit goes."""

    def __init__(self) -> None:
        self.last, self.stage = -math.inf, ""

    def __call__(self, event: Progress) -> None:
        """Print what has happened, if it is time to."""
        if event.seconds - self.last < _PRINT_EVERY and event.stage == self.stage:
            return
        self.last, self.stage = event.seconds, event.stage
        how = "" if math.isnan(event.residual) else f", residual {event.residual:.1e}"
        if not math.isnan(event.objective):
            how = f", objective {event.objective:.4f} a row, noise {event.noise_variance:.3g}"
        print(
            f"[bochner] {event.stage:<10} {event.evaluation:>5} of at most {event.total}{how}, "
            f"{event.seconds:.1f} s",
            file=sys.stderr,
        )

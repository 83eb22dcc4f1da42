"""Learning by stochastic gradients: the paper's methods (Adam, natural gradient of Prop. 3)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bochner.kernel import Array
from bochner.learn import Learned
from bochner.objective import Problem, evaluate_mean
from bochner.parameters import LOG_NOISE_BOUNDS, Parameters
from bochner.progress import Stop, Watch
from bochner.sampling import PointSource
from bochner.settings import Settings
from bochner.shares import round_shares

_BETA1, _BETA2, _EPSILON = 0.9, 0.99, 1e-8
_FAR = 100.0  # no exponential of more


class Adam:
    """Adam for one group of parameters, uphill."""

    def __init__(self, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self.step, self.mean, self.square = 0, np.zeros(1), np.zeros(1)

    def move(self, gradient: Array) -> Array:
        """What to add to the parameters."""
        self.step += 1
        self.mean = _BETA1 * self.mean + (1 - _BETA1) * gradient
        self.square = _BETA2 * self.square + (1 - _BETA2) * np.square(gradient)
        mean = self.mean / (1 - _BETA1**self.step)
        square = self.square / (1 - _BETA2**self.step)
        return np.asarray(self.learning_rate * mean / (np.sqrt(square) + _EPSILON))


class _Groups(NamedTuple):
    """Optimisers of the four groups; the natural gradient moves them one after the other."""

    log_weights: Adam
    means: Adam
    log_scales: Adam
    log_noise: Adam


def learn_by_steps(
    problem: Problem,
    start: Parameters,
    settings: Settings,
    source: PointSource,
    watch: Watch,
) -> Learned:
    """``max_evals`` steps of Adam; the last finite iterate, nothing selected."""
    method = settings.method
    groups = _Groups(*(Adam(settings.learning_rate) for _ in range(4)))
    p, points, interrupted = start, None, False
    counts = round_shares(np.ones(settings.n_components), settings.n_points, settings.shares.floor)
    try:
        for _ in range(settings.max_evals):
            if points is None or method.points == "fresh":
                points = source.draw(p.kernel, settings.n_points)
                counts = points[0].counts
            result = evaluate_mean(problem, p, points)
            watch.seen("step", problem.rows.n_rows, p, result)
            if result.gradient is not None:
                moved = _stepped(p, result.gradient, groups, method.natural, method.frequencies)
                p = moved if moved.sound else p
    except (KeyboardInterrupt, Stop):
        interrupted = True
    return Learned(p, counts, interrupted)


def _stepped(
    p: Parameters, g: Parameters, groups: _Groups, natural: bool, frequencies: str
) -> Parameters:
    """One step; with ``natural`` as published: scales first, then means with the new scales.

    Prop. 3: the Fisher matrix of a component's points is ``m_q diag(mu^2/sigma^2, 2)`` in
    (log mu, log sigma) and ``m_q/sigma^2`` in mu. The factor m_q and the size of each row go
    with the normalisation.
    """
    positive = frequencies == "positive"
    by_scale = _unit_rows(0.5 * g.log_scales) if natural else g.log_scales
    log_scales = p.log_scales + groups.log_scales.move(by_scale)
    ones = np.ones_like(p.means)
    chain = {"signed": ones, "positive": p.means, "zero": 0.0 * ones}
    by_mean = g.means * chain[frequencies]
    if natural:
        variance = np.exp(2.0 * np.clip(log_scales, -_FAR, _FAR))
        factor = variance / np.square(p.means) if positive else variance
        by_mean = _unit_rows(factor * by_mean)
    step = groups.means.move(by_mean)
    log_noise = p.log_noise + float(groups.log_noise.move(np.array([g.log_noise]))[0])
    return Parameters(
        p.log_weights + groups.log_weights.move(g.log_weights),
        p.means * np.exp(np.clip(step, -_FAR, _FAR)) if positive else p.means + step,
        log_scales,
        float(np.clip(log_noise, *LOG_NOISE_BOUNDS)),
    )


def _unit_rows(gradient: Array) -> Array:
    """Each component's gradient divided by its own 2-norm."""
    norm = np.linalg.norm(gradient, axis=1, keepdims=True)
    return np.asarray(gradient / np.maximum(norm, np.finfo(float).tiny))

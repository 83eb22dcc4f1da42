"""Priors on the spectral points, and the Kullback-Leibler divergence from them.

``KL = sum_q m_q sum_d [ log(st/sigma) + (sigma^2 + (mu - mut)^2)/(2 st^2) - 1/2 ]`` with prior mean
``mut`` and standard deviation ``st``. Differs from the authors' program, which drops the factor
m_q: without it the objective bounds nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bochner.kernel import Array, Counts
from bochner.parameters import Parameters

PRIORS = ("empirical", "start", "authors", "none")


class Prior(NamedTuple):
    """A fixed Gaussian per component and input; or, without means, the empirical-Bayes one.

    The empirical prior has mean zero and one scale per input, shared by all components, at its
    maximiser ``st_d^2 = sum_q m_q (sigma_qd^2 + mu_qd^2) / M``: it ties the components together
    and leaves the scale of each input to the evidence.
    """

    weight: float
    means: Array | None = None
    scales: Array | None = None


class Divergence(NamedTuple):
    """KL and its gradient."""

    value: float
    means_bar: Array
    log_scales_bar: Array


def make_prior(name: str, weight: float, start: Parameters, rng: np.random.Generator) -> Prior:
    """Prior by name, given where learning starts."""
    if name == "empirical":
        return Prior(weight)
    if name == "start":
        return Prior(weight, start.means, np.exp(start.log_scales))
    if name == "authors":
        shape = start.means.shape
        return Prior(weight, 0.05 * rng.random(shape), 0.05 * rng.random(shape))
    return Prior(0.0)


def divergence(p: Parameters, counts: Counts, prior: Prior) -> Divergence:
    """``weight * KL(q || prior)`` for ``counts`` points per component."""
    m = prior.weight * np.asarray(counts, np.float64)[:, None]
    square = np.exp(2.0 * p.log_scales)
    if prior.means is None or prior.scales is None:
        st2 = np.sum(m * (square + np.square(p.means)), axis=0) / max(m.sum(), 1e-300)
        value = np.sum(m * (0.5 * np.log(st2) - p.log_scales)) if prior.weight else 0.0
        if not prior.weight:
            st2 = np.ones_like(st2)
        return Divergence(float(value), m * p.means / st2, m * (square / st2 - 1.0))
    st2 = np.square(prior.scales)
    off = p.means - prior.means
    terms = 0.5 * np.log(st2) - p.log_scales + (square + np.square(off)) / (2.0 * st2) - 0.5
    return Divergence(float(np.sum(m * terms)), m * off / st2, m * (square / st2 - 1.0))

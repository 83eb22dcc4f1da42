"""The named methods as combinations of the same parts, and the settings of one fit, checked."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

from bochner.points import DRAWS, SOBOL_INPUTS
from bochner.prior import PRIORS
from bochner.shares import SHARES, ShareRule


class Method(NamedTuple):
    """What distinguishes one way of learning from another."""

    points: str  # "held" within a round, drawn "once", or "fresh" at every step
    optimiser: str  # "quasi-newton" or "adam"
    prior: str  # "none" leaves the divergence out
    shares: str
    natural: bool = False  # natural gradient of Prop. 3
    draw: str = "iid"
    frequencies: str = "positive"
    dtype: str = "float64"
    kl_weight: float | None = 1.0  # None: by the size of the data
    relearn: bool = False  # weights and noise again at the size of prediction


METHODS = {
    "ss": Method("once", "adam", "none", "equal"),
    "ss-rp": Method("fresh", "adam", "none", "equal"),
    "svss": Method("fresh", "adam", "start", "equal"),
    "svss-ws": Method("fresh", "adam", "start", "variance"),
    "svss-ng": Method("fresh", "adam", "start", "equal", natural=True),
    "svss-wsng": Method("fresh", "adam", "start", "variance", natural=True),
    "auto": Method(
        "held",
        "quasi-newton",
        "empirical",
        "equal",
        draw="sobol",
        frequencies="signed",
        dtype="float32",
        kl_weight=None,
        relearn=True,
    ),
}

_CHOICES: dict[str, tuple[str, ...]] = {
    "inference": tuple(METHODS),
    "posterior": ("auto", "exact", "features"),
    "prior": PRIORS,
    "frequencies": ("signed", "positive", "zero"),
    "draw": tuple(DRAWS),
    "dtype": ("float32", "float64"),
}
_SWITCHES = ("standardize", "verbose", "refine")
_OPTIONAL = ("prior", "frequencies", "draw", "dtype", "kl_weight")  # None: the method's own
_COUNTS = (
    "n_components", "n_points", "n_prediction_points", "n_draws", "n_restarts", "max_evals",
    "mc_samples",
)  # fmt: skip
_SIZED = ("n_components", "mc_samples")  # None: by the size of the data
_MOST_COMPONENTS = 6
MOST_REFINED_ROWS = 3_000
"""Rows beyond which an exact evaluation takes too long to repeat."""

_FEW_ROWS = (500, 2_000)  # below these one more draw of the points, each
_LEAST_KL_WEIGHT, _MOST_KL_WEIGHT = 0.05, 1e6


class Settings(NamedTuple):
    """Everything that steers a fit, resolved and checked."""

    method: Method
    shares: ShareRule
    posterior: str
    refine: bool
    n_components: int
    n_points: int
    n_prediction_points: int
    n_draws: int
    n_restarts: int
    max_evals: int
    mc_samples: int
    kl_weight: float
    tol: float
    learning_rate: float


def resolve(params: Mapping[str, Any], n_rows: int, n_inputs: int) -> Settings:
    """Settings from the arguments of the estimator; a ValueError says what is wrong with one.

    Where an argument is None the method or the size of the data decides.
    """
    _check(params)
    method = METHODS[params["inference"]]
    method = method._replace(
        **{name: params[name] for name in _OPTIONAL if params[name] is not None}
    )
    shares = _share_rule(params["shares"], method)
    method = _drawable(method, params["draw"], n_inputs)
    params = {**params, **_by_size(params, method, shares, n_rows, n_inputs)}
    weight = method.kl_weight
    if weight is None:
        parameters = params["n_components"] * (2 * n_inputs + 1)
        weight = min(max(0.5 * parameters / n_rows, _LEAST_KL_WEIGHT), 1.0)
    for name in ("n_points", "n_prediction_points"):
        fewest = params["n_components"] * shares.floor
        if params[name] < fewest:
            raise ValueError(
                f"{name}={params[name]} spectral points cannot serve n_components="
                f"{params['n_components']}: give {name} of at least {fewest}, or fewer components."
            )
    if params["refine"] and n_rows > MOST_REFINED_ROWS:
        raise ValueError(
            f"refine=True works on at most {MOST_REFINED_ROWS} rows, and X has {n_rows}: every "
            "evaluation would factor that many squared. Give refine=False, or fewer rows."
        )
    if params["refine"] and params["posterior"] == "features":
        raise ValueError(
            "refine=True learns under the exact likelihood, and posterior='features' would not use "
            "it; give posterior='exact', or refine=False."
        )
    names = (*_COUNTS, "tol", "learning_rate", "posterior")
    numbers = {name: params[name] for name in names}
    refine = bool(params["refine"])
    return Settings(method=method, shares=shares, refine=refine, kl_weight=weight, **numbers)


def _check(params: Mapping[str, Any]) -> None:
    """Every argument by itself."""
    for name, choices in _CHOICES.items():
        check_choice(name, params[name], choices)
    for name in _COUNTS:
        if params[name] is not None or name not in _SIZED:
            check_number(name, params[name], Integral, 1, "a whole number of at least 1")
    for name in _SWITCHES:
        if not isinstance(params[name], bool | Integral | np.bool_):
            raise ValueError(f"{name}={params[name]!r}; it must be True or False, or a number.")
    check_number("tol", params["tol"], Real, 0, "finite and not negative")
    check_number("learning_rate", params["learning_rate"], Real, 1e-12, "a positive number")
    if params["n_jobs"] not in (None, -1):
        check_number("n_jobs", params["n_jobs"], Integral, 1, "None, -1 or at least 1")
    if params["callback"] is not None and not callable(params["callback"]):
        raise ValueError(f"callback={params['callback']!r}; it must be None or callable.")
    if params["kl_weight"] is not None:
        wanted = f"None, or between 0 and {_MOST_KL_WEIGHT:g}"
        check_number("kl_weight", params["kl_weight"], Real, 0, wanted, _MOST_KL_WEIGHT)


def _by_size(
    params: Mapping[str, Any], method: Method, shares: ShareRule, n_rows: int, n_inputs: int
) -> dict[str, int]:
    """What depends on the size of the data where the caller left it open.

    A component has 2D + 1 parameters and gets at least three rows for each; with few rows the
    objective is averaged over more draws, or it would be fitted to the points and not the data.
    """
    affordable = n_rows // (3 * (2 * n_inputs + 1))
    samples = sum(n_rows < few for few in (*_FEW_ROWS, float("inf")))
    fewest_points = min(params["n_points"], params["n_prediction_points"]) // shares.floor
    chosen = {
        "n_components": max(min(affordable, _MOST_COMPONENTS, fewest_points), 1),
        "mc_samples": samples if method.optimiser == "quasi-newton" else 1,
    }
    return {name: value for name, value in chosen.items() if params[name] is None}


def _drawable(method: Method, asked: str | None, n_inputs: int) -> Method:
    """Sobol points where there are as many dimensions, unless they were asked for."""
    if method.draw != "sobol" or n_inputs <= SOBOL_INPUTS:
        return method
    if asked is not None:
        raise ValueError(
            f"draw='sobol' serves at most {SOBOL_INPUTS} inputs, and X has {n_inputs}; give "
            "draw='iid', or None."
        )
    return method._replace(draw="iid")


def _share_rule(shares: Any, method: Method) -> ShareRule:
    if isinstance(shares, ShareRule):
        check_choice("shares.name", shares.name, SHARES)
        for name in ("floor", "max_pairs"):
            value = getattr(shares, name)
            check_number(f"shares.{name}", value, Integral, 1, "a whole number of at least 1")
        for name in ("rate", "smoothing"):
            value = getattr(shares, name)
            check_number(f"shares.{name}", value, Real, 0, "between 0 and 1", 1)
        return shares
    if shares is not None:
        check_choice("shares", shares, SHARES)
    return ShareRule(method.shares if shares is None else shares)


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise a sentence where a value is not one of the choices."""
    if value is None and name in _OPTIONAL:
        return
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(repr(c) for c in choices)
        raise ValueError(f"{name}={value!r} is not known; choose one of {listed}.")


def check_number(
    name: str, value: Any, kind: type, least: float, wanted: str, most: float = float("inf")
) -> None:
    """Raise a sentence where a number is not of its kind, finite and within bounds."""
    sound = isinstance(value, kind) and not isinstance(value, bool)
    if not (sound and least <= value <= most and value < float("inf")):
        raise ValueError(f"{name}={value!r}; it must be {wanted}.")

"""What a fit will cost, before it is begun: memory, rough time, and how it will predict."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cache
from numbers import Integral
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bochner.blas import sequential_blas, thread_share
from bochner.cholesky import PANEL
from bochner.conjugate import PANEL_ROWS
from bochner.covariance import Side, tile
from bochner.exact import LANDMARKS, Plan, batch_rows
from bochner.kernel import SpectralMixture
from bochner.refine import FREE_EVALS, HELD_EVALS
from bochner.settings import check_choice, check_number
from bochner.settle import sample_rows

_DOUBLE_ROWS = 10_000  # up to which the factor is float64; beyond, float32 and refined
_AUTO_SECONDS = 20.0  # what "auto" spends at most on exact prediction
_PRODUCT = 384  # size of the product that is timed
_TILE = 256
_PART_OF_MEMORY = 0.7  # of what is free
_ITERATIONS = 200
_FEATURE_EVALUATIONS, _SAMPLE_SECONDS = 130, 1.0
_DOUBLE_ENTRY = 3.0  # times the time of one in float32
_EFFICIENCY = 0.6  # of a small product's rate, in the large ones of a factor


class Rates(NamedTuple):
    """What one thread of this machine does in a second."""

    single: float  # floating-point operations in float32 products
    double: float
    entries: float  # covariance entries of one component


class Cost(NamedTuple):
    """Memory and rough time of a fit, and how it will predict."""

    posterior: str  # "features" or "exact"
    plan: Plan | None  # of the exact posterior
    bytes: int  # at the peak, beyond the data
    seconds: float
    reason: str

    def __str__(self) -> str:
        """One sentence."""
        return (
            f"{self.posterior} prediction: about {self.bytes / 1e9:.2g} GB beyond the data and "
            f"{_spoken(self.seconds)}; {self.reason}"
        )


def cost(
    n_rows: int,
    n_features: int,
    *,
    n_components: int = 6,
    n_points: int = 120,
    posterior: str = "auto",
    memory: int | None = None,
    n_jobs: int | None = None,
) -> Cost:
    """Memory and rough time of a fit, beforehand, and what ``posterior="auto"`` would choose.

    Parameters
    ----------
    n_rows, n_features : int
        Shape of the inputs.
    n_components, n_points : int
        As in `SpectralMixtureRegressor`.
    posterior : {"auto", "exact", "features"}
    memory : int or None
        Bytes that may be used. None: most of what is free now.
    n_jobs : int or None
        Threads. None: all cores that the process may use.

    Examples
    --------
    >>> import bochner
    >>> bochner.cost(500, 3).posterior
    'exact'
    >>> bochner.cost(10_000_000, 10).posterior
    'features'
    """
    for name, value in (
        ("n_rows", n_rows),
        ("n_features", n_features),
        ("n_points", n_points),
        ("n_components", n_components),
    ):
        check_number(name, value, Integral, 1, "a whole number of at least 1")
    check_choice("posterior", posterior, ("auto", "exact", "features"))
    if n_jobs not in (None, -1):
        check_number("n_jobs", n_jobs, Integral, 1, "None, -1 or at least 1")
    limit = int(_PART_OF_MEMORY * free_memory()) if memory is None else memory
    threads = thread_share() if n_jobs in (None, -1) else int(n_jobs or 1)
    features = _features_cost(n_rows, n_features, n_points, threads)
    if posterior == "features":
        return features
    exact = _exact_cost(n_rows, n_features, n_components, limit, threads)
    if posterior == "exact":
        return exact._replace(seconds=exact.seconds + features.seconds)
    if exact.bytes > limit or exact.plan is None or exact.plan.method == "iterative":
        return features._replace(
            reason=f"exact prediction for {n_rows} rows would want "
            f"{_factor_bytes(n_rows) / 1e9:.2g} GB, and {limit / 1e9:.2g} GB may be used"
        )
    if exact.seconds > _AUTO_SECONDS:
        return features._replace(
            reason=f"exact prediction would take about {_spoken(exact.seconds)} more; "
            "posterior='exact' asks for it"
        )
    return exact._replace(seconds=exact.seconds + features.seconds)


def in_float64(expected: Cost, n_rows: int) -> Cost:
    """The same with a float64 factor, for noise that float32 does not resolve, where it fits."""
    size = 8 * n_rows * (n_rows + 2 * batch_rows(n_rows))
    if expected.plan is None or expected.plan.method == "cholesky":
        return expected
    if size > _PART_OF_MEMORY * free_memory():
        return expected
    reason = f"a float64 factor of {n_rows} rows fits, and the noise is too small for float32"
    return expected._replace(plan=Plan("cholesky"), bytes=max(size, expected.bytes), reason=reason)


def _features_cost(n: int, d: int, m: int, threads: int) -> Cost:
    per_row = 4.0 * m * d + 3.0 * (2 * m) ** 2
    seconds = _SAMPLE_SECONDS
    seconds += _FEATURE_EVALUATIONS * n * per_row / (_EFFICIENCY * rates().single * threads)
    kept = min(1 << 30, 4 * n * (2 * m + 1))
    return Cost("features", None, kept + 8 * n * d, seconds, "as it was asked for")


def _exact_cost(n: int, d: int, q: int, limit: int, threads: int) -> Cost:
    """The cheapest way that fits: a float64 factor, a float32 one, conjugate gradients."""
    speed = rates()
    covariance = n**2 / 2 * q / (speed.entries * threads)
    settling = (HELD_EVALS + FREE_EVALS) * _evaluation(sample_rows(n), d, q, threads)
    # The sample's matrices, the rows prepared for tiles, and test rows in flight.
    batch = 4 * 8 * sample_rows(n) ** 2 + 24 * n * d * q + 16 * n * batch_rows(n)
    if n <= _DOUBLE_ROWS and 8 * n**2 + batch <= limit:
        seconds = settling + covariance + n**3 / 3 / (_EFFICIENCY * speed.double * threads)
        reason = f"a float64 factor of {n} rows fits"
        return Cost("exact", Plan("cholesky"), 8 * n**2 + batch, seconds, reason)
    size = _factor_bytes(n) + batch
    if size <= limit:
        seconds = settling + covariance + n**3 / 3 / (_EFFICIENCY * speed.single * threads)
        reason = f"a float32 factor of {n} rows fits"
        return Cost("exact", Plan("cholesky-float32"), size, seconds, reason)
    fixed = 4 * n * min(LANDMARKS, n) + 6 * 8 * min(LANDMARKS, n) ** 2 + batch
    keep = max(limit - fixed, 0)
    missing = max(1.0 - keep / (2.0 * n**2), 0.0)
    seconds = settling + covariance * (1.0 + missing * _ITERATIONS)
    seconds += 4.0 * n * min(LANDMARKS, n) ** 2 / (_EFFICIENCY * speed.double * threads)
    reason = f"conjugate gradients, since a factor of {n} rows does not fit into memory"
    used = fixed + int(min(keep, 2 * n**2))
    return Cost("exact", Plan("iterative", keep), used, seconds, reason)


def _evaluation(n: int, d: int, q: int, threads: int) -> float:
    """Seconds of one evaluation of the exact likelihood and its gradient, in float64."""
    speed = rates()
    entries = 2 * n**2 * q * (_DOUBLE_ENTRY / speed.entries + (8 * d + 4) / speed.double)
    return n**3 / (_EFFICIENCY * speed.double) + entries / threads


def _factor_bytes(n: int) -> int:
    """A square of float32, and copies of its diagonal blocks."""
    return 4 * n**2 + 4 * n * (PANEL + PANEL_ROWS)


@cache
def rates() -> Rates:
    """Rates measured on this machine, in some milliseconds, once a process."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((_PRODUCT, _PRODUCT))
    kernel = SpectralMixture([1.0], [[0.1, 0.1]], [[0.1, 0.1]])
    side = Side.of(kernel, A[:_TILE, :2], "float32")
    A32 = A.astype(np.float32)
    with sequential_blas():
        single, double, tiles = (
            _seconds(work) for work in (lambda: A32 @ A32, lambda: A @ A, lambda: tile(side, side))
        )
    return Rates(2 * _PRODUCT**3 / single, 2 * _PRODUCT**3 / double, _TILE**2 / tiles)


def _seconds(work: Callable[[], object]) -> float:
    """The least of a few runs."""
    times = []
    for _ in range(4):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def free_memory() -> int:
    """Bytes that this process could still have: of the machine, and of its control group."""
    free = [_meminfo("MemAvailable")]
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        most, now = _number(limit), _number(used)
        if most is not None and now is not None:
            free.append(most - now)
    known = [f for f in free if f is not None and f > 0]
    if known:
        return min(known)
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)


def _meminfo(field: str) -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith(field)]
    return 1024 * int(found[0]) if found else None


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None


def _spoken(seconds: float) -> str:
    """Rough time as a person would say it."""
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 1 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5_400 else f"{seconds / 3600:.0f} hours"

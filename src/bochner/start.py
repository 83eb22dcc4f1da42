"""Where learning starts, from the data: inputs and outputs standardised."""

from __future__ import annotations

import numpy as np
from scipy.signal import lombscargle

from bochner.kernel import Array
from bochner.parameters import Parameters
from bochner.settings import Settings

# Each start tries another smoothness (relative to a length scale of sqrt(D)) and noise level.
_BREADTHS = (1.0, 2.0, 0.2, 0.5, 2.0, 5.0)
_NOISES = (0.1, 0.02, 0.1, 0.05, 0.1, 0.1)
_SPREAD = 2.0  # components start from half to twice the breadth
_FEWEST_PEAK_ROWS, _MAX_PEAK_ROWS = 8, 4_000
_GRID_ELEMENTS = 1_000_000


def random_start(k: int, shape: tuple[int, int], rng: np.random.Generator) -> Parameters:
    """Start number k: components of graded breadth, means scattered within a scale of zero."""
    q, d = shape
    graded = np.geomspace(1.0 / _SPREAD, _SPREAD, q) if q > 1 else np.ones(1)
    scale = _BREADTHS[k % len(_BREADTHS)] / (2.0 * np.pi * np.sqrt(d)) * graded
    scales = np.broadcast_to(scale[:, None], shape)
    means = scales * rng.standard_normal(shape)
    noise = _NOISES[k % len(_NOISES)]
    return Parameters(np.full(q, -np.log(q)), means, np.log(scales), float(np.log(noise)))


def paper_start(shape: tuple[int, int], rng: np.random.Generator) -> Parameters:
    """The paper's: equal weights, mu ~ U(0, .25), sigma ~ .05 + U(0, .45), noise sd a tenth."""
    q = shape[0]
    means = 0.25 * rng.random(shape)
    scales = 0.05 + 0.45 * rng.random(shape)
    return Parameters(np.full(q, -np.log(q)), means, np.log(scales), float(np.log(0.01)))


def spectral_start(X: Array, y: Array, n_components: int, rng: np.random.Generator) -> Parameters:
    """For one input: a smooth component, and the highest peaks of the periodogram.

    Peaks are removed one by one from the detrended series, each at the best frequency left.
    """
    t, z = _sample(X[:, 0], y, rng)
    span = float(np.ptp(t))
    t = t - t.mean()
    grid = np.arange(1.0, max(len(t) / 2, 2.0), 0.25) / span
    residual = z - np.polyval(np.polyfit(t / span, z, 2), t / span)
    total = max(float(np.mean(np.square(residual))), 1e-9)
    means, shares = [0.0], [1.0]
    for _ in range(n_components - 1):
        f = float(grid[int(np.argmax(_power(t, residual, grid)))])
        waves = np.stack([np.cos(2 * np.pi * f * t), np.sin(2 * np.pi * f * t)], axis=1)
        fitted = waves @ np.linalg.lstsq(waves, residual, rcond=None)[0]
        residual = residual - fitted
        means.append(f)
        shares.append(float(np.clip(np.mean(np.square(fitted)) / total, 1e-3, 1.0)))
    scales = np.full((n_components, 1), 0.2 / span)
    scales[0] = 0.5 / span
    noise = float(np.clip(np.mean(np.square(residual)), 1e-4, 0.5))
    weights = np.maximum(np.array(shares) * total, 1e-3)
    weights[0] = 1.0
    return Parameters(np.log(weights), np.array(means)[:, None], np.log(scales), np.log(noise))


def _power(t: Array, z: Array, grid: Array) -> Array:
    """Periodogram, some frequencies at a time: SciPy holds several arrays of both lengths."""
    step = max(_GRID_ELEMENTS // len(t), 1)
    parts = [grid[i : i + step] for i in range(0, len(grid), step)]
    return np.concatenate([lombscargle(t, z, 2.0 * np.pi * part) for part in parts])


def _sample(t: Array, y: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """All points, or so many random ones that the periodogram stays cheap."""
    if len(t) <= _MAX_PEAK_ROWS:
        return t, y
    kept = np.sort(rng.permutation(len(t))[:_MAX_PEAK_ROWS])
    return t[kept], y[kept]


def starts_for(
    X: Array, Y: Array, settings: Settings, rng: np.random.Generator
) -> list[Parameters]:
    """All starts of a fit: the paper's for its methods; ours from the data otherwise."""
    q, d = settings.n_components, X.shape[1]
    if settings.method.optimiser == "adam":
        starts = [paper_start((q, d), rng)]
    else:
        starts = [random_start(k, (q, d), rng) for k in range(settings.n_restarts)]
        if d == 1 and len(np.unique(X)) > 2 * _FEWEST_PEAK_ROWS:
            starts.append(spectral_start(X, Y[:, 0], q, rng))
    if settings.method.frequencies == "signed":
        return starts
    if settings.method.frequencies == "zero":
        return [s._replace(means=np.zeros((q, d))) for s in starts]
    return [s._replace(means=np.abs(s.means) + 1e-3 * np.exp(s.log_scales)) for s in starts]

"""Forecast ten years of CO2 that were held back, then say what the kernel has found.

``python demo/co2.py [PICTURE]`` writes ``demo/forecast.png`` unless told otherwise.

The record is the monthly mean CO2 at Mauna Loa by NOAA's Global Monitoring Laboratory (public
domain), 1959 to 2024. A parabola, fitted to the training years alone, carries the trend: a
spectral mixture is stationary and returns to its mean. The parabola's own uncertainty is not in
the intervals.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import matplotlib
import numpy as np

from bochner import SpectralMixtureRegressor

matplotlib.use("Agg")
from matplotlib import pyplot as plt

HERE = Path(__file__).parent
HELD_BACK_YEARS = 10.0
ENOUGH_INSIDE = 0.9
LEAST_SHARE = 0.02  # of the variance about the trend: what is worth naming


def main() -> None:
    """Fit, check, forecast, draw."""
    t, y = np.loadtxt(HERE / "mauna_loa_co2.csv", delimiter=",", skiprows=1, unpack=True)
    cut = t[-1] - HELD_BACK_YEARS
    known = t <= cut
    trend = np.poly1d(np.polyfit(t[known] - cut, y[known], 2))

    print(f"Learning from {known.sum()} months, {t[0]:.0f} to {cut:.0f} ...", flush=True)
    began = time.perf_counter()
    model = SpectralMixtureRegressor(random_state=0, verbose=1)
    model.fit(t[known, None], y[known] - trend(t[known] - cut))
    print(f"Learned and conditioned in {time.perf_counter() - began:.1f} s.\n")

    print("Periods in the record, about its trend (share of the variance there):")
    for period, share in periods(model):
        print(f"  {period:6.2f} years   {share:5.1%}")
    print(f"Noise: {np.sqrt(model.noise_variance_):.2f} ppm\n")

    ahead = ~known
    mean, std = model.predict(t[ahead, None], return_std=True)
    mean += trend(t[ahead] - cut)
    off = y[ahead] - mean
    inside = np.mean(np.abs(off) <= 1.96 * std)
    season = seasonal_naive(t, y, known, trend, cut)
    print(f"The ten years held back: RMSE {rms(off):.2f} ppm, {inside:.0%} within 95% intervals.")
    if inside < ENOUGH_INSIDE:
        print("  Too few: the trend's own uncertainty is not in them. Trust a year or two.")
    print(f"The same with last year's season repeated: {rms(y[ahead] - season):.2f} ppm; ", end="")
    print(f"the parabola alone: {rms(y[ahead] - trend(t[ahead] - cut)):.2f} ppm.")
    draw(t, y, known, mean, std)


def periods(model: SpectralMixtureRegressor) -> list[tuple[float, float]]:
    """Periods of components that turn at least twice before they are forgotten, by share."""
    kernel = model.kernel_
    shares = kernel.weights / kernel.variance
    regular = np.abs(kernel.means[:, 0]) > 2.0 * kernel.scales[:, 0]
    named = [
        (float(kernel.periods[q, 0]), float(shares[q]))
        for q in np.argsort(-shares)
        if regular[q] and shares[q] >= LEAST_SHARE
    ]
    return named or [(float("inf"), 0.0)]


def seasonal_naive(
    t: np.ndarray, y: np.ndarray, known: np.ndarray, trend: np.poly1d, cut: float
) -> np.ndarray:
    """The last twelve known months about the trend, over and over."""
    last = (y[known] - trend(t[known] - cut))[-12:]
    n = int((~known).sum())
    return np.resize(last, n) + trend(t[~known] - cut)


def rms(values: np.ndarray) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(np.square(values))))


def draw(
    t: np.ndarray, y: np.ndarray, known: np.ndarray, mean: np.ndarray, std: np.ndarray
) -> None:
    """The last thirty years: what was learned from, what was held back, the forecast."""
    ahead = ~known
    shown = t > t[-1] - 30.0
    figure, ax = plt.subplots(figsize=(8.0, 4.0))
    ax.fill_between(
        t[ahead], mean - 1.96 * std, mean + 1.96 * std, color="#0072b2", alpha=0.2, lw=0
    )
    ax.plot(t[ahead], mean, color="#0072b2", lw=1.5, label="forecast, with 95% intervals")
    ax.plot(t[known & shown], y[known & shown], color="black", lw=1.0, label="learned from")
    ax.plot(t[ahead], y[ahead], ".", color="#d55e00", ms=3.5, label="held back")
    ax.set(xlabel="year", ylabel="CO2 at Mauna Loa, ppm", xlim=(t[-1] - 30.0, t[-1] + 0.3))
    ax.legend(frameon=False, loc="upper left")
    ax.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "forecast.png"
    figure.savefig(path, dpi=130)
    print(f"Picture: {path}")


if __name__ == "__main__":
    main()

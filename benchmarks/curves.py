"""Learning curves of the paper's six methods, together in one picture.

``python -m benchmarks.curves [--only concrete,skillcraft] [--splits 5] [--steps 2000]`` runs every
method from the same start on the same splits and looks at the errors every 20 steps, as the paper
does: one fresh draw of M points, conditioned on all training rows. From the paper's start the
kernel is too rough for the 19 inputs of skillcraft and no method leaves it, so that a third panel
has scales and means divided by sqrt(D). Writes
``benchmarks/results/curves.json`` after every run, so that an interrupted one goes on where it
was, and ``docs/images/curves.png``.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.data import Split, load
from bochner import SpectralMixtureRegressor
from bochner.blas import sequential_blas
from bochner.condition import condition
from bochner.objective import Problem
from bochner.parameters import Parameters
from bochner.points import draw_points
from bochner.prior import make_prior
from bochner.progress import Watch
from bochner.rows import ThreadedRows
from bochner.sampling import PointSource
from bochner.settings import resolve
from bochner.shares import round_shares
from bochner.start import starts_for
from bochner.stochastic import learn_by_steps

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "curves.json"
PICTURE = ROOT / "docs" / "images" / "curves.png"
METHODS = ("ss", "ss-rp", "svss", "svss-ws", "svss-ng", "svss-wsng")
LOOK_EVERY = 20
# Colours that stay apart in grey and for the colour-blind, and a mark each.
LOOKS = {
    "ss": ("#000000", "o"),
    "ss-rp": ("#8c8c8c", "s"),
    "svss": ("#0072b2", "^"),
    "svss-ws": ("#56b4e9", "v"),
    "svss-ng": ("#d55e00", "D"),
    "svss-wsng": ("#e69f00", "P"),
}


class Panel(NamedTuple):
    """One panel of the picture."""

    data: str
    title: str
    narrow: bool = False  # start from a spectrum narrower by sqrt(D)


PANELS = {
    "concrete": Panel("concrete", "concrete (standardised)"),
    "skillcraft": Panel("skillcraft", "skillcraft (log)"),
    "skillcraft-narrow": Panel("skillcraft", "skillcraft (log), start / sqrt(D)", narrow=True),
}


class Standardised(NamedTuple):
    """One split in the paper's units: mean 0 and variance 1 on the training rows."""

    X: np.ndarray
    Y: np.ndarray
    X_test: np.ndarray
    Y_test: np.ndarray
    unit: float

    @classmethod
    def of(cls, split: Split) -> Standardised:
        """A split so scaled."""
        centre, scale = split.X.mean(axis=0), split.X.std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        y_centre, y_scale = split.y.mean(), float(split.y.std())
        return cls(
            (split.X - centre) / scale,
            ((split.y - y_centre) / y_scale)[:, None],
            (split.X_test - centre) / scale,
            ((split.y_test - y_centre) / y_scale)[:, None],
            y_scale * split.unit,
        )


class Looking(Watch):
    """Keeps the parameters that errors will be measured at."""

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self.kept: list[Parameters] = []

    def seen(self, stage: str, n_rows: int, p: Parameters, result: object) -> float:
        """Record as ever; keep the parameters now and then."""
        if len(self.trace) % LOOK_EVERY == 0:
            self.kept.append(p)
        return super().seen(stage, n_rows, p, result)


def curve(
    data: Standardised, method: str, steps: int, seed: int, narrow: bool
) -> dict[str, list[float]]:
    """Errors on training and test rows along one run, and the seconds that learning took."""
    asked = SpectralMixtureRegressor(
        inference=method,
        n_components=4,
        n_points=60,
        n_prediction_points=60,
        n_draws=1,
        max_evals=steps,
    )
    settings = resolve(asked.get_params(), *data.X.shape)
    rng = np.random.default_rng(seed)  # the same start for every method
    start = starts_for(data.X, data.Y, settings, rng)[0]
    if narrow:
        root = np.sqrt(data.X.shape[1])
        start = start._replace(means=start.means / root, log_scales=start.log_scales - np.log(root))
    rows = ThreadedRows(data.X, data.Y, settings.method.dtype)
    prior = make_prior(settings.method.prior, settings.kl_weight, start, rng)
    problem = Problem(rows, 1, np.mean(np.square(data.X), axis=0), prior)
    watch = Looking(steps)
    began = time.perf_counter()
    source = PointSource(settings, data.X, rng)
    learned = learn_by_steps(problem, start, settings, source, watch)
    seconds = time.perf_counter() - began
    found = {"train": [], "test": []}
    fresh = np.random.default_rng(seed + 1)
    for p in [*watch.kept, learned.parameters]:
        counts = round_shares(learned.counts, settings.n_prediction_points)
        points = [draw_points("iid", counts, data.X.shape[1], fresh)]
        posterior = condition(problem, p, points, False, None).posterior
        for name, X, Y in (("train", data.X, data.Y), ("test", data.X_test, data.Y_test)):
            off = posterior.mean(X) - Y
            found[name].append(float(np.sqrt(np.mean(np.square(off)))) * data.unit)
    weights = learned.parameters.kernel.weights
    return found | {
        "seconds": [seconds],
        "counts": [int(m) for m in learned.counts],
        "weights": [float(w) for w in weights],
    }


def run(names: list[str], n_splits: int, steps: int) -> dict[str, dict[str, list[float]]]:
    """All curves that are not there yet."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in names:
        for k in range(n_splits):
            data = Standardised.of(load(PANELS[name].data, k))
            for method in METHODS:
                key = f"{name}/{k}/{method}/{steps}"
                if key in results:
                    continue
                with sequential_blas():
                    results[key] = curve(data, method, steps, k, PANELS[name].narrow)
                last = results[key]["test"][-1]
                print(f"  {key:<34} test RMSE {last:.4f}", flush=True)
                RESULTS.parent.mkdir(exist_ok=True)
                RESULTS.write_text(json.dumps(_rounded(results), indent=None) + "\n")
    return results


def _rounded(results: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, list[float]]]:
    return {
        key: {field: [round(v, 5) for v in values] for field, values in found.items()}
        for key, found in results.items()
    }


def mean_curve(results: dict, name: str, method: str, steps: int, field: str) -> np.ndarray:
    """Mean over the splits that were run."""
    keys = [k for k in results if k.startswith(f"{name}/") and k.endswith(f"/{method}/{steps}")]
    return np.mean([results[k][field] for k in keys], axis=0)


def show(results: dict, names: list[str], steps: int) -> None:
    """The table: least and last test error, last training error, and the gap that over-fits."""
    print("\n| set | method | best test | last test | last train | last gap | seconds |")
    print("|---|---|---|---|---|---|---|")
    for name in names:
        for method in METHODS:
            test, train, seconds = (
                mean_curve(results, name, method, steps, field)
                for field in ("test", "train", "seconds")
            )
            print(
                f"| {name} | {method} | {test.min():.4f} | {test[-5:].mean():.4f} | "
                f"{train[-5:].mean():.4f} | {(test - train)[-5:].mean():.4f} | {seconds[0]:.1f} |"
            )


def draw(results: dict, names: list[str], steps: int) -> None:
    """One panel a set: test error solid, training error dotted."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(names), figsize=(5.0 * len(names), 4.4), squeeze=False)
    for ax, name in zip(axes[0], names, strict=True):
        highest = 0.0
        for method, (colour, mark) in LOOKS.items():
            test, train = (
                mean_curve(results, name, method, steps, field) for field in ("test", "train")
            )
            at = LOOK_EVERY * np.arange(len(test))
            ax.plot(at, test, color=colour, marker=mark, markevery=12, ms=5, label=method)
            ax.plot(at, train, color=colour, ls=":", lw=1.2)
            highest = max(highest, float(np.max(test[2:])))
        ax.set(title=PANELS[name].title, xlabel="steps of Adam", ylim=(None, 1.02 * highest))
        ax.set_ylabel("RMSE (solid: test, dotted: training)")
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25)
    axes[0, -1].legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    figure.tight_layout()
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=110)
    print(f"Written to {PICTURE.relative_to(ROOT)}.")


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PANELS), help="names of panels, with commas")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2_000)
    args = parser.parse_args()
    names = args.only.split(",")
    results = run(names, args.splits, args.steps)
    show(results, names, args.steps)
    draw(results, names, args.steps)


if __name__ == "__main__":
    main()

"""What each default is worth: one thing changed at a time, measured on rows cut from training sets.

``python -m benchmarks.choices [--only NAME,NAME] [--splits 3]`` prints a table of standardised
RMSE and NLL and writes ``benchmarks/results/choices.json`` after every fit; what is there already
is not run again. The test rows of the sets are never looked at.
"""

from __future__ import annotations

import argparse
import json
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.accuracy import ours
from benchmarks.data import Split, load
from bochner.parameters import Coordinates

RESULTS = Path(__file__).parent / "results" / "choices.json"
SETS = ("concrete", "skillcraft", "kin8nm", "parkinsons", "elevators")
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "plain coordinates": {},
    "prior none": {"prior": "none"},
    "prior at the start": {"prior": "start"},
    "kl_weight 1": {"kl_weight": 1.0},
    "draw iid": {"draw": "iid"},
    "draw orthogonal": {"draw": "orthogonal"},
    "shares variance": {"shares": "variance"},
    "n_restarts 1": {"n_restarts": 1},
    "max_evals 60": {"max_evals": 60},
    "max_evals 300": {"max_evals": 300},
    "n_points 60": {"n_points": 60},
    "n_points 240": {"n_points": 240},
    "mc_samples 1": {"mc_samples": 1},
    "n_components 3": {"n_components": 3},
    "n_components 10": {"n_components": 10},
    "n_prediction_points 120": {"n_prediction_points": 120},
    "n_draws 1": {"n_draws": 1},
}


def validation(name: str, k: int) -> Split:
    """A tenth of the training rows of split k, held out of the others."""
    split = load(name, k)
    order = np.random.default_rng(k).permutation(len(split.y))
    held, kept = order[: len(order) // 10], order[len(order) // 10 :]
    return Split(split.X[kept], split.y[kept], split.X[held], split.y[held], split.unit)


def plain_coordinates(*args: Any, relative: bool) -> Coordinates:
    """Coordinates without the shared one of each input."""
    return Coordinates(*args, relative=False)


def run(names: list[str], n_splits: int) -> dict[str, dict[str, float]]:
    """All fits that are not there yet."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in names:
        for k in range(n_splits):
            split = validation(name, k)
            for variant, settings in VARIANTS.items():
                key = f"{name}/{k}/{variant}"
                if key in results:
                    continue
                plain = variant == "plain coordinates"
                patch = mock.patch("bochner.learn.Coordinates", plain_coordinates)
                with patch if plain else nullcontext():
                    found = ours(split, posterior="features", **settings)
                results[key] = {f: round(found[f], 5) for f in ("standardised", "nll", "fit")}
                print(f"  {key:<44} {found['standardised']:.4f}", flush=True)
                RESULTS.write_text(json.dumps(results, indent=0) + "\n")
    return results


def show(results: dict[str, dict[str, float]], names: list[str], n_splits: int) -> None:
    """Standardised RMSE and NLL, means over the splits."""
    print("\n| changed | " + " | ".join(names) + " |\n|---" + "|---" * len(names) + "|")
    for variant in VARIANTS:
        cells = []
        for name in names:
            rows = [results[f"{name}/{k}/{variant}"] for k in range(n_splits)]
            error, nll = (np.mean([r[f] for r in rows]) for f in ("standardised", "nll"))
            cells.append(f"{error:.4f} ({nll:.2f})")
        print(f"| {variant} | " + " | ".join(cells) + " |")


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(SETS), help="names of sets, with commas")
    parser.add_argument("--splits", type=int, default=3)
    args = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # extreme rows are part of these sets
    names = args.only.split(",")
    show(run(names, args.splits), names, args.splits)


if __name__ == "__main__":
    main()

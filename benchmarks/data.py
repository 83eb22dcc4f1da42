"""The data sets of the benchmarks, from the folder that BOCHNER_DATA names, with their splits."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

# name: file below the folder, and whether targets are shown standardised, as they are, or log1p
_FILES = {
    "concrete": "gpbench/concrete.npz",
    "skillcraft": "gpbench/skillcraft.npz",
    "kin8nm": "kin8nm.npz",
    "elevators": "gpbench/elevators.npz",
    "parkinsons": "gpbench/parkinsons.npz",
    "parkinsons_with_motor": "parkinsons_with_motor.npz",
    "protein": "gpbench/protein.npz",
    "blog": "blogfeedback.npz",
}
_STANDARDISED = {"concrete"}
_LOG1P = {"blog"}


class Split(NamedTuple):
    """Training and test rows of one split; ``unit`` turns errors of y into the table's units."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    unit: float


def load(name: str, split: int) -> Split:
    """One 90/10 split: the published mask where there is one, else a seeded permutation."""
    folder = os.environ.get("BOCHNER_DATA")
    if not folder:
        sys.exit("Set BOCHNER_DATA to the folder with the data sets, then run this again.")
    path = Path(folder) / _FILES[name]
    if not path.exists():
        sys.exit(f"BOCHNER_DATA={folder} holds no {_FILES[name]}; give the folder that does.")
    with np.load(path) as file:
        X, y = file["X"], file["y"]
        masks = file.get("test_mask")
    y = np.log1p(y) if name in _LOG1P else y
    test = np.zeros(len(y), bool)
    if masks is not None:
        test = masks[:, split]
    else:
        test[np.random.default_rng(1000 + split).permutation(len(y))[: len(y) // 10]] = True
    unit = 1.0 / float(y[~test].std()) if name in _STANDARDISED else 1.0
    return Split(X[~test], y[~test], X[test], y[test], unit)

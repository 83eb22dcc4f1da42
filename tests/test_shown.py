"""Everything shown is run: the demo, and the benchmarks on something tiny."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from synthetic import waves

from benchmarks import accuracy, choices, curves, speed
from benchmarks.data import Split

ROOT = Path(__file__).parent.parent


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Every set is a small synthetic one, and nothing is written to the project."""
    X, y = waves(120)
    split = Split(X[:90], y[:90], X[90:], y[90:], 1.0)
    for module in (accuracy, choices, curves):
        monkeypatch.setattr(module, "load", lambda name, k: split)
        monkeypatch.setattr(module, "RESULTS", tmp_path / f"{module.__name__}.json")
    return split


def test_the_demo_finds_the_year_and_draws(monkeypatch, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "forecast.png"
    monkeypatch.setattr(sys, "argv", ["co2.py", str(picture)])
    where = importlib.util.spec_from_file_location("co2", ROOT / "demo" / "co2.py")
    demo = importlib.util.module_from_spec(where)
    where.loader.exec_module(demo)
    demo.main()
    said = capsys.readouterr().out
    assert " 1.00 years" in said
    assert " 0.50 years" in said
    assert picture.stat().st_size > 10_000


@pytest.mark.parametrize("name", ["bochner", "bochner-unkept", "bochner-float64", "reference"])
def test_a_contestant_of_the_speed_benchmark_runs(monkeypatch, name):
    monkeypatch.setattr(speed, "_FULL", speed.Effort(0.0, 1, 1))
    monkeypatch.setattr(speed, "_TRIAL", speed.Effort(0.0, 1, 1))
    record = speed.measure(name, (300, 3, 6), rounds=1)
    assert record["seconds"] > 0
    assert ("value" in record) == (name != "reference")


def test_pins_of_kernels_are_left_out_for_every_contestant(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    assert "OPENBLAS_CORETYPE" not in speed.environment(as_is=False)
    assert speed.environment(as_is=True)["OPENBLAS_CORETYPE"] == "Haswell"


def test_the_table_of_errors_is_made(monkeypatch, capsys, tiny):
    monkeypatch.setattr(accuracy, "METHODS", {
        "features": lambda s: accuracy.ours(s, **accuracy.FAST),
        "least squares": accuracy.METHODS["least squares"],
    })  # fmt: skip
    accuracy.table(["concrete"], n_splits=1)
    assert "| concrete | features | 0.265 |" in capsys.readouterr().out


def test_the_nll_of_the_tables_is_that_of_standardised_outputs(tiny):
    here = accuracy.ours(tiny, **accuracy.FAST)
    moved = tiny._replace(y=1024 * tiny.y, y_test=1024 * tiny.y_test)
    assert accuracy.ours(moved, **accuracy.FAST)["nll"] == pytest.approx(here["nll"], rel=1e-9)


def test_the_table_of_choices_is_made(monkeypatch, capsys, tiny):
    small = {k: v for k, v in accuracy.FAST.items() if k != "posterior"}
    monkeypatch.setattr(choices, "VARIANTS", {
        "default": small, "plain coordinates": small,
    })  # fmt: skip
    choices.show(choices.run(["concrete"], 1), ["concrete"], 1)
    assert "| plain coordinates |" in capsys.readouterr().out


def test_validation_rows_are_cut_from_the_training_rows(tiny):
    split = choices.validation("concrete", 0)
    assert len(split.y_test) == 9
    assert set(split.y) | set(split.y_test) == set(tiny.y)
    assert not set(split.y) & set(split.y_test)


def test_learning_curves_are_run_and_drawn(monkeypatch, capsys, tiny, tmp_path):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(curves, "PICTURE", tmp_path / "curves.png")
    monkeypatch.setattr(curves, "ROOT", tmp_path)
    names = ["skillcraft", "skillcraft-narrow"]
    results = curves.run(names, n_splits=1, steps=60)
    curves.show(results, names, 60)
    curves.draw(results, names, 60)
    assert np.isfinite(results["skillcraft/0/svss-wsng/60"]["test"]).all()
    assert (tmp_path / "curves.png").exists()

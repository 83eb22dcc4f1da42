import warnings

import numpy as np
import pytest
from synthetic import settings_of

from bochner import SpectralMixtureRegressor
from bochner.start import spectral_start, starts_for


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_the_periods_of_a_series_are_where_the_start_looks(rng):
    t = np.sort(rng.uniform(0.0, 50.0, 400))
    y = np.sin(2 * np.pi * t / 5.0) + 0.5 * np.sin(2 * np.pi * t / 1.7)
    start = spectral_start(t[:, None], y, 3, rng)
    np.testing.assert_allclose(1.0 / start.means[1:, 0], [5.0, 1.7], rtol=0.02)
    assert start.means[0, 0] == 0.0


def test_where_the_clock_started_does_not_matter(rng):
    t = np.sort(rng.uniform(0.0, 50.0, 200))
    y = np.sin(2 * np.pi * t / 5.0)
    here, there = (spectral_start(t[:, None] + c, y, 3, rng) for c in (0.0, 1e9))
    np.testing.assert_allclose(there.means, here.means, rtol=1e-3)


@pytest.mark.parametrize(
    "t", [np.ones(50), np.arange(50.0) % 2, 1e9 + np.arange(50.0)], ids=["one", "two", "far"]
)
@pytest.mark.parametrize("standardize", [True, False])
def test_times_that_repeat_or_lie_far_off_are_no_trouble(t, standardize):
    model = SpectralMixtureRegressor(
        standardize=standardize, max_evals=4, n_restarts=1, n_points=12, n_prediction_points=24
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.all(np.isfinite(model.fit(t[:, None], np.arange(50.0)).predict(t[:, None])))


def test_there_are_as_many_starts_as_restarts_and_one_more_for_series(rng):
    settings = settings_of(n_restarts=3)
    for d, expected in ((1, 4), (2, 3)):
        X = rng.standard_normal((40, d))
        assert len(starts_for(X, X[:, :1], settings, rng)) == expected


def test_starts_from_the_same_seed_are_the_same():
    X = np.random.default_rng(1).standard_normal((30, 2))
    one, two = (
        starts_for(X, X[:, :1], settings_of(), np.random.default_rng(3))[0] for _ in range(2)
    )
    np.testing.assert_array_equal(one.means, two.means)

import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from synthetic import quick, waves

from bochner import SpectralMixture, SpectralMixtureRegressor


def two_outputs(n=120):
    X, y = waves(n)
    return X, np.stack([y, 3.0 + 10.0 * np.cos(X[:, 1])], axis=1)


def test_one_output_gives_arrays_of_one_dimension():
    X, y = waves()
    model = quick().fit(X, y)
    mean, std = model.predict(X[:7], return_std=True)
    same, cov = model.predict(X[:7], return_cov=True)
    assert mean.shape == std.shape == same.shape == model.predict(X[:7]).shape == (7,)
    assert cov.shape == (7, 7)
    assert model.sample_y(X[:7]).shape == (7, 1)
    assert model.sample_y(X[:7], n_samples=5).shape == (7, 5)
    assert model.log_predictive_density(X[:7], y[:7]).shape == (7,)
    assert isinstance(model.noise_variance_, float)


@pytest.mark.parametrize("p", [1, 2])
def test_outputs_in_columns_come_back_in_columns(p):
    X, Y = two_outputs()
    Y = Y[:, :p]
    model = quick().fit(X, Y)
    mean, std = model.predict(X[:7], return_std=True)
    _, cov = model.predict(X[:7], return_cov=True)
    assert mean.shape == std.shape == model.predict(X[:7]).shape == (7, p)
    assert cov.shape == (7, 7, p)
    assert model.sample_y(X[:7], n_samples=5).shape == (7, p, 5)
    assert model.log_predictive_density(X[:7], Y[:7]).shape == (7,)
    assert model.noise_variance_.shape == (p,)
    assert model.score(X, Y) > 0.8


def test_one_column_is_the_same_model_as_no_column():
    X, y = waves()
    flat, column = quick().fit(X, y), quick().fit(X, y[:, None])
    np.testing.assert_array_equal(flat.predict(X), column.predict(X)[:, 0])
    np.testing.assert_array_equal(flat.sample_y(X, 3), column.sample_y(X, 3)[:, 0])


def test_outputs_keep_their_own_units():
    X, Y = two_outputs(300)
    model = quick(max_evals=40).fit(X, Y)
    error = np.sqrt(np.mean((model.predict(X) - Y) ** 2, axis=0))
    assert np.all(error < 0.3 * Y.std(axis=0))
    ratio = model.noise_variance_ / Y.var(axis=0)
    assert ratio[0] == pytest.approx(ratio[1])


def test_the_three_ways_of_asking_give_the_same_mean():
    X, y = waves()
    model = quick().fit(X, y)
    mean, std = model.predict(X, return_std=True)
    same, cov = model.predict(X, return_cov=True)
    np.testing.assert_allclose(mean, model.predict(X), atol=1e-10)
    np.testing.assert_allclose(same, model.predict(X), atol=1e-10)
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-4)


@pytest.mark.parametrize("columns", [False, True])
def test_latent_leaves_exactly_the_noise_out(columns):
    X, Y = two_outputs()
    model = quick().fit(X, Y if columns else Y[:, 1])
    noisy, latent = (model.predict(X, return_std=True, latent=k)[1] for k in (False, True))
    np.testing.assert_allclose(
        noisy**2 - latent**2, np.broadcast_to(model.noise_variance_, noisy.shape)
    )
    noisy, latent = (model.predict(X[:9], return_cov=True, latent=k)[1] for k in (False, True))
    off = noisy - latent
    noise = np.broadcast_to(model.noise_variance_, off.shape[2:])
    np.testing.assert_allclose(off, np.multiply.outer(np.eye(9), noise), atol=1e-10)


def test_standard_deviation_and_covariance_together_are_refused():
    X, y = waves(30)
    with pytest.raises(ValueError, match="return_std and return_cov"):
        quick().fit(X, y).predict(X, return_std=True, return_cov=True)


def test_samples_of_y_have_the_moments_of_the_prediction():
    X, Y = two_outputs()
    model = quick().fit(X, Y)
    for latent in (False, True):
        samples = model.sample_y(X[:5], 20_000, random_state=1, latent=latent)
        mean, std = model.predict(X[:5], return_std=True, latent=latent)
        assert np.all(np.abs(samples.mean(axis=2) - mean) < 5 * std / np.sqrt(20_000))
        np.testing.assert_allclose(samples.std(axis=2), std, rtol=0.05)


def test_samples_are_reproducible():
    X, y = waves(60)
    model = quick().fit(X, y)
    np.testing.assert_array_equal(
        model.sample_y(X, 3, random_state=4), model.sample_y(X, 3, random_state=4)
    )
    assert not np.array_equal(model.sample_y(X, 3), model.sample_y(X, 3, random_state=4))


def test_the_density_of_one_draw_is_the_normal_one():
    X, y = waves()
    model = quick(n_draws=1).fit(X, 50.0 * y)
    mean, std = model.predict(X, return_std=True)
    expected = -0.5 * ((50.0 * y - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(model.log_predictive_density(X, 50.0 * y), expected, rtol=1e-4)


def test_a_density_follows_the_units_of_y():
    X, y = waves()
    small, large = quick().fit(X, y), quick().fit(X, 1024.0 * y)
    np.testing.assert_allclose(
        large.log_predictive_density(X, 1024.0 * y),
        small.log_predictive_density(X, y) - np.log(1024.0),
        atol=1e-6,
    )


@pytest.mark.parametrize("columns", [1, 3])
def test_a_density_of_another_number_of_outputs_is_refused(columns):
    X, Y = two_outputs(40)
    model = quick().fit(X, Y)
    with pytest.raises(ValueError, match=rf"y has shape \(40, {columns}\).* 2 output.*\(40, 2\)"):
        model.log_predictive_density(X, np.zeros((40, columns)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.zeros(39), "shape"),
        (np.zeros((40, 2)).T, "shape"),
        (np.full(40, np.nan), "y contains NaN"),
    ],
)
def test_a_density_of_outputs_that_do_not_fit_is_refused(wrong, message):
    X, y = waves(40)
    with pytest.raises(ValueError, match=message):
        quick().fit(X, y).log_predictive_density(X, wrong)


def test_a_fit_that_fails_leaves_the_model_before_it_whole():
    X, y = waves(60)
    model = quick().fit(X, y)
    before = model.predict(X)
    model.set_params(callback=lambda event: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model.fit(100.0 * X + 7.0, 1e3 * y + 5e3)
    np.testing.assert_array_equal(model.predict(X), before)


def test_a_first_fit_that_fails_leaves_no_model():
    X, y = waves(60)
    model = quick(n_points=-1)
    with pytest.raises(ValueError, match="n_points=-1"):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e5])
def test_without_standardising_the_size_of_the_output_does_not_matter(size):
    X, y = waves()
    model = quick(standardize=False).fit(X, size * y)
    assert model.score(X, size * y) > 0.8
    mean, std = model.predict(X, return_std=True)
    assert 0.85 < np.mean(np.abs(size * y - mean) < 1.96 * std) <= 1.0


@pytest.mark.parametrize("n_samples", [0, -1, 2.5])
def test_a_number_of_samples_that_is_none_is_refused(n_samples):
    X, y = waves(40)
    with pytest.raises(ValueError, match=f"n_samples={n_samples}"):
        quick().fit(X, y).sample_y(X, n_samples=n_samples)


def test_samples_at_many_rows_are_the_samples_at_few():
    X, y = waves(60)
    model = quick().fit(X, y)
    rows = np.random.default_rng(1).standard_normal((2_500, 2))
    whole = model.sample_y(rows, n_samples=3, latent=True)
    np.testing.assert_allclose(
        model.sample_y(rows[:7], n_samples=3, latent=True), whole[:7], atol=1e-12
    )


def test_a_learning_rate_that_is_far_too_high_ends_in_a_finite_model():
    X, y = waves(60)
    model = quick(inference="svss", learning_rate=100.0, max_evals=30).fit(X, y)
    assert np.all(np.isfinite(model.predict(X)))


def test_a_function_without_noise_is_learned_as_one():
    X, _ = waves(1_500)
    y = np.sin(2.0 * X[:, 0]) * np.cos(X[:, 1])
    model = quick(n_points=48, n_prediction_points=120, max_evals=40).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    error = np.sqrt(np.mean(np.square(mean - y)))
    assert error < 1e-3
    assert (
        np.median(std) < 2e-4 * y.std()
    )  # down at the floor: not at noise that is no longer there


def test_the_kernel_is_in_the_units_of_the_inputs():
    X, y = waves()
    factor = np.array([1000.0, 1.0])
    one, other = (quick(dtype="float64", max_evals=4).fit(Z, y) for Z in (X, X * factor))
    np.testing.assert_allclose(one.predict(X), other.predict(X * factor), atol=1e-5)
    expected = one.kernel_.length_scales * factor
    np.testing.assert_allclose(other.kernel_.length_scales, expected, rtol=1e-4)
    np.testing.assert_allclose(other.kernel_.weights, one.kernel_.weights, rtol=1e-4)
    expected = one.spectral_points_ / factor
    np.testing.assert_allclose(other.spectral_points_, expected, rtol=1e-3, atol=1e-9)


def test_kernel_and_noise_are_in_the_units_of_the_output():
    X, y = waves()
    one, other = (quick(dtype="float64", max_evals=4).fit(X, t) for t in (y, 100.0 * y + 5.0))
    np.testing.assert_allclose(100.0 * one.predict(X) + 5.0, other.predict(X), atol=1e-3)
    np.testing.assert_allclose(other.kernel_.weights, 1e4 * one.kernel_.weights, rtol=1e-4)
    np.testing.assert_allclose(other.kernel_.means, one.kernel_.means, rtol=1e-3, atol=1e-6)
    assert other.noise_variance_ == pytest.approx(1e4 * one.noise_variance_, rel=1e-4)


@pytest.mark.parametrize("factor", [2.0**20, 2.0**-20])
def test_units_that_are_powers_of_two_change_no_bit(factor):
    X, y = waves()
    one, other = quick().fit(X, y), quick().fit(factor * X, factor * y)
    np.testing.assert_array_equal(factor * one.predict(X), other.predict(factor * X))


def test_learned_attributes_have_their_shapes():
    X, y = waves(d=3)
    model = quick(n_draws=3).fit(X, y)
    assert isinstance(model.kernel_, SpectralMixture)
    assert model.kernel_.weights.shape == (3,)
    assert model.kernel_.means.shape == model.kernel_.scales.shape == (3, 3)
    assert model.spectral_points_.shape == (3, 60, 3)
    assert model.n_features_in_ == 3
    assert model.n_evals_ == len(model.objective_path_)
    assert not model.interrupted_


def test_the_published_kernel_is_the_one_that_predicts():
    X, y = waves(150)
    model = quick(n_components=3, n_prediction_points=600, dtype="float64").fit(X, y)
    K = model.kernel_(X) + model.noise_variance_ * np.eye(150)
    new = np.random.default_rng(1).uniform(-2.0, 2.0, (30, 2))
    centred = y - y.mean()
    exact = y.mean() + model.kernel_(new, X) @ np.linalg.solve(K, centred)
    np.testing.assert_allclose(model.predict(new), exact, atol=0.05)


def test_fit_sets_only_what_it_learns():
    X, y = waves(60)
    model = quick()
    before = set(vars(model))
    model.fit(X, y)
    assert all(name.endswith("_") or name.startswith("_") for name in set(vars(model)) - before)


def test_fit_returns_the_estimator_and_leaves_its_arguments_alone():
    X, y = waves(60)
    X_before, y_before = X.copy(), y.copy()
    model = quick()
    params = model.get_params()
    assert model.fit(X, y) is model
    model.predict(X)
    np.testing.assert_array_equal(X, X_before)
    np.testing.assert_array_equal(y, y_before)
    assert model.get_params() == params


def test_the_same_seed_gives_the_same_result():
    X, y = waves()
    one, two = (quick(random_state=7).fit(X, y).predict(X, return_std=True) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one[0], quick(random_state=8).fit(X, y).predict(X))


def test_a_random_state_object_is_used():
    X, y = waves(60)
    state = np.random.RandomState(7)
    one, two = (quick(random_state=state).fit(X, y).predict(X) for _ in range(2))
    assert not np.array_equal(one, two)
    first = quick(random_state=np.random.RandomState(7)).fit(X, y).predict(X)
    np.testing.assert_array_equal(one, first)


def test_fitting_again_forgets_the_first_fit():
    X, y = waves(60)
    model = quick().fit(*waves(50, d=5))
    model.fit(X, y)
    np.testing.assert_array_equal(model.predict(X), quick().fit(X, y).predict(X))
    assert model.n_features_in_ == 2


def test_one_job_and_two_give_the_same_bits():
    X, y = waves(1_200)
    one, two = (quick(n_jobs=k, max_evals=8).fit(X, y) for k in (1, 2))
    for asked in ({"return_std": True}, {"return_cov": True}):
        for a, b in zip(one.predict(X[:50], **asked), two.predict(X[:50], **asked), strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.sample_y(X[:50]), two.sample_y(X[:50]))


@pytest.mark.parametrize("n_jobs", [None, -1])
def test_all_cores_are_the_same_bits_as_one(n_jobs):
    X, y = waves(600)
    expected = quick(n_jobs=1, max_evals=6).fit(X, y).predict(X)
    np.testing.assert_array_equal(quick(n_jobs=n_jobs, max_evals=6).fit(X, y).predict(X), expected)


def test_float32_and_float64_predict_the_same_at_the_same_kernel():
    X, y = waves(500)
    # One evaluation leaves the search where it started: in both at the same kernel.
    single, double = (quick(dtype=t, max_evals=1).fit(X, y) for t in ("float32", "float64"))
    mean, std = single.predict(X, return_std=True)
    same, same_std = double.predict(X, return_std=True)
    np.testing.assert_allclose(mean, same, atol=1e-3 * y.std())
    np.testing.assert_allclose(std, same_std, rtol=1e-3)


def test_float32_and_float64_learn_the_same():
    X, y = waves(500)
    enough = {"n_points": 60, "max_evals": 40, "mc_samples": 2}
    single, double = (quick(dtype=t, **enough).fit(X, y) for t in ("float32", "float64"))
    mean, std = single.predict(X, return_std=True)
    same, same_std = double.predict(X, return_std=True)
    latent = double.predict(X, return_std=True, latent=True)[1]
    # Two searches end at slightly different kernels: by less than they themselves are in doubt.
    assert np.sqrt(np.mean(np.square(mean - same))) < np.sqrt(np.mean(np.square(latent)))
    np.testing.assert_allclose(std, same_std, rtol=0.2)
    assert single.noise_variance_ == pytest.approx(double.noise_variance_, rel=0.2)


def test_without_standardising_the_units_are_the_users():
    X, y = waves()
    model = quick(standardize=False).fit(X, y)
    draw = model.posterior_.draws[0]
    np.testing.assert_array_equal(model.spectral_points_[0], draw.S)
    assert model.noise_variance_ == pytest.approx(
        model.posterior_.noise_variance * np.mean(np.square(y))
    )
    assert model.score(X, y) > 0.8
    model.predict(np.full((1, 2), 1e6))  # nothing is extreme: no warning


# Data at the edges


def rows_and_outputs(kind):
    rng = np.random.default_rng(0)
    X, y = waves(30)
    return {
        "one row": (X[:1], y[:1]),
        "two rows": (X[:2], y[:2]),
        "fewer rows than features": (X[:10], y[:10]),
        "one input": (X[:, :1], y),
        "many inputs": (rng.standard_normal((60, 385)), rng.standard_normal(60)),
        "duplicates": (np.repeat(X[:3], 10, axis=0), y),
        "all rows alike": (np.ones((30, 2)), y),
        "constant output": (X, np.full(30, 3.25)),
        "zero output": (X, np.zeros(30)),
        "constant input": (np.column_stack([X, np.full(30, 5.0)]), y),
        "whole numbers": (rng.integers(0, 9, (30, 2)), rng.integers(0, 9, 30)),
        "float32": (X.astype(np.float32), y.astype(np.float32)),
        "booleans": (X > 0, y),
        "huge units": (1e150 * X, 1e100 * y),
        "tiny units": (1e-150 * X, 1e-100 * y),
        "lists": (X.tolist(), y.tolist()),
        "columns in memory": (np.asfortranarray(X), y),
        "every other row": (np.repeat(X, 2, axis=0)[::2], np.repeat(y, 2)[::2]),
    }[kind]


EDGES = (
    "one row",
    "two rows",
    "fewer rows than features",
    "one input",
    "many inputs",
    "duplicates",
    "all rows alike",
    "constant output",
    "zero output",
    "constant input",
    "whole numbers",
    "float32",
    "booleans",
    "huge units",
    "tiny units",
    "lists",
    "columns in memory",
    "every other row",
)


@pytest.mark.parametrize("kind", EDGES)
@pytest.mark.parametrize("inference", ["auto", "svss-wsng"])
def test_data_at_the_edge_give_finite_predictions(kind, inference):
    X, y = rows_and_outputs(kind)
    model = quick(max_evals=10, inference=inference).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert np.all(np.isfinite(mean))
    assert np.all(np.isfinite(std))
    assert np.all(std >= 0)
    assert np.all(np.isfinite(model.log_predictive_density(X, y)))
    scale = max(np.ptp(np.asarray(y, float)), np.abs(y).max())
    assert np.abs(mean - np.mean(y)).max() <= 2 * scale


def test_a_constant_output_is_predicted_as_it_is():
    X, _ = waves(40)
    mean, std = quick().fit(X, np.full(40, 3.25)).predict(X, return_std=True)
    np.testing.assert_allclose(mean, 3.25, atol=1e-3)
    assert std.max() < 0.1


def test_a_constant_input_changes_no_prediction():
    X, y = waves()
    model = quick().fit(np.column_stack([X, np.full(200, 5.0)]), y)
    X_new = np.column_stack([X[:5], np.full(5, 5.0)])
    assert np.sqrt(np.mean((model.predict(X_new) - y[:5]) ** 2)) < 0.5


def test_memory_layout_and_precision_of_the_inputs_do_not_matter():
    X, y = waves(60)
    X = X.astype(np.float32).astype(float)
    expected = quick().fit(X, y).predict(X)
    frame = pd.DataFrame({"time": X[:, 0], "depth": X[:, 1]})
    for Z in (np.asfortranarray(X), X.astype(np.float32), X.tolist(), frame):
        np.testing.assert_array_equal(quick().fit(Z, y).predict(Z), expected)


# Extreme rows at prediction


def far_row(column, sign=1.0):
    row = np.zeros((1, 2))
    row[0, column] = sign * 1_000.0 * 1.2
    return row


@pytest.mark.parametrize("column", [0, 1])
def test_rows_far_out_are_named_by_column_and_stay_bounded(column):
    X, y = waves()
    model = quick().fit(X, y)
    with pytest.warns(UserWarning, match=rf"column\(s\) {column};.*Expect little") as caught:
        mean, std = model.predict(far_row(column), return_std=True)
    assert caught[0].filename == __file__
    assert np.all(np.isfinite(std))
    assert abs(mean[0] - y.mean()) < 10 * y.std()
    assert std[0] > np.sqrt(model.noise_variance_)


def test_rows_far_out_are_named_by_feature_name():
    X, y = waves(60)
    model = quick().fit(pd.DataFrame(X, columns=["time", "depth"]), y)
    with pytest.warns(UserWarning, match="'depth'"):
        model.predict(pd.DataFrame(far_row(1), columns=["time", "depth"]))


def test_many_far_columns_are_counted_and_not_listed():
    X, y = waves(60, d=8)
    model = quick().fit(X, y)
    with pytest.warns(UserWarning, match=r"0, 1, 2, 3, 4 and 3 more"):
        model.predict(np.full((1, 8), 1e6))


def test_beyond_the_limit_the_distance_no_longer_matters():
    X, y = waves()
    model = quick().fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        near, far = (model.predict(k * far_row(0), return_std=True) for k in (1.0, 1e5))
    np.testing.assert_array_equal(near, far)


def test_every_way_of_predicting_warns_of_rows_far_out():
    X, y = waves(60)
    model = quick().fit(X, y)
    for ask in (
        lambda: model.predict(far_row(0), return_cov=True),
        lambda: model.sample_y(far_row(0)),
        lambda: model.log_predictive_density(far_row(0), [0.0]),
    ):
        with pytest.warns(UserWarning, match="scales from the training data"):
            ask()


def test_training_rows_never_warn_however_wild():
    X, y = waves()
    X[3, 0] = 1e9
    model = quick().fit(X, y)
    assert np.all(np.isfinite(model.predict(X)))


# What is refused


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_inputs_and_outputs_that_are_not_finite_are_refused(wrong):
    X, y = waves(30)
    bad_X, bad_y = X.copy(), y.copy()
    bad_X[3, 1], bad_y[5] = wrong, wrong
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        quick().fit(bad_X, y)
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        quick().fit(X, bad_y)
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        quick().fit(X, np.column_stack([y, bad_y]))
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        quick().fit(X, y).predict(bad_X)


@pytest.mark.parametrize(
    "ask",
    [
        lambda m, X, y: m.predict(X),
        lambda m, X, y: m.sample_y(X),
        lambda m, X, y: m.log_predictive_density(X, y),
    ],
    ids=["predict", "sample_y", "log_predictive_density"],
)
def test_predicting_before_fitting_is_refused(ask):
    X, y = waves(10)
    with pytest.raises(NotFittedError):
        ask(SpectralMixtureRegressor(), X, y)


def test_lengths_and_widths_that_do_not_match_are_refused():
    X, y = waves(30)
    with pytest.raises(ValueError, match="inconsistent"):
        quick().fit(X, y[:29])
    with pytest.raises(ValueError, match="features"):
        quick().fit(X, y).predict(X[:, :1])
    with pytest.raises(ValueError, match="2D array"):
        quick().fit(X[:, 0], y)


# Among other tools


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_data_frames_give_names_and_the_same_predictions(frame):
    X, y = waves(80)
    table = frame({"time": X[:, 0], "depth": X[:, 1]})
    model = quick().fit(table, y)
    assert list(model.feature_names_in_) == ["time", "depth"]
    values = table.to_numpy()
    np.testing.assert_array_equal(model.predict(table), quick().fit(values, y).predict(values))


def test_columns_in_another_order_are_refused():
    X, y = waves(40)
    model = quick().fit(pd.DataFrame(X, columns=["time", "depth"]), y)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(pd.DataFrame(X, columns=["depth", "time"]))


@pytest.mark.parametrize("series", [pd.Series, pl.Series])
def test_a_series_is_an_output(series):
    X, y = waves(40)
    np.testing.assert_array_equal(
        quick().fit(X, series(y)).predict(X), quick().fit(X, y).predict(X)
    )


def test_it_works_in_a_pipeline():
    X, y = waves()
    model = make_pipeline(StandardScaler(), quick()).fit(X, y)
    assert model.score(X, y) > 0.8
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (200,)


def test_it_works_under_a_transformed_target():
    X, y = waves()
    model = TransformedTargetRegressor(quick(), func=np.log, inverse_func=np.exp)
    assert model.fit(X, np.exp(y)).score(X, np.exp(y)) > 0.6


def test_it_works_in_a_grid_search():
    X, y = waves(90)
    search = GridSearchCV(quick(max_evals=8), {"n_components": [1, 3]}, cv=2).fit(X, y)
    assert search.best_params_["n_components"] in (1, 3)
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))
    assert search.predict(X).shape == (90,)


def test_it_generalises():
    X, y = waves(300)
    assert cross_val_score(quick(max_evals=40), X, y, cv=3).min() > 0.9


def test_a_clone_has_the_same_parameters_and_no_fit():
    X, y = waves(40)
    model = quick(kl_weight=0.3, n_jobs=2).fit(X, y)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(X)
    np.testing.assert_array_equal(copy.fit(X, y).predict(X), model.predict(X))


@pytest.mark.parametrize("inference", ["auto", "svss"])
def test_a_pickled_model_predicts_the_same(inference):
    X, Y = two_outputs(80)
    model = quick(inference=inference).fit(X, Y)
    back = pickle.loads(pickle.dumps(model))
    for ask in (
        lambda m: m.predict(X),
        lambda m: m.predict(X, return_std=True)[1],
        lambda m: m.sample_y(X, 3),
        lambda m: m.log_predictive_density(X, Y),
    ):
        np.testing.assert_array_equal(ask(back), ask(model))


def test_a_model_does_not_carry_its_rows():
    X, y = waves(5_000)
    small, large = (len(pickle.dumps(quick(max_evals=4).fit(X[:n], y[:n]))) for n in (500, 5_000))
    assert large < 1.1 * small


def test_verbose_prints_to_standard_error_alone(capsys):
    X, y = waves(60)
    quick(verbose=1).fit(X, y)
    out, err = capsys.readouterr()
    assert out == ""
    assert "objective" in err
    assert all(line.startswith("[bochner] ") for line in err.splitlines())


def test_it_is_silent_unless_asked(capsys):
    X, y = waves(60)
    quick().fit(X, y).predict(X)
    assert capsys.readouterr() == ("", "")


def test_coverage_is_about_what_it_says():
    X, y = waves(800)
    model = quick(n_points=60, n_prediction_points=120, max_evals=60).fit(X[:400], y[:400])
    mean, std = model.predict(X[400:], return_std=True)
    inside = np.abs(y[400:] - mean) < 1.96 * std
    assert 0.9 < inside.mean() < 0.99

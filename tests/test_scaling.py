import numpy as np
import pytest

from bochner.scaling import LIMIT, InputScaler, OutputScaler, Units


def test_normal_inputs_come_out_standardised():
    X = np.random.default_rng(0).normal([5.0, -200.0], [0.1, 30.0], size=(5_000, 2))
    Z = InputScaler.of(X).transform(X)
    np.testing.assert_allclose(Z.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(Z.std(axis=0), 1.0, atol=0.03)


@pytest.mark.parametrize("shape", ["uniform", "standard_normal", "standard_exponential"])
def test_the_scale_of_an_ordinary_column_is_its_standard_deviation(shape):
    X = getattr(np.random.default_rng(0), shape)(size=(1_000, 1))
    np.testing.assert_allclose(InputScaler.of(X).scale, X.std(), rtol=1e-12)


def test_the_scale_of_a_wild_column_is_what_its_bulk_implies():
    X = np.random.default_rng(0).standard_normal((1_000, 1))
    X[:5] *= 1e4
    np.testing.assert_allclose(InputScaler.of(X).scale, 1.0, rtol=0.1)
    np.testing.assert_allclose(InputScaler.of(X).centre, np.median(X), atol=0.01)


def test_constant_columns_become_zero_and_keep_their_unit():
    X = np.full((50, 3), [0.0, 7.0, 1e9 + 0.1])
    scaler = InputScaler.of(X)
    np.testing.assert_array_equal(scaler.scale, 1.0)
    np.testing.assert_allclose(scaler.transform(X), 0.0, atol=1e-6)


def test_a_single_row_becomes_zero():
    X = np.array([[3.0, -8.0]])
    np.testing.assert_array_equal(InputScaler.of(X).transform(X), [[0.0, 0.0]])


@pytest.mark.parametrize("n", [30, 90, 1_000])
def test_one_wild_value_does_not_squash_the_rest(n):
    X = np.random.default_rng(0).standard_normal((n, 1))
    X[17] = 1e9
    scaler = InputScaler.of(X)
    Z = np.delete(scaler.transform(X), 17, axis=0)
    assert 0.5 < Z.std() < 2.0
    assert abs(Z.mean()) < 0.5
    assert scaler.transform(X)[17] == LIMIT


def test_a_rare_indicator_keeps_its_information():
    X = np.zeros((10_000, 1))
    X[:7] = 1.0  # rarer than the quantiles see
    Z = InputScaler.of(X).transform(X)
    assert len(np.unique(Z)) == 2
    assert Z[0] - Z[-1] > 1.0
    assert np.abs(Z[7:]).max() < 0.1


def test_transformed_inputs_stay_within_the_limit():
    X = np.random.default_rng(0).standard_normal((100, 2))
    scaler = InputScaler.of(X)
    far = np.array([[1e6, -1e6], [0.0, 1e300], [-1e300, 0.0]])
    Z = scaler.transform(far)
    assert np.abs(Z).max() == LIMIT == 10.0
    np.testing.assert_array_equal(np.sign(Z[0]), [1.0, -1.0])


def test_transform_leaves_its_argument_alone():
    X = np.random.default_rng(0).standard_normal((20, 2))
    before = X.copy()
    InputScaler.of(X).transform(X)
    np.testing.assert_array_equal(X, before)


def test_extreme_columns_are_those_with_rows_far_out():
    X = np.random.default_rng(0).standard_normal((100, 4))
    scaler = InputScaler.of(X)
    rows = np.zeros((3, 4))
    rows[1, 2] = -50.0
    rows[2, 3] = 11.0 * scaler.scale[3] + scaler.centre[3]
    np.testing.assert_array_equal(scaler.extreme_columns(rows), [2, 3])


def test_rows_out_of_the_training_range_but_within_the_limit_are_not_extreme():
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (100, 1))
    assert len(InputScaler.of(X).extreme_columns(np.array([[3.0]]))) == 0


def test_rows_beyond_the_limit_but_like_training_rows_are_not_extreme():
    X = np.random.default_rng(0).standard_normal((1_000, 1))
    X[0] = 400.0
    scaler = InputScaler.of(X)
    assert len(scaler.extreme_columns(X)) == 0
    assert len(scaler.extreme_columns(np.array([[399.0]]))) == 0
    assert len(scaler.extreme_columns(np.array([[401.0]]))) == 1
    assert len(scaler.extreme_columns(np.array([[-399.0]]))) == 1


def test_scaling_follows_the_units_of_the_inputs():
    X = np.random.default_rng(0).lognormal(size=(500, 3))
    Z = InputScaler.of(X).transform(X)
    moved = 1_000.0 * X - 40.0
    np.testing.assert_allclose(InputScaler.of(moved).transform(moved), Z, atol=1e-9)


def test_many_rows_are_scaled_as_a_part_of_them_would_be():
    X = np.random.default_rng(0).standard_t(2, size=(60_000, 1))
    scaler = InputScaler.of(X)
    low, high = np.quantile(X, [0.01, 0.99])
    np.testing.assert_allclose(scaler.scale, (high - low) / 4.6527, rtol=0.1)


def test_the_identity_changes_nothing_and_finds_nothing_extreme():
    scaler = InputScaler.identity(3)
    X = np.random.default_rng(0).standard_normal((20, 3)) * 1e12
    np.testing.assert_array_equal(scaler.transform(X), X)
    assert len(scaler.extreme_columns(X)) == 0


def test_outputs_are_standardised_by_mean_and_standard_deviation():
    Y = np.random.default_rng(0).normal([5.0, -1.0], [2.0, 0.5], size=(300, 2))
    scaler = OutputScaler.of(Y)
    np.testing.assert_allclose(scaler.centre, Y.mean(axis=0))
    np.testing.assert_allclose(scaler.scale, Y.std(axis=0))


@pytest.mark.parametrize("value", [0.0, 3.0, 1e12])
def test_a_constant_output_keeps_its_unit(value):
    scaler = OutputScaler.of(np.full((30, 1), value))
    np.testing.assert_array_equal(scaler.scale, [1.0])


def test_the_order_of_the_rows_does_not_matter():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60_000, 1))
    X[::3] *= 1e-3  # one sensor in three
    shuffled = rng.permutation(X)
    np.testing.assert_allclose(InputScaler.of(X).scale, InputScaler.of(shuffled).scale, rtol=1e-12)
    assert InputScaler.of(X).scale[0] > 0.5


@pytest.mark.parametrize("unit", [1e-200, 1.0, 1e200])
def test_any_unit_that_float64_holds_will_do(unit):
    X = np.random.default_rng(0).standard_normal((100, 2))
    Z = InputScaler.of(X).transform(X)
    np.testing.assert_allclose(InputScaler.of(unit * X).transform(unit * X), Z, rtol=1e-9)


@pytest.mark.parametrize("step", [1e-4, 1e-6])
def test_small_changes_on_a_large_offset_are_kept(step):
    x = 1e9 + step * np.arange(1_000.0)[:, None]
    assert InputScaler.of(x).transform(x).std() == pytest.approx(1.0, rel=0.05)
    assert OutputScaler.of(x).transform(x).std() == pytest.approx(1.0, rel=0.05)


def test_rounding_on_a_large_offset_is_not_taken_for_change():
    x = np.full((100, 1), 0.1)
    x[::2] = np.nextafter(0.1, 1.0)
    assert InputScaler.of(x).scale[0] == 1.0


def test_without_standardising_outputs_keep_their_centre():
    Y = np.array([[3.0], [5.0]])
    units = Units.of(Y, Y, standardize=False)
    np.testing.assert_array_equal(units.x.transform(Y), Y)
    np.testing.assert_allclose(units.y.transform(Y), Y / np.sqrt(17.0))


@pytest.mark.parametrize("unit", [1e155, 1e-170])
def test_outputs_whose_variance_is_no_number_are_refused(unit):
    Y = unit * np.random.default_rng(0).standard_normal((20, 1))
    with pytest.raises(ValueError, match=r"y has standard deviation .* measure y in another unit"):
        Units.of(Y, Y, standardize=True)

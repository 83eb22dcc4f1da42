import numpy as np
import pytest
from oracles import unit_covariance

from bochner import ShareRule, SpectralMixture, SpectralMixtureRegressor
from bochner.points import draw_points
from bochner.sampling import PointSource
from bochner.settings import resolve
from bochner.shares import SHARES, component_spread, optimal_shares, random_lags, round_shares

ALL_PAIRS = {"rate": 1.0, "max_pairs": 1_000_000}


def random_rounding_cases(n_cases):
    rng = np.random.default_rng(0)
    for _ in range(n_cases):
        q, floor = int(rng.integers(1, 11)), int(rng.integers(1, 5))
        shares = rng.dirichlet(np.full(q, rng.choice([0.05, 0.5, 5.0]))) + 1e-12
        yield shares * rng.choice([1.0, 7.0]), int(q * floor + rng.integers(0, 100)), floor


def test_rounded_shares_always_sum_to_the_total_and_respect_the_floor():
    for shares, total, floor in random_rounding_cases(3_000):
        counts = round_shares(shares, total, floor)
        assert counts.sum() == total
        assert counts.min() >= floor
        assert np.issubdtype(counts.dtype, np.integer)


def test_rounded_shares_are_within_one_point_of_the_ideal_unless_the_floor_takes_more():
    for shares, total, floor in random_rounding_cases(3_000):
        ideal = shares / shares.sum() * total
        counts = round_shares(shares, total, floor)
        assert np.all(counts <= np.maximum(floor, ideal + 1 + 1e-9))
        if np.all(ideal >= floor):
            assert np.all(np.abs(counts - ideal) < 1 + 1e-9)


def test_no_move_of_one_point_brings_rounded_shares_nearer_to_the_ideal():
    for shares, total, floor in random_rounding_cases(500):
        ideal = shares / shares.sum() * total
        counts = round_shares(shares, total, floor)
        distance = np.sum((counts - ideal) ** 2)
        for giver in range(len(counts)):
            for taker in range(len(counts)):
                moved = counts.copy()
                moved[giver] -= 1
                moved[taker] += 1
                if moved.min() >= floor:
                    assert np.sum((moved - ideal) ** 2) >= distance - 1e-9


def test_whole_shares_stay_as_they_are():
    np.testing.assert_array_equal(round_shares(np.array([0.1, 0.3, 0.6]), 10), [1, 3, 6])


def test_counts_may_be_scaled_up_like_shares():
    np.testing.assert_array_equal(round_shares(np.array([10, 20, 30]), 480), [80, 160, 240])


def test_the_printed_rounding_misses_the_total_in_a_third_of_all_cases_or_more():
    rng = np.random.default_rng(1)
    missed, cases = 0, 6_000
    for _ in range(cases):
        p = rng.dirichlet(np.ones(rng.integers(4, 9)))
        printed = [max(1, round(60 * share)) for share in p]
        missed += sum(printed) != 60
    assert missed / cases > 1 / 3


def test_too_few_points_are_refused_in_a_sentence():
    with pytest.raises(ValueError, match=r"n_points=5 is too few for 3 components.*at least 6"):
        round_shares(np.ones(3), 5, floor=2)


def measured_variance(kernel, m, tau, repetitions):
    """Variance of the estimate of k(tau) from m independent points of one component."""
    points = draw_points("iid", np.array([m * repetitions]), len(tau), np.random.default_rng(2))
    cosines = np.cos(2 * np.pi * points.locations(kernel) @ tau)
    return np.var(kernel.weights[0] * cosines.reshape(repetitions, m).mean(axis=1))


@pytest.mark.parametrize(
    "tau", [[0.05, 0.05], [0.2, -0.1], [-0.3, 0.5], [0.6, 0.2], [2.0, 3.0]], ids=str
)
def test_the_corrected_spread_is_the_measured_variance_and_the_printed_is_not(tau):
    kernel = SpectralMixture([2.0], [[0.7, -0.4]], [[0.3, 0.5]])
    lag, m = np.array(tau), 3
    mu, sigma = kernel.means[0], kernel.scales[0]
    once, twice = unit_covariance(mu, sigma, lag), unit_covariance(mu, sigma, 2 * lag)
    corrected, printed = 1 + twice - 2 * once**2, 1 + twice + once**2
    assert component_spread(kernel, lag[None])[0, 0] == pytest.approx(corrected)
    assert component_spread(kernel, lag[None], printed=True)[0, 0] == pytest.approx(printed)
    measured = measured_variance(kernel, m, lag, 100_000)
    assert measured == pytest.approx(2.0**2 / (2 * m) * corrected, rel=0.03)
    if once**2 > 0.1:
        assert abs(measured - 2.0**2 / (2 * m) * printed) > 0.2 * measured


def test_near_lag_zero_the_spread_vanishes_and_the_printed_one_tends_to_three():
    kernel = SpectralMixture([1.0, 2.0], [[0.7], [-0.2]], [[0.3], [0.1]])
    tau = np.array([[0.0], [1e-4], [-1e-3]])
    assert np.all(component_spread(kernel, tau) >= 0)
    np.testing.assert_allclose(component_spread(kernel, tau), 0, atol=1e-4)
    np.testing.assert_allclose(component_spread(kernel, tau, printed=True), 3, atol=1e-3)


def total_variance(kernel, counts):
    """Of the Gram matrix on 0, .01, .., .99, from the variance of one point."""
    total = 0.0
    for k in range(1, 100):  # 100 - k pairs of rows lie k hundredths apart
        for w, mu, sigma, m in zip(
            kernel.weights, kernel.means, kernel.scales, counts, strict=True
        ):
            once = unit_covariance(mu, sigma, [k / 100])
            twice = unit_covariance(mu, sigma, [2 * k / 100])
            total += (100 - k) * w**2 / (2 * m) * (1 + twice - 2 * once**2)
    return total


def test_corrected_shares_lower_the_total_variance_more_than_weights_or_printed_shares_do():
    rng = np.random.default_rng(3)
    X = np.arange(100)[:, None] / 100
    totals = dict.fromkeys(SHARES, 0.0)
    for _ in range(150):
        kernel = SpectralMixture(
            rng.uniform(0, 20, 4), rng.uniform(0, 5, (4, 1)), rng.uniform(0, 0.1, (4, 1))
        )
        for name in SHARES:
            p = optimal_shares(kernel, X, ShareRule(name, **ALL_PAIRS), rng)
            totals[name] += total_variance(kernel, round_shares(p, 60))
    against_equal = {name: total / totals["equal"] for name, total in totals.items()}
    assert against_equal["variance"] == pytest.approx(0.654, abs=0.06)
    assert against_equal["weight"] == pytest.approx(0.797, abs=0.06)
    assert against_equal["printed"] == pytest.approx(0.805, abs=0.06)
    assert against_equal["variance"] < against_equal["weight"] - 0.08
    assert against_equal["variance"] < against_equal["printed"] - 0.08


def test_a_few_random_pairs_give_nearly_the_shares_of_all_pairs():
    kernel = SpectralMixture([3.0, 1.0, 2.0], [[0.1], [2.0], [4.0]], [[0.05]] * 3)
    X = np.arange(100)[:, None] / 100
    few = optimal_shares(kernel, X, ShareRule("variance", 0.5), np.random.default_rng(4))
    lags = [X[i] - X[j] for i in range(100) for j in range(i)]
    g = component_spread(kernel, np.array(lags)).sum(axis=1)
    expected = kernel.weights * np.sqrt(g) / np.sum(kernel.weights * np.sqrt(g))
    np.testing.assert_allclose(few, expected, atol=0.02)


def test_equal_and_weight_shares_are_what_they_are_called():
    kernel = SpectralMixture([1.0, 3.0], [[0.0], [1.0]], [[1.0], [1.0]])
    X, rng = np.zeros((3, 1)), np.random.default_rng(5)
    np.testing.assert_allclose(optimal_shares(kernel, X, ShareRule("equal"), rng), [0.5, 0.5])
    np.testing.assert_allclose(optimal_shares(kernel, X, ShareRule("weight"), rng), [0.25, 0.75])


@pytest.mark.parametrize("name", SHARES)
@pytest.mark.parametrize("n_rows", [1, 2, 7])
def test_identical_rows_or_a_single_one_do_not_crash(name, n_rows):
    kernel = SpectralMixture([1.0, 1.0], [[0.5, 0.1], [0.2, 2.0]], [[0.1, 0.1]] * 2)
    X = np.ones((n_rows, 2))
    shares = optimal_shares(kernel, X, ShareRule(name), np.random.default_rng(6))
    np.testing.assert_allclose(shares, [0.5, 0.5])  # no lag differs from 0: nothing to tell apart


def test_where_no_component_varies_shares_are_equal_whatever_the_weights():
    kernel = SpectralMixture([1.0, 5.0], [[0.5], [0.2]], [[0.1], [0.3]])
    shares = optimal_shares(
        kernel, np.zeros((4, 1)), ShareRule("variance"), np.random.default_rng(7)
    )
    np.testing.assert_array_equal(shares, [0.5, 0.5])


def test_lags_are_signed_differences_of_distinct_rows():
    X = np.array([[0.0, 0.0], [1.0, 10.0], [3.0, -30.0]])
    lags = random_lags(X, ShareRule(rate=1.0), np.random.default_rng(8))
    possible = {tuple(X[i] - X[j]) for i in range(3) for j in range(3) if i != j}
    many = np.concatenate(
        [random_lags(X, ShareRule(rate=1.0), np.random.default_rng(s)) for s in range(40)]
    )
    assert len(lags) == 3
    assert {tuple(lag) for lag in many} == possible


def test_the_sign_of_a_lag_matters_where_means_have_signs():
    kernel = SpectralMixture([1.0], [[0.5, -0.5]], [[0.4, 0.4]])
    lag = np.array([[0.25, -0.25]])
    signed, unsigned = component_spread(kernel, lag), component_spread(kernel, np.abs(lag))
    assert abs(signed - unsigned)[0, 0] > 0.3


def test_the_rate_says_how_many_pairs_are_looked_at_up_to_a_limit():
    X, rng = np.random.default_rng(9).standard_normal((41, 2)), np.random.default_rng(10)
    assert len(random_lags(X, ShareRule(rate=0.1), rng)) == 82  # of 820 pairs
    assert len(random_lags(X, ShareRule(rate=1.0, max_pairs=100), rng)) == 100
    assert len(random_lags(X, ShareRule(rate=0.0), rng)) == 1


def test_smoothing_keeps_part_of_the_previous_shares():
    rule = ShareRule("weight", smoothing=0.75, floor=2)
    model = SpectralMixtureRegressor(n_components=2, shares=rule, n_points=40)
    X, rng = np.zeros((5, 1)), np.random.default_rng(11)
    source = PointSource(resolve(model.get_params(), n_rows=200, n_inputs=1), X, rng)

    def counts(weights):
        kernel = SpectralMixture(weights, [[0.0], [1.0]], [[1.0], [1.0]])
        return source.draw(kernel, 40)[0].counts

    np.testing.assert_array_equal(counts([1.0, 1.0]), [20, 20])
    np.testing.assert_array_equal(counts([9.0, 1.0]), [24, 16])  # .75 * .5 + .25 * .9 = .6
    np.testing.assert_array_equal(counts([9.0, 1.0]), [27, 13])  # .75 * .6 + .25 * .9 = .675
    for _ in range(20):
        last = counts([1e6, 1.0])
    np.testing.assert_array_equal(last, [38, 2])  # the floor

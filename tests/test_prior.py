import numpy as np
import pytest
from oracles import differences, random_mixture
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from bochner.parameters import Parameters
from bochner.prior import PRIORS, Prior, divergence, make_prior

COUNTS = np.array([3, 5, 2])


def parameters(seed=0, n_components=3, n_inputs=2):
    kernel = random_mixture(np.random.default_rng(seed), n_components, n_inputs)
    return Parameters.of(kernel, 0.1)


def integrated(mu, sigma, prior_mean, prior_sd):
    """KL between two Gaussians by numerical integration."""
    q, prior = norm(mu, sigma), norm(prior_mean, prior_sd)
    return quad(
        lambda s: q.pdf(s) * (q.logpdf(s) - prior.logpdf(s)),
        mu - 12 * sigma,
        mu + 12 * sigma,
        epsabs=1e-12,
    )[0]


def slow_divergence(p, counts, means, scales):
    total = 0.0
    for q in range(len(counts)):
        for d in range(p.means.shape[1]):
            sigma = np.exp(p.log_scales[q, d])
            one = integrated(p.means[q, d], sigma, means[q, d], scales[q, d])
            total += counts[q] * one
    return total


def test_the_divergence_from_a_fixed_prior_is_the_integral_once_for_every_point():
    p, rng = parameters(), np.random.default_rng(1)
    means, scales = rng.normal(0, 0.3, (3, 2)), rng.uniform(0.1, 0.6, (3, 2))
    value = divergence(p, COUNTS, Prior(1.0, means, scales)).value
    assert value == pytest.approx(slow_divergence(p, COUNTS, means, scales), rel=1e-9)


def test_every_point_of_a_component_counts():
    p, rng = parameters(), np.random.default_rng(2)
    prior = Prior(1.0, rng.normal(0, 0.3, (3, 2)), rng.uniform(0.1, 0.6, (3, 2)))
    parts = [divergence(p, np.eye(3)[q], prior).value for q in range(3)]
    whole = divergence(p, COUNTS, prior).value
    assert whole == pytest.approx(3 * parts[0] + 5 * parts[1] + 2 * parts[2])
    assert divergence(p, 2 * COUNTS, Prior(1.0)).value == pytest.approx(
        2 * divergence(p, COUNTS, Prior(1.0)).value
    )


def test_the_empirical_prior_is_the_best_zero_mean_prior_that_all_components_share():
    p = parameters()
    least = 0.0
    for d in range(2):

        def at(log_scale, d=d):
            one = p._replace(means=p.means[:, [d]], log_scales=p.log_scales[:, [d]])
            prior = Prior(1.0, np.zeros((3, 1)), np.full((3, 1), np.exp(log_scale)))
            return divergence(one, COUNTS, prior).value

        least += minimize_scalar(at, bounds=(-5, 3), method="bounded", options={"xatol": 1e-9}).fun
    assert divergence(p, COUNTS, Prior(1.0)).value == pytest.approx(least, rel=1e-10)


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_gradients_of_the_divergence_agree_with_differences(name, weight):
    prior = make_prior(name, weight, parameters(3), np.random.default_rng(4))
    p = parameters(5)
    found = divergence(p, COUNTS, prior)
    by_means = differences(
        lambda means: divergence(p._replace(means=means), COUNTS, prior).value, p.means
    )
    by_scales = differences(
        lambda logs: divergence(p._replace(log_scales=logs), COUNTS, prior).value, p.log_scales
    )
    size = 1 + np.abs(by_means).max() + np.abs(by_scales).max()
    np.testing.assert_allclose(found.means_bar, by_means, atol=1e-8 * size)
    np.testing.assert_allclose(found.log_scales_bar, by_scales, atol=1e-8 * size)


@pytest.mark.parametrize("name", ["empirical", "start", "authors"])
def test_the_weight_multiplies_the_divergence_and_its_gradient(name):
    start, p = parameters(6), parameters(7)
    whole, part = (
        divergence(p, COUNTS, make_prior(name, w, start, np.random.default_rng(8)))
        for w in (1.0, 0.05)
    )
    assert part.value == pytest.approx(0.05 * whole.value)
    np.testing.assert_allclose(part.means_bar, 0.05 * whole.means_bar)
    np.testing.assert_allclose(part.log_scales_bar, 0.05 * whole.log_scales_bar)


def test_for_one_component_at_mean_zero_the_empirical_prior_says_nothing():
    p = Parameters(np.zeros(1), np.zeros((1, 4)), np.log([[0.1, 1.0, 3.0, 1e-4]]), 0.0)
    found = divergence(p, np.array([17]), Prior(1.0))
    assert found.value == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(found.means_bar, 0.0)
    np.testing.assert_allclose(found.log_scales_bar, 0.0, atol=1e-12)


def test_the_empirical_prior_leaves_the_unit_of_each_input_free():
    p, unit = parameters(), np.array([1e-3, 40.0])
    moved = p._replace(means=p.means * unit, log_scales=p.log_scales + np.log(unit))
    value = divergence(p, COUNTS, Prior(1.0)).value
    assert value > 0
    assert divergence(moved, COUNTS, Prior(1.0)).value == pytest.approx(value)


def test_the_start_prior_is_zero_at_the_start_and_positive_elsewhere():
    start = parameters(9)
    prior = make_prior("start", 1.0, start, np.random.default_rng(10))
    there = divergence(start, COUNTS, prior)
    assert there.value == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(there.means_bar, 0.0, atol=1e-12)
    np.testing.assert_allclose(there.log_scales_bar, 0.0, atol=1e-12)
    assert divergence(parameters(11), COUNTS, prior).value > 0.1


def test_the_authors_prior_is_drawn_from_small_uniforms():
    prior = make_prior("authors", 1.0, parameters(12, 40, 25), np.random.default_rng(13))
    for drawn in (prior.means, prior.scales):
        assert drawn.shape == (40, 25)
        assert 0 <= drawn.min() < 0.005
        assert 0.045 < drawn.max() <= 0.05
        assert drawn.mean() == pytest.approx(0.025, abs=0.002)
    assert not np.any(prior.means == prior.scales)


def test_without_a_prior_there_is_no_divergence():
    found = divergence(parameters(), COUNTS, make_prior("none", 1.0, parameters(), None))
    assert found.value == 0.0
    assert not found.means_bar.any()
    assert not found.log_scales_bar.any()


def test_a_divergence_is_never_negative():
    for seed in range(30):
        p = parameters(seed)
        for name in PRIORS:
            prior = make_prior(name, 1.0, parameters(seed + 1), np.random.default_rng(seed))
            assert divergence(p, COUNTS, prior).value >= 0

import numpy as np
import pytest
from oracles import differences, random_mixture

from bochner import SpectralMixture
from bochner.parameters import LOG_NOISE_BOUNDS, Parameters
from bochner.points import draw_points
from bochner.prior import Prior, divergence
from bochner.stochastic import Adam, _Groups, _stepped

MU, SIGMA, M = np.array([0.7, -0.4]), np.array([0.3, 0.5]), 4


def scores(n):
    """Derivatives of the log density of M points by (mu, log sigma) of each input, n times."""
    kernel = SpectralMixture([1.0], [MU], [SIGMA])
    points = draw_points("iid", np.array([M * n]), 2, np.random.default_rng(0))
    z = (points.locations(kernel) - MU) / SIGMA
    by_mu, by_log_sigma = z / SIGMA, np.square(z) - 1
    return by_mu.reshape(n, M, 2).sum(axis=1), by_log_sigma.reshape(n, M, 2).sum(axis=1)


def test_the_fisher_matrix_of_signed_means_is_the_count_over_the_variance():
    by_mu, _ = scores(100_000)
    expected = np.diag(M / SIGMA**2)
    np.testing.assert_allclose(by_mu.T @ by_mu / len(by_mu), expected, atol=0.03 * expected.max())


def test_the_fisher_matrix_in_logarithms_is_the_one_of_proposition_three():
    by_mu, by_log_sigma = scores(100_000)
    both = np.hstack([by_mu * MU, by_log_sigma])
    expected = np.diag(np.concatenate([M * MU**2 / SIGMA**2, [2 * M, 2 * M]]))
    found = both.T @ both / len(both)
    np.testing.assert_allclose(found, expected, atol=0.03 * expected.max())


def test_the_divergence_is_curved_by_the_fisher_matrix_where_it_vanishes():
    kernel = random_mixture(np.random.default_rng(1), 2, 3)
    p, counts = Parameters.of(kernel, 0.1), np.array([5, 2])
    prior = Prior(1.0, kernel.means, kernel.scales)
    for q in range(2):
        for d in range(3):

            def slopes(step, q=q, d=d):
                e = np.zeros((2, 3))
                e[q, d] = step[0]
                by_mean = divergence(p._replace(means=p.means + e), counts, prior).means_bar
                moved = p._replace(log_scales=p.log_scales + e)
                return by_mean[q, d], divergence(moved, counts, prior).log_scales_bar[q, d]

            by_mean = differences(lambda h: slopes(h)[0], np.zeros(1))[0]
            by_log_scale = differences(lambda h: slopes(h)[1], np.zeros(1))[0]
            assert by_mean == pytest.approx(counts[q] / kernel.scales[q, d] ** 2, rel=1e-8)
            assert by_log_scale == pytest.approx(2 * counts[q], rel=1e-8)


class SlowAdam:
    """The textbook's, one number at a time, uphill."""

    def __init__(self, learning_rate):
        self.lr, self.t, self.m, self.v = learning_rate, 0, {}, {}

    def begin(self):
        self.t += 1

    def step(self, key, g):
        self.m[key] = 0.9 * self.m.get(key, 0.0) + 0.1 * g
        self.v[key] = 0.99 * self.v.get(key, 0.0) + 0.01 * g * g
        mean = self.m[key] / (1 - 0.9**self.t)
        square = self.v[key] / (1 - 0.99**self.t)
        return self.lr * mean / (np.sqrt(square) + 1e-8)


def published_step(p, g, adam):
    """Halve, normalise and move log sigma; then log mu with the new sigma; w and noise plainly."""
    adam.begin()
    n_components, n_inputs = p.means.shape
    log_weights, means = np.array(p.log_weights), np.array(p.means)
    log_scales = np.array(p.log_scales)
    for q in range(n_components):
        halved = [0.5 * g.log_scales[q, d] for d in range(n_inputs)]
        norm = np.sqrt(sum(h * h for h in halved))
        for d in range(n_inputs):
            log_scales[q, d] += adam.step(("sigma", q, d), halved[d] / norm)
        natural = []
        for d in range(n_inputs):
            by_log_mu = g.means[q, d] * p.means[q, d]
            natural.append(by_log_mu * (np.exp(log_scales[q, d]) / p.means[q, d]) ** 2)
        norm = np.sqrt(sum(n * n for n in natural))
        for d in range(n_inputs):
            log_mu = np.log(p.means[q, d]) + adam.step(("mu", q, d), natural[d] / norm)
            means[q, d] = np.exp(log_mu)
        log_weights[q] += adam.step(("w", q), g.log_weights[q])
    log_noise = p.log_noise + adam.step("noise", g.log_noise)
    return Parameters(log_weights, means, log_scales, log_noise)


def positive_case():
    p = Parameters.of(random_mixture(np.random.default_rng(2), 2, 3), 0.1)
    return p._replace(means=np.abs(p.means))


def random_gradient(rng):
    return Parameters(
        rng.standard_normal(2),
        rng.standard_normal((2, 3)),
        rng.standard_normal((2, 3)),
        float(rng.standard_normal()),
    )


def adam_groups(learning_rate=0.05):
    return _Groups(*(Adam(learning_rate) for _ in range(4)))


def assert_same(p, expected, rtol=1e-10):
    for value, wanted in zip(p, expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=rtol)


def test_natural_steps_are_the_published_recipe():
    p = expected = positive_case()
    groups, adam, rng = adam_groups(), SlowAdam(0.05), np.random.default_rng(3)
    for _ in range(4):
        g = random_gradient(rng)
        p = _stepped(p, g, groups, natural=True, frequencies="positive")
        expected = published_step(expected, g, adam)
        assert_same(p, expected)


def test_plain_steps_are_adam_in_logarithms():
    p = positive_case()
    log_means, log_scales = np.log(p.means), np.array(p.log_scales)
    groups, adam, rng = adam_groups(), SlowAdam(0.05), np.random.default_rng(4)
    for _ in range(4):
        g = random_gradient(rng)
        adam.begin()
        for i in np.ndindex(2, 3):
            by_log_mu = g.means[i] * np.exp(log_means[i])
            log_means[i] += adam.step(("mu", i), by_log_mu)
            log_scales[i] += adam.step(("sigma", i), g.log_scales[i])
        p = _stepped(p, g, groups, natural=False, frequencies="positive")
        np.testing.assert_allclose(p.means, np.exp(log_means), rtol=1e-10)
        np.testing.assert_allclose(p.log_scales, log_scales, rtol=1e-10)


def test_signed_means_move_by_the_gradient_times_the_new_variance():
    p = Parameters.of(random_mixture(np.random.default_rng(5), 2, 3), 0.1)
    groups, adam, rng = adam_groups(), SlowAdam(0.05), np.random.default_rng(6)
    for _ in range(3):
        g = random_gradient(rng)
        adam.begin()
        moved = _stepped(p, g, groups, natural=True, frequencies="signed")
        natural = np.exp(2 * moved.log_scales) * g.means
        for q in range(2):
            for d in range(3):
                step = adam.step((q, d), natural[q, d] / np.linalg.norm(natural[q]))
                assert moved.means[q, d] == pytest.approx(p.means[q, d] + step, rel=1e-10)
        p = moved


def two_steps(natural, factors):
    """Steps with the gradient of each component's means and scales multiplied by a factor."""
    p, groups, rng = positive_case(), adam_groups(), np.random.default_rng(7)
    for step in factors:
        g, column = random_gradient(rng), np.array(step)[:, None]
        g = g._replace(means=column * g.means, log_scales=column * g.log_scales)
        p = _stepped(p, g, groups, natural, "positive")
    return p


@pytest.mark.parametrize(
    "factors", [[(50.0, 1e-9)], [(1e-8, 1e8), (3.0, 0.01)]], ids=["first", "both"]
)
def test_natural_steps_do_not_know_the_size_of_a_components_gradient(factors):
    ones = [(1.0, 1.0)] * len(factors)
    assert_same(two_steps(True, factors), two_steps(True, ones))
    plain = two_steps(False, factors).log_scales - two_steps(False, ones).log_scales
    assert np.abs(plain).max() > 1e-3


def test_a_gradient_of_zero_moves_nothing():
    p = positive_case()
    zero = Parameters(np.zeros(2), np.zeros((2, 3)), np.zeros((2, 3)), 0.0)
    assert_same(_stepped(p, zero, adam_groups(), natural=True, frequencies="positive"), p)


def test_the_noise_stays_within_its_bounds():
    p = positive_case()._replace(log_noise=LOG_NOISE_BOUNDS[0] + 0.01)
    g = random_gradient(np.random.default_rng(8))._replace(log_noise=-1.0)
    moved = _stepped(p, g, adam_groups(), natural=True, frequencies="positive")
    assert moved.log_noise == LOG_NOISE_BOUNDS[0]

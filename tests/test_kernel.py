import numpy as np
import pytest
from oracles import random_mixture, slow_gram

from bochner import SpectralMixture, feature_error_bound
from bochner import kernel as kernel_module
from bochner.points import draw_points


@pytest.mark.parametrize("n_inputs", [1, 3])
def test_covariance_is_the_sum_over_components_and_inputs(n_inputs):
    rng = np.random.default_rng(1)
    kernel = random_mixture(rng, 4, n_inputs)
    X, Z = rng.standard_normal((7, n_inputs)), rng.standard_normal((5, n_inputs))
    assert (kernel.means < 0).any()
    assert (kernel.means > 0).any()
    np.testing.assert_allclose(kernel(X, Z), slow_gram(kernel, X, Z), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(kernel(X), slow_gram(kernel, X, X), rtol=1e-12, atol=1e-14)


def test_the_signs_of_the_means_matter_against_each_other_only():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((6, 2))
    one, other = [[0.5, 0.5]], [[0.5, -0.5]]
    scales = [[0.1, 0.1]]
    K = SpectralMixture([1.0], one, scales)(X)
    np.testing.assert_allclose(K, SpectralMixture([1.0], -np.array(one), scales)(X))
    assert np.abs(K - SpectralMixture([1.0], other, scales)(X)).max() > 0.1


@pytest.mark.parametrize("n_inputs", [1, 3])
def test_the_diagonal_is_that_of_the_covariance(n_inputs):
    rng = np.random.default_rng(2)
    kernel = random_mixture(rng, 3, n_inputs)
    X = rng.standard_normal((9, n_inputs))
    np.testing.assert_allclose(np.diag(kernel(X)), kernel.diag(X), rtol=1e-14)
    np.testing.assert_allclose(kernel.diag(X), np.full(9, sum(kernel.weights)), rtol=1e-14)


def test_the_covariance_is_symmetric_and_has_no_negative_eigenvalue():
    rng = np.random.default_rng(3)
    K = random_mixture(rng, 3, 2)(rng.standard_normal((30, 2)))
    np.testing.assert_allclose(K, K.T, atol=1e-15)
    assert np.linalg.eigvalsh(K).min() > -1e-12


def grid_and_density(kernel):
    s = np.linspace(-8, 8, 20_001)
    return s, kernel.density(s[:, None])


def test_the_mass_of_the_density_is_k0():
    kernel = random_mixture(np.random.default_rng(4), 3, 1)
    s, density = grid_and_density(kernel)
    assert np.sum(density) * (s[1] - s[0]) == pytest.approx(kernel.variance, rel=1e-10)


def test_the_density_is_symmetric():
    kernel = random_mixture(np.random.default_rng(5), 3, 2)
    s = np.random.default_rng(6).standard_normal((20, 2))
    np.testing.assert_allclose(kernel.density(s), kernel.density(-s), rtol=1e-13)


def test_the_kernel_is_the_fourier_transform_of_the_density():
    kernel = random_mixture(np.random.default_rng(7), 3, 1)
    s, density = grid_and_density(kernel)
    for tau in [0.0, 0.1, -0.4, 1.3, 3.0]:
        integral = np.sum(density * np.cos(2 * np.pi * s * tau)) * (s[1] - s[0])
        assert integral == pytest.approx(float(kernel.of_lag([tau])), abs=1e-10)


def test_the_density_in_two_dimensions_has_mass_k0():
    kernel = random_mixture(np.random.default_rng(8), 2, 2)
    axis = np.linspace(-4, 4, 401)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1)
    mass = kernel.density(grid).sum() * (axis[1] - axis[0]) ** 2
    assert mass == pytest.approx(kernel.variance, rel=1e-6)


def test_monte_carlo_over_the_gaussian_agrees_with_our_exponent_and_not_with_the_printed_one():
    mu, sigma = np.array([0.4, -0.3, 0.2]), np.array([0.3, 0.4, 0.2])
    tau = np.array([0.5, -0.6, 0.4])
    s = mu + sigma * np.random.default_rng(9).standard_normal((400_000, 3))
    terms = np.cos(2 * np.pi * s @ tau)
    standard_error = terms.std() / np.sqrt(len(terms))
    ours = float(SpectralMixture([1.0], [mu], [sigma]).of_lag(tau))
    printed = np.exp(-2 * np.pi**2 * (sigma @ tau) ** 2) * np.cos(2 * np.pi * mu @ tau)
    assert abs(terms.mean() - ours) < 4 * standard_error
    assert abs(terms.mean() - printed) > 100 * standard_error


@pytest.mark.parametrize("elements", [1, 3 * 11 * 2, 3 * 11 * 2 + 1, 23 * 11 * 2])
def test_tiles_of_any_size_give_the_same_covariance(monkeypatch, elements):
    rng = np.random.default_rng(10)
    kernel = random_mixture(rng, 2, 2)
    X, Z = rng.standard_normal((23, 2)), rng.standard_normal((11, 2))
    whole = slow_gram(kernel, X, Z)
    monkeypatch.setattr(kernel_module, "_TILE_ELEMENTS", elements)
    np.testing.assert_allclose(kernel(X, Z), whole, rtol=1e-12, atol=1e-14)


def test_a_large_covariance_is_never_built_from_all_lags_at_once(monkeypatch):
    sizes = []
    of_lag = SpectralMixture.of_lag

    def recorded(self, tau):
        sizes.append(np.size(tau))
        return of_lag(self, tau)

    monkeypatch.setattr(SpectralMixture, "of_lag", recorded)
    X = np.linspace(0, 1, 2_100)[:, None]
    kernel = SpectralMixture([1.5], [[0.3]], [[0.2]])
    K = kernel(X)
    assert len(sizes) > 1
    assert max(sizes) <= kernel_module._TILE_ELEMENTS
    for i in [0, 1_903, 1_904, 1_905, 2_099]:
        np.testing.assert_allclose(K[i], slow_gram(kernel, X[[i]], X)[0], rtol=1e-11, atol=1e-13)


def test_a_period_is_the_lag_after_which_a_narrow_component_repeats():
    kernel = SpectralMixture([1.0], [[0.5, -0.25, 0.0]], [[1e-6, 1e-6, 1e-6]])
    np.testing.assert_array_equal(kernel.periods, [[2.0, 4.0, np.inf]])
    for d in range(2):
        lag = np.zeros(3)
        lag[d] = kernel.periods[0, d]
        assert float(kernel.of_lag(lag)) == pytest.approx(1.0, abs=1e-8)
        assert float(kernel.of_lag(lag / 2)) == pytest.approx(-1.0, abs=1e-8)


def test_at_one_length_scale_the_covariance_has_fallen_as_that_of_an_rbf_kernel():
    kernel = SpectralMixture([1.0], [[0.0, 0.0]], [[0.2, 0.7]])
    for d in range(2):
        lag = np.zeros(2)
        lag[d] = kernel.length_scales[0, d]
        assert float(kernel.of_lag(lag)) == pytest.approx(np.exp(-0.5))


def test_a_kernel_in_new_units_equals_the_kernel_in_old_ones():
    rng = np.random.default_rng(11)
    kernel = random_mixture(rng, 3, 2)
    X = rng.standard_normal((8, 2))
    unit, output_unit = np.array([12.0, 0.01]), 3.0
    again = kernel.rescaled(unit, output_unit)
    np.testing.assert_allclose(again(X * unit), output_unit**2 * kernel(X), rtol=1e-12, atol=1e-13)


def test_a_kernel_has_as_many_components_and_inputs_as_its_means():
    kernel = random_mixture(np.random.default_rng(12), 3, 2)
    assert (kernel.n_components, kernel.n_features_in) == (3, 2)
    assert kernel.variance == pytest.approx(sum(kernel.weights))


@pytest.mark.parametrize(
    ("weights", "means", "scales", "message"),
    [
        ([1.0, 1.0], [[0.0]], [[1.0]], "expected .Q,., .Q, D. and .Q, D."),
        ([1.0], [[0.0, 0.0]], [[1.0]], "expected .Q,., .Q, D. and .Q, D."),
        ([0.0], [[0.0]], [[1.0]], "weights must be finite and positive"),
        ([np.nan], [[0.0]], [[1.0]], "weights must be finite and positive"),
        ([1.0], [[0.0]], [[-1.0]], "scales must be finite and positive"),
        ([1.0], [[0.0]], [[np.inf]], "scales must be finite and positive"),
        ([1.0], [[np.inf]], [[1.0]], "means must be finite"),
    ],
)
def test_what_is_wrong_with_a_kernel_is_said_in_words(weights, means, scales, message):
    with pytest.raises(ValueError, match=message):
        SpectralMixture(weights, means, scales)


def corrected_bound(kernel, counts, gram_norm, n, e):
    heaviest = max(w / m for w, m in zip(kernel.weights, counts, strict=True))
    return min(1.0, 2 * n * np.exp(-3 * e**2 / (n * heaviest * (6 * gram_norm + 2 * e))))


def printed_bound(kernel, counts, gram_norm, n, e):
    w_0, m_0 = np.sqrt(np.sum(kernel.weights**2)), min(counts)
    return min(1.0, n * np.exp(-3 * e**2 * m_0 / (w_0 * n * (6 * gram_norm + 4 * e))))


def frequency_of_errors(kernel, counts, X, errors, repetitions, rng):
    """How often ||Phi Phi^T - K||_2 is at least each of the errors, for independent points."""
    K = kernel(X)
    beyond = np.zeros(len(errors))
    for _ in range(repetitions):
        points = draw_points("iid", counts, X.shape[1], rng)
        phase = 2 * np.pi * X @ points.locations(kernel).T
        phi = np.hstack([np.cos(phase), np.sin(phase)]) * points.amplitudes(kernel.weights)
        beyond += np.linalg.norm(phi @ phi.T - K, 2) >= errors
    return beyond / repetitions


@pytest.mark.parametrize("n", [2, 8])
def test_the_error_bound_is_the_corrected_one_and_holds_in_a_simulation(n):
    rng = np.random.default_rng(13)
    kernel, counts = random_mixture(rng, 2, 1), np.array([12, 20])
    X = 2.0 * np.arange(n)[:, None]
    gram_norm = float(np.linalg.norm(kernel(X), 2))
    errors = np.geomspace(0.2, 40.0, 30)
    bounds = [feature_error_bound(kernel, counts, gram_norm, n, e) for e in errors]
    expected = [corrected_bound(kernel, counts, gram_norm, n, e) for e in errors]
    np.testing.assert_allclose(bounds, expected, rtol=1e-12)
    frequencies = frequency_of_errors(kernel, counts, X, errors, 4_000, rng)
    assert frequencies[0] > 0.1
    assert min(bounds) < 1e-2 < max(bounds)
    assert np.all(frequencies <= bounds)


def test_the_corrected_bound_is_tighter_than_the_printed_one_where_both_say_something():
    rng = np.random.default_rng(14)
    compared = 0
    for _ in range(50):
        kernel = SpectralMixture(
            rng.uniform(0.5, 1.5, 4), rng.normal(size=(4, 1)), rng.uniform(0.1, 1, (4, 1))
        )
        X = rng.standard_normal((50, 1))
        gram_norm = float(np.linalg.norm(kernel(X), 2))
        counts = np.full(4, 20_000)
        for e in [5.0, 10.0, 20.0, 40.0]:
            ours = feature_error_bound(kernel, counts, gram_norm, 50, e)
            printed = printed_bound(kernel, counts, gram_norm, 50, e)
            if ours < 1 and printed < 1:
                compared += 1
                assert ours <= printed
    assert compared > 50


@pytest.mark.parametrize("ask", ["density", "of_lag"])
@pytest.mark.parametrize("wrong", [0.5, [0.4, 0.5, 0.6], [[0.4], [0.5]]])
def test_frequencies_and_lags_of_another_width_are_refused(ask, wrong):
    kernel = SpectralMixture([1.0], [[0.5, 0.2]], [[0.1, 0.1]])
    with pytest.raises(ValueError, match=r"last axis must hold the 2 input"):
        getattr(kernel, ask)(wrong)


def test_a_kernel_cannot_be_changed_by_accident():
    kernel = SpectralMixture([1.0], [[0.5]], [[0.1]])
    with pytest.raises(ValueError, match="read-only"):
        kernel.weights[0] = -5.0


@pytest.mark.parametrize(
    "wrong", [{"counts": [0]}, {"counts": [1, 2]}, {"n_rows": -10}, {"error": 0.0}]
)
def test_a_bound_of_nonsense_is_refused(wrong):
    asked = {"counts": [10], "gram_norm": 5.0, "n_rows": 10, "error": 1.0} | wrong
    with pytest.raises(ValueError, match=next(iter(wrong))):
        feature_error_bound(SpectralMixture([1.0], [[0.5]], [[0.1]]), **asked)

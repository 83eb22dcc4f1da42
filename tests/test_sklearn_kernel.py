import numpy as np
import pytest
from oracles import differences, random_mixture, slow_gram
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel

from bochner import SpectralMixture, SpectralMixtureKernel, SpectralMixtureRegressor

BOUNDS = ("means_bounds", "scales_bounds", "weights_bounds")


def random_kernel(seed=0, n_components=2, n_inputs=3, fixed=()):
    mixture = random_mixture(np.random.default_rng(seed), n_components, n_inputs)
    return SpectralMixtureKernel(
        mixture.weights, mixture.means, mixture.scales, **dict.fromkeys(fixed, "fixed")
    )


def rows(n=9, n_inputs=3, seed=1):
    return np.random.default_rng(seed).standard_normal((n, n_inputs))


def test_it_is_the_mixture_that_it_was_made_of():
    mixture = random_mixture(np.random.default_rng(2), 3, 3)
    kernel, X, Z = SpectralMixtureKernel.of(mixture), rows(), rows(4, seed=3)
    np.testing.assert_allclose(kernel(X, Z), slow_gram(mixture, X, Z), rtol=1e-11, atol=1e-13)
    np.testing.assert_array_equal(kernel(X), mixture(X))
    np.testing.assert_allclose(kernel.diag(X), np.diag(kernel(X)))


@pytest.mark.parametrize(
    "fixed", [(), BOUNDS[:1], BOUNDS[1:2], BOUNDS[2:], BOUNDS[:2], BOUNDS], ids=str
)
def test_the_gradient_by_theta_agrees_with_differences(fixed):
    kernel, X = random_kernel(fixed=fixed), rows()
    K, gradient = kernel(X, eval_gradient=True)
    np.testing.assert_array_equal(K, kernel(X))
    assert gradient.shape == (9, 9, kernel.n_dims)
    assert kernel.n_dims == len(kernel.theta)
    for i, j in [(0, 0), (0, 1), (1, 0), (4, 7)]:
        expected = differences(lambda t, i=i, j=j: kernel.clone_with_theta(t)(X)[i, j],
                               kernel.theta)  # fmt: skip
        np.testing.assert_allclose(gradient[i, j], expected, atol=1e-8)


def test_there_is_no_gradient_between_two_sets_of_rows():
    with pytest.raises(ValueError, match="only be evaluated when Y is None"):
        random_kernel()(rows(), rows(4), eval_gradient=True)


@pytest.mark.parametrize("fixed", [(), BOUNDS[:1], BOUNDS[1:], BOUNDS], ids=str)
def test_theta_comes_back_as_it_was_set(fixed):
    kernel = random_kernel(fixed=fixed)
    before, theta = kernel.mixture, kernel.theta + 0.1
    kernel.theta = theta
    np.testing.assert_allclose(kernel.theta, theta, rtol=1e-13)
    for name, shift in (("means", np.add), ("scales", None), ("weights", None)):
        old, new = getattr(before, name), getattr(kernel.mixture, name)
        free = old + 0.1 if shift else old * np.exp(0.1)
        np.testing.assert_allclose(new, old if f"{name}_bounds" in fixed else free, rtol=1e-13)


def test_theta_is_in_the_order_in_which_scikit_learn_lists_hyperparameters():
    kernel = random_kernel()
    values = {
        "means": kernel.mixture.means,
        "scales": np.log(kernel.mixture.scales),
        "weights": np.log(kernel.mixture.weights),
    }
    names = [h.name for h in kernel.hyperparameters]
    assert sorted(names) == sorted(values)
    np.testing.assert_array_equal(
        kernel.theta, np.concatenate([values[name].ravel() for name in names])
    )
    assert [h.n_elements for h in kernel.hyperparameters] == [values[n].size for n in names]


def test_bounds_belong_to_the_entries_of_theta():
    mixture = random_mixture(np.random.default_rng(4), 2, 1)
    kernel = SpectralMixtureKernel(
        mixture.weights,
        mixture.means,
        mixture.scales,
        weights_bounds=(0.1, 10.0),
        means_bounds=(-3.0, 3.0),
        scales_bounds=(1e-3, 1.0),
    )
    means, scales, weights = [-3.0, 3.0], np.log([1e-3, 1.0]), np.log([0.1, 10.0])
    np.testing.assert_allclose(
        kernel.bounds, [means, means, scales, scales, weights, weights], rtol=1e-14
    )
    assert np.all((kernel.bounds[:, 0] < kernel.theta) & (kernel.theta < kernel.bounds[:, 1]))


@pytest.mark.parametrize("fixed", [BOUNDS[:1], BOUNDS[1:], BOUNDS], ids=str)
def test_what_is_fixed_is_not_in_theta(fixed):
    kernel = random_kernel(fixed=fixed)
    sizes = dict(zip(BOUNDS, (6, 6, 2), strict=True))
    free = sum(size for name, size in sizes.items() if name not in fixed)
    assert len(kernel.theta) == free
    assert kernel.bounds.shape == (free, 2)
    assert [h.fixed for h in kernel.hyperparameters] == [name in fixed for name in BOUNDS]


def test_a_clone_is_equal_and_independent():
    kernel = random_kernel(fixed=BOUNDS[:1])
    copy = clone(kernel)
    assert copy == kernel
    copy.theta = copy.theta + 1
    assert copy != kernel
    assert kernel == random_kernel(fixed=BOUNDS[:1])


def test_a_clone_with_theta_leaves_the_original_alone():
    kernel = random_kernel()
    other = kernel.clone_with_theta(kernel.theta - 0.5)
    np.testing.assert_allclose(other.theta, kernel.theta - 0.5)
    assert kernel == random_kernel()
    assert other.get_params().keys() == kernel.get_params().keys()


def test_kernels_differ_by_a_value_a_bound_or_a_class():
    kernel = random_kernel()
    assert kernel == random_kernel()
    assert kernel != random_kernel(seed=5)
    assert kernel != random_kernel(n_components=3)
    assert kernel != random_kernel(fixed=BOUNDS[:1])
    assert kernel != WhiteKernel()
    assert kernel != "kernel"


def test_it_is_stationary_and_says_its_size():
    assert random_kernel().is_stationary()
    assert "2 components, 3 inputs" in repr(random_kernel())


def wave(n=60, seed=6):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 6, (n, 1))
    return X, np.sin(2 * np.pi * X[:, 0] / 1.5) + 0.1 * rng.standard_normal(n)


def test_scikit_learn_finds_a_period_with_it_beside_a_kernel_of_noise():
    X, y = wave()
    mixture = SpectralMixtureKernel([1.0], [[0.6]], [[0.05]], scales_bounds="fixed")
    start = GaussianProcessRegressor(mixture + WhiteKernel(0.1), optimizer=None).fit(X, y)
    gp = GaussianProcessRegressor(mixture + WhiteKernel(0.1)).fit(X, y)
    assert gp.log_marginal_likelihood_value_ > start.log_marginal_likelihood_value_ + 5
    learned = gp.kernel_.k1.mixture
    assert learned.periods[0, 0] == pytest.approx(1.5, abs=0.05)
    assert learned.scales[0, 0] == 0.05
    assert gp.kernel_.k2.noise_level == pytest.approx(0.01, rel=0.8)


def test_the_likelihood_of_a_composition_has_the_right_gradient():
    X, y = wave()
    mixture = SpectralMixtureKernel([1.0, 0.5], [[0.6], [0.1]], [[0.1], [0.1]])
    kernel = ConstantKernel(2.0) * mixture + WhiteKernel(0.1)
    gp = GaussianProcessRegressor(kernel, optimizer=None).fit(X, y)
    theta = gp.kernel_.theta
    assert len(theta) == 1 + 6 + 1
    gradient = gp.log_marginal_likelihood(theta, eval_gradient=True)[1]
    expected = differences(gp.log_marginal_likelihood, theta, step=1e-4)
    np.testing.assert_allclose(gradient, expected, atol=1e-6 * np.abs(expected).max())


def test_a_learned_kernel_predicts_alike_in_scikit_learns_exact_regression():
    X, y = wave(n=150)
    model = SpectralMixtureRegressor(
        n_components=2, n_points=40, max_evals=20, n_prediction_points=60, random_state=0
    ).fit(X, y)
    kernel = SpectralMixtureKernel.of(model.kernel_)
    gp = GaussianProcessRegressor(
        kernel, alpha=model.noise_variance_, optimizer=None, normalize_y=False
    ).fit(X, y - y.mean())
    at = np.linspace(0.2, 5.8, 80)[:, None]
    ours, ours_sd = model.predict(at, return_std=True, latent=True)
    exact, exact_sd = gp.predict(at, return_std=True)
    truth = np.sin(2 * np.pi * at[:, 0] / 1.5)
    assert np.sqrt(np.mean((ours - exact - y.mean()) ** 2)) < 0.05
    assert np.sqrt(np.mean((exact + y.mean() - truth) ** 2)) < 0.1
    assert 0.5 < np.median(ours_sd / exact_sd) < 2


def test_a_mixture_of_one_row_of_means_needs_no_second_bracket():
    kernel = SpectralMixture(1.0, [0.5, 0.2], [0.1, 0.1])
    assert (kernel.n_components, kernel.n_features_in) == (1, 2)


def test_bounds_leave_room_around_what_was_learned_in_any_units():
    for unit in (1e-9, 1.0, 1e9):
        mixture = SpectralMixture([unit, 3 * unit], [[0.0], [5 / unit]], [[unit], [2 * unit]])
        kernel = SpectralMixtureKernel.of(mixture)
        low, high = kernel.bounds.T
        assert np.all(low < kernel.theta)
        assert np.all(kernel.theta < high)


@pytest.mark.parametrize("wrong", ["free", 3.0, (1.0, 2.0, 3.0)])
def test_bounds_that_are_none_are_refused(wrong):
    kernel = SpectralMixtureKernel([1.0], [[0.5]], [[0.1]], weights_bounds=wrong)
    with pytest.raises(ValueError, match=r"weights_bounds=.*'fixed'"):
        _ = kernel.bounds

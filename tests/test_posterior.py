import numpy as np
import pytest
from synthetic import problem_of, some_parameters, waves

from bochner.condition import condition
from bochner.evidence import log_evidence, solve
from bochner.objective import fold_features, frequencies_at, statistics, sum_by_component
from bochner.points import draw_points


def conditioned(n=60, p=1, m=12, n_draws=2, noise=0.05, relearn=False, dtype="float64", **options):
    """A posterior on synthetic rows, with all that went into it."""
    X, y = waves(n)
    Y = np.stack([y, np.cos(X[:, 0]), X[:, 1] ** 2], axis=1)[:, :p]
    problem = problem_of(X, Y, dtype=dtype)
    parameters = options.get("parameters", some_parameters(3, 2, noise=noise))
    rng = np.random.default_rng(5)
    points = [draw_points("sobol", np.full(3, m // 3), 2, rng) for _ in range(n_draws)]
    done = condition(problem, parameters, points, relearn, options.get("n_threads", 1))
    return done, problem, parameters, points


def slow_phi(X, S, a):
    """Features with their amplitudes, (N, 2M)."""
    angles = 2 * np.pi * X @ S.T
    return np.hstack([np.cos(angles), np.sin(angles)]) * a


def dense_gp(K, K_new, K_both, Y, noise):
    """Mean and latent covariance of a Gaussian process from its covariances."""
    A_inv = np.linalg.inv(K + noise * np.eye(len(K)))
    return K_new @ A_inv @ Y, K_both - K_new @ A_inv @ K_new.T


def dense_draws(problem, parameters, points, X_new):
    """Dense predictions of every draw with the kernel Phi Phi^T."""
    X, Y = problem.rows.X, problem.rows.Y
    out = []
    for one in points:
        S, a = one.locations(parameters.kernel), one.amplitudes(parameters.kernel.weights)
        phi, new = slow_phi(X, S, a), slow_phi(X_new, S, a)
        noise = parameters.noise_variance
        out.append(dense_gp(phi @ phi.T, new @ phi.T, new @ new.T, Y, noise))
    return out


def new_rows(n=25, seed=7):
    return np.random.default_rng(seed).uniform(-3.0, 3.0, (n, 2))


@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("m", [3, 12, 60])  # fewer and more features than rows
def test_one_draw_is_a_dense_gaussian_process_with_the_kernel_of_its_features(p, m):
    done, *rest = conditioned(p=p, m=m, n_draws=1)
    X_new = new_rows()
    mean, cov = dense_draws(*rest, X_new)[0]
    moments = done.posterior.moments(X_new)
    np.testing.assert_allclose(moments.mean, mean, atol=1e-8)
    np.testing.assert_allclose(moments.variance, np.diag(cov)[:, None].repeat(p, 1), atol=1e-8)
    np.testing.assert_allclose(done.posterior.mean(X_new), mean, atol=1e-8)
    np.testing.assert_allclose(done.posterior.covariance(X_new)[:, :, 0], cov, atol=1e-8)


@pytest.mark.parametrize("p", [1, 2])
def test_a_mixture_has_the_mean_of_means_and_both_kinds_of_variance(p):
    done, *rest = conditioned(p=p, n_draws=3)
    X_new = new_rows()
    draws = dense_draws(*rest, X_new)
    means = np.array([mean for mean, _ in draws])
    variances = np.array([np.diag(cov) for _, cov in draws])
    moments = done.posterior.moments(X_new)
    np.testing.assert_allclose(moments.mean, sum(means) / 3, atol=1e-8)
    spread = sum((mean - sum(means) / 3) ** 2 for mean in means) / 3
    expected = (sum(variances) / 3)[:, None] + spread
    np.testing.assert_allclose(moments.variance, expected, atol=1e-8)
    assert spread.max() > 1e-4  # or the draws would not differ


@pytest.mark.parametrize("p", [1, 2])
def test_log_density_is_the_log_of_the_mean_of_the_densities(p):
    done, problem, parameters, points = conditioned(p=p, n_draws=3)
    X_new = new_rows(6)
    Y = np.random.default_rng(1).standard_normal((6, p))
    draws = dense_draws(problem, parameters, points, X_new)
    expected = []
    for i in range(6):
        density = 0.0
        for mean, cov in draws:
            total = cov[i, i] + parameters.noise_variance
            one = [
                np.exp(-((Y[i, k] - mean[i, k]) ** 2) / (2 * total)) / np.sqrt(2 * np.pi * total)
                for k in range(p)
            ]
            density += np.prod(one) / 3
        expected.append(np.log(density))
    np.testing.assert_allclose(done.posterior.log_density(X_new, Y), expected, atol=1e-8)


def test_log_density_far_from_the_prediction_is_finite():
    posterior = conditioned()[0].posterior
    assert np.all(np.isfinite(posterior.log_density(new_rows(3), np.full((3, 1), 1e4))))


def test_a_density_integrates_to_one():
    posterior = conditioned(n_draws=3)[0].posterior
    grid = np.linspace(-10.0, 10.0, 4_001)
    X = np.repeat(new_rows(1), len(grid), axis=0)
    density = np.exp(posterior.log_density(X, grid[:, None]))
    assert np.sum(density) * (grid[1] - grid[0]) == pytest.approx(1.0, abs=1e-8)


def test_the_diagonal_of_the_covariance_is_the_variance():
    posterior = conditioned(p=2, n_draws=3)[0].posterior
    X = new_rows()
    cov = posterior.covariance(X)
    assert cov.shape == (25, 25, 2)
    for k in range(2):
        np.testing.assert_allclose(np.diag(cov[:, :, k]), posterior.moments(X).variance[:, k])
        np.testing.assert_allclose(cov[:, :, k], cov[:, :, k].T, atol=1e-14)
        assert np.linalg.eigvalsh(cov[:, :, k]).min() > -1e-10


def test_many_features_reach_the_exact_gaussian_process():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (50, 1))
    Y = np.sin(3.0 * X) + 0.1 * rng.standard_normal((50, 1))
    parameters = some_parameters(2, 1, noise=0.02)
    points = [draw_points("sobol", np.array([400, 400]), 1, rng)]
    posterior = condition(problem_of(X, Y), parameters, points, False, 1).posterior
    X_new, kernel = np.linspace(-2.0, 2.0, 40)[:, None], parameters.kernel
    mean, cov = dense_gp(kernel(X), kernel(X_new, X), kernel(X_new), Y, 0.02)
    moments = posterior.moments(X_new)
    np.testing.assert_allclose(moments.mean, mean, atol=0.02)
    np.testing.assert_allclose(moments.variance[:, 0], np.diag(cov), atol=2e-3)


def test_more_features_come_nearer_to_the_exact_gaussian_process():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (50, 2))
    Y, parameters = np.sin(3.0 * X[:, :1]), some_parameters(2, 2, noise=0.02)
    kernel, X_new, problem = parameters.kernel, new_rows(), problem_of(X, Y)
    exact = dense_gp(kernel(X), kernel(X_new, X), kernel(X_new), Y, 0.02)[0]
    errors = []
    for m in (4, 24, 144):
        points = [draw_points("sobol", np.full(2, m), 2, rng) for _ in range(4)]
        posteriors = [condition(problem, parameters, [p], False, 1).posterior for p in points]
        off = [np.sqrt(np.mean((q.mean(X_new) - exact) ** 2)) for q in posteriors]
        errors.append(np.mean(off))
    assert errors[0] > 1.5 * errors[1] > 2.25 * errors[2]


def test_float32_and_float64_give_nearly_the_same_posterior():
    X = new_rows()
    single, double = (conditioned(dtype=t)[0].posterior for t in ("float32", "float64"))
    assert single.draws[0].root.dtype == np.float32
    np.testing.assert_allclose(single.mean(X), double.mean(X), atol=1e-3)
    np.testing.assert_allclose(single.moments(X).variance, double.moments(X).variance, rtol=1e-2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("noise", [1e-6, 1e-2, 10.0])
def test_variance_lies_between_zero_and_that_of_the_prior(dtype, noise):
    done, _, parameters, _ = conditioned(n_draws=1, noise=noise, dtype=dtype)
    X = np.concatenate([waves(60)[0], new_rows(), 50.0 * new_rows()])
    variance = done.posterior.moments(X).variance
    assert variance.min() >= 0.0
    assert variance.max() <= parameters.kernel.variance * (1 + 1e-6)


def test_without_information_the_posterior_is_the_prior():
    done, _, parameters, _ = conditioned(n_draws=1, noise=1e9)
    moments = done.posterior.moments(new_rows())
    np.testing.assert_allclose(moments.mean, 0.0, atol=1e-6)
    np.testing.assert_allclose(moments.variance, parameters.kernel.variance, rtol=1e-6)


def test_without_noise_the_posterior_goes_through_the_outputs():
    done, problem, *_ = conditioned(n=12, m=60, n_draws=1, noise=1e-8)
    moments = done.posterior.moments(problem.rows.X)
    np.testing.assert_allclose(moments.mean, problem.rows.Y, atol=1e-3)
    assert moments.variance.max() < 1e-6


def test_samples_have_the_mean_and_the_covariance_of_the_mixture():
    posterior = conditioned(p=2, n_draws=3)[0].posterior
    X, n = new_rows(4), 40_000
    samples = posterior.sample(X, n, np.random.default_rng(0))
    assert samples.shape == (4, 2, n)
    moments, cov = posterior.moments(X), posterior.covariance(X)
    error = np.sqrt(moments.variance / n)
    assert np.all(np.abs(samples.mean(axis=2) - moments.mean) < 5 * error)
    for k in range(2):
        got = np.cov(samples[:, k])
        np.testing.assert_allclose(got, cov[:, :, k], atol=0.05 * cov[:, :, k].max())


def test_a_sample_is_one_function_at_all_rows():
    posterior = conditioned()[0].posterior
    X = np.concatenate([new_rows(5), new_rows(5)])
    samples = posterior.sample(X, 7, np.random.default_rng(0))
    np.testing.assert_allclose(samples[:5], samples[5:], atol=1e-10)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_three_thousand_rows_are_predicted_as_one_by_one(dtype):
    posterior = conditioned(dtype=dtype, n_threads=2)[0].posterior
    X = new_rows(3_000)
    Y = np.zeros((3_000, 1))
    mean, moments, density = posterior.mean(X), posterior.moments(X), posterior.log_density(X, Y)
    assert mean.shape == (3_000, 1)
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    for i in [*range(0, 3_000, 97), 1_023, 1_024, 2_047, 2_048, 2_999]:
        row = X[i : i + 1]
        np.testing.assert_allclose(mean[i], posterior.mean(row)[0], atol=1e-12)
        one = posterior.moments(row)
        np.testing.assert_allclose(moments.mean[i], one.mean[0], atol=1e-12)
        np.testing.assert_allclose(moments.variance[i], one.variance[0], atol=tolerance)
        alone = posterior.log_density(row, Y[:1])[0]
        np.testing.assert_allclose(density[i], alone, atol=100 * tolerance)


def test_predictions_are_the_same_bits_for_any_number_of_threads():
    X = new_rows(5_000)
    posterior = conditioned()[0].posterior
    one, *others = (posterior._replace(n_threads=k).moments(X) for k in (1, 2, 3, 5))
    for other in others:
        np.testing.assert_array_equal(one.mean, other.mean)
        np.testing.assert_array_equal(one.variance, other.variance)


def test_a_mean_alone_never_touches_what_only_variances_need():
    posterior = conditioned()[0].posterior
    blind = posterior._replace(
        draws=[d._replace(root=np.full_like(d.root, np.nan)) for d in posterior.draws]
    )
    np.testing.assert_array_equal(blind.mean(new_rows()), posterior.mean(new_rows()))
    assert np.all(np.isnan(blind.moments(new_rows()).variance))


def pooled(problem, p, points):
    """Log evidence summed over draws, with its gradient in log weights and log noise."""
    value, by_weight, by_noise = 0.0, 0.0, 0.0
    for one in points:
        at = frequencies_at(one.locations(p.kernel), problem.input_squares)
        stats = statistics(problem.rows, problem.n_outputs, at)
        solution = solve(stats, one.amplitudes(p.kernel.weights), p.noise_variance)
        fit = log_evidence(stats, solution)
        value += fit.value
        by_weight = by_weight + 0.5 * sum_by_component(fold_features(fit.log_a_bar), one.counts)
        by_noise += fit.log_noise_bar
    return value, np.append(by_weight, by_noise)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("noise", [0.005, 0.05, 0.5])
def test_weights_and_noise_learned_again_raise_the_pooled_evidence(p, noise):
    done, problem, before, points = conditioned(n=200, m=30, p=p, noise=noise, relearn=True)
    value, slope = pooled(problem, before, points)
    better, flatter = pooled(problem, done.parameters, points)
    assert better > value
    assert np.abs(flatter).max() < 0.4 * np.abs(slope).max()


def test_learning_again_ends_where_the_gradient_is_zero():
    parameters = some_parameters(3, 2)
    for _ in range(40):
        done, problem, _, points = conditioned(n=200, m=30, relearn=True, parameters=parameters)
        parameters = done.parameters
    slope = pooled(problem, parameters, points)[1]
    bounded = parameters.log_weights <= -17.9  # a component that is switched off
    assert np.abs(slope[:-1][~bounded]).max() < 0.05
    assert abs(slope[-1]) < 0.05


def test_learning_again_leaves_the_frequencies_alone():
    done, _, before, points = conditioned(relearn=True)
    np.testing.assert_array_equal(done.parameters.means, before.means)
    np.testing.assert_array_equal(done.parameters.log_scales, before.log_scales)
    for draw, one in zip(done.posterior.draws, points, strict=True):
        np.testing.assert_array_equal(draw.S, one.locations(before.kernel))


def test_without_learning_again_the_parameters_stay():
    done, _, before, _ = conditioned(relearn=False)
    assert done.parameters is before
    assert done.posterior.noise_variance == before.noise_variance


def test_noise_learned_again_is_near_the_truth():
    done, *_ = conditioned(n=800, m=60, noise=0.3, relearn=True)
    assert done.parameters.noise_variance == pytest.approx(0.01, rel=0.25)


def test_conditioning_is_the_same_bits_for_any_number_of_threads():
    X = new_rows()
    one, two = (conditioned(n_draws=4, relearn=True, n_threads=k)[0].posterior for k in (1, 3))
    np.testing.assert_array_equal(one.mean(X), two.mean(X))


def test_sums_that_are_not_finite_are_an_error_in_words():
    X, y = waves(30)
    y[3] = np.nan
    problem, rng = problem_of(X, y[:, None]), np.random.default_rng(0)
    problem.rows.X[:] = np.nan
    problem = problem_of(problem.rows.X, y[:, None])._replace(input_squares=np.ones(2))
    points = [draw_points("iid", np.array([2, 2]), 2, rng)]
    with pytest.raises(FloatingPointError, match="not finite"):
        condition(problem, some_parameters(2, 2), points, False, 1)

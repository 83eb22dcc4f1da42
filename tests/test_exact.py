import itertools

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve
from synthetic import quick, waves

import bochner
from bochner import SpectralMixture, SpectralMixtureRegressor, exact
from bochner.blas import sequential_blas
from bochner.cholesky import factorise
from bochner.conjugate import PANEL_ROWS
from bochner.exact import Plan, Refined, condition_exactly
from bochner.progress import Progress

METHODS = ("cholesky", "cholesky-float32", "iterative")


def silent(*event):
    pass


class Dense:
    """The textbook Gaussian process, N x N and float64."""

    def __init__(self, kernel, noise, X, Y):
        self.kernel, self.X, self.Y, self.noise = kernel, X, Y, noise
        A = kernel(X)
        A[np.diag_indices_from(A)] += noise
        self.A, self.factor = A, cho_factor(A, lower=True)
        self.alpha = cho_solve(self.factor, Y)

    def mean(self, Z):
        return self.kernel(Z, self.X) @ self.alpha

    def covariance(self, Z):
        K = self.kernel(self.X, Z)
        return self.kernel(Z) - K.T @ cho_solve(self.factor, K)


def problem(n, d=3, ratio=0.1, outputs=1, seed=0):
    """Rows whose outputs are a draw from the prior with noise, and the dense answer."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    kernel = SpectralMixture(
        [0.5, 0.3], rng.normal(0.0, 0.15, (2, d)), rng.uniform(0.05, 0.15, (2, d))
    )
    noise = ratio * kernel.variance
    S = np.concatenate([
        m + s * rng.standard_normal((400, d))
        for m, s in zip(kernel.means, kernel.scales, strict=True)
    ])  # fmt: skip
    phase = 2.0 * np.pi * X @ S.T
    a = np.repeat(np.sqrt(kernel.weights / 400), 400)[:, None]
    F = np.cos(phase) @ (a * rng.standard_normal((800, outputs)))
    F += np.sin(phase) @ (a * rng.standard_normal((800, outputs)))
    Y = F + np.sqrt(noise) * rng.standard_normal((n, outputs))
    return kernel, noise, X, Y


def conditioned(kernel, noise, X, Y, method, told=silent, keep_bytes=1 << 28, n_threads=None):
    rng = np.random.default_rng(0)
    plan = Plan(method, keep_bytes)
    with sequential_blas():
        return condition_exactly(kernel, noise, X, Y, plan, rng, n_threads, told)


@pytest.mark.parametrize("ratio", [1e-1, 1e-4])
@pytest.mark.parametrize("outputs", [1, 2])
def test_the_factor_gives_the_textbook_to_eight_digits(ratio, outputs):
    kernel, noise, X, Y = problem(500, ratio=ratio, outputs=outputs)
    Z = np.random.default_rng(5).standard_normal((70, 3))
    posterior, dense = conditioned(kernel, noise, X, Y, "cholesky"), Dense(kernel, noise, X, Y)
    sd, cov = Y.std(), dense.covariance(Z)
    np.testing.assert_allclose(posterior.mean(Z), dense.mean(Z), atol=1e-8 * sd)
    moments = posterior.moments(Z)
    np.testing.assert_allclose(moments.mean, dense.mean(Z), atol=1e-8 * sd)
    np.testing.assert_allclose(
        np.sqrt(moments.variance[:, 0]), np.sqrt(np.diag(cov)), atol=1e-8 * sd
    )
    np.testing.assert_allclose(posterior.covariance(Z)[:, :, -1], cov, atol=1e-8 * sd**2)


@pytest.mark.parametrize("ratio", [1e-1, 1e-4])
@pytest.mark.parametrize("method", METHODS[1:])
def test_other_ways_agree_within_the_noise(ratio, method):
    kernel, noise, X, Y = problem(1_500, ratio=ratio)
    Z = np.random.default_rng(5).standard_normal((100, 3))
    posterior, dense = conditioned(kernel, noise, X, Y, method), Dense(kernel, noise, X, Y)
    assert posterior.solved.converged
    np.testing.assert_allclose(posterior.mean(Z), dense.mean(Z), atol=1e-3 * Y.std())
    sd = np.sqrt(np.diag(dense.covariance(Z)) + noise)
    np.testing.assert_allclose(np.sqrt(posterior.moments(Z).variance[:, 0] + noise), sd, rtol=0.02)


def test_tiles_that_are_not_kept_are_computed_again():
    kernel, noise, X, Y = problem(2_300)
    kept, computed = (
        conditioned(kernel, noise, X, Y, "iterative", keep_bytes=b) for b in (1 << 28, 5_000_000)
    )
    np.testing.assert_array_equal(kept.weights, computed.weights)


@pytest.mark.parametrize("method", METHODS)
def test_the_bits_do_not_depend_on_the_number_of_threads(method):
    kernel, noise, X, Y = problem(1_300)
    Z = np.random.default_rng(5).standard_normal((40, 3))
    one, two = (conditioned(kernel, noise, X, Y, method, n_threads=k) for k in (1, 2))
    np.testing.assert_array_equal(one.weights, two.weights)
    np.testing.assert_array_equal(one.moments(Z).variance, two.moments(Z).variance)


@pytest.mark.parametrize("method", METHODS)
def test_variances_lie_between_none_and_the_priors_without_help(method):
    kernel, noise, X, Y = problem(600, ratio=1e-4)
    Z = np.concatenate([X[:50], 1e3 + X[:5]])
    posterior = conditioned(kernel, noise, X, Y, method)
    explained = posterior.solver.explained(posterior._cross(Z))
    assert np.all(explained <= kernel.variance + 1e-2 * noise)  # so that nothing is clipped
    variance = posterior.moments(Z).variance
    np.testing.assert_allclose(variance[-5:], kernel.variance, rtol=1e-5)
    assert variance[:50].max() < 0.1 * kernel.variance  # not silently the prior's


def test_landmarks_precondition_smooth_kernels_with_little_noise():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1_600, 2))
    kernel = SpectralMixture([1.0], [[0.0, 0.0]], [[0.15, 0.15]])
    Y = np.sin(X[:, :1]) + 0.01 * rng.standard_normal((1_600, 1))
    posterior = conditioned(kernel, 1e-4, X, Y, "iterative")
    assert posterior.solved.converged
    assert posterior.solved.iterations < 60


def as_good_as_singular(ratio):
    """Rows of which some stand twice, with so little noise."""
    kernel, noise, X, Y = problem(900, ratio=ratio)
    return kernel, noise, np.concatenate([X, X[:200]]), np.concatenate([Y, Y[:200]])


def test_a_factor_that_fails_in_float32_still_preconditions():
    kernel, noise, X, Y = as_good_as_singular(3e-6)
    posterior = conditioned(kernel, noise, X, Y, "cholesky-float32")
    assert not posterior.solver.suffices
    dense = Dense(kernel, noise, X, Y)
    Z = np.random.default_rng(5).standard_normal((30, 3))
    np.testing.assert_allclose(posterior.mean(Z), dense.mean(Z), atol=3e-3 * Y.std())


def test_noise_beyond_float32_is_a_failure_and_no_nonsense():
    kernel, noise, X, Y = as_good_as_singular(1e-9)
    with pytest.raises(FloatingPointError, match="too small for float32"):
        conditioned(kernel, noise, X, Y, "cholesky-float32")


def test_noise_beyond_float32_is_given_a_float64_factor(monkeypatch):
    X, _ = waves(300)
    monkeypatch.setattr(
        "bochner.fitting.cost",
        lambda *a, **k: bochner.Cost("exact", Plan("cholesky-float32"), 0, 0.0, ""),
    )
    y = np.sin(X[:, 0]) + np.cos(X[:, 1])
    model = quick(posterior="exact", max_evals=40, n_points=60).fit(X, y)
    assert model.cost_.plan.method == "cholesky"
    assert model.score(X, y) > 0.9999


def test_float32_is_refined_beyond_its_own_precision():
    kernel, noise, X, Y = problem(900, ratio=1e-3)
    posterior = conditioned(kernel, noise, X, Y, "cholesky-float32")
    assert isinstance(posterior.solver, Refined)
    dense = Dense(kernel, noise, X, Y)
    off = posterior.weights - dense.alpha
    plain = posterior.solver.direct.solve(Y).X - dense.alpha
    assert np.linalg.norm(off) < np.linalg.norm(plain)


def test_a_factor_leaves_what_is_above_its_diagonal_blocks_alone():
    rng = np.random.default_rng(0)
    half = rng.standard_normal((1_100, 1_100))
    A = half @ half.T / 1_100
    square, n = A.copy(), len(A)
    factor = factorise(square, 0.5)
    for k in range(0, n, PANEL_ROWS):
        np.testing.assert_array_equal(
            square[k : k + PANEL_ROWS, k + PANEL_ROWS :], A[k : k + PANEL_ROWS, k + PANEL_ROWS :]
        )
    B = rng.standard_normal((n, 3))
    np.testing.assert_allclose((A + 0.5 * np.eye(n)) @ factor.solve(B), B, atol=1e-9)
    assert factorise(A - 5.0 * np.eye(n), 0.0) is None


def test_leaving_one_out_is_fitting_without_it():
    kernel, noise, X, Y = problem(60)
    left_out = conditioned(kernel, noise, X, Y, "cholesky").leave_one_out()
    for i in (0, 17, 59):
        others = np.arange(60) != i
        dense = Dense(kernel, noise, X[others], Y[others])
        np.testing.assert_allclose(left_out.mean[i], dense.mean(X[i : i + 1])[0], rtol=1e-9)
        np.testing.assert_allclose(
            left_out.variance[i], dense.covariance(X[i : i + 1])[0] + noise, rtol=1e-9
        )


def test_samples_have_the_moments_of_the_posterior():
    kernel, noise, X, Y = problem(80)
    posterior = conditioned(kernel, noise, X, Y, "cholesky")
    Z = np.random.default_rng(5).standard_normal((6, 3))
    F = posterior.sample(Z, 20_000, np.random.default_rng(1))[:, 0]
    moments = posterior.moments(Z)
    error = np.sqrt(moments.variance[:, 0] / 20_000)
    assert np.all(np.abs(F.mean(axis=1) - moments.mean[:, 0]) < 5 * error)
    np.testing.assert_allclose(np.cov(F), posterior.covariance(Z)[:, :, 0], atol=0.05)


def test_the_learned_kernel_predicts_as_scikit_learns_own_process_does():
    X, y = waves(150)
    model = quick(posterior="exact").fit(X, y)
    mean, std = model.predict(X[:20], return_std=True, latent=True)
    dense = Dense(model.kernel_, model.noise_variance_, X, y[:, None] - y.mean())
    np.testing.assert_allclose(mean, dense.mean(X[:20])[:, 0] + y.mean(), atol=1e-7)
    np.testing.assert_allclose(std, np.sqrt(np.diag(dense.covariance(X[:20]))), atol=1e-7)


# Through the estimator


def test_auto_is_exact_where_it_is_cheap_and_says_why():
    X, y = waves(120)
    model = quick(posterior="auto").fit(X, y)
    assert model.cost_.posterior == "exact"
    assert "float64 factor of 120 rows fits" in str(model.cost_)
    assert isinstance(model.posterior_, exact.ExactPosterior)


def test_the_papers_methods_predict_through_features_unless_asked():
    X, y = waves(60)
    assert quick(inference="svss", posterior="auto").fit(X, y).cost_.posterior == "features"
    model = quick(inference="svss", posterior="exact").fit(X, y)
    assert isinstance(model.posterior_, exact.ExactPosterior)


def test_the_papers_kernel_is_used_as_it_was_learned():
    X, y = waves(60)
    one, two = (quick(inference="svss", posterior=p).fit(X, y) for p in ("exact", "features"))
    np.testing.assert_array_equal(one.kernel_.weights, two.kernel_.weights)
    assert one.noise_variance_ == two.noise_variance_


def test_refining_raises_the_exact_likelihood():
    X, y = waves(150)
    plain, refined = (
        quick(posterior="exact", refine=r, max_evals=4).fit(X, y) for r in (False, True)
    )
    values = refined.objective_path_[np.array(refined.objective_stages_) == "refining"]
    assert np.nanmax(values) > values[0] + 0.01
    assert not np.array_equal(plain.kernel_.scales, refined.kernel_.scales)


def test_refining_many_rows_is_refused():
    X = np.zeros((3_001, 1))
    with pytest.raises(ValueError, match=r"refine=True works on at most 3000 rows.* 3001"):
        quick(refine=True).fit(X, X[:, 0])


def test_leaving_one_out_through_the_estimator():
    X, y = waves(80)
    model = quick(posterior="exact").fit(X, y)
    mean, std = model.leave_one_out()
    assert mean.shape == std.shape == y.shape
    assert np.std(mean - y) > np.std(model.predict(X) - y)  # harder than rows that were seen
    assert 0.8 < np.mean(np.abs(mean - y) < 1.96 * std) <= 1.0
    with pytest.raises(ValueError, match="fit with posterior='exact'"):
        quick().fit(X, y).leave_one_out()


@pytest.mark.parametrize("stage", ["covariance", "factor"])
def test_what_is_given_up_leaves_prediction_through_features(stage):
    X, y = waves(80)

    def callback(event):
        if event.stage == stage:
            raise KeyboardInterrupt

    model = quick(posterior="exact", callback=callback)
    with pytest.warns(UserWarning, match=r"Exact prediction was given up \(interrupted\)"):
        model.fit(X, y)
    assert model.predict(X).shape == y.shape
    assert model.cost_.posterior == "features"
    assert "given up" in str(model.cost_)


@pytest.mark.parametrize("how", ["interrupt", "stop"])
@pytest.mark.parametrize("stage", ["weights", "refining"])
def test_learning_that_is_ended_keeps_the_best_and_predicts_exactly(stage, how):
    X, y = waves(80)

    def callback(event):
        if event.stage == stage:
            if how == "interrupt":
                raise KeyboardInterrupt
            return True
        return None

    model = quick(posterior="exact", refine=stage == "refining", callback=callback).fit(X, y)
    assert isinstance(model.posterior_, exact.ExactPosterior)
    assert model.objective_stages_.count(stage) == 1


def test_a_callback_that_ends_learning_does_not_end_exact_prediction():
    X, y = waves(80)
    with pytest.warns(UserWarning, match="Learning was interrupted"):
        model = quick(posterior="exact", callback=lambda event: True).fit(X, y)
    assert isinstance(model.posterior_, exact.ExactPosterior)


def test_an_interruption_of_prediction_is_one(monkeypatch):
    kernel, noise, X, Y = problem(400)
    posterior = conditioned(kernel, noise, X, Y, "iterative")

    def interrupted(*args):
        raise KeyboardInterrupt

    system = posterior.solver.system._replace(times=interrupted)
    solver = posterior.solver._replace(system=system)
    with pytest.raises(KeyboardInterrupt):
        posterior._replace(solver=solver).moments(X[:3])


def test_variances_that_have_not_converged_are_said_to_be_too_large():
    kernel, noise, X, Y = problem(900, ratio=1e-4)
    posterior = conditioned(kernel, noise, X, Y, "iterative")
    solver = posterior.solver._replace(most_iterations=1)
    with pytest.warns(UserWarning, match="Variances are too large"):
        rough = posterior._replace(solver=solver).moments(X[:20] + 0.1).variance
    assert np.all(rough >= 0.99 * posterior.moments(X[:20] + 0.1).variance)


def test_conjugate_gradients_that_are_interrupted_keep_what_they_have(monkeypatch):
    X, y = waves(400)
    monkeypatch.setattr(
        "bochner.fitting.cost",
        lambda *a, **k: bochner.Cost("exact", Plan("iterative", 1 << 26), 0, 0.0, ""),
    )
    monkeypatch.setattr(exact, "LANDMARKS", 10)
    events = []

    def callback(event):
        events.append(event)
        if event.stage == "iterations" and event.residual < 0.3:
            raise KeyboardInterrupt

    with pytest.warns(UserWarning, match=r"were interrupted after \d+ iterations.*residual"):
        model = quick(posterior="exact", callback=callback).fit(X, y)
    residuals = [e.residual for e in events if e.stage == "iterations"]
    assert residuals[-1] < residuals[0]
    assert model.score(X, y) > 0.5


def test_progress_tells_every_stage():
    X, y = waves(80)
    events = []
    quick(posterior="exact", callback=events.append).fit(X, y)
    assert {"weights", "covariance", "factor"} <= {e.stage for e in events}
    assert all(isinstance(e, Progress) for e in events)


# What it costs


def test_memory_that_does_not_suffice_is_said_with_figures_and_a_remedy(monkeypatch):
    monkeypatch.setattr("bochner.fitting.free_memory", lambda: 1_000)
    X, y = waves(200)
    with pytest.raises(
        ValueError, match=r"posterior='exact' for 200 rows needs about .* GB and .*; give"
    ):
        quick(posterior="exact").fit(X, y)


@pytest.mark.parametrize(
    ("n", "memory", "method"),
    [
        (5_000, 10**10, "cholesky"),
        (20_000, 10**10, "cholesky-float32"),
        (20_000, 1_900_000_000, "iterative"),
    ],
)
def test_the_way_follows_from_rows_and_memory(n, memory, method):
    found = bochner.cost(n, 8, posterior="exact", memory=memory)
    assert found.plan.method == method
    assert found.bytes <= memory


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_rows": -5}, "n_rows=-5"),
        ({"posterior": "exakt"}, "posterior='exakt' is not known"),
        ({"n_jobs": 0}, "n_jobs=0"),
    ],
)
def test_the_cost_of_nonsense_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        bochner.cost(**({"n_rows": 500, "n_features": 3} | wrong))


def test_refining_what_would_not_be_used_is_refused():
    X, y = waves(60)
    with pytest.raises(ValueError, match=r"refine=True .*posterior='features'"):
        quick(posterior="features", refine=True).fit(X, y)
    assert (
        quick(posterior="auto", inference="svss", refine=True).fit(X, y).cost_.posterior == "exact"
    )


def test_auto_never_takes_what_does_not_fit_or_takes_long():
    assert bochner.cost(20_000, 8, memory=10**9).posterior == "features"
    assert "GB may be used" in bochner.cost(20_000, 8, memory=10**9).reason
    many = bochner.cost(200_000, 8, memory=10**12)
    assert many.posterior == "features"
    assert "posterior='exact' asks for it" in many.reason


def test_more_rows_cost_more():
    costs = [bochner.cost(n, 8, posterior="exact", memory=10**11) for n in (1_000, 4_000, 40_000)]
    for one, other in itertools.pairwise(costs):
        assert one.bytes < other.bytes
        assert one.seconds < other.seconds


def test_a_model_with_an_exact_posterior_can_be_pickled():
    import pickle

    X, y = waves(60)
    model = SpectralMixtureRegressor(random_state=0, n_restarts=1, max_evals=10).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))

import numpy as np
import pytest
from synthetic import problem_of, quick, settings_of, waves

from bochner import stochastic as stochastic_module
from bochner.objective import Objective, evaluate_mean
from bochner.parameters import Parameters
from bochner.points import draw_points
from bochner.prior import make_prior
from bochner.progress import Watch
from bochner.sampling import PointSource
from bochner.start import starts_for
from bochner.stochastic import Adam, learn_by_steps

METHODS = ("ss", "ss-rp", "svss", "svss-ws", "svss-ng", "svss-wsng")


class Recording(PointSource):
    """A source that remembers the points that it drew."""

    def draw(self, kernel, total):
        drawn = super().draw(kernel, total)
        self.drawn = [*getattr(self, "drawn", []), drawn[0]]
        return drawn


def stepped(inference, steps=30, callback=None, **options):
    """Some steps of a paper's method on synthetic rows."""
    X, y = waves(150, noise=0.3)
    sizes = {"n_components": 4, "n_points": 12, "learning_rate": 0.02}
    settings = settings_of(inference=inference, max_evals=steps, **(sizes | options))
    rng = np.random.default_rng(0)
    start = starts_for(X, y[:, None], settings, rng)[0]
    prior = make_prior(settings.method.prior, settings.kl_weight, start, rng)
    problem = problem_of(X, y[:, None], prior)
    source, watch = Recording(settings, X, rng), Watch(steps, [callback] if callback else [])
    learned = learn_by_steps(problem, start, settings, source, watch)
    return learned, start, problem, source, watch


def mean_objective(problem, p, counts):
    """Mean over many fresh draws."""
    rng = np.random.default_rng(99)
    points = [draw_points("iid", counts, 2, rng) for _ in range(40)]
    return evaluate_mean(problem, p, points).value


def slow_adam(gradients, rate, beta1=0.9, beta2=0.99, epsilon=1e-8):
    """Every moment as an explicit weighted mean of all gradients so far."""
    moves = []
    for t in range(1, len(gradients) + 1):
        w1 = np.array([beta1 ** (t - 1 - i) for i in range(t)])
        w2 = np.array([beta2 ** (t - 1 - i) for i in range(t)])
        mean = sum(w * g for w, g in zip(w1 / w1.sum(), gradients, strict=False))
        square = sum(w * g**2 for w, g in zip(w2 / w2.sum(), gradients, strict=False))
        moves.append(rate * mean / (np.sqrt(square) + epsilon))
    return moves


def test_adam_is_a_ratio_of_weighted_means():
    gradients = list(np.random.default_rng(0).standard_normal((25, 3, 2)))
    adam = Adam(0.07)
    for gradient, expected in zip(gradients, slow_adam(gradients, 0.07), strict=True):
        np.testing.assert_allclose(adam.move(gradient), expected, rtol=1e-12)


def test_the_first_step_of_adam_has_the_length_of_the_rate_uphill():
    step = Adam(0.01).move(np.array([3.0, -1e-3, 0.0]))
    np.testing.assert_allclose(step, [0.01, -0.01, 0.0], rtol=1e-4)


@pytest.mark.parametrize("inference", METHODS)
def test_a_method_of_the_paper_improves_the_objective_on_average(inference):
    learned, start, problem, _, watch = stepped(inference)
    assert len(watch.trace) == 30
    assert set(watch.stages) == {"step"}
    assert not learned.interrupted
    before = mean_objective(problem, start, learned.counts)
    after = mean_objective(problem, learned.parameters, learned.counts)
    assert after > before + 1.0


@pytest.mark.parametrize("inference", METHODS)
def test_a_method_of_the_paper_fits_and_predicts(inference):
    X, y = waves(100)
    model = quick(inference=inference, n_components=4, n_points=12, max_evals=30).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert model.n_evals_ == 30
    assert np.all(model.kernel_.means > 0)
    assert np.all(np.isfinite(mean))
    assert np.all(std > 0)


def test_ss_keeps_its_points_and_the_others_draw_afresh_every_step():
    assert len(stepped("ss", 10)[3].drawn) == 1
    for inference in METHODS[1:]:
        drawn = stepped(inference, 10)[3].drawn
        assert len(drawn) == 10
        assert len({points.normals[0, 0] for points in drawn}) == 10


def test_the_objective_of_ss_is_smooth_and_that_of_fresh_points_is_not():
    def roughness(trace):
        return np.abs(np.diff(trace, 2)).max() / np.ptp(trace)

    smooth, rough = (roughness(stepped(name, 40)[4].trace) for name in ("ss", "ss-rp"))
    assert smooth < 0.02
    assert rough > 0.1


@pytest.mark.parametrize("inference", METHODS)
def test_only_methods_with_a_variational_prior_have_a_divergence(inference):
    learned, _, problem, source, _ = stepped(inference, 10)
    result = evaluate_mean(problem, learned.parameters, [source.drawn[-1]])
    if inference.startswith("svss"):
        assert result.divergence > 0
        assert result.value == pytest.approx(result.log_evidence - result.divergence)
    else:
        assert result.divergence == 0
        assert result.value == result.log_evidence


def constant_gradient(values):
    """An objective with one gradient everywhere (in log mean) and the values given."""
    ahead = iter(values)

    def evaluated(problem, p, points):
        q, d = p.means.shape
        up = Parameters(np.ones(q), 1 / p.means, -np.ones((q, d)), -1.0)
        return Objective(next(ahead), up, 0.0, 0.0)

    return evaluated


def test_the_last_iterate_is_returned_however_bad(monkeypatch):
    monkeypatch.setattr(
        stochastic_module, "evaluate_mean", constant_gradient(-(np.arange(10.0) ** 2))
    )
    learned, start, *_ = stepped("svss", 10, learning_rate=0.1)
    # With one gradient all the way Adam moves by the rate at every step.
    p = learned.parameters
    np.testing.assert_allclose(p.log_weights, start.log_weights + 1.0, rtol=1e-6)
    np.testing.assert_allclose(p.log_scales, start.log_scales - 1.0, rtol=1e-6)
    np.testing.assert_allclose(np.log(p.means), np.log(start.means) + 1.0, rtol=1e-6)
    assert p.log_noise == pytest.approx(start.log_noise - 1.0)


def test_a_step_that_fails_leaves_the_parameters_where_they_are(monkeypatch):
    failed = Objective(-np.inf, None, -np.inf, np.nan)
    monkeypatch.setattr(stochastic_module, "evaluate_mean", lambda *args: failed)
    learned, start, _, _, watch = stepped("svss", 5)
    assert learned.parameters is start
    assert np.all(np.isnan(watch.trace))


def test_shares_follow_the_components_in_svss_ws_and_stay_equal_in_svss():
    equal = np.array([points.counts for points in stepped("svss", 30)[3].drawn])
    assert np.all(equal == 3)
    source = stepped("svss-ws", 30, n_points=60, learning_rate=0.1)[3]
    shared = np.array([points.counts for points in source.drawn])
    assert np.all(shared.sum(axis=1) == 60)
    assert shared.min() >= 1
    assert len(np.unique(shared, axis=0)) > 1


def test_the_natural_gradient_takes_another_way():
    plain, natural = (stepped(name, 10)[0].parameters for name in ("svss", "svss-ng"))
    assert not np.allclose(plain.means, natural.means)


def test_rows_of_the_natural_gradient_have_unit_length():
    rng = np.random.default_rng(0)
    gradient = rng.standard_normal((4, 3)) * np.array([[1e-9], [1.0], [1e9], [0.0]])
    unit = stochastic_module._unit_rows(gradient)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), [1, 1, 1, 0])


def test_noise_stays_within_its_bounds(monkeypatch):
    monkeypatch.setattr(stochastic_module, "evaluate_mean", constant_gradient(np.zeros(50)))
    learned = stepped("svss", 50, learning_rate=1.0)[0]
    assert learned.parameters.noise_variance >= 9e-9


def test_a_stop_returns_the_iterate_reached():
    learned, start, _, _, watch = stepped("svss", 30, lambda event: event.evaluation == 4)
    assert learned.interrupted
    assert len(watch.trace) == 4
    three = stepped("svss", 3)[0].parameters
    np.testing.assert_array_equal(learned.parameters.means, three.means)
    assert not np.allclose(three.means, start.means)


def test_signed_frequencies_may_be_asked_of_a_method_of_the_paper():
    learned = stepped("svss-ng", 10, frequencies="signed")[0]
    assert np.all(np.isfinite(learned.parameters.means))

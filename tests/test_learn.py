import numpy as np
import pytest
from synthetic import problem_of, quick, settings_of, some_parameters, waves

from bochner import Progress, SpectralMixtureRegressor
from bochner import learn as learn_module
from bochner.learn import Search, learn_in_rounds, maximise, planned_evaluations
from bochner.objective import Objective, evaluate_mean
from bochner.parameters import Coordinates
from bochner.points import draw_points
from bochner.progress import Best, Stop, Watch
from bochner.sampling import PointSource
from bochner.start import starts_for

SEARCHES = ("start", "sample", "round 1", "round 2")
FAILED = Objective(-np.inf, None, -np.inf, np.nan)


class Recording(PointSource):
    """A source that remembers all that it drew."""

    def draw(self, kernel, total):
        drawn = super().draw(kernel, total)
        self.drawn = [*getattr(self, "drawn", []), drawn]
        return drawn


def learned_from(X, y, callback=None, **options):
    """Learn without an estimator: what came out, the watch and the source of points."""
    settings = settings_of(**options)
    problem, rng = problem_of(X, y[:, None]), np.random.default_rng(0)
    starts = starts_for(X, y[:, None], settings, rng)
    source = Recording(settings, X, rng)
    watch = Watch(planned_evaluations(settings), [callback] if callback else [])
    return learn_in_rounds(problem, starts, settings, source, rng, watch), watch, source


def of_stage(watch, name):
    return [v for v, stage in zip(watch.trace, watch.stages, strict=True) if stage == name]


def test_every_stage_raises_the_objective_that_it_began_with():
    _, watch, _ = learned_from(*waves(), max_evals=40)
    for stage in SEARCHES:
        values = of_stage(watch, stage)
        assert max(values[1:]) > values[0]


def test_learning_gains_much_over_the_start():
    _, watch, _ = learned_from(*waves(), max_evals=60)
    assert max(of_stage(watch, "round 2")) > of_stage(watch, "start")[0] + 0.5


def test_a_search_finds_a_stationary_point_of_the_objective():
    X, y = waves(150)
    problem, start = problem_of(X, y[:, None]), some_parameters(2, 2)
    points = [draw_points("sobol", np.array([8, 8]), 2, np.random.default_rng(0))]
    best, search = Best(start), Search(Coordinates(2, 2), 150, max_evals=400, tol=0.0)
    maximise(search, best, lambda p: evaluate_mean(problem, p, points))
    slope = [np.abs(g).max() for g in evaluate_mean(problem, best.parameters, points).gradient]
    at_start = [np.abs(g).max() for g in evaluate_mean(problem, start, points).gradient]
    assert max(slope) < 1e-2 * max(at_start)


def test_a_search_stops_when_ten_iterations_gain_too_little():
    X, y = waves(150)
    problem, start = problem_of(X, y[:, None]), some_parameters(2, 2)
    points = [draw_points("sobol", np.array([8, 8]), 2, np.random.default_rng(0))]
    lengths = []
    for tol in (1e-6, 1e-2, 1e9):
        seen = []

        def objective(p, seen=seen):
            seen.append(p)
            return evaluate_mean(problem, p, points)

        maximise(Search(Coordinates(2, 2), 150, 300, tol), Best(start), objective)
        lengths.append(len(seen))
    assert lengths[0] > lengths[1] > lengths[2]
    assert lengths[2] < 25


def test_the_same_seed_gives_the_same_kernel():
    X, y = waves()
    one, two = (quick(random_state=3).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(one.kernel_.means, two.kernel_.means)
    np.testing.assert_array_equal(one.kernel_.weights, two.kernel_.weights)
    np.testing.assert_array_equal(one.objective_path_, two.objective_path_)


def test_different_seeds_learn_about_the_same_function():
    X, y = waves(300)
    one, two = (quick(random_state=s, max_evals=60).fit(X, y).predict(X) for s in (0, 1))
    assert not np.array_equal(one, two)
    assert np.abs(one - two).max() < 0.2


@pytest.mark.parametrize("n_restarts", [1, 3])
def test_every_restart_is_tried(n_restarts):
    _, watch, _ = learned_from(*waves(), n_restarts=n_restarts, max_evals=20)
    trials = of_stage(watch, "start")
    beginnings = [i for i, v in enumerate(trials) if i == 0 or v < trials[i - 1] - 0.1]
    assert len(trials) >= 8 * n_restarts
    assert len(beginnings) >= n_restarts


def test_the_best_of_the_restarts_goes_on():
    X, y = waves()
    seen = {}

    def note(event):
        seen.setdefault(event.stage, []).append((event.objective, event.noise_variance))

    learned_from(X, y, callback=note, n_restarts=3, max_evals=20)
    assert seen["sample"][0][1] == pytest.approx(max(seen["start"])[1])


@pytest.mark.parametrize(("max_evals", "n_restarts"), [(1, 1), (10, 3), (60, 1)])
@pytest.mark.parametrize("d", [1, 2])  # one input has a start of its own
def test_no_more_evaluations_than_planned(max_evals, n_restarts, d):
    settings = settings_of(max_evals=max_evals, n_restarts=n_restarts, tol=0.0)
    model = quick(max_evals=max_evals, n_restarts=n_restarts, tol=0.0).fit(*waves(d=d))
    assert model.n_evals_ == len(model.objective_path_) == len(model.objective_stages_)
    assert model.n_evals_ <= planned_evaluations(settings)


@pytest.mark.parametrize("max_evals", [1, 10, 25, 60])
def test_evaluations_on_all_rows_stay_within_max_evals(max_evals):
    stages = quick(max_evals=max_evals, tol=0.0).fit(*waves()).objective_stages_
    assert sum(stage.startswith("round") for stage in stages) <= max(max_evals, 2)


def test_more_evaluations_are_made_where_more_are_allowed():
    few, many = (quick(max_evals=e, tol=0.0).fit(*waves()).n_evals_ for e in (10, 50))
    assert few < many


def test_a_search_that_holds_the_kernel_moves_weights_and_noise_alone():
    X, y = waves(150)
    problem, start = problem_of(X, y[:, None]), some_parameters(2, 2)
    points = [draw_points("sobol", np.array([8, 8]), 2, np.random.default_rng(0))]
    best = Best(start)
    search = Search(Coordinates(2, 2), 150, 30, 0.0, hold_kernel=True)
    maximise(search, best, lambda p: evaluate_mean(problem, p, points))
    np.testing.assert_allclose(best.parameters.means, start.means, rtol=1e-12)
    np.testing.assert_allclose(best.parameters.log_scales, start.log_scales, rtol=1e-12)
    assert np.abs(best.parameters.log_weights - start.log_weights).max() > 0.01
    assert best.value > best.first


def test_every_draw_of_points_is_fresh():
    _, _, source = learned_from(*waves(), max_evals=10)
    normals = [drawn[0].normals for drawn in source.drawn]
    assert len(normals) >= 5
    assert len(normals[0]) == 18  # fewer on the sample
    assert len(normals[-1]) == 24
    for i in range(len(normals)):
        for j in range(i):
            assert not np.any(np.isin(normals[i], normals[j]))


def test_the_rounds_are_compared_on_points_that_none_has_seen():
    X, y = waves()
    events = []
    learned, watch, source = learned_from(X, y, callback=events.append, max_evals=20)
    last_search = max(i for i, stage in enumerate(watch.stages) if stage in SEARCHES)
    assert watch.stages[last_search] == "round 2"
    compared = events[last_search + 1 :]
    assert len(compared) >= 2
    better = max(compared, key=lambda e: e.objective)
    assert learned.parameters.noise_variance == better.noise_variance
    unseen = [one for drawn in source.drawn[-3:] for one in drawn]
    result = evaluate_mean(problem_of(X, y[:, None]), learned.parameters, unseen)
    assert result.value / len(X) == pytest.approx(better.objective)
    np.testing.assert_array_equal(learned.counts, source.drawn[-1][0].counts)


def test_stages_on_a_sample_come_before_those_on_all_rows():
    stages = learned_from(*waves(), max_evals=10)[1].stages
    searches = [stage for stage in dict.fromkeys(stages) if stage in SEARCHES]
    assert searches == list(SEARCHES)


def test_a_callback_gets_progress():
    events = []
    model = quick(callback=events.append).fit(*waves())
    assert all(isinstance(e, Progress) for e in events)
    assert [e.evaluation for e in events] == list(range(1, model.n_evals_ + 1))
    np.testing.assert_array_equal([e.objective for e in events], model.objective_path_)
    assert [e.stage for e in events] == model.objective_stages_
    assert all(e.noise_variance > 0 for e in events)
    assert np.all(np.diff([e.seconds for e in events]) >= 0)


def test_progress_never_goes_beyond_its_total():
    events = []
    quick(callback=events.append, tol=0.0).fit(*waves())
    assert all(e.evaluation <= e.total for e in events)


def test_a_callback_changes_nothing():
    X, y = waves()
    watched = quick(callback=lambda event: None).fit(X, y)
    np.testing.assert_array_equal(watched.predict(X), quick().fit(X, y).predict(X))


def stops_at(n, how):
    def callback(event):
        if event.evaluation == n:
            return how()
        return None

    return callback


def interrupt():
    raise KeyboardInterrupt


@pytest.mark.parametrize("how", [lambda: True, interrupt], ids=["True", "KeyboardInterrupt"])
@pytest.mark.parametrize("n", [1, 6, 13, 25])
def test_learning_that_is_stopped_keeps_the_best_and_predicts(how, n):
    X, y = waves()
    model = quick(callback=stops_at(n, how))
    with pytest.warns(UserWarning, match=f"interrupted after {n} evaluations") as caught:
        model.fit(X, y)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert model.interrupted_
    assert model.n_evals_ == n
    mean, std = model.predict(X, return_std=True)
    assert np.all(np.isfinite(mean))
    assert np.all(std > 0)


def test_what_is_kept_after_a_stop_is_the_best_of_the_search_so_far():
    X, y = waves()
    events = []

    def callback(event):
        events.append(event)
        return len(events) == 12

    learned, _, _ = learned_from(X, y, callback=callback, max_evals=60)
    assert learned.interrupted
    # The evaluation at which it stopped is not offered any more.
    best = max(events[:-1], key=lambda e: e.objective)
    assert learned.parameters.noise_variance == best.noise_variance


def test_a_callback_that_returns_something_else_than_true_does_not_stop():
    model = quick(callback=lambda event: 1).fit(*waves(60))
    assert not model.interrupted_


def test_an_exception_of_a_callback_reaches_the_caller():
    with pytest.raises(ZeroDivisionError):
        quick(callback=lambda event: 1 / 0).fit(*waves(60))


@pytest.mark.parametrize("every", [2, 3, 7])
def test_evaluations_that_fail_now_and_then_do_not_break_learning(monkeypatch, every):
    calls = []

    def unreliable(*args):
        calls.append(1)
        return FAILED if len(calls) % every == 0 else evaluate_mean(*args)

    monkeypatch.setattr(learn_module, "evaluate_mean", unreliable)
    learned, watch, _ = learned_from(*waves(), max_evals=40)
    assert np.isnan(watch.trace).sum() == len(calls) // every
    assert np.nanmax(watch.trace) > watch.trace[0]
    assert all(np.all(np.isfinite(field)) for field in learned.parameters)


def test_when_every_evaluation_fails_the_start_is_what_is_left(monkeypatch):
    monkeypatch.setattr(learn_module, "evaluate_mean", lambda *args: FAILED)
    learned, watch, _ = learned_from(*waves(), max_evals=10)
    assert np.all(np.isnan(watch.trace))
    assert all(np.all(np.isfinite(field)) for field in learned.parameters)


def test_draws_that_fail_are_left_out_of_the_mean(monkeypatch):
    from bochner import objective as objective_module

    X, y = waves(50)
    problem, p = problem_of(X, y[:, None]), some_parameters(2, 2)
    points = [
        draw_points("iid", np.array([4, 4]), 2, np.random.default_rng(seed)) for seed in range(3)
    ]
    good = [evaluate_mean(problem, p, [one]) for one in points[1:]]
    real = objective_module.evaluate

    def first_fails(problem, p, one):
        return FAILED if one is points[0] else real(problem, p, one)

    monkeypatch.setattr(objective_module, "evaluate", first_fails)
    got = evaluate_mean(problem, p, points)
    assert got.value == pytest.approx((good[0].value + good[1].value) / 2)
    expected = (good[0].gradient.means + good[1].gradient.means) / 2
    np.testing.assert_allclose(got.gradient.means, expected)


def test_best_keeps_the_best_and_ignores_what_is_not_finite():
    start, a, b = some_parameters(2, 2, 0), some_parameters(2, 2, 1), some_parameters(2, 2, 2)
    best = Best(start)
    best.offer(a, -np.inf)
    best.offer(a, np.nan)
    assert best.parameters is start
    best.offer(a, -5.0)
    best.offer(b, -6.0)
    assert best.parameters is a
    best.offer(b, -4.0)
    assert best.parameters is b


def test_a_watch_writes_nan_where_the_arithmetic_failed():
    watch = Watch(3)
    assert watch.seen("s", 10, some_parameters(2, 2), FAILED) == -np.inf
    assert np.isnan(watch.trace[0])


def test_a_watch_stops_when_the_callback_says_true():
    watch = Watch(3, [lambda event: np.bool_(True)])
    with pytest.raises(Stop):
        watch.seen("s", 10, some_parameters(2, 2), FAILED)


@pytest.mark.parametrize("d", [1, 2])
def test_positive_frequencies_stay_positive(d):
    model = quick(frequencies="positive").fit(*waves(d=d))
    assert np.all(model.kernel_.means > 0)
    assert np.all(np.isfinite(model.predict(waves(d=d)[0])))


def test_several_draws_an_evaluation_are_averaged():
    X, y = waves()
    _, _, source = learned_from(X, y, mc_samples=2, max_evals=10)
    assert all(len(drawn) == 2 for drawn in source.drawn)
    assert not np.any(np.isin(source.drawn[0][0].normals, source.drawn[0][1].normals))
    assert np.all(np.isfinite(quick(mc_samples=2).fit(X, y).predict(X)))


def test_a_known_period_is_recovered():
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 20.0, (300, 1))
    y = np.sin(2 * np.pi * X[:, 0] / 1.7) + 0.2 * rng.standard_normal(300)
    model = SpectralMixtureRegressor(max_evals=40, n_restarts=1, random_state=0).fit(X, y)
    grid = np.linspace(0.1, 3.0, 30_000)
    peak = grid[np.argmax(model.kernel_.density(grid[:, None]))]
    assert abs(1 / peak - 1.7) < 0.02 * 1.7
    assert abs(model.noise_variance_ - 0.04) < 0.012


def test_inputs_that_matter_more_get_shorter_length_scales():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 3))
    y = np.sin(3.0 * X[:, 1]) + np.sin(X[:, 0]) + 0.1 * rng.standard_normal(400)
    kernel = SpectralMixtureRegressor(max_evals=60, random_state=0).fit(X, y).kernel_
    # Curvature of k at lag 0: frequencies of all kinds, which widths alone do not tell.
    curvature = kernel.weights @ (kernel.means**2 + kernel.scales**2) / kernel.variance
    lengths = 1 / (2 * np.pi * np.sqrt(curvature))
    assert 1.5 * lengths[1] < lengths[0] < lengths[2] / 1.5


def test_the_mean_of_a_smooth_function_is_learned():
    X, y = waves(400, noise=0.1)
    truth = np.sin(2.0 * X[:, 0]) + 0.3 * X.sum(axis=1)
    model = quick(n_components=4, n_points=60, max_evals=60, n_prediction_points=200).fit(X, y)
    assert np.sqrt(np.mean((model.predict(X) - truth) ** 2)) < 0.05
    assert 0.08**2 < model.noise_variance_ < 0.12**2

import numpy as np
import pytest
from test_exact import problem

from bochner import settle
from bochner.blas import sequential_blas
from bochner.parameters import Coordinates, Parameters
from bochner.progress import Watch
from bochner.refine import Ascent
from bochner.settle import settled


def ascent():
    return Ascent(Coordinates(2, 3), np.array([20, 20]), 0.3, None, Watch(1))


def after(p, X, Y):
    with sequential_blas():
        return settled(X, Y, p, ascent(), np.random.default_rng(0))


@pytest.fixture(params=[500, 1_500], ids=["all rows", "a sample"])
def rows(request):
    return problem(request.param)


def test_noise_that_is_far_too_large_is_put_right(rows):
    kernel, noise, X, Y = rows
    right = Parameters.of(kernel, noise)
    wrong = right._replace(log_noise=right.log_noise + np.log(100.0))
    assert after(wrong, X, Y).noise_variance == pytest.approx(noise, rel=0.3)


def test_parameters_that_are_right_are_hardly_moved(rows):
    kernel, noise, X, Y = rows
    found = after(Parameters.of(kernel, noise), X, Y)
    assert found.noise_variance == pytest.approx(noise, rel=0.15)


def test_a_kernel_of_the_wrong_shape_is_learned_again_where_rows_are_left_to_judge():
    kernel, noise, X, Y = problem(1_500)
    right = Parameters.of(kernel, noise)
    wrong = right._replace(log_scales=right.log_scales + np.log(4.0))
    found = after(wrong, X, Y)
    assert found.log_scales.mean() < wrong.log_scales.mean() - 0.5


def test_the_best_on_unseen_rows_is_taken(monkeypatch):
    kernel, noise, X, Y = problem(1_500)
    p = Parameters.of(kernel, 0.3 * noise)
    scores = iter([3.0, 1.0, 2.0])
    monkeypatch.setattr(settle, "_density", lambda *args: next(scores))
    assert after(p, X, Y) is p


def test_noise_is_raised_where_many_rows_ask_for_it(monkeypatch):
    kernel, noise, X, Y = problem(1_500)
    low = Parameters.of(kernel, 0.3 * noise)
    rest = (np.arange(1_000), np.arange(1_000, 1_500), ascent(), np.random.default_rng(0))
    with sequential_blas():
        found = settle._with_noise_for_more(low, X, Y, *rest)
        kept = settle._with_noise_for_more(Parameters.of(kernel, noise), X, Y, *rest)
    assert found.noise_variance == pytest.approx(noise, rel=0.5)
    assert kept.noise_variance == pytest.approx(noise, rel=0.6)

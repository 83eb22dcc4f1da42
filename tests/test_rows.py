import threading

import numpy as np
import pytest
from synthetic import problem_of, quick, some_parameters, waves

from bochner import rows as rows_module
from bochner.features import Frequencies, fourier, gram, pullback
from bochner.objective import evaluate, rows_for
from bochner.points import draw_points
from bochner.rows import ThreadedRows


class BrokenError(Exception):
    """Raised by a task on purpose."""


def some_rows(n=3_000, d=3, p=2, **options):
    rng = np.random.default_rng(0)
    return ThreadedRows(rng.standard_normal((n, d)), rng.standard_normal((n, p)), **options)


def some_points(m=10, d=3, again=False, seed=1):
    S = np.random.default_rng(seed).standard_normal((m, d))
    return Frequencies.of(S, wide=False, again=again)


def adjoint_like(m=10, p=2):
    return np.random.default_rng(2).standard_normal((2 * m + p, 2 * m + p))


def both_passes(rows, points):
    B = adjoint_like().astype(rows.dtype)
    back = rows.reduce(pullback, points, B)
    return [rows.reduce(gram, points), back.omega_bar, back.residual]


def dense_passes(rows, points):
    """Both passes over all rows as one block, in float64."""
    angles = 2 * np.pi * points.S @ rows.X.T
    Z = np.vstack([np.cos(angles), np.sin(angles), rows.Y.T])
    m = len(points.S)
    Z_bar = adjoint_like() @ Z
    T_bar = Z_bar[m : 2 * m] * Z[:m] - Z_bar[:m] * Z[m : 2 * m]
    return [Z @ Z.T, T_bar @ rows.X, np.sum(Z_bar[2 * m :] ** 2, axis=1)]


def same_bits(left, right):
    return all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


def kept_bytes(rows):
    return sum(buffer.nbytes for buffer in rows._kept.buffers if buffer is not None)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
@pytest.mark.parametrize("n", [1, 2, 255, 256, 257, 3_000])
def test_sums_over_blocks_are_the_dense_sums(n, dtype, tolerance):
    rows, points = some_rows(n, dtype=dtype), some_points()
    for got, expected in zip(both_passes(rows, points), dense_passes(rows, points), strict=True):
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, expected, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("n", [1, 255, 256, 1_000, 5_000])
@pytest.mark.parametrize("block_rows", [64, 1_024])
def test_every_row_is_in_exactly_one_block(n, block_rows):
    rows = some_rows(n, block_rows=block_rows)
    seen, sizes, lock = [], [], threading.Lock()

    def look(features, block, frequencies):
        with lock:
            seen.append(block.X.copy())
            sizes.append(len(block.X))
        return np.zeros(1)

    rows.reduce(look, some_points())
    assert sum(sizes) == rows.n_rows == n
    assert max(sizes) <= max(block_rows, 255)
    np.testing.assert_array_equal(
        np.sort(np.concatenate(seen)[:, 0]), np.sort(rows.X[:, 0])
    )  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("again", [False, True])
def test_sums_are_the_same_bits_for_any_number_of_threads(dtype, again):
    points = some_points(again=again)
    one, *others = (
        both_passes(some_rows(dtype=dtype, n_threads=k, block_rows=200), points)
        for k in (1, 2, 3, 5)
    )
    assert all(same_bits(one, other) for other in others)


def test_a_fit_is_the_same_bits_for_any_number_of_threads():
    X, y = waves(1_500)
    one, *others = (quick(n_jobs=k, max_evals=8).fit(X, y) for k in (1, 2, 3, 5))
    expected = [*one.predict(X[:300], return_std=True), one.objective_path_, one.kernel_.means]
    for other in others:
        got = [*other.predict(X[:300], return_std=True), other.objective_path_, other.kernel_.means]
        assert same_bits(expected, got)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
def test_sums_do_not_depend_on_the_block_size_beyond_rounding(dtype, tolerance):
    points = some_points()
    expected = both_passes(some_rows(dtype=dtype), points)
    for block_rows in (64, 200, 1_000, 4_096):
        got = both_passes(some_rows(dtype=dtype, block_rows=block_rows), points)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a, b, atol=tolerance * np.abs(b).max())


def bytes_of_block(m=10, p=2, n=500, itemsize=4):
    return (2 * m + p) * n * itemsize


@pytest.mark.parametrize("n_threads", [1, 2])
def test_sums_are_the_same_bits_for_any_memory(n_threads):
    points = some_points(again=True)
    computed = both_passes(some_rows(block_rows=500), points._replace(again=False))
    for keep_bytes in (0, 1, 3 * bytes_of_block(), 1 << 30):
        rows = some_rows(block_rows=500, n_threads=n_threads, keep_bytes=keep_bytes)
        assert same_bits(both_passes(rows, points), computed)
        assert same_bits(both_passes(rows, points), computed)


@pytest.mark.parametrize("blocks", [0, 1, 3.5, 100])
def test_features_kept_never_exceed_the_budget(blocks):
    budget = int(blocks * bytes_of_block())
    rows = some_rows(block_rows=500, keep_bytes=budget)
    for m in (10, 3, 40, 10):  # other sizes of the points on the way
        rows.reduce(gram, some_points(m, again=True))
        assert kept_bytes(rows) <= budget
    assert kept_bytes(rows) == min(int(blocks), 6) * bytes_of_block()


def test_nothing_is_kept_when_features_will_not_be_asked_for_again():
    rows = some_rows()
    rows.reduce(gram, some_points(again=False))
    assert kept_bytes(rows) == 0


def test_kept_features_are_computed_once_for_both_passes(monkeypatch):
    calls = []

    def counted(*args, **kwargs):
        calls.append(1)
        return fourier(*args, **kwargs)

    monkeypatch.setattr(rows_module, "fourier", counted)
    rows = some_rows(block_rows=500)
    both_passes(rows, some_points(again=True))
    assert len(calls) == 6
    both_passes(some_rows(block_rows=500, keep_bytes=0), some_points(again=True))
    assert len(calls) == 6 + 12


def test_kept_features_follow_the_frequencies():
    rows = some_rows(block_rows=500)
    for seed in (1, 2, 1):
        for m in (10, 4):
            points = some_points(m, again=True, seed=seed)
            fresh = some_rows(block_rows=500).reduce(gram, points._replace(again=False))
            np.testing.assert_array_equal(rows.reduce(gram, points), fresh)


@pytest.mark.parametrize("n_threads", [1, 2, 4])
@pytest.mark.parametrize("which", ["all", "one"])
def test_a_failing_task_raises_its_own_exception_and_the_engine_works_afterwards(n_threads, which):
    rows, points = some_rows(n_threads=n_threads, block_rows=200), some_points()
    before = rows.reduce(gram, points)

    def failing(features, block, frequencies):
        if which == "all" or block.X[0, 0] == rows.X[1_000, 0] or rows.X[1_000, 0] in block.X:
            raise BrokenError("this block")
        return np.asarray(gram(features, block, frequencies))

    for _ in range(3):
        with pytest.raises(BrokenError, match="this block"):
            rows.reduce(failing, points)
        np.testing.assert_array_equal(rows.reduce(gram, points), before)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_an_interrupt_half_way_does_not_leave_stale_features_behind(monkeypatch, n_threads):
    old, new = some_points(again=True, seed=1), some_points(again=True, seed=2)
    rows = some_rows(block_rows=500, n_threads=n_threads)
    expected = some_rows(block_rows=500).reduce(gram, new._replace(again=False))
    before = rows.reduce(gram, old)

    def half_way(block, frequencies, out=None):
        out[:5] = 7.0
        raise KeyboardInterrupt

    for wanted, right in ((old, before), (new, expected)):
        rows.reduce(gram, old)
        with monkeypatch.context() as patch:
            patch.setattr(rows_module, "fourier", half_way)
            with pytest.raises(KeyboardInterrupt):
                rows.reduce(gram, new)
        np.testing.assert_array_equal(rows.reduce(gram, wanted), right)


def test_a_named_tuple_is_summed_field_by_field():
    rows, points = some_rows(block_rows=500), some_points()
    back = rows.reduce(pullback, points, adjoint_like().astype("float32"))
    assert type(back).__name__ == "Pullback"
    assert back.omega_bar.shape == (10, 3)
    assert back.residual.shape == (2,)


def test_a_task_may_return_an_array_that_it_uses_again():
    rows, buffer = some_rows(block_rows=500, n_threads=1), np.zeros(1)

    def count(features, block, frequencies):
        buffer[0] = len(block.X)
        return buffer

    assert rows.reduce(count, some_points())[0] == 3_000


def test_a_sample_has_distinct_rows_with_their_outputs():
    rows = some_rows(500)
    part = rows.sample(60, np.random.default_rng(0))
    assert part.n_rows == 60
    assert (part.dtype, part.block_rows) == (rows.dtype, rows.block_rows)
    where = [int(np.flatnonzero(rows.X[:, 0] == x)[0]) for x in part.X[:, 0]]
    assert len(set(where)) == 60
    np.testing.assert_array_equal(part.X, rows.X[where])
    np.testing.assert_array_equal(part.Y, rows.Y[where])


def test_samples_are_random_and_reach_all_rows():
    rows = some_rows(50)
    seen = {x for seed in range(40) for x in rows.sample(10, np.random.default_rng(seed)).X[:, 0]}
    assert len(seen) == 50


@pytest.mark.parametrize("n", [50, 51, 10_000])
def test_a_sample_of_all_rows_is_the_rows(n):
    rows = some_rows(50)
    assert rows.sample(n, np.random.default_rng(0)) is rows


def test_another_precision_is_made_once_and_then_remembered():
    rows = some_rows(dtype="float32", block_rows=300, n_threads=2, keep_bytes=123)
    other = rows.at_precision("float64")
    assert rows.at_precision("float32") is rows
    assert rows.at_precision("float64") is other
    assert other.dtype == np.float64
    assert (other.block_rows, other.n_threads, other.keep_bytes) == (300, 2, 123)


def test_small_noise_asks_for_float64_and_large_noise_does_not():
    X, y = waves(2_000)
    problem = problem_of(X, y[:, None], dtype="float32")
    assert rows_for(problem, 1.0, 0.1, m=60).dtype == np.float32
    assert rows_for(problem, 1.0, 1e-6, m=60).dtype == np.float64
    assert rows_for(problem, 1e4, 0.1, m=60).dtype == np.float64  # small against the function


def test_rows_in_float64_stay_there():
    X, y = waves(2_000)
    problem = problem_of(X, y[:, None], dtype="float64")
    for noise in (1.0, 1e-8):
        assert rows_for(problem, 1.0, noise, m=60) is problem.rows


@pytest.mark.parametrize("noise", [0.3, 1e-2, 1e-4, 1e-7])
def test_the_objective_from_float32_rows_agrees_with_float64_at_any_noise(noise):
    X, y = waves(2_000)
    Y, p = y[:, None], some_parameters(3, 2, noise=noise)
    points = draw_points("sobol", np.array([10, 10, 10]), 2, np.random.default_rng(0))
    single = evaluate(problem_of(X, Y, dtype="float32"), p, points)
    double = evaluate(problem_of(X, Y, dtype="float64"), p, points)
    assert abs(single.value - double.value) < 1e-3 * abs(double.value)
    for a, b in zip(single.gradient, double.gradient, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-3 * np.abs(b).max())

import numpy as np
import pytest

from bochner.features import Block, Frequencies, fourier, gram, pullback
from bochner.objective import frequencies_at

TOLERANCE = {"float64": 1e-12, "float32": 2e-5}


def some_block(n=40, d=3, p=2, dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    return block_of(rng.standard_normal((n, d)), rng.standard_normal((n, p)), dtype)


def block_of(X, Y, dtype):
    return Block.of(X, Y, np.dtype(dtype))


def some_points(m=5, d=3, seed=1):
    S = np.random.default_rng(seed).standard_normal((m, d))
    return Frequencies.of(S, wide=False, again=False)


def slow_features(block, S):
    """Row after row, point after point."""
    m, n = len(S), len(block.X)
    Z = np.zeros((2 * m + len(block.YT), n))
    for j in range(n):
        for i in range(m):
            turns = sum(S[i, d] * block.X[j, d] for d in range(S.shape[1]))
            Z[i, j] = np.cos(2 * np.pi * turns)
            Z[m + i, j] = np.sin(2 * np.pi * turns)
        Z[2 * m :, j] = block.YT[:, j]
    return Z


def circle(turns):
    """Float64 cosine and sine of phases in turns, as the library computes them."""
    turns = np.asarray(turns, float)[:, None]
    Z = fourier(block_of(turns, np.empty((len(turns), 0)), "float64"), one_frequency(1.0))
    return Z[0], Z[1]


def one_frequency(s, wide=False):
    return Frequencies.of(np.array([[s]]), wide=wide, again=False)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_features_are_cosines_then_sines_then_outputs(dtype):
    block, points = some_block(dtype=dtype), some_points()
    Z = fourier(block, points)
    assert Z.dtype == dtype
    assert Z.shape == (2 * 5 + 2, 40)
    np.testing.assert_allclose(Z, slow_features(block, points.S), atol=TOLERANCE[dtype])
    np.testing.assert_array_equal(Z[10:], block.YT)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("wide", [False, True])
def test_features_written_to_a_buffer_are_the_same(dtype, wide):
    block, points = some_block(dtype=dtype), some_points()._replace(wide=wide)
    out = np.full((12, 40), np.nan, dtype)
    assert fourier(block, points, out=out) is out
    np.testing.assert_array_equal(out, fourier(block, points))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_gram_is_the_sum_of_outer_products(dtype):
    block, points = some_block(dtype=dtype), some_points()
    Z = slow_features(block, points.S)
    expected = sum(np.outer(Z[:, j], Z[:, j]) for j in range(Z.shape[1]))
    got = gram(fourier, block, points)
    np.testing.assert_allclose(got, expected, atol=100 * TOLERANCE[dtype])


def test_the_diagonal_of_gram_counts_the_rows():
    ZZ = gram(fourier, some_block(n=40), some_points(m=5))
    np.testing.assert_allclose(np.diag(ZZ)[:5] + np.diag(ZZ)[5:10], 40.0, rtol=1e-13)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("d", "wide"), [(3, False), (3, True), (70, False)])
def test_pullback_carries_an_adjoint_back_by_the_chain_rule(dtype, d, wide):
    block, points = some_block(d=d, dtype=dtype), some_points(d=d)._replace(wide=wide)
    m, p = 5, 2
    B = np.random.default_rng(2).standard_normal((2 * m + p, 2 * m + p)) / 10
    Z = slow_features(block, points.S)
    Z_bar = B @ Z
    expected = np.zeros((m, d))
    for j in range(len(block.X)):
        for i in range(m):
            d_cos = -2 * np.pi * Z[m + i, j] * block.X[j]
            d_sin = 2 * np.pi * Z[i, j] * block.X[j]
            expected[i] += Z_bar[i, j] * d_cos + Z_bar[m + i, j] * d_sin
    residual = np.array([np.sum(Z_bar[2 * m + k] ** 2) for k in range(p)])
    got = pullback(fourier, block, points, B.astype(dtype))
    np.testing.assert_allclose(2 * np.pi * got.omega_bar, expected, atol=100 * TOLERANCE[dtype])
    np.testing.assert_allclose(got.residual, residual, rtol=100 * TOLERANCE[dtype])


def test_pullback_is_the_derivative_of_what_it_carries_back():
    n, m, points = 15, 5, some_points()
    X = np.random.default_rng(3).standard_normal((n, 3))
    weights = np.random.default_rng(4).standard_normal((2 * m, n))
    # Five indicators as outputs make Z square, so that some B gives just these weights.
    block = block_of(X, np.eye(n)[:, : n - 2 * m], "float64")
    B = np.zeros((n, n))
    B[: 2 * m] = weights @ np.linalg.inv(fourier(block, points))
    got = pullback(fourier, block, points, B).omega_bar * 2 * np.pi

    def value(S):
        return float(np.sum(weights * fourier(block, Frequencies.of(S))[: 2 * m]))

    for i in range(m):
        for k in range(3):
            step = np.zeros_like(points.S)
            step[i, k] = 1e-6
            slope = (value(points.S + step) - value(points.S - step)) / 2e-6
            np.testing.assert_allclose(got[i, k], slope, rtol=1e-6, atol=1e-6)


def test_sine_and_cosine_by_the_tangent_are_exact_to_rounding():
    turns = np.random.default_rng(0).uniform(-0.5, 0.5, 20_000)
    cosines, sines = circle(turns)
    np.testing.assert_allclose(cosines, np.cos(2 * np.pi * turns), rtol=0, atol=1e-14)
    np.testing.assert_allclose(sines, np.sin(2 * np.pi * turns), rtol=0, atol=1e-14)


def test_sine_and_cosine_are_right_at_every_eighth_of_a_turn_up_to_half_a_turn():
    turns = np.array([-0.5, -0.375, -0.25, -0.125, 0.0, 0.125, 0.25, 0.375, 0.5])
    cosines, sines = circle(turns)
    h = np.sqrt(0.5)
    np.testing.assert_allclose(cosines, [-1, -h, 0, h, 1, h, 0, -h, -1], rtol=0, atol=1e-15)
    np.testing.assert_allclose(sines, [0, -h, -1, -h, 0, h, 1, h, 0], rtol=0, atol=1e-15)


def test_sine_and_cosine_next_to_half_a_turn_stay_on_the_circle():
    near = 0.5 - np.logspace(-17, -3, 40)
    turns = np.concatenate([near, -near, 1.0 - near])
    cosines, sines = circle(turns)
    np.testing.assert_allclose(cosines, np.cos(2 * np.pi * turns), rtol=0, atol=1e-14)
    np.testing.assert_allclose(sines, np.sin(2 * np.pi * turns), rtol=0, atol=1e-14)


@pytest.mark.parametrize("whole", [1, 1000, 2**20, -(2**30)])
def test_whole_turns_change_nothing_in_float64(whole):
    fractions = np.arange(-8, 9) / 16.0  # exact in binary, as are their sums with whole turns
    for got, expected in zip(circle(fractions + whole), circle(fractions), strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize(("far", "fastest"), [(2_000.0, 12.0), (1e5, 12.0)])
def test_wide_phases_lose_no_digits_in_float32(far, fastest):
    rng = np.random.default_rng(0)
    t, S = rng.uniform(0.0, far, (300, 1)), rng.uniform(0.5, fastest, (8, 1))
    Y = np.empty((300, 0))
    exact = fourier(block_of(t, Y, "float64"), Frequencies.of(S, wide=True, again=False))
    single = block_of(t, Y, "float32")
    reduced = fourier(single, Frequencies.of(S, wide=True, again=False))
    plain = fourier(single, Frequencies.of(S, wide=False, again=False))
    assert reduced.dtype == np.float32
    assert np.abs(reduced - exact).max() < 1e-6
    assert np.abs(plain - exact).max() > 1e-3


@pytest.mark.parametrize(("far", "fastest"), [(2_000.0, 12.0), (1e5, 12.0)])
def test_phases_that_are_large_are_formed_wide_and_others_are_not(far, fastest):
    t = np.random.default_rng(0).uniform(0.0, far, (300, 1))
    squares = np.mean(np.square(t), axis=0)
    assert frequencies_at(np.array([[fastest]]), squares).wide
    assert not frequencies_at(np.array([[1.0 / far]]), squares).wide


def test_narrow_phases_in_float32_are_good_to_six_digits():
    rng = np.random.default_rng(0)
    X, S = rng.standard_normal((500, 4)), rng.standard_normal((10, 4))
    points = frequencies_at(S, np.mean(np.square(X), axis=0))
    assert not points.wide
    Z = fourier(block_of(X, np.empty((500, 0)), "float32"), points)
    exact = fourier(block_of(X, np.empty((500, 0)), "float64"), points)
    assert np.abs(Z - exact).max() < 2e-5

import warnings

import numpy as np
import pytest
from oracles import random_mixture, slow_amplitudes

from bochner import SpectralMixture
from bochner.points import DRAWS, SpectralPoints, draw_points


def estimate(kernel, points, X):
    """Phi Phi^T."""
    phase = 2 * np.pi * X @ points.locations(kernel).T
    phi = np.hstack([np.cos(phase), np.sin(phase)]) * points.amplitudes(kernel.weights)
    return phi @ phi.T


def estimates(draw, kernel, counts, X, repetitions, rng):
    found = []
    for _ in range(repetitions):
        points = draw_points(draw, counts, kernel.n_features_in, rng)
        found.append(estimate(kernel, points, X))
    return np.array(found)


@pytest.mark.parametrize("n_inputs", [1, 3])
@pytest.mark.parametrize("draw", DRAWS)
def test_every_draw_gives_the_kernel_on_average(draw, n_inputs):
    rng = np.random.default_rng(0)
    kernel = random_mixture(rng, 2, n_inputs)
    X = rng.standard_normal((20, n_inputs))
    found = estimates(draw, kernel, np.array([5, 3]), X, 2_000, rng)
    error = np.abs(found.mean(axis=0) - kernel(X))
    standard_error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    assert np.all(error <= 4 * standard_error + 1e-12)
    assert standard_error.max() < 0.03  # so that the comparison says something


def mean_square_error(draw, kernel, counts, X):
    found = estimates(draw, kernel, counts, X, 200, np.random.default_rng(1))
    return np.mean((found - kernel(X)) ** 2)


def test_sobol_points_err_much_less_than_independent_ones():
    rng = np.random.default_rng(2)
    X, counts = 0.5 * rng.standard_normal((15, 2)), np.array([32, 32])
    kernel = random_mixture(rng, 2, 2)
    iid = mean_square_error("iid", kernel, counts, X)
    assert mean_square_error("sobol", kernel, counts, X) < 0.2 * iid


def test_orthogonal_points_err_less_than_independent_ones():
    rng = np.random.default_rng(3)
    X, counts = rng.standard_normal((15, 5)), np.array([10, 10])
    kernel = SpectralMixture([1.0, 1.0], np.zeros((2, 5)), np.full((2, 5), 0.08))
    iid = mean_square_error("iid", kernel, counts, X)
    assert mean_square_error("orthogonal", kernel, counts, X) < 0.8 * iid


def test_no_number_of_sobol_points_warns():
    rng = np.random.default_rng(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for m in range(1, 71):
            for d in (1, 3):
                normals = DRAWS["sobol"](m, d, rng)
                assert normals.shape == (m, d)
                assert np.all(np.isfinite(normals))


def test_sobol_points_serve_385_inputs():
    normals = DRAWS["sobol"](60, 385, np.random.default_rng(5))
    assert normals.shape == (60, 385)
    assert np.all(np.abs(normals) < 6.5)
    # Of any 32 points of the sequence, 16 lie on either side of the median of every input.
    np.testing.assert_array_equal((normals[:32] > 0).sum(axis=0), 16)


def test_antithetic_points_come_in_opposite_pairs():
    normals = DRAWS["antithetic"](7, 3, np.random.default_rng(6))
    for i in range(0, 6, 2):
        np.testing.assert_array_equal(normals[i], -normals[i + 1])
    assert len({tuple(np.abs(row)) for row in normals}) == 4


def test_antithetic_points_at_mean_zero_give_every_feature_twice():
    rng = np.random.default_rng(7)
    kernel = SpectralMixture([2.0], [[0.0, 0.0]], [[0.3, 0.5]])
    points = draw_points("antithetic", np.array([6]), 2, rng)
    half = SpectralPoints(points.normals[::2], np.array([3]))
    X = rng.standard_normal((10, 2))
    np.testing.assert_allclose(estimate(kernel, points, X), estimate(kernel, half, X), atol=1e-13)
    assert np.linalg.matrix_rank(estimate(kernel, points, X), tol=1e-9) == 6  # and not 12


def test_orthogonal_points_are_orthogonal_within_a_block_of_as_many_as_there_are_inputs():
    normals = DRAWS["orthogonal"](10, 4, np.random.default_rng(8))
    assert normals.shape == (10, 4)
    products = normals @ normals.T
    for i in range(10):
        for j in range(i):
            if i // 4 == j // 4:
                assert abs(products[i, j]) < 1e-12
    assert np.abs(products[:4, 4:8]).max() > 0.1


@pytest.mark.parametrize("draw", DRAWS)
def test_the_lengths_of_the_points_are_those_of_gaussian_vectors(draw):
    rng = np.random.default_rng(9)
    squares = np.concatenate([np.square(DRAWS[draw](12, 3, rng)).sum(axis=1) for _ in range(1_500)])
    assert squares.mean() == pytest.approx(3.0, abs=0.1)  # chi squared with three degrees
    assert squares.var() == pytest.approx(6.0, abs=0.6)


def test_each_component_gets_its_counts_in_order():
    kernel = SpectralMixture([1.0, 4.0, 9.0], [[0.0], [100.0], [200.0]], [[1.0]] * 3)
    counts = np.array([2, 1, 4])
    points = draw_points("iid", counts, 1, np.random.default_rng(10))
    np.testing.assert_array_equal(points.owner, [0, 0, 1, 2, 2, 2, 2])
    np.testing.assert_array_equal(points.counts, counts)
    S = points.locations(kernel)
    np.testing.assert_array_equal(np.rint(S[:, 0] / 100), points.owner)
    for i, q in enumerate(points.owner):
        np.testing.assert_allclose(S[i], kernel.means[q] + kernel.scales[q] * points.normals[i])
    np.testing.assert_allclose(
        points.amplitudes(kernel.weights), slow_amplitudes(kernel.weights, counts)
    )


@pytest.mark.parametrize("draw", DRAWS)
def test_the_diagonal_of_the_estimate_is_exact(draw):
    rng = np.random.default_rng(11)
    kernel = random_mixture(rng, 2, 2)
    points = draw_points(draw, np.array([3, 5]), 2, rng)
    K = estimate(kernel, points, rng.standard_normal((6, 2)))
    np.testing.assert_allclose(np.diag(K), kernel.variance)


@pytest.mark.parametrize("draw", DRAWS)
def test_the_same_generator_gives_the_same_points_and_another_gives_others(draw):
    counts = np.array([3, 6])
    first, again, other = (
        draw_points(draw, counts, 2, np.random.default_rng(seed)) for seed in (12, 12, 13)
    )
    np.testing.assert_array_equal(first.normals, again.normals)
    assert not np.any(first.normals == other.normals)


@pytest.mark.parametrize("draw", DRAWS)
def test_components_do_not_share_their_points(draw):
    points = draw_points(draw, np.array([4, 4]), 2, np.random.default_rng(14))
    assert not np.any(points.normals[:4] == points.normals[4:])

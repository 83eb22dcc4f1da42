import numpy as np
import pytest

from bochner import SpectralMixture
from bochner.covariance import Side, block, covariance


def mixture(d=3, q=4, seed=0, scale=0.2):
    rng = np.random.default_rng(seed)
    return SpectralMixture(
        rng.uniform(0.1, 1.0, q),
        rng.normal(0.0, 0.3, (q, d)),
        scale * rng.uniform(0.2, 1.0, (q, d)),
    )


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-13), ("float32", 2e-6)])
@pytest.mark.parametrize("shape", [(1, 1), (7, 300), (513, 257)])
def test_blocks_are_the_kernel(dtype, tolerance, shape):
    rng, kernel = np.random.default_rng(1), mixture()
    X, Z = (rng.standard_normal((n, 3)) for n in shape)
    left = Side.of(kernel, X, dtype)
    K = block(left, Side.of(kernel, Z, dtype, like=left))
    assert K.dtype == dtype
    np.testing.assert_allclose(K, kernel(X, Z), atol=tolerance * kernel.variance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [3.0, 1e3, 1e8])
def test_small_differences_of_inputs_far_apart_are_kept(dtype, scale):
    """Rows that agree in an input with a tiny length scale must not be told apart by rounding."""
    rng = np.random.default_rng(2)
    X = np.stack([rng.integers(0, 40, 300) / 7.0, rng.standard_normal(300)], axis=1)
    kernel = SpectralMixture([1.0], [[0.0, 0.1]], [[scale, 0.1]])
    side = Side.of(kernel, X, dtype)
    np.testing.assert_allclose(
        block(side, side), kernel(X), atol=2e-4 if dtype == "float32" else 1e-9
    )


def test_the_diagonal_is_the_variance_to_the_last_bit():
    kernel = mixture()
    side = Side.of(kernel, np.random.default_rng(0).standard_normal((40, 3)), "float64")
    K = covariance(side, slice(10, 40), slice(0, 30))
    assert np.all(K[np.arange(20), np.arange(10, 30)] == kernel.variance)


def test_a_part_of_the_rows_is_that_part_of_the_block():
    kernel = mixture()
    side = Side.of(kernel, np.random.default_rng(0).standard_normal((50, 3)), "float64")
    K = block(side, side)
    chosen = np.array([3, 41, 7])
    np.testing.assert_allclose(block(side.rows(chosen), side), K[chosen], rtol=1e-12)

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from bochner.parameters import Parameters
from bochner.refine import exact_evidence


def case(n=200, d=3, q=2, outputs=2, scale=0.1):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((n, d)), rng.standard_normal((n, outputs))
    p = Parameters(
        0.3 * rng.standard_normal(q),
        0.1 * rng.standard_normal((q, d)),
        np.log(scale + scale * rng.random((q, d))),
        -1.5,
    )
    return X, Y, p


def flat(p):
    return np.concatenate([np.ravel(x) for x in p])


def parameters(theta, q, d):
    return Parameters(
        theta[:q],
        theta[q : q + q * d].reshape(q, d),
        theta[q + q * d : -1].reshape(q, d),
        float(theta[-1]),
    )


def test_the_value_is_the_dense_log_density():
    X, Y, p = case()
    A = p.kernel(X) + p.noise_variance * np.eye(len(X))
    expected = sum(multivariate_normal.logpdf(y, np.zeros(len(X)), A) for y in Y.T)
    assert exact_evidence(X, Y, p).value == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("scale", [0.1, 2.0, 20.0])  # 20: some inputs are far apart
def test_every_gradient_agrees_with_differences(scale):
    X, Y, p = case(scale=scale)
    X = np.round(X, 1)  # with rows that agree in some inputs
    gradient, theta = flat(exact_evidence(X, Y, p).gradient), flat(p)
    step = 1e-5
    for i in range(len(theta)):
        move = step * (np.arange(len(theta)) == i)
        up, down = (exact_evidence(X, Y, parameters(theta + s * move, 2, 3)).value for s in (1, -1))
        assert gradient[i] == pytest.approx(
            (up - down) / (2 * step), abs=1e-6 * np.abs(gradient).max()
        )


def test_the_bits_do_not_depend_on_the_number_of_threads():
    X, Y, p = case(n=700)
    one, two = (exact_evidence(X, Y, p, k) for k in (1, 2))
    assert one.value == two.value
    np.testing.assert_array_equal(flat(one.gradient), flat(two.gradient))

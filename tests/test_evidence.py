from decimal import Decimal, localcontext
from math import pi

import numpy as np
import pytest
from oracles import (
    dense_log_density,
    differences,
    random_mixture,
    slow_amplitudes,
    slow_features,
)
from scipy.linalg import lapack

from bochner import evidence
from bochner.evidence import Statistics, adjoint, log_evidence, residual_from_sums, solve
from bochner.objective import Problem, evaluate, evaluate_mean, fold_features, sum_by_component
from bochner.parameters import Coordinates, Parameters
from bochner.points import draw_points
from bochner.prior import PRIORS, make_prior
from bochner.rows import ThreadedRows


def statistics_of(C, Y):
    return Statistics(C.T @ C, C.T @ Y, np.square(Y).sum(axis=0), len(C))


def random_case(n, m, n_outputs, seed=0):
    """Features (n, 2m) at random points, amplitudes and outputs."""
    rng = np.random.default_rng(seed)
    C = slow_features(rng.standard_normal((n, 2)), rng.standard_normal((m, 2)))
    Y = np.cumsum(rng.standard_normal((n, n_outputs)), axis=0) / np.sqrt(n)
    return C, rng.uniform(0.2, 1.5, 2 * m), Y


def dense_value(C, a, Y, s2):
    phi = C * a
    return dense_log_density(Y, phi @ phi.T + s2 * np.eye(len(C)))


SIZES = [(30, 8), (16, 8), (10, 8)]  # N > 2M, N = 2M, N < 2M


@pytest.mark.parametrize(("n", "m"), SIZES)
@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("s2", [0.05, 3.0])
def test_the_log_evidence_is_the_dense_gaussian_log_density(n, m, n_outputs, s2):
    C, a, Y = random_case(n, m, n_outputs)
    stats = statistics_of(C, Y)
    value = log_evidence(stats, solve(stats, a, s2)).value
    assert value == pytest.approx(dense_value(C, a, Y, s2), rel=1e-9)


@pytest.mark.parametrize(("n", "m"), SIZES)
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_gradients_by_amplitudes_and_noise_agree_with_differences_of_the_dense_density(
    n, m, n_outputs
):
    C, a, Y = random_case(n, m, n_outputs)
    stats, s2 = statistics_of(C, Y), 0.2
    found = log_evidence(stats, solve(stats, a, s2))
    by_amplitude = differences(lambda log_a: dense_value(C, np.exp(log_a), Y, s2), np.log(a))
    by_noise = differences(lambda log_s2: dense_value(C, a, Y, np.exp(log_s2)), np.log(s2))
    size = np.abs(by_amplitude).max()
    np.testing.assert_allclose(found.log_a_bar, by_amplitude, atol=1e-8 * size)
    assert found.log_noise_bar == pytest.approx(float(by_noise), rel=1e-8)


@pytest.mark.parametrize("n_outputs", [1, 2])
def test_the_adjoint_gives_the_residual_and_the_gradient_by_every_feature(n_outputs):
    C, a, Y = random_case(9, 3, n_outputs)
    stats, s2 = statistics_of(C, Y), 0.3
    solution = solve(stats, a, s2)
    Z = np.hstack([C, Y]).T
    found = adjoint(solution, np.dtype("float64")) @ Z
    by_feature = differences(lambda at: dense_value(at, a, Y, s2), C)
    np.testing.assert_allclose(found[:6].T, by_feature, atol=1e-8 * np.abs(by_feature).max())
    phi = C * a
    for p in range(n_outputs):
        weights = np.linalg.solve(phi.T @ phi + s2 * np.eye(6), phi.T @ Y[:, p])
        np.testing.assert_allclose(found[6 + p], Y[:, p] - phi @ weights, atol=1e-12)
    np.testing.assert_allclose(
        residual_from_sums(stats, solution), np.square(found[6:]).sum(axis=1), rtol=1e-10
    )


def test_coefficients_predict_like_a_dense_gaussian_process():
    C, a, Y = random_case(12, 8, 2)
    s2, phi = 0.1, C * a
    at = phi[:4] + 0.3
    dense = (at @ phi.T) @ np.linalg.solve(phi @ phi.T + s2 * np.eye(12), Y)
    coefficients = solve(statistics_of(C, Y), a, s2).coefficients
    np.testing.assert_allclose((at / a) @ coefficients, dense, rtol=1e-9)


def test_the_root_turns_features_into_latent_variances():
    C, a, Y = random_case(12, 3, 1)
    s2, phi = 0.1, C * a
    K = phi @ phi.T
    dense = np.diag(K - K @ np.linalg.solve(K + s2 * np.eye(12), K))
    root = solve(statistics_of(C, Y), a, s2).root
    np.testing.assert_allclose(s2 * np.square(root @ C.T).sum(axis=0), dense, rtol=1e-9)


def test_statistics_are_the_blocks_of_one_symmetric_product():
    C, _, Y = random_case(11, 3, 2)
    Z = np.hstack([C, Y]).T
    stats, expected = Statistics.from_gram(Z @ Z.T, 2, 11), statistics_of(C, Y)
    for part, wanted in zip(stats, expected, strict=True):
        np.testing.assert_allclose(part, wanted)


@pytest.mark.parametrize("s2", [1e-12, 1e-8, 1e-2, 1.0, 1e6])
def test_the_part_of_a_feature_that_the_data_determine_lies_between_none_and_all(s2):
    C, a, Y = random_case(20, 4, 1)
    C[:, 2] = C[:, 0]  # two features that no data can tell apart
    C[:, 1] = 0.0
    gamma = solve(statistics_of(C, Y), a, s2).gamma
    assert np.all((gamma >= 0) & (gamma <= 1))
    assert gamma[1] == pytest.approx(0.0, abs=1e-9)
    phi = C * a
    A = phi.T @ phi + s2 * np.eye(8)
    if s2 >= 1e-2:
        np.testing.assert_allclose(gamma, np.diag(np.linalg.solve(A, phi.T @ phi)), atol=1e-8)


def test_a_sum_that_errs_below_zero_determines_nothing():
    C, a, Y = random_case(20, 4, 1)
    C[:, 1] = 0.0
    stats, s2 = statistics_of(C, Y), 1e-6
    stats.G[1, 1] = -0.5 * s2 / a[1] ** 2
    assert solve(stats, a, s2).gamma[1] == 0.0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("where", [(0, 0), (5, 5), (4, 1)])
def test_sums_that_are_not_finite_have_no_solution(bad, where):
    C, a, Y = random_case(20, 3, 1)
    stats = statistics_of(C, Y)
    stats.G[where] = stats.G[where[::-1]] = bad
    assert solve(stats, a, 0.1) is None


def test_noise_or_amplitudes_that_are_not_finite_have_no_solution():
    C, a, Y = random_case(20, 3, 1)
    stats = statistics_of(C, Y)
    assert solve(stats, a, np.nan) is None
    a[2] = np.nan
    assert solve(stats, a, 0.1) is None


def test_a_matrix_that_misses_a_cholesky_factor_by_rounding_gets_a_little_jitter():
    C, a, Y = random_case(20, 4, 1)
    C[:, 1], a[1] = C[:, 0], a[0]
    stats = statistics_of(C, Y)
    stats.G[0, 0] *= 1 - 1e-11  # as the error of a sum would do
    A = a[:, None] * stats.G * a + 1e-14 * np.eye(8)
    assert lapack.dpotrf(A, lower=1)[1] > 0
    solution = solve(stats, a, 1e-14)
    assert np.isfinite(log_evidence(stats, solution).value)
    fitted = C @ solution.coefficients
    best = C @ np.linalg.lstsq(C, Y, rcond=None)[0]
    np.testing.assert_allclose(fitted, best, atol=1e-5)


def test_a_matrix_far_from_positive_has_no_solution():
    C, a, Y = random_case(20, 4, 1)
    stats = statistics_of(C, Y)
    stats.G[0, 0] = -50.0
    assert solve(stats, a, 1e-8) is None


def test_a_sound_matrix_gets_no_jitter():
    C, a, Y = random_case(20, 4, 1)
    stats = statistics_of(C, Y)
    A = (C * a).T @ (C * a) + 1e-3 * np.eye(8)
    assert solve(stats, a, 1e-3).log_det == pytest.approx(np.linalg.slogdet(A)[1], rel=1e-13)


def problem_and_start(n_outputs, prior, seed=0, n=40, counts=(3, 4), dtype="float64"):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    Y = np.sin(2 * X @ rng.standard_normal((2, n_outputs))) + 0.3 * rng.standard_normal(
        (n, n_outputs)
    )
    start = Parameters.of(random_mixture(rng, len(counts), 2), 0.2)
    start = start._replace(means=start.means + 0.05 * np.sign(start.means))
    rows = ThreadedRows(X, Y, dtype, n_threads=1)
    problem = Problem(rows, n_outputs, np.mean(X**2, axis=0), make_prior(prior, 1.0, start, rng))
    return problem, start, draw_points("iid", np.array(counts), 2, rng)


@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize("frequencies", ["signed", "positive"])
@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("prior", PRIORS)
def test_the_gradient_of_every_parameter_agrees_with_differences(
    prior, n_outputs, frequencies, relative
):
    problem, start, points = problem_and_start(n_outputs, prior)
    moved = start._replace(means=1.3 * start.means, log_scales=start.log_scales + 0.1)
    if frequencies == "positive":
        moved = moved._replace(means=np.abs(moved.means))
    coordinates = Coordinates(2, 2, frequencies, relative)
    theta = coordinates.pack(moved)
    assert len(theta) == 2 + 4 + 4 + 1 + (2 if relative else 0)
    p = coordinates.unpack(theta)
    gradient = coordinates.pack_gradient(p, evaluate(problem, p, points).gradient, theta)
    expected = differences(
        lambda t: evaluate(problem, coordinates.unpack(t), points).value, theta, step=1e-4
    )
    assert np.all(expected != 0)
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-7 * np.abs(expected).max())


@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize("frequencies", ["signed", "positive"])
def test_parameters_come_back_from_coordinates_as_they_were(frequencies, relative):
    p = Parameters.of(random_mixture(np.random.default_rng(1), 3, 2), 0.2)
    if frequencies == "positive":
        p = p._replace(means=np.abs(p.means))
    coordinates = Coordinates(3, 2, frequencies, relative)
    back = coordinates.unpack(coordinates.pack(p))
    for value, again in zip(p, back, strict=True):
        np.testing.assert_allclose(again, value, rtol=1e-12)


def test_one_relative_coordinate_moves_an_input_of_all_components():
    p = Parameters.of(random_mixture(np.random.default_rng(2), 3, 2), 0.2)
    coordinates = Coordinates(3, 2, "signed", relative=True)
    theta = coordinates.pack(p)
    theta[3 + 6 + 6 + 1] += np.log(2.0)  # the second input's
    moved = coordinates.unpack(theta)
    np.testing.assert_allclose(moved.means, p.means * [1, 2])
    np.testing.assert_allclose(np.exp(moved.log_scales), np.exp(p.log_scales) * [1, 2])


def test_the_objective_is_the_dense_evidence_less_the_divergence():
    problem, p, points = problem_and_start(2, "authors")
    found = evaluate(problem, p, points)
    C = slow_features(problem.rows.X, points.locations(p.kernel))
    a = slow_amplitudes(p.kernel.weights, points.counts)
    dense = dense_value(C, a, problem.rows.Y, p.noise_variance)
    assert found.log_evidence == pytest.approx(dense, rel=1e-9)
    assert found.divergence > 0
    assert found.value == pytest.approx(found.log_evidence - found.divergence, rel=1e-12)


def test_the_mean_over_draws_is_that_of_values_and_gradients():
    problem, p, points = problem_and_start(1, "empirical")
    other = draw_points("iid", points.counts, 2, np.random.default_rng(3))
    mean = evaluate_mean(problem, p, [points, other])
    one, two = evaluate(problem, p, points), evaluate(problem, p, other)
    assert mean.value == pytest.approx((one.value + two.value) / 2)
    for m, g, h in zip(mean.gradient, one.gradient, two.gradient, strict=True):
        np.testing.assert_allclose(m, (g + h) / 2)


def test_a_failed_evaluation_says_minus_infinity_and_spoils_no_mean():
    problem, p, points = problem_and_start(1, "empirical")
    broken = points._replace(normals=np.full_like(points.normals, np.nan))
    failed = evaluate(problem, p, broken)
    mean = evaluate_mean(problem, p, [points, broken])
    assert failed.value == -np.inf
    assert failed.gradient is None
    assert mean.value == evaluate(problem, p, points).value


def test_sums_by_feature_and_component_are_plain_sums():
    np.testing.assert_array_equal(fold_features(np.array([1, 2, 3, 10, 20, 30])), [11, 22, 33])
    values = np.arange(12.0).reshape(6, 2)
    expected = [values[:1].sum(axis=0), values[1:4].sum(axis=0), values[4:].sum(axis=0)]
    np.testing.assert_array_equal(sum_by_component(values, np.array([1, 3, 2])), expected)


def precise_log_density(C, a, y, s2):
    """Log density of y under N(0, Phi Phi^T + s2 I) with 60 digits, by a Cholesky factor."""
    n = len(y)
    with localcontext(prec=60):
        phi = [[Decimal(float(c)) * Decimal(float(x)) for c, x in zip(row, a, strict=True)]
               for row in C]  # fmt: skip
        L = [[Decimal(0)] * n for _ in range(n)]
        z, log_det = [], Decimal(0)
        for i in range(n):
            for j in range(i + 1):
                k = sum(f * g for f, g in zip(phi[i], phi[j], strict=True))
                k += Decimal(s2) if i == j else 0
                k -= sum(L[i][t] * L[j][t] for t in range(j))
                L[i][j] = k.sqrt() if i == j else k / L[j][j]
            log_det += 2 * L[i][i].ln()
            z.append((Decimal(float(y[i])) - sum(L[i][t] * z[t] for t in range(i))) / L[i][i])
        return float(-(sum(v * v for v in z) + log_det) / 2) - n / 2 * float(np.log(2 * pi))


def near_perfect_fit(scale=1.0):
    """Rows that some coefficients fit exactly, and a noise variance of 1e-8."""
    problem, p, points = problem_and_start(1, "none", n=30, counts=(2, 3))
    p = p._replace(log_noise=float(np.log(1e-8)))
    C = slow_features(problem.rows.X, points.locations(p.kernel))
    a = slow_amplitudes(p.kernel.weights, points.counts)
    Y = scale * (C * a) @ np.random.default_rng(4).standard_normal((10, 1))
    return problem, p, points, C, a, Y


def test_near_a_perfect_fit_the_residual_of_the_rows_saves_the_digits_that_sums_lose():
    _, p, _, C, a, Y = near_perfect_fit(scale=100.0)
    stats = statistics_of(C, Y)
    solution = solve(stats, a, p.noise_variance)
    residual = np.square(Y - C @ solution.coefficients).sum(axis=0)
    precise = precise_log_density(C, a, Y[:, 0], p.noise_variance)
    by_rows = abs(log_evidence(stats, solution, residual).value - precise)
    by_sums = abs(log_evidence(stats, solution).value - precise)
    assert by_rows < 1e-7
    assert by_sums > 1e-5


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_at_a_noise_of_1e_8_the_objective_is_right_near_a_perfect_fit(dtype):
    problem, p, points, C, a, Y = near_perfect_fit()
    rows = ThreadedRows(problem.rows.X, Y, dtype, n_threads=1)
    found = evaluate(problem._replace(rows=rows), p, points)
    precise = precise_log_density(C, a, Y[:, 0], p.noise_variance)
    assert found.value == pytest.approx(precise, rel=1e-9)


def test_jitter_grows_from_none():
    assert evidence._JITTERS[0] == 0.0
    assert list(evidence._JITTERS) == sorted(evidence._JITTERS)

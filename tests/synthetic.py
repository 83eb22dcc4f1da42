"""Synthetic data and small models shared by the tests."""

import numpy as np

from bochner import SpectralMixtureRegressor
from bochner.objective import Problem
from bochner.parameters import Parameters
from bochner.prior import Prior
from bochner.rows import ThreadedRows
from bochner.settings import resolve


def waves(n=200, d=2, seed=0, noise=0.1):
    """Inputs and one smooth noisy output."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(n, d))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * X.sum(axis=1) + noise * rng.standard_normal(n)
    return X, y


def quick(**options):
    """An estimator that learns for a moment only."""
    small = {
        "n_components": 3,
        "n_points": 24,
        "n_prediction_points": 60,
        "n_draws": 2,
        "n_restarts": 1,
        "max_evals": 20,
        "mc_samples": 1,
        "posterior": "features",
        "random_state": 0,
    }
    return SpectralMixtureRegressor(**(small | options))


def settings_of(**options):
    """Resolved settings of such an estimator."""
    return resolve(quick(**options).get_params(), n_rows=200, n_inputs=2)


def problem_of(X, Y, prior=None, **options):
    """Rows in memory with a prior; the empirical one if none is given."""
    rows = ThreadedRows(X, Y, **({"dtype": "float64"} | options))
    return Problem(rows, Y.shape[1], np.mean(np.square(X), axis=0), prior or Prior(0.05))


def some_parameters(q, d, seed=0, noise=0.05):
    """Parameters of a middling kernel."""
    rng = np.random.default_rng(seed)
    log_weights = np.log(rng.uniform(0.2, 0.6, q))
    means = 0.2 * rng.standard_normal((q, d))
    log_scales = np.log(rng.uniform(0.05, 0.3, (q, d)))
    return Parameters(log_weights, means, log_scales, float(np.log(noise)))

from sklearn.utils.estimator_checks import parametrize_with_checks

from bochner import SpectralMixtureRegressor

ESTIMATORS = [
    SpectralMixtureRegressor(),
    SpectralMixtureRegressor(posterior="features", n_restarts=1, max_evals=30),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_finds_nothing_to_object_to(estimator, check):
    check(estimator)

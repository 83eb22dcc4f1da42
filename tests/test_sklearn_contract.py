from sklearn.utils.estimator_checks import parametrize_with_checks

from bochner import SpectralMixtureRegressor


@parametrize_with_checks([SpectralMixtureRegressor()])
def test_scikit_learn_finds_nothing_to_object_to(estimator, check):
    check(estimator)

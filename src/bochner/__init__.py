"""Gaussian-process regression that learns its own kernel."""

from bochner.costs import Cost, cost
from bochner.estimator import SpectralMixtureRegressor
from bochner.kernel import SpectralMixture, feature_error_bound
from bochner.progress import Progress
from bochner.shares import ShareRule
from bochner.sklearn_kernel import SpectralMixtureKernel

__version__ = "0.1.0"

__all__ = [
    "Cost",
    "Progress",
    "ShareRule",
    "SpectralMixture",
    "SpectralMixtureKernel",
    "SpectralMixtureRegressor",
    "__version__",
    "cost",
    "feature_error_bound",
]

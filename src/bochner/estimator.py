"""The estimator: validation, units, delegation. No algebra."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from bochner.blas import sequential_blas
from bochner.exact import ExactPosterior
from bochner.fitting import Fitted, fit
from bochner.kernel import Array, SpectralMixture
from bochner.learn import planned_evaluations
from bochner.posterior import FeaturePosterior
from bochner.progress import Callback, Printing, Watch
from bochner.scaling import Units
from bochner.settings import check_number, resolve
from bochner.shares import ShareRule


class SpectralMixtureRegressor(RegressorMixin, BaseEstimator):
    """Gaussian-process regression that learns its own kernel.

    A spectral mixture kernel is learned by variational inference over random Fourier features,
    in time linear in the rows, and predicts through more such features, averaged over draws.

    Parameters
    ----------
    n_components : int or None, default=None
        Components Q of the mixture. More can describe more kinds of structure at once. None: 6,
        or fewer where there are not three rows for each of a component's parameters.
    n_points : int, default=120
        Spectral points M while learning; the cost of an evaluation grows as N M^2.
    inference : {"auto", "ss", "ss-rp", "svss", "svss-ws", "svss-ng", "svss-wsng"}, \
default="auto"
        How to learn. "auto" is ours: quasi-Newton rounds with quasi-Monte Carlo points. The
        others are the paper's: ``max_evals`` steps of Adam.
    posterior : {"auto", "exact", "features"}, default="auto"
        How to predict: exactly, by a Gaussian process on all rows with the learned kernel, or
        through features, whose cost does not grow with the rows. "auto" is exact where a factor
        fits into memory and takes some seconds (see `bochner.cost`), and through features for the
        paper's methods; ``cost_`` says what was chosen and why.
    refine : bool, default=False
        Go on learning under the exact likelihood, for at most 3,000 rows.
    n_prediction_points : int, default=480
        Spectral points of each draw at prediction.
    n_draws : int, default=4
        Draws of the points that predictions are averaged over.
    prior : {"empirical", "start", "authors", "none"}, default=None
        Prior on the spectral points. None: "empirical" for "auto", else the method's.
    kl_weight : float or None, default=None
        Weight of the divergence from the prior; 1 is the variational bound's. None: 1 for the
        paper's methods; for "auto" half the number of parameters per row, within 0.05 and 1.
    frequencies : {"signed", "positive", "zero"}, default=None
        Sign of the means; "zero" leaves a mixture of Gaussian (RBF) kernels. None: "signed" for
        "auto", "positive" for the paper's methods.
    draw : {"iid", "antithetic", "orthogonal", "sobol"}, default=None
        How spectral points are drawn. None: "sobol" for "auto", else "iid".
    shares : {"equal", "weight", "variance", "printed"} or ShareRule, default=None
        How many points each component gets. None: the method's.
    n_restarts : int, default=6
        Starts tried on a sample of the rows ("auto").
    max_evals : int, default=120
        Evaluations of the objective in the rounds on all rows, at most; the tries on a sample
        and the comparisons of candidates come on top. Steps of Adam for the paper's methods.
    tol : float, default=1e-4
        "auto" stops when ten iterations gain less than this in the objective per row.
    mc_samples : int or None, default=None
        Draws of the points that each evaluation of the objective is averaged over. None: 1, but
        for "auto" 2 with fewer than 2,000 rows and 3 with fewer than 500.
    learning_rate : float, default=0.01
        Step of Adam (the paper's methods).
    standardize : bool, default=True
        Standardise inputs and outputs inside, and undo it outside. Standardised inputs beyond
        10 are moved to 10; predict warns where that happens to rows that it is given. False
        leaves inputs as they are and does not centre outputs.
    dtype : {"float32", "float64"}, default=None
        Precision of the features; sums are always float64. None: "float32" for "auto", which
        changes to float64 by itself where the noise is small; else "float64".
    random_state : int, RandomState instance or None, default=None
        The same seed gives the same result for any number of threads. What ``posterior="auto"``
        chooses depends on the machine: name the posterior where results must be the same.
    n_jobs : int or None, default=None
        Threads of fit and of the fitted model. None: all cores that the process may use; fits
        that run side by side share them.
    verbose : int, default=0
        1 prints progress to standard error.
    callback : callable, default=None
        Called with a `Progress` after every evaluation; returning True ends learning there.

    Attributes
    ----------
    kernel_ : SpectralMixture
        The learned kernel in the user's units (for several outputs: of unit-variance outputs).
    noise_variance_ : float or array of shape (n_outputs,)
        Learned variance of the noise in the user's units.
    spectral_points_ : array of shape (n_draws, n_prediction_points, n_features_in_)
        Frequencies used for prediction, in cycles per unit of each input.
    objective_path_ : array
        The objective per row at every evaluation; NaN where the arithmetic failed.
    objective_stages_ : list of str
        The stage that each evaluation belonged to: "start" and "sample" see a sample of the rows,
        as do "weights" and "kernel", under its exact likelihood.
    n_evals_ : int
        Evaluations made.
    interrupted_ : bool
        Whether learning was ended from outside.
    posterior_ : FeaturePosterior or ExactPosterior
        The conditioned model in standardised units.
    cost_ : Cost
        What the fit was expected to cost, how it predicts, and why.
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import SpectralMixtureRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, size=(200, 1))
    >>> y = np.sin(2 * np.pi * X[:, 0] / 3) + 0.1 * rng.standard_normal(200)
    >>> model = SpectralMixtureRegressor(random_state=0).fit(X, y)
    >>> mean, std = model.predict([[4.5], [5.25]], return_std=True)
    >>> bool(np.allclose(mean, [0, -1], atol=0.15) and np.all(std < 0.2))
    True
    """

    def __init__(
        self,
        *,
        n_components: int | None = None,
        n_points: int = 120,
        inference: str = "auto",
        posterior: str = "auto",
        refine: bool = False,
        n_prediction_points: int = 480,
        n_draws: int = 4,
        prior: str | None = None,
        kl_weight: float | None = None,
        frequencies: str | None = None,
        draw: str | None = None,
        shares: str | ShareRule | None = None,
        n_restarts: int = 6,
        max_evals: int = 120,
        tol: float = 1e-4,
        mc_samples: int | None = None,
        learning_rate: float = 0.01,
        standardize: bool = True,
        dtype: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        callback: Callback | None = None,
    ) -> None:
        self.n_components = n_components
        self.n_points = n_points
        self.inference = inference
        self.posterior = posterior
        self.refine = refine
        self.n_prediction_points = n_prediction_points
        self.n_draws = n_draws
        self.prior = prior
        self.kl_weight = kl_weight
        self.frequencies = frequencies
        self.draw = draw
        self.shares = shares
        self.n_restarts = n_restarts
        self.max_evals = max_evals
        self.tol = tol
        self.mc_samples = mc_samples
        self.learning_rate = learning_rate
        self.standardize = standardize
        self.dtype = dtype
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callback = callback

    def fit(self, X: ArrayLike, y: ArrayLike) -> SpectralMixtureRegressor:
        """Learn the kernel and condition on the rows.

        Ctrl-C ends learning with the best kernel so far and a warning. While exact prediction is
        being prepared it leaves prediction through features, or what conjugate gradients have;
        while features are conditioned on the rows it ends the fit and leaves the estimator as it
        was before.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)

        Returns
        -------
        self
        """
        rows_in, target = validate_data(
            self, X, y, dtype=np.float64, order="C", multi_output=True, y_numeric=True
        )
        settings = resolve(self.get_params(deep=False), *rows_in.shape)
        Y = np.asarray(target, np.float64).reshape(len(rows_in), -1)
        units = Units.of(rows_in, Y, self.standardize)
        Z, T = units.x.transform(rows_in), units.y.transform(Y)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        watch = Watch(planned_evaluations(settings), self._listeners())
        with sequential_blas():
            done = fit(Z, T, settings, rng, watch, self._threads())
        for remark in done.remarks:
            warnings.warn(remark, stacklevel=2)
        # Nothing is set before all is done: a fit that fails leaves the model before it whole.
        self._units, self._one_output = units, np.ndim(target) == 1
        self._publish(done, watch)
        return self

    def predict(
        self,
        X: ArrayLike,
        return_std: bool = False,
        return_cov: bool = False,
        latent: bool = False,
    ) -> Array | tuple[Array, Array]:
        """Predict the mean, and if asked the uncertainty, of y.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        return_std : whether to return standard deviations as well
        return_cov : whether to return the joint covariance of all rows of X as well
        latent : leave the noise out: uncertainty of the function and not of an observation

        Returns
        -------
        mean : array of shape (n_samples,) or (n_samples, n_outputs)
        std : array of the same shape, if ``return_std``
        cov : array of shape (n_samples, n_samples) (+ (n_outputs,)), if ``return_cov``
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov cannot both be True; ask for one of them.")
        Z = self._inputs(X)
        scale = self._units.y.scale
        noise = 0.0 if latent else self.posterior_.noise_variance
        with sequential_blas():
            if return_std:
                moments = self.posterior_.moments(Z)
                std = np.sqrt(moments.variance + noise) * scale
                return self._mean_out(moments.mean), self._squeezed(std)
            mean = self._mean_out(self.posterior_.mean(Z))
            if not return_cov:
                return mean
            cov = self.posterior_.covariance(Z)
        cov[np.diag_indices(len(cov))] += noise
        return mean, self._squeezed(cov * np.square(scale))

    def sample_y(
        self,
        X: ArrayLike,
        n_samples: int = 1,
        random_state: int | np.random.RandomState | None = 0,
        latent: bool = False,
    ) -> Array:
        """Joint samples from the predictive distribution.

        Returns
        -------
        samples : array of shape (n_rows, n_samples) or (n_rows, n_outputs, n_samples)
        """
        Z = self._inputs(X)
        check_number("n_samples", n_samples, Integral, 1, "a whole number of at least 1")
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
        with sequential_blas():
            F = self.posterior_.sample(Z, n_samples, rng)
        if not latent:
            F += np.sqrt(self.posterior_.noise_variance) * rng.standard_normal(F.shape)
        F = F * self._units.y.scale[:, None] + self._units.y.centre[:, None]
        return F[:, 0] if self._one_output else F

    def log_predictive_density(self, X: ArrayLike, y: ArrayLike) -> Array:
        """Log density (n_samples,) of the observations y under the prediction at X.

        Several outputs are taken jointly. Its negative mean is the NLL of the tables.
        """
        Z = self._inputs(X)
        Y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        p = len(self._units.y.scale)
        if Y.shape != (len(Z), p) and not (p == 1 and Y.shape == (len(Z),)):
            raise ValueError(
                f"y has shape {Y.shape}; for these rows of X and the {p} output(s) of the model it "
                f"must be ({len(Z)}, {p})" + (f" or ({len(Z)},)." if p == 1 else ".")
            )
        with sequential_blas():
            inside = self.posterior_.log_density(Z, self._units.y.transform(Y.reshape(len(Z), p)))
        return np.asarray(inside - np.log(self._units.y.scale).sum())

    def leave_one_out(self) -> tuple[Array, Array]:
        """Mean and standard deviation of every training row, predicted from all others.

        At the learned kernel, without fitting again. For exact prediction alone.

        Returns
        -------
        mean, std : arrays of shape (n_samples,) or (n_samples, n_outputs)
        """
        check_is_fitted(self)
        if not isinstance(self.posterior_, ExactPosterior):
            raise ValueError(
                "leave_one_out needs exact prediction, and this model predicts through features; "
                "fit with posterior='exact'."
            )
        with sequential_blas():
            left_out = self.posterior_.leave_one_out()
        return self._mean_out(left_out.mean), self._squeezed(
            np.sqrt(left_out.variance) * self._units.y.scale
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "posterior_")

    def _publish(self, done: Fitted, watch: Watch) -> None:
        """Learned state in the user's units."""
        x_scale, y_scale = self._units.x.scale, self._units.y.scale
        unit = float(y_scale[0]) if self._one_output else 1.0
        exact = done.exact
        self.posterior_: FeaturePosterior | ExactPosterior = (
            done.features if exact is None else exact
        )
        self.kernel_: SpectralMixture = done.parameters.kernel.rescaled(x_scale, unit)
        noise = self.posterior_.noise_variance * np.square(y_scale)
        self.noise_variance_ = float(noise[0]) if self._one_output else noise
        self.spectral_points_ = np.stack([d.S for d in done.features.draws]) / x_scale
        self.cost_ = done.cost
        self.interrupted_ = done.learned.interrupted
        self.objective_path_ = np.array(watch.trace)
        self.objective_stages_ = watch.stages
        self.n_evals_ = len(watch.trace)

    def _listeners(self) -> list[Callback]:
        """Who is told of every evaluation."""
        told: list[Callback] = [Printing()] if self.verbose else []
        return told if self.callback is None else [*told, self.callback]

    def _threads(self) -> int | None:
        if self.n_jobs is None or self.n_jobs == -1:
            return None
        return int(self.n_jobs)

    def _inputs(self, X: ArrayLike) -> Array:
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        extreme = self._units.x.extreme_columns(rows)
        if len(extreme):
            names = getattr(self, "feature_names_in_", None)
            listed = [str(i) if names is None else repr(names[i]) for i in extreme[:5]]
            more = f" and {len(extreme) - 5} more" if len(extreme) > 5 else ""
            warnings.warn(
                f"Some rows lie more than {self._units.x.limit:g} scales from the training data in "
                f"column(s) {', '.join(listed)}{more}; they are treated as if they lay at "
                "that distance. Expect little of predictions there.",
                stacklevel=3,
            )
        return self._units.x.transform(rows)

    def _mean_out(self, mean: Array) -> Array:
        return self._squeezed(mean * self._units.y.scale + self._units.y.centre)

    def _squeezed(self, values: Array) -> Array:
        return np.asarray(values[..., 0] if self._one_output else values)

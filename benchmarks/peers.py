"""Peers that are raced against; needs the extra ``bench``."""

from __future__ import annotations

import time
import warnings
from typing import NamedTuple

import gpytorch
import numpy as np
import torch

from benchmarks.data import Split

_INDUCING = 120
_LEARNING_RATE = 0.05
_LOOK_EVERY = 10


class Peer(NamedTuple):
    """Best standardised test error on the way, and the seconds that all steps took."""

    best: float
    seconds: float


class _SparseGP(gpytorch.models.ExactGP):
    """SGPR: RBF kernel with a length scale per input, inducing points at random rows."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: object, Z: torch.Tensor):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        rbf = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=x.shape[1]))
        self.covar_module = gpytorch.kernels.InducingPointKernel(
            rbf, inducing_points=Z, likelihood=likelihood
        )

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def sgpr(split: Split, steps: int = 500) -> Peer:
    """Train by Adam in float32 on all cores; looks at the test error are not timed."""
    warnings.simplefilter("ignore")
    centre, scale = split.X.mean(axis=0), split.X.std(axis=0)
    y_centre, y_scale = split.y.mean(), split.y.std()
    x = torch.tensor((split.X - centre) / scale, dtype=torch.float32)
    y = torch.tensor((split.y - y_centre) / y_scale, dtype=torch.float32)
    x_test = torch.tensor((split.X_test - centre) / scale, dtype=torch.float32)
    y_test = (split.y_test - y_centre) / y_scale
    torch.manual_seed(0)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = _SparseGP(x, y, likelihood, x[torch.randperm(len(x))[:_INDUCING]].clone())
    optimiser = torch.optim.Adam(model.parameters(), lr=_LEARNING_RATE)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    best, seconds = np.inf, 0.0
    for step in range(1, steps + 1):
        began = time.perf_counter()
        model.train(), likelihood.train()
        optimiser.zero_grad()
        loss = -objective(model(x), y)
        loss.backward()
        optimiser.step()
        seconds += time.perf_counter() - began
        if step % _LOOK_EVERY == 0:
            model.eval(), likelihood.eval()
            with torch.no_grad():
                mean = likelihood(model(x_test)).mean.numpy()
            best = min(best, float(np.sqrt(np.mean(np.square(mean - y_test)))))
    return Peer(best, seconds)

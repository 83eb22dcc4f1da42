"""What exact prediction costs, part by part, and against a peer.

    python -m benchmarks.exact [--part tiles,products,peer,protein,free,preconditioners]

- tiles: rate of the covariance's tiles against their own products and exponentials alone
- products: bandwidth of a product with the stored covariance against copying memory
- peer: GPyTorch's exact process with the same kernel and parameters, on kin8nm (needs BOCHNER_DATA)
- protein: all 41,157 training rows, learning to standard deviations (needs BOCHNER_DATA)
- free: conjugate gradients without storing the covariance, 100,000 rows
- preconditioners: iterations with landmarks, learned features and a float32 factor

Writes ``benchmarks/results/exact.json``, part by part.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.data import load
from bochner import SpectralMixture, SpectralMixtureRegressor
from bochner.blas import sequential_blas, thread_share
from bochner.conjugate import HalfGram, LowRank, System, landmark_features
from bochner.covariance import Side, block
from bochner.exact import Iterative, Plan, condition_exactly
from bochner.points import draw_points
from bochner.rows import ordered_map

RESULTS = Path(__file__).parent / "results" / "exact.json"
TILE = 256


def problem(n: int, d: int = 8, q: int = 6, ratio: float = 0.1) -> tuple:
    """Rows, outputs drawn from a mixture through many features, kernel and noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    kernel = SpectralMixture(
        rng.uniform(0.1, 0.3, q), rng.normal(0, 0.1, (q, d)), rng.uniform(0.02, 0.1, (q, d))
    )
    noise = ratio * kernel.variance
    points = draw_points("sobol", np.full(q, 128), d, rng)
    S, a = points.locations(kernel), points.amplitudes(kernel.weights)
    w = a * rng.standard_normal(len(a))
    y = np.concatenate([_features(X[i : i + 4096], S) @ w for i in range(0, n, 4096)])
    return X, (y + np.sqrt(noise) * rng.standard_normal(n))[:, None], kernel, noise


def _features(X: np.ndarray, S: np.ndarray) -> np.ndarray:
    theta = 2.0 * np.pi * X @ S.T
    return np.concatenate([np.cos(theta), np.sin(theta)], axis=1)


def timed(work: Callable[[], object], repeat: int = 5) -> float:
    """Least seconds of some runs after a first."""
    work()
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def tiles() -> dict[str, float]:
    """Entries per second of one component, beside products and exponentials alone; one thread."""
    found = {}
    for d in (8, 20):
        X, _, kernel, _ = problem(2048, d)
        side = Side.of(kernel, X, "float32")
        a, waves = side.a[0].astype(np.float32), side.waves[0]
        E, C = (np.empty((TILE, TILE), np.float32) for _ in range(2))
        ready = -np.random.default_rng(0).random((TILE, TILE)).astype(np.float32)

        def alone(a=a, waves=waves, E=E, C=C, ready=ready, side=side) -> None:
            for i in range(0, 2048, TILE):
                for j in range(0, 2048, TILE):
                    for _ in range(len(side.h)):
                        np.matmul(a[i : i + TILE], a[j : j + TILE].T, out=E)
                        np.matmul(waves[i : i + TILE], waves[j : j + TILE].T, out=C)
                        np.exp(ready, out=E)

        with sequential_blas():
            ours, least = timed(lambda side=side: block(side, side)), timed(alone)
        found[f"part of the rate of products and exponentials, D = {d}"] = least / ours
        found[f"ns an entry and component, D = {d}"] = 1e9 * ours / (2048**2 * len(side.h))
    return found


def products() -> dict[str, float]:
    """Bytes of stored covariance that a product reads a second, against a copy by all threads."""
    X, Y, kernel, _ = problem(30_000, q=2)
    side = Side.of(kernel, X, "float32")
    with sequential_blas():
        gram = HalfGram.kept(side, 1 << 33)
        seconds = timed(lambda: gram.times(Y))
        stored = gram.stored_bytes
        threads = thread_share()
        source = np.ones((threads, 1 << 27), np.float32)
        target = np.empty_like(source)

        def copy() -> None:
            list(ordered_map(lambda k: np.copyto(target[k], source[k]), threads))

        copied = timed(copy)
    bandwidth = 2.0 * source.nbytes / copied  # read and written
    return {
        "stored GB": stored / 1e9,
        "product GB/s": stored / seconds / 1e9,
        "copy GB/s, read and written": bandwidth / 1e9,
        "part of the bandwidth": stored / seconds / bandwidth,
    }


def peer() -> dict[str, float]:
    """The same kernel, parameters and rows through GPyTorch's exact process, and ours."""
    import gpytorch
    import torch

    split = load("kin8nm", 0)
    model = SpectralMixtureRegressor(random_state=0, posterior="exact").fit(split.X, split.y)
    kernel, noise = model.kernel_, model.noise_variance_
    centre = split.y.mean()

    class Mixture(gpytorch.kernels.Kernel):
        """The paper's kernel, written out: GPyTorch's own is another one for D > 1."""

        def forward(self, x1, x2, diag=False, **params):  # type: ignore[no-untyped-def]
            if diag:
                return torch.full(x1.shape[:-1], kernel.variance, dtype=x1.dtype)
            total = 0.0
            for w, mu, sigma in zip(kernel.weights, kernel.means, kernel.scales, strict=True):
                s, m = (2 * np.pi * torch.tensor(v, dtype=x1.dtype) for v in (sigma, mu))
                squares = torch.cdist(x1 * s, x2 * s).square()
                phase = (x1 @ m)[..., :, None] - (x2 @ m)[..., None, :]
                total = total + w * torch.exp(-0.5 * squares) * torch.cos(phase)
            return total

    class Process(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):  # type: ignore[no-untyped-def]
            super().__init__(x, y, likelihood)
            self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), Mixture()

        def forward(self, x):  # type: ignore[no-untyped-def]
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    units = model._units
    Z, T = units.x.transform(split.X), units.y.transform(split.y[:, None])
    inside = kernel.rescaled(1.0 / units.x.scale, 1.0 / float(units.y.scale[0]))
    plan = model.cost_.plan
    found = {}
    with sequential_blas():
        began = time.perf_counter()
        rng = np.random.default_rng(0)
        s2 = noise / float(units.y.scale[0]) ** 2
        ours = condition_exactly(inside, s2, Z, T, plan, rng, None, lambda *event: None)
        moments = ours.moments(units.x.transform(split.X_test))
        found["ours s"] = time.perf_counter() - began
    mean = moments.mean[:, 0] * units.y.scale[0] + centre
    std = np.sqrt(moments.variance[:, 0]) * units.y.scale[0]
    for dtype in (torch.float32, torch.float64):
        x, y, x_test = (
            torch.tensor(v, dtype=dtype) for v in (split.X, split.y - centre, split.X_test)
        )
        best = np.inf
        for exact in (False, True):  # conjugate gradients, Cholesky: the faster counts
            likelihood = gpytorch.likelihoods.GaussianLikelihood().to(dtype)
            likelihood.noise = noise
            process = Process(x, y, likelihood).to(dtype)
            process.eval(), likelihood.eval()
            cholesky = gpytorch.settings.max_cholesky_size(10**6 if exact else 800)
            with torch.no_grad(), cholesky, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                began = time.perf_counter()
                theirs = process(x_test)
                their_mean, their_std = theirs.mean.numpy() + centre, theirs.variance.sqrt().numpy()
                seconds = time.perf_counter() - began
            name = f"GPyTorch {str(dtype)[6:]} {'Cholesky' if exact else 'CG'}"
            found[f"{name} s"] = seconds
            found[f"{name}, mean off by, of sd(y)"] = float(
                np.abs(their_mean - mean).max() / split.y.std()
            )
            found[f"{name}, std off by, relative"] = float(np.abs(their_std / std - 1).max())
            best = min(best, seconds)
    found["times faster than the fastest of them"] = (
        min(v for k, v in found.items() if k.startswith("GPyTorch") and k.endswith(" s"))
        / found["ours s"]
    )
    return found


def protein() -> dict[str, float]:
    """Everything for the whole set: learning, exact means and standard deviations."""
    split = load("protein", 0)
    began = time.perf_counter()
    model = SpectralMixtureRegressor(random_state=0, posterior="exact", verbose=1)
    model.fit(split.X, split.y)
    fitted = time.perf_counter()
    mean, std = model.predict(split.X_test, return_std=True)
    done = time.perf_counter()
    off = split.y_test - mean
    return {
        "fit s": fitted - began,
        "predict s": done - fitted,
        "in all, minutes": (done - began) / 60,
        "peak GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "RMSE": float(np.sqrt(np.mean(off**2))),
        "coverage": float(np.mean(np.abs(off) <= 1.96 * std)),
        "expected minutes": model.cost_.seconds / 60,
    }


def free() -> dict[str, float]:
    """Conjugate gradients on 100,000 rows with nothing stored."""
    n = 100_000
    X, Y, kernel, noise = problem(n, q=2)
    said: list[float] = []

    def told(stage: str, done: int, total: int, residual: float) -> None:
        if stage == "iterations":
            said.append(residual)
            print(f"  iteration {done}: residual {residual:.1e}", flush=True)

    began = time.perf_counter()
    with sequential_blas():
        rng = np.random.default_rng(0)
        posterior = condition_exactly(kernel, noise, X, Y, Plan("iterative", 0), rng, None, told)
    seconds = time.perf_counter() - began
    return {
        "minutes": seconds / 60,
        "iterations": posterior.solved.iterations,
        "residual": posterior.solved.residual,
        "entries and components a second, 1e9": 2
        * (n**2 / 2)
        * posterior.solved.iterations
        / seconds
        / 1e9,
        "peak GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def preconditioners() -> dict[str, float]:
    """Iterations and seconds until the mean is exact within the noise, 8,000 rows."""
    found = {}
    for ratio in (1e-1, 1e-3):
        X, Y, kernel, noise = problem(8_000, ratio=ratio)
        side, rng = Side.of(kernel, X, "float32"), np.random.default_rng(0)
        with sequential_blas():
            gram = HalfGram.kept(side, 1 << 30)

            def features(m: int, kernel=kernel, X=X) -> np.ndarray:
                points = draw_points("sobol", np.full(6, m // 12), 8, np.random.default_rng(0))
                a = points.amplitudes(kernel.weights)
                return (_features(X, points.locations(kernel)) * a).astype(np.float32)

            makers = {
                "500 landmarks": lambda side=side, rng=rng: landmark_features(side, 500, rng),
                "2,000 landmarks": lambda side=side, rng=rng: landmark_features(side, 2000, rng),
                "960 features": lambda features=features: features(960),
                "1,920 features": lambda features=features: features(1920),
            }
            for name, make in makers.items():
                began = time.perf_counter()
                near = LowRank.of(make(), noise)
                solved = Iterative(System(gram.times, near.apply, noise)).solve(Y)
                key = f"noise {ratio:g}, {name}"
                found[f"{key}: iterations"] = solved.iterations
                found[f"{key}: seconds"] = time.perf_counter() - began
            began = time.perf_counter()
            exact = condition_exactly(
                kernel, noise, X, Y, Plan("cholesky-float32"), rng, None, lambda *event: None
            )
            found[f"noise {ratio:g}, float32 factor: iterations"] = exact.solved.iterations
            found[f"noise {ratio:g}, float32 factor: seconds"] = time.perf_counter() - began
    return found


PARTS = {
    "tiles": tiles,
    "products": products,
    "peer": peer,
    "protein": protein,
    "free": free,
    "preconditioners": preconditioners,
}


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", default=",".join(PARTS), help="names of parts, with commas")
    for name in parser.parse_args().part.split(","):
        print(f"{name}:", flush=True)
        found = PARTS[name]()
        for what, value in found.items():
            print(f"  {what:<60} {value:.4g}", flush=True)
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        results[name] = {what: float(f"{value:.4g}") for what, value in found.items()}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

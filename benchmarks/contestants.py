"""What `benchmarks.speed` compares: one evaluation of evidence and gradient, several ways.

A contestant is a function of a `Case` that gives its variants by name; the fastest one counts.
Each variant runs one evaluation and returns value and flat gradient (log weights, means, log
scales, log noise), or None where it computes less than that.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import joblib
import numpy as np
from threadpoolctl import ThreadpoolController

from bochner.blas import sequential_blas
from bochner.kernel import Array, SpectralMixture
from bochner.objective import Problem, evaluate, rows_for
from bochner.parameters import Parameters
from bochner.points import SpectralPoints, draw_points
from bochner.prior import Prior
from bochner.rows import KEEP_BYTES, ThreadedRows

N_COMPONENTS = 6
SEED = 20
REFERENCE_BLOCKS = (512, 1024, 2048, 4096)

Result = tuple[float, Array] | None


class Case(NamedTuple):
    """One problem, the same to the last bit in every process."""

    X: Array  # (N, D)
    Y: Array  # (N, 1)
    parameters: Parameters
    points: SpectralPoints

    def head(self, n: int) -> Case:
        """The same problem with its first rows only."""
        return self._replace(X=self.X[:n], Y=self.Y[:n])


class Variant(NamedTuple):
    """One way to run a contestant."""

    run: Callable[[], Result]
    context: Callable[[], AbstractContextManager[Any]] = nullcontext


Variants = dict[str, Callable[[], Variant]]  # built only when asked for


def make_case(n: int, d: int, m: int) -> Case:
    """Standard normal inputs, a smooth function with noise, and a plausible kernel."""
    rng = np.random.default_rng(SEED)
    X = rng.standard_normal((n, d))
    first, second = rng.standard_normal((2, d)) / np.sqrt(d)
    y = np.sin(2.0 * (X @ first)) + 0.5 * np.cos(3.0 * (X @ second))
    y += 0.3 * rng.standard_normal(n)
    y -= y.mean()
    y /= y.std()
    kernel = SpectralMixture(
        rng.uniform(0.05, 0.3, N_COMPONENTS),
        rng.normal(0.0, 0.3, (N_COMPONENTS, d)) / np.sqrt(d),
        rng.uniform(0.1, 0.4, (N_COMPONENTS, d)) / np.sqrt(d),
    )
    counts = np.diff(np.linspace(0, m, N_COMPONENTS + 1).astype(np.int64))
    points = draw_points("sobol", counts, d, rng)
    return Case(X, y[:, None], Parameters.of(kernel, 0.1), points)


# This library ----------------------------------------------------------------------------------


def bochner_variants(case: Case, dtype: str, keep_bytes: int = KEEP_BYTES) -> Variants:
    """`bochner.objective.evaluate` on rows in memory."""

    def build() -> Variant:
        rows = ThreadedRows(case.X, case.Y, dtype, keep_bytes=keep_bytes)
        squares = np.einsum("nd,nd->d", case.X, case.X) / len(case.X)
        problem = Problem(rows, 1, squares, Prior(0.0))
        kernel, noise = case.parameters.kernel, case.parameters.noise_variance
        used = rows_for(problem, kernel.variance, noise, len(case.points.normals))
        if used.dtype != dtype:
            raise RuntimeError(f"this case would be computed in {used.dtype}, not in {dtype}")
        return Variant(partial(run, problem), sequential_blas)

    def run(problem: Problem) -> Result:
        objective = evaluate(problem, case.parameters, case.points)
        if objective.gradient is None:
            raise RuntimeError("the evaluation failed")
        return objective.value, np.concatenate([np.ravel(g) for g in objective.gradient])

    return {"threads": build}


# The products alone ----------------------------------------------------------------------------


class Layout(NamedTuple):
    """How features and inputs of a block are held: (2M, n) or (n, 2M), (D, n) or (n, D)."""

    features_first: bool
    inputs_first: bool


class Products:
    """X S^T, cosines, sines, C^T C, C B and T^T X of one block after another, added up.

    B does not wait for C^T C, so one pass does, with the features still in cache. An evaluation
    cannot do that: this is less than the least that it must do.
    """

    def __init__(self, layout: Layout, S: Array, B: Array, n: int) -> None:
        m, d = S.shape
        self.layout, self.m = layout, m
        self.S, self.B = S, B
        shapes = (m, n), (2 * m, n), (2 * m, n)
        turn = slice(None) if layout.features_first else slice(None, None, -1)
        self.buffers = [np.empty(shape[turn], np.float32) for shape in shapes]
        self.gram, self.back = np.empty((2 * m, 2 * m), np.float32), np.empty((m, d), np.float32)
        self.sums = np.zeros((2 * m, 2 * m)), np.zeros((m, d))

    def add(self, block: Array) -> None:
        """All products of one block, held as the layout says."""
        m, first = self.m, self.layout.features_first
        X = block.T if self.layout.inputs_first else block
        n = len(X)
        theta, C, T = (b[:, :n] if first else b[:n] for b in self.buffers)
        if first:
            np.matmul(self.S, X.T, out=theta)
            np.cos(theta, out=C[:m])
            np.sin(theta, out=C[m:])
            np.matmul(C, C.T, out=self.gram)
            np.matmul(self.B, C, out=T)
            np.matmul(T[:m], X, out=self.back)
        else:
            np.matmul(X, self.S.T, out=theta)
            np.cos(theta, out=C[:, :m])
            np.sin(theta, out=C[:, m:])
            np.matmul(C.T, C, out=self.gram)
            np.matmul(C, self.B, out=T)
            np.matmul(T[:, :m].T, X, out=self.back)
        for total, part in zip(self.sums, (self.gram, self.back), strict=True):
            total += part


def reference_variants(case: Case) -> Variants:
    """The products alone in NumPy: whole arrays, or blocks shared out among threads."""
    S = (2.0 * np.pi * case.points.locations(case.parameters.kernel)).astype(np.float32)
    half = np.random.default_rng(SEED).standard_normal((2 * len(S), 2 * len(S)))
    B = (half + half.T).astype(np.float32)
    variants: Variants = {}
    for layout in itertools.starmap(Layout, itertools.product((True, False), repeat=2)):
        name = f"features {'2M x n' if layout.features_first else 'n x 2M'}, "
        name += f"inputs {'D x n' if layout.inputs_first else 'n x D'}"
        for size in REFERENCE_BLOCKS:
            build = partial(_blocked, case, layout, S, B, size)
            variants[f"blocks of {size}, {name}"] = build
        variants[f"whole, {name}"] = partial(_whole, case, layout, S, B)
    return variants


def _held(X: Array, layout: Layout) -> Array:
    return np.ascontiguousarray(X.T if layout.inputs_first else X, np.float32)


def _whole(case: Case, layout: Layout, S: Array, B: Array) -> Variant:
    """One block of all rows; BLAS uses every core, sines and cosines one."""
    X = _held(case.X, layout)
    products = Products(layout, S, B, len(case.X))
    return Variant(lambda: products.add(X))


def _blocked(case: Case, layout: Layout, S: Array, B: Array, size: int) -> Variant:
    """Blocks prepared beforehand; every thread takes the next one, with buffers of its own."""
    n_threads = joblib.cpu_count()
    n_blocks = -(-len(case.X) // (size * n_threads)) * n_threads
    edges = np.linspace(0, len(case.X), n_blocks + 1).astype(np.int64)
    blocks = [_held(case.X[i:j], layout) for i, j in itertools.pairwise(edges)]
    workers = [Products(layout, S, B, size) for _ in range(n_threads)]
    pool = ThreadPoolExecutor(n_threads)

    def work(products: Products, supply: Iterator[Array]) -> None:
        for total in products.sums:
            total[:] = 0.0
        for block in supply:  # one iterator for all threads: the next block to whoever is free
            products.add(block)

    def run() -> None:
        supply = iter(blocks)
        list(pool.map(work, workers, itertools.repeat(supply)))
        for worker in workers[1:]:
            for total, part in zip(workers[0].sums, worker.sums, strict=True):
                total += part

    return Variant(run, lambda: ThreadpoolController().limit(limits=1, user_api="blas"))


# Automatic differentiation ---------------------------------------------------------------------


class Constants(NamedTuple):
    """What the autodiff contestants hold fixed."""

    owner: Array  # (M,) component of each point
    counts: Array  # (M,) points of that component, 2M long: cosines, then sines
    normals: Array  # (M, D)


def _constants(case: Case) -> Constants:
    owner = case.points.owner
    counts = np.tile(case.points.counts[owner], 2).astype(np.float64)
    return Constants(owner, counts, case.points.normals)


def torch_variants(case: Case, compiled: bool) -> Variants:
    """The objective by torch's autograd, eager or through `torch.compile`."""
    import torch

    torch.set_num_threads(joblib.cpu_count())
    owner, counts, normals = map(torch.from_numpy, _constants(case))
    X = torch.from_numpy(case.X.astype(np.float32))
    y = torch.from_numpy(case.Y[:, 0].astype(np.float32))
    yy, (n, k) = float(np.square(case.Y).sum()), (len(X), len(counts))

    def evidence(X, y, log_w, means, log_scales, log_noise, features_first):  # type: ignore[no-untyped-def]
        S = means[owner] + torch.exp(log_scales)[owner] * normals
        S = (2.0 * np.pi * S).float()
        if features_first:
            theta = S @ X.T
            C = torch.cat([torch.cos(theta), torch.sin(theta)], 0)
            G, b = (C @ C.T).double(), (C @ y).double()
        else:
            theta = X @ S.T
            C = torch.cat([torch.cos(theta), torch.sin(theta)], 1)
            G, b = (C.T @ C).double(), (C.T @ y).double()
        a = torch.sqrt(torch.exp(log_w)[owner].repeat(2) / counts)
        s2, ab = torch.exp(log_noise), a * b
        A = a[:, None] * G * a + s2 * torch.eye(k, dtype=torch.float64)
        L = torch.linalg.cholesky(A)
        v = torch.cholesky_solve(ab[:, None], L)[:, 0]
        log_det = 2.0 * torch.log(torch.diagonal(L)).sum()
        constant = (n - k) * log_noise + n * np.log(2.0 * np.pi)
        return -0.5 * ((yy - ab @ v) / s2 + log_det + constant)

    def build(features_first: bool) -> Variant:
        function = partial(evidence, features_first=features_first)
        if compiled:
            torch._dynamo.reset()
            function = torch.compile(function, dynamic=False)
        leaves = [torch.tensor(p, dtype=torch.float64) for p in case.parameters]
        for leaf in leaves:
            leaf.requires_grad_()

        def run() -> Result:
            value = function(X, y, *leaves)
            gradient = torch.autograd.grad(value, leaves)
            return float(value.detach()), torch.cat([g.reshape(-1) for g in gradient]).numpy()

        return Variant(run)

    return _both_layouts(build)


def jax_variants(case: Case) -> Variants:
    """The objective by JAX on the CPU, compiled."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    owner, counts, normals = _constants(case)
    n, k = len(case.X), len(counts)
    yy = float(np.square(case.Y).sum())
    X, y = jnp.asarray(case.X, jnp.float32), jnp.asarray(case.Y[:, 0], jnp.float32)

    def evidence(parameters, X, y, features_first):  # type: ignore[no-untyped-def]
        log_w, means, log_scales, log_noise = parameters
        S = means[owner] + jnp.exp(log_scales)[owner] * normals
        S = (2.0 * np.pi * S).astype(jnp.float32)
        if features_first:
            theta = S @ X.T
            C = jnp.concatenate([jnp.cos(theta), jnp.sin(theta)], 0)
            G, b = (C @ C.T).astype(jnp.float64), (C @ y).astype(jnp.float64)
        else:
            theta = X @ S.T
            C = jnp.concatenate([jnp.cos(theta), jnp.sin(theta)], 1)
            G, b = (C.T @ C).astype(jnp.float64), (C.T @ y).astype(jnp.float64)
        a = jnp.sqrt(jnp.tile(jnp.exp(log_w)[owner], 2) / counts)
        s2, ab = jnp.exp(log_noise), a * b
        L = jnp.linalg.cholesky(a[:, None] * G * a + s2 * jnp.eye(k))
        v = jax.scipy.linalg.cho_solve((L, True), ab)
        log_det = 2.0 * jnp.log(jnp.diagonal(L)).sum()
        constant = (n - k) * log_noise + n * np.log(2.0 * np.pi)
        return -0.5 * ((yy - ab @ v) / s2 + log_det + constant)

    def build(features_first: bool) -> Variant:
        function = jax.jit(jax.value_and_grad(partial(evidence, features_first=features_first)))
        parameters = tuple(jnp.asarray(p, jnp.float64) for p in case.parameters)

        def run() -> Result:
            value, gradient = jax.block_until_ready(function(parameters, X, y))
            return float(value), np.concatenate([np.ravel(g) for g in gradient])

        return Variant(run)

    return _both_layouts(build)


def _both_layouts(build: Callable[[bool], Variant]) -> Variants:
    return {"features n x 2M": partial(build, False), "features 2M x n": partial(build, True)}


CONTESTANTS: dict[str, Callable[[Case], Variants]] = {
    "bochner": partial(bochner_variants, dtype="float32"),
    "reference": reference_variants,
    "bochner-unkept": partial(bochner_variants, dtype="float32", keep_bytes=0),
    "torch-eager": partial(torch_variants, compiled=False),
    "bochner-float64": partial(bochner_variants, dtype="float64"),
    "jax": jax_variants,
    "torch-compiled": partial(torch_variants, compiled=True),
}

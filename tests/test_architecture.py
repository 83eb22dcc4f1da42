"""The modules form one pipeline: what stands later in it may import what stands earlier."""

import ast
import sys
from pathlib import Path

import bochner

SOURCE = Path(bochner.__file__).parent

PIPELINE = [
    "kernel",  # what is learned
    "blas",  # one thread a product
    "covariance",  # the kernel between blocks of rows
    "points",  # a kernel's spectral points
    "shares",  # how many each component gets
    "parameters",  # what an optimiser moves
    "prior",  # what it is held to
    "settings",  # what a fit was asked for
    "features",  # points and one block of rows to features
    "rows",  # all blocks, summed
    "evidence",  # sums to a value and its gradient
    "objective",  # evidence less divergence
    "scaling",  # the units that are learned in
    "start",  # where learning begins
    "sampling",  # the points of each evaluation
    "progress",  # what a search tells
    "learn",  # quasi-Newton rounds
    "stochastic",  # the paper's steps
    "posterior",  # prediction
    "condition",  # from a learned kernel to a posterior
    "cholesky",  # a large factor, in place
    "conjugate",  # where no factor fits
    "refine",  # the exact likelihood
    "exact",  # prediction without features
    "settle",  # whether the kernel is right exactly
    "costs",  # what a fit will take
    "fitting",  # all of it in order
    "estimator",  # the library's face
    "sklearn_kernel",  # the kernel for others' estimators
    "__init__",
]

FOREIGN = {"numpy", "scipy", "sklearn", "joblib", "threadpoolctl"}
LINES = 400


def trees():
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.stem, ast.parse(path.read_text(encoding="utf-8"))


def imported_names(tree):
    """Modules that a file imports, anywhere in it, by their full names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            if node.module == "bochner":
                yield from (f"bochner.{alias.name}" for alias in node.names)
            else:
                yield node.module


def own_imports(tree):
    for name in imported_names(tree):
        if name.split(".")[0] == "bochner":
            yield name.split(".")[1]


def test_every_module_has_its_place_in_the_pipeline():
    assert sorted(PIPELINE) == sorted(path.stem for path in SOURCE.rglob("*.py"))
    assert all(path.parent == SOURCE for path in SOURCE.rglob("*.py"))


def test_imports_follow_the_pipeline_in_one_direction():
    against = [
        f"{module} imports {other}"
        for module, tree in trees()
        for other in own_imports(tree)
        if PIPELINE.index(other) >= PIPELINE.index(module)
    ]
    assert against == []


def test_evidence_and_prior_have_no_rows_in_sight():
    seen = {module: set(own_imports(tree)) for module, tree in trees()}
    for module in ("evidence", "prior", "parameters", "kernel"):
        assert not seen[module] & {"rows", "features", "objective"}


def test_only_the_estimator_and_the_adapter_know_scikit_learn():
    users = {
        module
        for module, tree in trees()
        if any(name.split(".")[0] == "sklearn" for name in imported_names(tree))
    }
    assert users == {"estimator", "sklearn_kernel"}


def test_the_core_imports_the_declared_dependencies_and_nothing_else():
    for module, tree in trees():
        for name in imported_names(tree):
            top = name.split(".")[0]
            known = top in FOREIGN or top == "bochner" or top in sys.stdlib_module_names
            assert known, f"{module} imports {name}"


def test_no_import_hides_in_a_function():
    for module, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                inside = [n for n in ast.walk(node) if isinstance(n, ast.Import | ast.ImportFrom)]
                assert not inside, f"{module}, line {node.lineno}"


def test_no_file_is_longer_than_a_person_reads_at_once():
    for path in SOURCE.rglob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES, path.name


def test_no_module_is_named_after_nothing():
    stems = {path.stem for path in SOURCE.rglob("*.py")}
    assert not stems & {"utils", "util", "helpers", "helper", "base", "common", "misc"}


def test_what_the_package_promises_is_there():
    for name in bochner.__all__:
        assert hasattr(bochner, name)

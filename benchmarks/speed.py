"""Time of one evaluation of evidence and gradient: this library, the products alone, torch, JAX.

    python -m benchmarks.speed            # about ten minutes on two cores
    python -m benchmarks.speed --only 2   # one shape
    python -m benchmarks.speed --quick    # does it run?
    python -m benchmarks.speed --as-is    # in the environment as it is

Every library chooses its own kernels for this processor: variables that pin them to those of an
older one, as shared machines sometimes set, are left out of the environment, for all contestants.

Every measurement is a process of its own; contestants take turns for several rounds, and the
round with the smallest median counts. "cpu ms" is processor time divided by cores, the least of
any round: for threads that do not wait by spinning it says what a quiet machine would. What other
programs took of the machine meanwhile is printed with each measurement: where it is not small,
measure again. Threads that wait for each other at barriers, as those of torch do, suffer most
from it, so a busy machine flatters us.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import signal
import statistics
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np

from benchmarks.contestants import CONTESTANTS, Result, Variant, make_case

SHAPES = [(48_000, 385, 60), (41_000, 9, 60), (7_372, 8, 60), (1_000_000, 9, 60)]
QUICK_SHAPES = [(2_000, 5, 12)]
ROUNDS = 3
RESULTS = Path(__file__).parent / "results"
TRUTH = "bochner-float64"

_SLOW = 0.5  # seconds; slower evaluations are repeated less in one process
_LEAST_IN_ROUND = 3
_TRIAL_ROWS = 50_000  # rows on which the variants of a contestant are compared
_TIME_LIMIT = {"torch-compiled": 120.0}  # seconds for one process
_USUAL_TIME_LIMIT = 300.0
_PINS = {  # what makes a library use less of the processor than it would by itself
    "OPENBLAS_CORETYPE",
    "OPENBLAS_L2_SIZE",
    "MKL_ENABLE_INSTRUCTIONS",
    "ATEN_CPU_CAPABILITY",
    "NPY_DISABLE_CPU_FEATURES",
}
_NEGLIGIBLE_CORES = 0.15  # taken by other programs

Record = dict[str, Any]


class Effort(NamedTuple):
    """How long and how often an evaluation is repeated in one process."""

    seconds: float
    least: int
    most: int


_FULL = Effort(2.0, 7, 200)
_TRIAL = Effort(0.1, 3, 50)


# One measurement, in a process of its own ------------------------------------------------------


def measure(name: str, shape: tuple[int, int, int], rounds: int) -> Record:
    """Median time of the contestant's fastest variant, its result and its memory."""
    case = make_case(*shape)
    data = case.X.nbytes + case.Y.nbytes
    before = _start_of_peak()
    try:
        variants = CONTESTANTS[name](case.head(_TRIAL_ROWS))
    except ImportError as missing:
        return {"missing": missing.name}
    finalists = list(variants)
    if len(variants) > 1:
        trials = {key: statistics.median(_times(b(), _TRIAL).wall) for key, b in variants.items()}
        ranked = sorted(trials, key=lambda key: trials[key])
        # One of each kind ("whole", "blocks"): the trial was short, and on fewer rows perhaps.
        finalists = list({key.split()[0]: key for key in reversed(ranked)}.values())
    full = CONTESTANTS[name](case)
    measured = {key: _times(full[key](), _FULL, rounds) for key in finalists}
    chosen = min(measured, key=lambda key: statistics.median(measured[key].wall))
    times = measured[chosen]
    peak = _peak_resident()
    record: Record = {
        "seconds": statistics.median(times.wall),
        "cpu_seconds_per_core": statistics.median(times.cpu) / joblib.cpu_count(),
        "repetitions": len(times.wall),
        "variant": chosen,
        "peak_minus_data_mb": (peak - data) / 1e6,
        "peak_minus_before_mb": (peak - before) / 1e6,
    }
    if times.result is not None:
        value, gradient = times.result
        record |= {"value": value, "gradient": np.asarray(gradient).tolist()}
    return record


class Times(NamedTuple):
    """Elapsed and processor seconds of each evaluation, and what the last one returned."""

    wall: list[float]
    cpu: list[float]
    result: Result


def _times(variant: Variant, effort: Effort, rounds: int = 1) -> Times:
    """Times of warm evaluations."""
    with variant.context():
        variant.run()
        start = time.perf_counter()
        result = variant.run()
        warm = time.perf_counter() - start
        least = max(_LEAST_IN_ROUND, -(-effort.least // rounds)) if warm > _SLOW else effort.least
        wall, cpu = [], []
        for _ in range(min(effort.most, max(least, int(effort.seconds / warm)))):
            start, cpu_start = time.perf_counter(), time.process_time()
            result = variant.run()
            wall.append(time.perf_counter() - start)
            cpu.append(time.process_time() - cpu_start)
    return Times(wall, cpu, result)


def _start_of_peak() -> int:
    """Forget the peak so far, where the system can, and give resident memory in bytes."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return _peak_resident()
    return _of_status("VmRSS") or _peak_resident()


def _peak_resident() -> int:
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return _of_status("VmHWM") or usage * (1 if sys.platform == "darwin" else 1024)


def _of_status(field: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith(field + ":")]
    return 1024 * int(found[0]) if found else None


# All measurements ------------------------------------------------------------------------------


def environment(as_is: bool) -> dict[str, str]:
    """The environment of every contestant."""
    return {k: v for k, v in os.environ.items() if as_is or k not in _PINS}


def run_process(name: str, shape: tuple[int, int, int], rounds: int, env: dict[str, str]) -> Record:
    """One measurement; a record with "failure" where there is none to be had."""
    command = [sys.executable, "-m", "benchmarks.speed", "--contestant", name]
    command += ["--shape", ",".join(map(str, shape)), "--rounds", str(rounds)]
    limit = _TIME_LIMIT.get(name, _USUAL_TIME_LIMIT)
    start, busy, own = time.perf_counter(), _busy_seconds(), _seconds_of_children()
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, start_new_session=True, env=env
    )
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # with the compilers that it may have started
        process.communicate()
        return {"failure": f"not done within {limit:.0f} s"}
    if process.returncode:
        lines = err.strip().splitlines()
        return {"failure": lines[-1] if lines else f"exit code {process.returncode}"}
    record: Record = json.loads(out.splitlines()[-1])
    if busy is not None:
        others = (_busy_seconds() or 0.0) - busy - (_seconds_of_children() - own)
        record["cores_taken_by_others"] = max(0.0, others / (time.perf_counter() - start))
    return record


def _busy_seconds() -> float | None:
    """Time that all cores have spent on anything, where the system tells."""
    try:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    except OSError:
        return None
    idle = {3, 4}  # idle and waiting for disks
    return sum(int(t) for i, t in enumerate(fields) if i not in idle) / os.sysconf("SC_CLK_TCK")


def _seconds_of_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def compete(shape: tuple[int, int, int], rounds: int, env: dict[str, str]) -> dict[str, Record]:
    """Best round of every contestant that can run at all."""
    records: dict[str, list[Record]] = {}
    left_out: dict[str, str] = {}
    for turn in range(rounds):
        for name in CONTESTANTS:
            if name in left_out:
                continue
            record = run_process(name, shape, rounds, env)
            label = f"  round {turn + 1}  {name:<16}"
            if "missing" in record or "failure" in record:
                left_out[name] = _why(name, record)
                print(f"{label} {left_out[name]}", flush=True)
                continue
            records.setdefault(name, []).append(record)
            others = record.get("cores_taken_by_others", float("nan"))
            print(
                f"{label} {1e3 * record['seconds']:9.2f} ms  x{record['repetitions']:<4d}"
                f" {record['variant']} (others took {others:.1f} cores)",
                flush=True,
            )
    best = {name: _best_round(found) for name, found in records.items()}
    best |= {name: {"left_out": why} for name, why in left_out.items() if name not in best}
    add_agreement(best)
    return best


def _why(name: str, record: Record) -> str:
    if "missing" in record:
        return (
            f"{name} is left out: {record['missing']} is not installed; "
            "pip install -e '.[bench]' brings it."
        )
    return f"{name} is left out: {record['failure']}"


def _best_round(records: list[Record]) -> Record:
    best = min(records, key=lambda r: r["seconds"])
    worst_memory = max(r["peak_minus_data_mb"] for r in records)
    return best | {
        "rounds": [r["seconds"] for r in records],
        "cpu_seconds_per_core": min(r["cpu_seconds_per_core"] for r in records),
        "peak_minus_data_mb": worst_memory,
    }


def add_agreement(best: dict[str, Record]) -> None:
    """Replace values and gradients by their distance from those computed in float64."""
    truth = best.get(TRUTH, {})
    value, gradient = truth.get("value"), np.asarray(truth.get("gradient", []))
    for record in best.values():
        own_value, own_gradient = record.pop("value", None), record.pop("gradient", None)
        if own_value is None or value is None:
            continue
        distance = float(np.abs(np.asarray(own_gradient) - gradient).max())
        record["value_error"] = abs(own_value - value) / abs(value)
        record["gradient_error"] = distance / float(np.abs(gradient).max())


# Targets ---------------------------------------------------------------------------------------


class Target(NamedTuple):
    """What was aimed at, and what came out."""

    what: str
    measured: float
    limit: float
    stretch: float | None = None
    at_least: bool = False
    busy: bool = False  # other programs took part of the machine

    def within(self, limit: float) -> bool:
        """Whether the measured number keeps to a limit; never where it is not a number."""
        return self.measured >= limit if self.at_least else self.measured <= limit

    @property
    def line(self) -> str:
        """One line for people."""
        sign = ">=" if self.at_least else "<="
        verdict = "pass" if self.within(self.limit) else "FAIL"
        text = f"  {verdict}  {self.what:<46} {self.measured:10.3g}   target {sign} {self.limit:g}"
        if self.stretch is not None:
            reached = "reached" if self.within(self.stretch) else "not reached"
            text += f", stretch {sign} {self.stretch:g} {reached}"
        return text + (" (busy machine)" if self.busy else "")

    @property
    def record(self) -> Record:
        """The same for the file."""
        reached = None if self.stretch is None else self.within(self.stretch)
        return self._asdict() | {"passed": self.within(self.limit), "stretch_reached": reached}


def targets_of(shape: tuple[int, int, int], best: dict[str, Record]) -> list[Target]:
    """Targets for one shape, as far as the contestants ran."""
    seconds = {name: r["seconds"] for name, r in best.items() if "seconds" in r}
    torch = [name for name in ("torch-eager", "torch-compiled") if name in seconds]
    if torch:
        best = best | {"torch": min((best[name] for name in torch), key=lambda r: r["seconds"])}
        seconds["torch"] = best["torch"]["seconds"]
    wide = shape[1] >= 100
    wanted = [
        ("bochner", "reference", 1.2 if wide else 2.0, 1.0 if wide else 1.4, False),
        ("torch", "bochner", 2.2, 3.0, True),
        ("jax", "bochner", 4.0, None, True),
        ("bochner-float64", "bochner", 5.0, 3.0, False),
    ]
    targets = [
        Target(
            f"{one} / {other}",
            seconds[one] / seconds[other],
            limit,
            stretch,
            at_least,
            _busy(best[one], best[other]),
        )
        for one, other, limit, stretch, at_least in wanted
        if one in seconds and other in seconds
    ]
    memory = best.get("bochner-unkept", {}).get("peak_minus_data_mb")
    if memory is not None:
        targets.append(Target("bochner-unkept: memory beyond the data, MB", memory, 300.0))
    errors = [
        max(r["value_error"], r["gradient_error"]) for r in best.values() if "value_error" in r
    ]
    if errors:
        targets.append(Target("agreement: largest relative difference", max(errors), 1e-3))
    return targets


def _busy(*records: Record) -> bool:
    return any(r.get("cores_taken_by_others", 0.0) > _NEGLIGIBLE_CORES for r in records)


def scaling_target(all_best: dict[tuple[int, int, int], dict[str, Record]]) -> list[Target]:
    """Time per row at a million rows against that at the shape of the same width."""
    few, many = SHAPES[1], SHAPES[3]
    records = [all_best.get(shape, {}).get("bochner", {}) for shape in (few, many)]
    if not all("seconds" in r for r in records):
        return []
    one, other = (r["seconds"] / n for r, n in zip(records, (few[0], many[0]), strict=True))
    what = f"bochner: time per row, {many[0]} against {few[0]}"
    return [Target(what, abs(other / one - 1.0), 0.15, busy=_busy(*records))]


def print_table(shape: tuple[int, int, int], best: dict[str, Record]) -> None:
    n, d, m = shape
    print(f"\nN = {n}, D = {d}, M = {m}")
    columns = ("ms", "cpu ms", "/reference", "/bochner", "value", "gradient")
    print(" " * 18 + "".join(f"{column:>11}" for column in columns))
    base = {name: best.get(name, {}).get("seconds", np.nan) for name in ("reference", "bochner")}
    for name, r in best.items():
        if "left_out" in r:
            print(f"  {r['left_out']}")
            continue
        s = r["seconds"]
        text = f"  {name:<16}{1e3 * s:11.2f}{1e3 * r['cpu_seconds_per_core']:11.2f}"
        text += f"{s / base['reference']:11.2f}{s / base['bochner']:11.2f}"
        if "value_error" in r:
            text += f"{r['value_error']:11.0e}{r['gradient_error']:11.0e}"
        print(text)


def machine(env: dict[str, str]) -> Record:
    """What the numbers depend on."""
    packages = {}
    for name in ("numpy", "scipy", "torch", "jax"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    return {
        "cores": joblib.cpu_count(),
        "architecture": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "pinned": {name: env[name] for name in _PINS if name in env},
        "packages": packages,
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="one small shape, one round")
    parser.add_argument("--only", type=int, choices=range(len(SHAPES)), help="index of a shape")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--as-is", action="store_true", help="leave the environment as it is")
    parser.add_argument("--contestant", choices=CONTESTANTS, help="one measurement, as JSON")
    parser.add_argument("--shape", help="N,D,M of that measurement")
    options = parser.parse_args(arguments)
    if options.contestant:
        n, d, m = map(int, (options.shape or "41000,9,60").split(","))
        print(json.dumps(measure(options.contestant, (n, d, m), options.rounds)))
        return

    shapes = QUICK_SHAPES if options.quick else SHAPES
    rounds = 1 if options.quick else options.rounds
    if options.only is not None and not options.quick:
        shapes = [SHAPES[options.only]]
    env = environment(options.as_is)
    for name in _PINS & os.environ.keys():
        kept = "kept" if name in env else "left out, for every contestant"
        print(f"{name}={os.environ[name]}: {kept}")
    all_best = {}
    for shape in shapes:
        print(f"{shape[0]} rows, {shape[1]} inputs, {shape[2]} points", flush=True)
        all_best[shape] = compete(shape, rounds, env)

    targets = {shape: targets_of(shape, best) for shape, best in all_best.items()}
    across = scaling_target(all_best)
    for shape, best in all_best.items():
        print_table(shape, best)
        shown = [t for t in targets[shape] if not options.quick or t.what.startswith("agreement")]
        print("\n".join(target.line for target in shown))
    print("".join(f"\n{target.line}" for target in across))
    print("JAX is compiled; without jit it was slower at every shape tried, and is not run.")
    if options.quick:
        print("Times mean nothing at this size: this was to see that everything runs and agrees.")

    RESULTS.mkdir(exist_ok=True)
    whole = len(all_best) == len(SHAPES)
    name = "speed_as_is.json" if options.as_is else "speed.json"
    path = RESULTS / (name if whole else "speed.local.json")
    results = {
        "machine": machine(env),
        "shapes": [
            {
                "rows": shape[0],
                "inputs": shape[1],
                "points": shape[2],
                "contestants": best,
                "targets": [t.record for t in targets[shape]],
            }
            for shape, best in all_best.items()
        ],
        "targets": [t.record for t in across],
    }
    path.write_text(json.dumps(results, indent=1) + "\n")
    print(f"Written to {path.relative_to(Path(__file__).parent.parent)}.")


if __name__ == "__main__":
    main()

"""What no policy that plans in rounds can be below, beside what `horizon` and `sia` have, on traces of Sia.

    python -m benchmarks horizon-bound --trace 'helios/*' --trace 'philly/*'
    python -m benchmarks horizon-bound --trace helios/workload-1 --load 2

The bound is that of `benchmarks/horizon/bound.py` by the truth of the replays, whatever a policy is told: a job works
at the best of the batches that it may choose, in every epoch. Configurations are those of Sia: policies that give
others, as `gang` may, are not bound by it. What was replayed is read from the results of `horizon-replays`; waits and
starts are those of the cheapest schedules at the prices of the bound, by application, on average.
"""

import json
import math
from fnmatch import fnmatch
from typing import Annotated

import numpy as np
import typer

from benchmarks.horizon.bound import Kind, Problem, good_prices, lower_bound_s, use_at
from benchmarks.horizon.case import Variant
from benchmarks.horizon.parts import SIA_TRACES, loaded
from benchmarks.paths import PUBLISHED, RESULTS
from benchmarks.rows import Row, command_line, show, write
from executor.simulation.application import MeasuredApplication
from executor.simulation.setup import ReplaySetup
from models.configurations import ConfigurationSet, enumerate_configurations
from models.performance.goodput.batch import NUM_CANDIDATES
from stowplan.arrays import FloatArray
from stowplan.errors import InputError

_S_PER_HOUR = 3600.0
# As in `choose_batches`.
_ROUNDING = 1e-8
_NAME = "horizon_bound"
_PROTOCOL = "rules: see benchmarks/horizon/horizon_bound.py; mean completion time in hours"
_TRACES = ["helios/*", "philly/*"]
_REPLAYED = ("sia, told as released", "sia, completion time", "horizon, every 60 s")
_SHOWN = ("trace", "load", "bound_h", *_REPLAYED, *(f"of {name}" for name in _REPLAYED))


def main(
    traces: Annotated[list[str], typer.Option("--trace", help="Patterns of the traces; may be repeated.")] = _TRACES,
    load: Annotated[float, typer.Option(min=0.01, help="Arrivals so many times as often.")] = 1.0,
    steps: Annotated[int, typer.Option(min=1, help="Of the search for prices.")] = 200,
) -> None:
    """Bound from below the mean completion time on traces of Sia under any policy that plans every minute."""
    if not PUBLISHED.is_dir():
        raise InputError(f"there are no published traces at {PUBLISHED}")
    chosen = [trace for trace in SIA_TRACES if any(fnmatch(trace, pattern) for pattern in traces)]
    path = RESULTS / f"{_NAME}.json"
    rows: dict[tuple[object, object], Row] = {}
    if path.exists():
        rows = {(row["trace"], row["load"]): row for row in json.loads(path.read_text())["rows"]}
    for trace in chosen:
        rows[trace, load] = _row(trace, load, steps)
        print(rows[trace, load], flush=True)
        write(_NAME, _PROTOCOL, list(rows.values()))
    shown = [{name: rows[trace, load][name] for name in _SHOWN} for trace in chosen]
    show(_PROTOCOL, shown)
    print(path)


def problem_of(setup: ReplaySetup) -> tuple[Problem, list[str]]:
    """The jobs of a trace, and the names of their kinds."""
    configurations = enumerate_configurations(setup.cluster)
    profiles = setup.profiles or ()
    names = [profile.application for profile in profiles]
    types = [configurations.gpu_types.index(node.gpu_type) for node in setup.cluster.nodes]
    jobs = setup.trace.jobs
    problem = Problem(
        kinds=[
            Kind(epoch_s=_epoch_s(MeasuredApplication(profile), configurations), restart_s=profile.restart_s or 0.0)
            for profile in profiles
        ],
        type_of=configurations.type_index,
        gpus_of=configurations.num_gpus,
        num_gpus=np.bincount(types, [node.num_gpus for node in setup.cluster.nodes]),
        kind_of=np.array([names.index(str(job.application)) for job in jobs]),
        submit_s=np.array([job.submit_s for job in jobs]),
        round_s=setup.control.round_s or 0.0,
    )
    return problem, names


def _epoch_s(application: MeasuredApplication, configurations: ConfigurationSet) -> FloatArray:
    """Seconds (E, C) of epochs at the best of the batches that a job may choose."""
    lengths = np.diff(application.epoch_ends, prepend=0.0)
    found = np.full((lengths.size, len(configurations)), np.inf)
    for c in range(len(configurations)):
        gpu_type = configurations.gpu_types[configurations.type_index[c]]
        num_nodes, num_gpus = int(configurations.num_nodes[c]), int(configurations.num_gpus[c])
        if gpu_type not in application.steps:
            continue
        gpus = (num_gpus // num_nodes,) * num_nodes
        # Those of `choose_batches`, and what a job takes that can choose none.
        steps, batch = application.steps[gpu_type], application.batch
        lowest = max(batch.initial, steps.measured.min_local_batch * num_gpus)
        local, accumulation = (np.array([value]) for value in application.fixed_batch(gpu_type, gpus, lowest))
        if lowest <= batch.maximum:
            candidates = np.geomspace(lowest, batch.maximum, NUM_CANDIDATES)
            fewest = np.ceil(candidates / num_gpus / steps.max_local_batch(gpus) - _ROUNDING) - 1.0
            fewest = np.maximum(fewest, (num_gpus == 1) & (candidates > batch.initial * (1.0 + _ROUNDING)))
            each = np.ceil(candidates / num_gpus / (fewest + 1.0) - _ROUNDING)
            local, accumulation = np.append(local, each), np.append(accumulation, fewest)
        fraction = float(configurations.bandwidth_fraction[c])
        speeds = application.speeds(gpu_type, gpus, local, accumulation, slice(None), fraction)
        found[:, c] = lengths / speeds.max(axis=1)
    return found


def _row(trace: str, load: float, steps: int) -> Row:
    problem, names = problem_of(loaded(trace, Variant(name="sia", policy="sia"), load=load))
    prices = good_prices(problem, steps)
    use = use_at(problem, prices)
    num_jobs = len(problem.kind_of)
    bound_h = math.floor(lower_bound_s(problem, prices) / num_jobs / _S_PER_HOUR * 1e4) / 1e4
    replayed = {
        row["variant"]: row["mean_h"]
        for part in ("load", "sia")
        for row in json.loads((RESULTS / f"horizon_replays_{part}.json").read_text())["rows"]
        if (row["trace"], row["load"], row["seed"]) == (trace, load, 0)
    }
    counts = np.bincount(problem.kind_of)
    return {
        "trace": trace,
        "load": load,
        "jobs": num_jobs,
        "bound_h": bound_h,
        **{name: replayed.get(name) for name in _REPLAYED},
        **{f"of {name}": round(bound_h / replayed[name], 3) if name in replayed else None for name in _REPLAYED},
        "steps": steps,
        "kinds": {
            name: {
                "jobs": int(counts[k]),
                "waited_s": round(float(use.waited_s[k] / counts[k]), 1),
                "held_s": round(float(use.held_s[k].sum() / counts[k]), 1),
                "gpu_s": round(float(use.held_s[k] @ problem.gpus_of / counts[k]), 1),
                "starts": round(float(use.starts[k] / counts[k]), 2),
            }
            for k, name in enumerate(names)
        },
        "command": command_line(),
    }

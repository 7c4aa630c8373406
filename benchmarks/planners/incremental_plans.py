"""Incremental plans of a growing job: `python -m benchmarks incremental-plans [--search 2] [--runs 5]`.

**Quality** (Suika Fig. 13a). LLaMA2-13B from 16 to 64 H100 in nodes of 8, one GPU at a time, from the best symmetric
plan on 16, for three global batches. Throughput (samples/s, by the performance model) on every number of GPUs of

  incremental   `expand` with its defaults, but no early stop
  paper         the same without alternatives: N_b free, tolerance 0
  dp_only       more replicas of the plan on 16 GPUs (Sia); layers and batches balanced, N_b free
  symmetric     the best plan of equal degrees in all stages on at most that many GPUs (Rubick), likewise
  best          best plan known: the most of all columns, of `expand` without window and with tolerance 0.3, of
                `plan_search` with `--search` seconds of CPU for every number of GPUs, and of what earlier
                runs left in the results file; with more GPUs never less

`share`: incremental over best. Rows of global batches that are not asked for stay in the file as they are.

**Window** (Fig. 9). LLaMA2-7B from 8 to 16 H100 with W = 1, 2, 4, 8 and all predecessors: throughput over that of the
start.

**CPU**. One call of `expand` with its defaults: N running and M released GPUs, CPU milliseconds, median of the runs;
`steps` candidate allocations.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import typer
from matplotlib.figure import Figure

from benchmarks.paths import RESULTS
from benchmarks.planners.plan_search import PlanSearch
from benchmarks.rows import Row, median, show, write
from models.catalogue import find_model
from models.parallel_plan import Gpu, ParallelPlan
from models.parallelism.incremental.assembly import assemble
from models.parallelism.incremental.candidates import Skeleton
from models.parallelism.incremental.expand import expand
from models.parallelism.incremental.folding import Part, relayouts, skeleton_of
from models.parallelism.incremental.landscape import Landscape
from models.parallelism.incremental.options import IncrementalOptions
from models.parallelism.incremental.selection import Balanced
from models.parallelism.incremental.tables import CostTables
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import virtual_model
from stowplan.arrays import IntArray
from topology.gpu_catalogue import find_product, gpu_type_of

_H100 = gpu_type_of(find_product("h100"), "bf16")
_PER_NODE = 8
_DEFAULT = IncrementalOptions(expansion_limit=None)
_PAPER = replace(_DEFAULT, tolerance=0.0)
_UNPRUNED = replace(_DEFAULT, window=None, unit=1, tolerance=0.3)
_CPU_CASES = (
    ("gpt2-1.3b", 4, 4),
    ("llama2-7b", 8, 8),
    ("llama2-13b", 16, 16),
    ("llama2-13b", 16, 48),
    ("llama2-13b", 64, 64),
    ("llama-65b", 64, 64),
    ("gpt2-175b", 256, 256),
)


_BATCHES = [128, 256, 512]


def main(
    search: Annotated[float, typer.Option(help="CPU seconds of the wide search per number of GPUs.")] = 2.0,
    runs: Annotated[int, typer.Option(help="Of which medians are taken.")] = 5,
    batches: Annotated[list[int], typer.Option(help="Global batches; may be repeated.")] = _BATCHES,
) -> None:
    """Plan a growing job step by step: quality by number of GPUs, time."""
    protocol = f"search {search:g} s, {runs} runs"
    before = _rows()
    quality = {(row["global_batch"], row["num_gpus"]): row for row in before if row["part"] == "quality"}
    others = [row for row in before if row["part"] != "quality"]
    for batch in batches:
        for row in _quality(batch, search, quality):
            quality[batch, row["num_gpus"]] = {"part": "quality", **row}
            print(_line(row), flush=True)
            # What a search has found stays known when the rest is broken off.
            write("incremental_plans", protocol, [*quality.values(), *others])
    windows, cpu = list(_windows()), list(_cpu(runs))
    for title, rows in (("quality", _summary(list(quality.values()))), ("window", windows), ("CPU", cpu)):
        show(title, rows)
    others = [{"part": "window", **row} for row in windows] + [{"part": "cpu", **row} for row in cpu]
    print(write("incremental_plans", protocol, [*quality.values(), *others]))
    _draw([row for row in quality.values() if row["global_batch"] == batches[0]])


def _line(row: Mapping[str, Any]) -> str:
    return f"{row['global_batch']} {row['num_gpus']}: {row['share']:.4f}  {row['plan']}  /  {row['best_plan']}"


def _rows() -> list[dict[str, Any]]:
    """Rows of earlier runs."""
    path = RESULTS / "incremental_plans.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.is_file() else []
    return rows


class _Growth:
    """LLaMA2-13B on up to 64 GPUs."""

    def __init__(self, name: str, global_batch: int, first: int, last: int) -> None:
        self.first, self.last = first, last
        self.model = virtual_model(find_model(name, global_batch=global_batch), _H100, _PER_NODE, -(-last // _PER_NODE))
        self.landscape = Landscape.of(self.model.fabric, list(self.model.fabric.hosts))
        degrees = [tp for tp in (1, 2, 4, 8) if self.model.profile.admits_tensor_degree(tp)]
        self.tables = CostTables.of(self.model, self.landscape.kinds, degrees)
        self.base = self.build(self.symmetric(first))

    def available(self, num_gpus: int) -> IntArray:
        return np.clip(num_gpus - _PER_NODE * np.arange(len(self.landscape.nodes)), 0, _PER_NODE)

    def search(self, num_gpus: int) -> PlanSearch:
        return PlanSearch(self.tables, self.landscape, self.available(num_gpus), seed=num_gpus)

    def symmetric(self, num_gpus: int) -> Balanced:
        layouts = relayouts(self.available(num_gpus), self.tables.degrees, self.model.profile.num_layers, uneven=False)
        found = self.search(num_gpus).best_of(list(layouts))
        if found is None:
            raise ValueError(f"no symmetric plan on {num_gpus} GPUs")
        return found

    def dp_only(self, num_gpus: int) -> Balanced | None:
        """As many replicas of the base plan's pipeline as there is room for."""
        pp, tp = self.base.pp, self.base.stages[0].tp
        groups = self.available(num_gpus) // tp
        through, dp = np.cumsum(groups), int(groups.sum()) // pp
        rows = [np.clip(through, s * dp, (s + 1) * dp) for s in range(pp)]
        degree = self.tables.degrees.tolist().index(tp)
        parts = [Part(gpus=np.diff(row, prepend=s * dp) * tp, degree=degree, origin=None) for s, row in enumerate(rows)]
        return self.search(num_gpus).best_of([skeleton_of(parts)])

    def build(self, best: Balanced) -> ParallelPlan:
        everything = [(node, gpu) for node in self.landscape.nodes for gpu in range(_PER_NODE)]
        count = int(self.tables.num_micro_batches[best.batch])
        return assemble(self.tables, self.landscape, best.skeleton, best.layers, count, [], everything)

    def skeleton(self, plan: ParallelPlan) -> Skeleton:
        counts = [
            [sum(len(r.gpus) for r in stage.replicas if r.node == node) for node in self.landscape.nodes]
            for stage in plan.stages
        ]
        degrees = self.tables.degrees.tolist()
        parts = [
            Part(gpus=np.array(row), degree=degrees.index(stage.tp), origin=None)
            for row, stage in zip(counts, plan.stages, strict=True)
        ]
        return skeleton_of(parts)

    def released(self) -> list[Gpu]:
        return [(str(k // _PER_NODE), k % _PER_NODE) for k in range(self.first, self.last)]


def _quality(global_batch: int, search_s: float, known: Mapping[tuple[int, int], Row]) -> Iterator[dict[str, Any]]:
    job = _Growth("llama2-13b", global_batch, 16, 64)
    columns = {
        name: expand(job.model, job.base, job.released(), options).steps
        for name, options in (("incremental", _DEFAULT), ("paper", _PAPER), ("unpruned", _UNPRUNED))
    }
    symmetric = dp_only = best = 0.0
    for k, step in enumerate(columns["incremental"]):
        num_gpus = job.first + step.num_added
        symmetric = max(symmetric, global_batch / job.symmetric(num_gpus).time_s)
        replicas = job.dp_only(num_gpus)
        dp_only = max(dp_only, global_batch / replicas.time_s if replicas is not None else 0.0)
        plans = [steps[k] for steps in columns.values()]
        found = (
            job.search(num_gpus).run([job.skeleton(each.plan) for each in plans], search_s) if search_s > 0 else None
        )
        offers = [(each.throughput, each.plan.notation()) for each in plans]
        if (global_batch, num_gpus) in known:
            before: Any = known[global_batch, num_gpus]
            offers.append((before["best"], before["best_plan"]))
        if found is not None:
            offers.append((global_batch / found.time_s, job.build(found).notation()))
        best, best_plan = max([*offers, (best, "of fewer GPUs")])
        yield {
            "model": "llama2-13b",
            "global_batch": global_batch,
            "num_gpus": num_gpus,
            "incremental": step.throughput,
            "paper": columns["paper"][k].throughput,
            "dp_only": dp_only,
            "symmetric": symmetric,
            "best": best,
            "share": step.throughput / best,
            "plan": step.plan.notation(),
            "best_plan": best_plan,
        }


def _summary(rows: Sequence[Row]) -> list[Row]:
    """Means and minima over the numbers of GPUs, by global batch."""
    return [_summarised(batch, [row for row in rows if row["global_batch"] == batch]) for batch in _batches(rows)]


def _batches(rows: Sequence[Row]) -> list[Any]:
    return list(dict.fromkeys(row["global_batch"] for row in rows))


def _summarised(batch: int, rows: Sequence[Any]) -> Row:
    shares = {
        name: [row[name] / row["best"] for row in rows] for name in ("incremental", "paper", "symmetric", "dp_only")
    }
    worst = min(rows, key=lambda row: row["share"])
    return {
        "global batch": batch,
        "GPUs": f"{rows[0]['num_gpus']} to {rows[-1]['num_gpus']}",
        **{f"{name}, mean": float(np.mean(values)) for name, values in shares.items()},
        "incremental, least": f"{worst['share']:.4f} at {worst['num_gpus']}",
        "below 97 %": sum(share < 0.97 for share in shares["incremental"]),
        "below symmetric": sum(row["incremental"] < row["symmetric"] * (1 - 1e-9) for row in rows),
        "below DP-only": sum(row["incremental"] < row["dp_only"] * (1 - 1e-9) for row in rows),
    }


def _windows() -> Iterator[Row]:
    job = _Growth("llama2-7b", 128, 8, 16)
    for window in (1, 2, 4, 8, None):
        result = expand(job.model, job.base, job.released(), IncrementalOptions(window=window))
        gains = {f"{8 + step.num_added} GPUs": step.throughput / result.base_throughput for step in result.steps}
        yield {"window": "all" if window is None else window, **gains}


def _cpu(runs: int) -> Iterator[Row]:
    for name, running, released in _CPU_CASES:
        job = _Growth(name, 256, running, running + released)
        options = _DEFAULT if released > running else IncrementalOptions()
        times = [_timed(job.model, job.base, job.released(), options) for _ in range(runs + 1)][1:]
        steps = expand(job.model, job.base, job.released(), options).steps
        yield {
            "model": name,
            "running": running,
            "released": released,
            "steps": len(steps),
            "cpu_ms": median([1e3 * seconds for seconds in times]),
            "cpu_ms_least": 1e3 * min(times),
            "gain": steps[-1].throughput / job.model.throughput(job.base),
        }


def _timed(model: PerformanceModel, plan: ParallelPlan, released: Sequence[Gpu], options: IncrementalOptions) -> float:
    begin = time.process_time()
    expand(model, plan, released, options)
    return time.process_time() - begin


def _draw(rows: Sequence[Any]) -> None:
    """Fig. 13a."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    names = {"best": "best known", "incremental": "incremental", "symmetric": "symmetric 3D", "dp_only": "DP only"}
    for name, label in names.items():
        axes.step([row["num_gpus"] for row in rows], [row[name] for row in rows], where="post", label=label)
    axes.set_xlabel("H100")
    axes.set_ylabel("samples/s, predicted")
    axes.set_title(f"LLaMA2-13B, global batch {rows[0]['global_batch']}")
    axes.legend()
    figure.savefig(RESULTS / "incremental_plans.svg", metadata={"Date": None})

"""Would planners choose better by exact makespans of 1F1B than by Suika's formula: `python -m benchmarks
exact-schedules`.

**Plans**. Jobs with full checkpointing on H100, nodes of 8. Candidates are what the planners look at last: of every
pipeline degree the proxy plan, the refined one and the first of the frontier, what the incremental planner lays out,
and the best plan of equal stages. `loss`: how much longer the plan takes that the formula finds fastest than the one
that the exact makespan does, by the exact makespan. `formula over exact`: of all candidates. CPU seconds of the search
and of the exact makespans, within 0.2 %.

**Published rows** of pipelines that are not interleaved: error by both, and without the median error of each, since
priors were fitted with the formula.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np
import typer

from benchmarks.performance.published_steps.rows import TABLE, cases
from benchmarks.rows import Row, show, write
from models.catalogue import find_model
from models.parallel_plan import ParallelPlan
from models.parallelism.even import even_plans
from models.parallelism.grid.choices import Criterion
from models.parallelism.grid.evaluation import search_grid
from models.parallelism.grid.options import GridOptions
from models.parallelism.grid.planner import pipeline_degrees, spaces
from models.parallelism.incremental.cold_start import lay_out
from models.parallelism.node_layouts import capacities
from models.performance.iteration.formulas import scaling
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import virtual_model
from models.performance.iteration.whitebox import roofline_s
from models.performance.pipeline.exact import exact_makespan_s
from models.performance.pipeline.schedule import Schedule, ScheduleKind
from models.performance.pipeline.times import StageTimes
from models.software import FEATURES, Software
from models.transformer import Checkpointing, Transformer
from stowplan.arrays import FloatArray
from topology.gpu_catalogue import find_product, gpu_type_of

_MODELS = ["llama2-13b", "gpt-neox-20b", "llama3.1-70b", "bloom-176b"]
_SOFTWARE = (Software.DEEPSPEED, Software.MEGATRON_CORE)
_BATCHES, _COUNTS = (64, 512), [12, 16, 24, 64, 128]
_NODE_SIZE, _OF_FRONTIER = 8, 8
_TOLERANCE = 0.002


def main(
    models: Annotated[list[str], typer.Option(help="Transformers of the catalogue; may be repeated.")] = _MODELS,
    gpus: Annotated[list[int], typer.Option(help="How many; may be repeated.")] = _COUNTS,
    output: Annotated[str, typer.Option(help="Name of the result; empty for none.")] = "exact_schedules",
) -> None:
    """Compare the choice by Suika's formula of 1F1B with that by exact makespans."""
    rows = [row for name in models for count in gpus for row in _plan_rows(name, count)]
    show("plans", rows)
    published = list(_published_rows()) if TABLE.is_file() else []
    for title, some in (("all plans", [summary(rows)] if rows else []), ("published rows", published)):
        if some:
            show(title, some)
    if output:
        print(write(output, __doc__ or "", [*rows, *published]))


def exact_s(model: PerformanceModel, plan: ParallelPlan) -> float:
    """Iteration time of a plan whose stages are whole, by the exact makespan of 1F1B."""
    stages = model.iteration(plan).stages
    forward, backward, sends, extra = np.array(
        [(s.forward_s, s.backward_s, s.send_s / 2, s.exposed_reduction_s + s.optimizer_s) for s in stages]
    ).T
    schedule = Schedule(
        kind=ScheduleKind.ONE_F_ONE_B,
        num_devices=plan.pp,
        num_chunks=1,
        num_micro_batches=plan.num_micro_batches,
    )
    times = StageTimes(
        forward_s=forward,
        backward_s=backward,
        there_s=sends,
        back_s=sends,
        blocking=not FEATURES[model.profile.software].overlaps_sends,
    )
    passes_s = float(exact_makespan_s(schedule, times, extra, tolerance=_TOLERANCE))
    return passes_s * float(scaling(plan.num_gpus, model.coefficients.scale_loss))


def summary(rows: Sequence[Row]) -> Row:
    """Of all jobs."""
    loss = np.array([row["loss"] for row in rows], dtype=np.float64)
    return {
        "jobs": len(rows),
        "candidates": sum(int(str(row["candidates"])) for row in rows),
        "mean loss": float(loss.mean()),
        "largest loss": float(loss.max()),
        "other choice": int((loss > 0).sum()),
        "search_cpu_s": sum(float(str(row["search_cpu_s"])) for row in rows),
        "exact_cpu_s": sum(float(str(row["exact_cpu_s"])) for row in rows),
    }


def _plan_rows(name: str, count: int) -> Iterator[Row]:
    kind = gpu_type_of(find_product("h100"), "bf16")
    for software in _SOFTWARE:
        for batch in _BATCHES:
            described = find_model(name, global_batch=batch)
            if not isinstance(described, Transformer):
                continue
            trained = replace(described, software=software, checkpointing=Checkpointing.FULL)
            model = virtual_model(trained, kind, _NODE_SIZE, -(-count // _NODE_SIZE))
            began_s = time.process_time()
            plans = list(_candidates(model, kind.name, count, roofline_s(model.profile, kind)))
            searched_s = time.process_time()
            if plans:
                formula = np.array([model.iteration(plan).total_s for plan in plans])
                exact = np.array([exact_s(model, plan) for plan in plans])
                ratios = formula / exact
                yield {
                    "job": f"{name} on {count}, {software}, batch {batch}",
                    "candidates": len(plans),
                    "loss": float(exact[formula.argmin()] / exact.min() - 1.0),
                    "formula over exact": [round(float(ratios.min()), 4), round(float(ratios.max()), 4)],
                    "by formula": plans[int(formula.argmin())].notation(),
                    "exactly": plans[int(exact.argmin())].notation(),
                    "search_cpu_s": round(searched_s - began_s, 3),
                    "exact_cpu_s": round(time.process_time() - searched_s, 3),
                }


def _candidates(model: PerformanceModel, gpu_type: str, count: int, loads: FloatArray) -> Iterator[ParallelPlan]:
    options = GridOptions()
    for num_gpus, space in spaces(model, gpu_type, _NODE_SIZE, loads, [count], options.num_operators):
        for pp in pipeline_degrees(model, num_gpus, options):
            found = search_grid(space, num_gpus, pp, options)
            yield from (candidate.plan(space) for candidate in (found.proxy, found.refined) if candidate is not None)
            if found.search is not None:
                rows = found.frontier[:_OF_FRONTIER]
                for candidate in found.search.candidates(rows, found.num_micro_batches, Criterion.COMMUNICATION):
                    yield candidate.plan(space)
        rooms = capacities(num_gpus, _NODE_SIZE)
        laid_out = lay_out(model, {str(node): room for node, room in enumerate(rooms)})
        if laid_out is not None:
            yield laid_out
    even = even_plans(model, gpu_type, _NODE_SIZE, count, loads, options).plain
    if even is not None:
        yield even


def _published_rows() -> Iterator[Row]:
    told = [case for case in cases()[0] if case.measured_s and case.plan.pp > 1 and case.plan.virtual_stages == 1]
    models = [case.performance() for case in told]
    measured = np.array([case.known_s / case.scale for case in told])
    for name, times in (
        ("formula", [model.iteration(case.plan).total_s for model, case in zip(models, told, strict=True)]),
        ("exact", [exact_s(model, case.plan) for model, case in zip(models, told, strict=True)]),
    ):
        ratio = np.array(times) / measured
        error, left = np.abs(ratio - 1.0), np.abs(ratio / np.median(ratio) - 1.0)
        yield {
            "by": name,
            "rows": len(told),
            "median %": 100 * float(np.median(error)),
            "p90 %": 100 * float(np.quantile(error, 0.9)),
            "bias %": 100 * float(np.median(ratio) - 1.0),
            "median without bias %": 100 * float(np.median(left)),
            "p90 without bias %": 100 * float(np.quantile(left, 0.9)),
        }

"""Makespans of pipeline schedules: formulas against the simulator, and what each costs: `python -m benchmarks
pipeline-schedules [--candidates 200] [--runs 5]`.

**Error** relative to the makespan of the simulator. Random stages: forward pass, gradients of inputs, gradients of
weights +/- 40 % each by itself, or all equal; transfers none, or each way up to 20 % of a mean forward pass, blocking
or beside computation. 2, 4, 8 and 16 stages (2 and 4 chunks each if interleaved, 2 of zbv, alike within a device, or
each by itself), 0.5 to 32 micro-batches per stage.

  formula   our closed form; of several chunks: the lower bound
  within    the makespan from a few simulated micro-batches, with a tolerance of 2 %
  suika     the formula of A.2 (1f1b without transfers)

**CPU** in microseconds per candidate, one alone and 1,000 together, with work that follows the gradients: the same,
`exact` without tolerance, and `simulated`, every pass. The ratios over `suika` are medians over runs that time all of
them one after another.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import product
from typing import Annotated

import numpy as np
import typer

from benchmarks.rows import Row, median, show, write
from models.performance.iteration.formulas import pipeline_s
from models.performance.pipeline.exact import exact_makespan_s
from models.performance.pipeline.formulas import pipeline_makespan_s
from models.performance.pipeline.interleaved import interleaved_lower_bound_s
from models.performance.pipeline.schedule import Schedule, ScheduleKind
from models.performance.pipeline.simulation import simulate
from models.performance.pipeline.split import split_lower_bound_s
from models.performance.pipeline.times import StageTimes
from stowplan.arrays import FloatArray

_STAGES = (2, 4, 8, 16)
_CHUNKS = defaultdict(
    lambda: (1,),
    {ScheduleKind.INTERLEAVED: (2, 4), ScheduleKind.INTERLEAVED_ZERO_BUBBLE: (2, 4), ScheduleKind.ZBV: (2,)},
)
_PER_STAGE = (0.5, 1, 2, 3, 8, 32)
_UNEVEN, _SEND = 0.4, 0.2
_TOLERANCE = 0.02
_TRANSFERS = ("none", "blocking", "beside")


def main(
    candidates: Annotated[int, typer.Option(min=1, help="Random candidates for every size.")] = 200,
    runs: Annotated[int, typer.Option(min=1, help="Runs whose CPU time is taken.")] = 5,
) -> None:
    """Measure formulas of pipeline schedules against the simulator, and what they cost."""
    errors = list(error_rows(candidates))
    show("Error relative to the simulated makespan", errors)
    costs = list(cost_rows(1000, runs))
    show("CPU microseconds per candidate", costs)
    write("pipeline_schedules", __doc__ or "", [*errors, *costs])


def error_rows(num_candidates: int) -> Iterator[Row]:
    """Errors by schedule, kind of stages, and transfers."""
    for kind, transfers in product(ScheduleKind, _TRANSFERS):
        for stages in ("even", "uneven", "uneven chunks") if _CHUNKS[kind] != (1,) else ("even", "uneven"):
            found: list[FloatArray] = []
            within: list[FloatArray] = []
            suika: list[FloatArray] = []
            for seed, schedule in enumerate(_schedules(kind)):
                times = random_times(schedule, num_candidates, seed, stages=stages, transfers=transfers)
                simulated = simulate(schedule, times).makespan_s
                found.append(_formula(schedule, times) / simulated - 1.0)
                within.append(exact_makespan_s(schedule, times, tolerance=_TOLERANCE) / simulated - 1.0)
                if kind is ScheduleKind.ONE_F_ONE_B and transfers == "none":
                    nothing = np.zeros_like(times.forward_s)
                    parts = pipeline_s(times.forward_s, times.backward_s, nothing, schedule.num_micro_batches)
                    suika.append(np.sum(parts, axis=0) / simulated - 1.0)
            yield {
                "schedule": kind.value,
                "stages": stages,
                "transfers": transfers,
                **_errors("formula", np.concatenate(found)),
                **_errors("within", np.concatenate(within)),
                **_errors("suika", np.concatenate(suika) if suika else None),
            }


def cost_rows(num_candidates: int, num_runs: int) -> Iterator[Row]:
    """CPU time by schedule and size."""
    sizes = product(ScheduleKind, (8, 16), (64, 512), (1, num_candidates))
    for kind, num_devices, num_micro_batches, together in sizes:
        if kind is ScheduleKind.GPIPE:
            continue
        schedule = Schedule(
            kind=kind, num_devices=num_devices, num_micro_batches=num_micro_batches, num_chunks=_CHUNKS[kind][0]
        )
        times = random_times(schedule, together, 0, stages="uneven", transfers="none")
        extra = np.random.default_rng(1).uniform(0.0, 3.0, times.forward_s.shape)
        forward, backward = times.forward_s[:, :num_devices], times.backward_s[:, :num_devices]
        after = extra[:, :num_devices]
        calls: dict[str, Callable[[], object]] = {
            "suika": lambda: sum(pipeline_s(forward, backward, after, num_micro_batches)),  # noqa: B023 - called here
            "formula": lambda: _formula(schedule, times, extra),  # noqa: B023
            "within": lambda: exact_makespan_s(schedule, times, extra, tolerance=_TOLERANCE),  # noqa: B023
            "exact": lambda: exact_makespan_s(schedule, times, extra),  # noqa: B023
            "simulated": lambda: simulate(schedule, times),  # noqa: B023
        }
        for call in calls.values():
            call()
        taken = [{name: _cpu_s(call) for name, call in calls.items()} for _ in range(num_runs)]
        each = {name: median([run[name] for run in taken]) or 0.0 for name in calls}
        yield {
            "schedule": kind.value,
            "stages": num_devices,
            "micro-batches": num_micro_batches,
            "together": together,
            **{f"{name}_us": 1e6 * seconds / together for name, seconds in each.items()},
            "formula/suika": median([run["formula"] / run["suika"] for run in taken]),
            "within/suika": median([run["within"] / run["suika"] for run in taken]),
            "exact/suika": median([run["exact"] / run["suika"] for run in taken]),
        }


def random_times(
    schedule: Schedule, num_candidates: int, seed: int, *, stages: str = "uneven", transfers: str = "none"
) -> StageTimes:
    """Times (C, V), 1 s on average for a forward pass, the gradients of inputs, and those of weights."""
    rng = np.random.default_rng(seed)
    of_devices, of_chunks = (3, num_candidates, 1, schedule.num_devices), (1, 1, schedule.num_chunks, 1)
    if stages == "uneven chunks":
        of_devices, of_chunks = (*of_devices[:2], schedule.num_chunks, schedule.num_devices), (1, 1, 1, 1)
    spread = 0.0 if stages == "even" else _UNEVEN
    passes = (rng.uniform(1.0 - spread, 1.0 + spread, of_devices) * np.ones(of_chunks)).reshape(3, num_candidates, -1)
    there, back = _SEND * rng.uniform(size=passes.shape)[:2] * (transfers != "none")
    return StageTimes(
        forward_s=passes[0],
        backward_s=passes[1] + passes[2],
        weight_s=passes[2],
        there_s=there,
        back_s=back,
        blocking=transfers == "blocking",
    )


def _schedules(kind: ScheduleKind) -> Iterator[Schedule]:
    in_groups = kind in (ScheduleKind.INTERLEAVED, ScheduleKind.INTERLEAVED_ZERO_BUBBLE)
    for num_devices, per_stage, num_chunks in product(_STAGES, _PER_STAGE, _CHUNKS[kind]):
        if per_stage >= 1 or not in_groups:
            yield Schedule(
                kind=kind,
                num_devices=num_devices,
                num_micro_batches=int(per_stage * num_devices),
                num_chunks=num_chunks,
            )


def _formula(schedule: Schedule, times: StageTimes, extra_s: FloatArray | None = None) -> FloatArray:
    if schedule.kind is ScheduleKind.INTERLEAVED:
        return interleaved_lower_bound_s(schedule, times, extra_s)
    if schedule.num_chunks > 1:
        return split_lower_bound_s(schedule, times, extra_s)
    return pipeline_makespan_s(schedule.kind, times, schedule.num_micro_batches, extra_s)


def _errors(name: str, errors: FloatArray | None) -> Row:
    """Median of the absolute error, the lowest and the highest one; None without errors."""
    columns = (f"{name} median", f"{name} lowest", f"{name} highest")
    if errors is None:
        return dict.fromkeys(columns)
    values = (np.median(np.abs(errors)), errors.min(), errors.max())
    # Below is rounding.
    return {column: round(float(value), 9) + 0.0 for column, value in zip(columns, values, strict=True)}


def _cpu_s(call: Callable[[], object]) -> float:
    """CPU seconds of a call: of so many that the clock tells."""
    number = 1
    while True:
        begin = time.process_time()
        for _ in range(number):
            call()
        taken = time.process_time() - begin
        if taken > 0.02:
            return taken / number
        number *= 4

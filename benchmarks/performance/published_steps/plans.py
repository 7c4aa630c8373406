"""Published plans beside the ones that our planner chooses for the same job on as many GPUs."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks.performance.published_steps.rows import Case
from benchmarks.rows import Row
from models.parallelism.grid.options import GridOptions
from models.parallelism.grid.planner import plan_grids

# Setups of current software, whose plans were chosen by those who know it.
_SETS = ("nemo", "torchtitan", "megatron-core", "llama-3", "llama3")


def chosen_rows(timed: Sequence[Case]) -> Iterator[Row]:
    """Our plan and the published one, both by the shipped priors; once for every setup."""
    seen = set()
    for case in timed:
        key = case.model, case.plan.num_gpus, case.plan.notation()
        if key in seen or not case.set.startswith(_SETS):
            continue
        seen.add(key)
        yield _row(case)


def _row(case: Case) -> Row:
    free = replace(case.model, micro_batch=None)
    found = plan_grids(free, case.gpu, case.gpus_per_node, [case.plan.num_gpus], GridOptions(details=False))
    best = found.best.get((case.gpu.name, case.plan.num_gpus))
    published_s = case.performance().iteration(case.plan).total_s
    ours_s = None if best is None else best.iteration.total_s
    return {
        "model": f"{case.model.name} {case.model.precision.value}",
        "GPUs": f"{case.plan.num_gpus} {case.gpu.name}",
        "software": case.model.software.value,
        "published plan": _short(case.plan.notation()),
        "measured s": None if case.measured_s is None else case.measured_s / case.scale,
        "predicted s": published_s,
        "our plan": "none fits" if best is None else _short(best.plan.notation()),
        "our predicted s": ours_s,
        "faster by": None if ours_s is None else published_s / ours_s,
        "runs there": best is not None and best.plan.is_symmetric,
    }


def _short(notation: str) -> str:
    return notation if len(notation) < 40 else f"{notation[:37]}..."

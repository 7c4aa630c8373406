"""Published plans beside the ones that our planner chooses for the same job on as many GPUs."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks.performance.published_steps.rows import Case
from benchmarks.rows import Row
from models.parallelism.planner import answer
from models.parallelism.request import Offer, ParallelRequest

# Setups of current software, whose plans were chosen by those who know it.
_SETS = ("nemo", "torchtitan", "megatron-core", "llama-3", "llama3")
_LONGEST = 40


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
    offer = Offer(gpu_type=case.gpu, gpus_per_node=case.gpus_per_node, counts=(case.plan.num_gpus,))
    best = answer(ParallelRequest(model=replace(case.model, micro_batch=None), offers=(offer,))).best
    # What the software runs: stages of the same degrees.
    ours = best if best.estimate.plan.is_symmetric else best.symmetric or best
    published_s = case.performance().iteration(case.plan).total_s
    return {
        "model": f"{case.model.name} {case.model.precision.value}",
        "GPUs": f"{case.plan.num_gpus} {case.gpu.name}",
        "software": case.model.software.value,
        "published plan": _short(case.plan.notation()),
        "measured s": None if case.measured_s is None else case.measured_s / case.scale,
        "predicted s": published_s,
        "our plan": _short(ours.estimate.plan.notation()),
        "our predicted s": ours.seconds,
        "faster by": published_s / ours.seconds,
        "runs there": ours.estimate.plan.is_symmetric,
    }


def _short(notation: str) -> str:
    return notation if len(notation) < _LONGEST else f"{notation[: _LONGEST - 3]}..."

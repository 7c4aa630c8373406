"""Models that files of other tools describe, on the command line: reading them, and the plan that they run."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from rich.markup import escape

from api.cli import console
from models.readers import FilePlan, ForeignModel, read_model_file
from stowplan.errors import InputError

# Value of `--degrees`: the plan of the file.
OF_THE_FILE = "file"


def read_model(name: str, *, given: Collection[str], hint: bool) -> ForeignModel:
    """The model of a file; what is not looked at and what is assumed of fields that are not given is told, with a hint
    at the plan that it runs.

    Raises
    ------
    InputError
        When the file cannot be read, or describes no model that can be planned.
    """
    model = read_model_file(Path(name))
    plan = model.plan
    hints = [f"the file runs {_degree_words(plan)}: --degrees {OF_THE_FILE} evaluates that"] if plan and hint else []
    for note in (*(note.text for note in model.notes if note.field not in given), *hints):
        console.errors().print(f"[yellow]note:[/] {escape(note)}", soft_wrap=True)
    return model


def plan_of_file(model: ForeignModel | None, training: Mapping[str, Any], counts: Mapping[str, Any]) -> dict[str, Any]:
    """Degrees of the plan that a file runs, on as many GPUs as `counts` says, where it does.

    Raises
    ------
    InputError
        When the file has none, or leaves some of it open.
    """
    plan = None if model is None else model.plan
    if plan is None:
        raise InputError("--degrees file: --model is no file that says how it runs; write pp2,dp2,tp4,mb32")
    dp = _replicas(plan, counts)
    micro_batch, batch = training.get("micro_batch"), training["global_batch"]
    if micro_batch is None:
        raise InputError("--degrees file: the file says no micro-batch; give --micro-batch")
    if batch % (dp * micro_batch):
        raise InputError(
            f"--degrees file: a global batch of {batch} does not divide into micro-batches of {micro_batch} on {dp} "
            "replicas; give --global-batch, --micro-batch or --gpus"
        )
    recomputed = {} if plan.recomputed_layers is None else {"recomputed_layers": plan.recomputed_layers}
    return {
        "pp": plan.pp,
        "dp": dp,
        "tp": plan.tp,
        "context_parallel": plan.cp,
        "expert_parallel": plan.ep,
        "num_micro_batches": batch // (dp * micro_batch),
        "layers": plan.layers,
        "virtual_stages": plan.virtual_stages,
        "schedule": plan.schedule,
        **recomputed,
    }


def _degree_words(plan: FilePlan) -> str:
    shared = (("cp", plan.cp), ("ep", plan.ep))
    return f"pp {plan.pp}, tp {plan.tp}" + "".join(f", {name} {degree}" for name, degree in shared if degree > 1)


def _replicas(plan: FilePlan, counts: Mapping[str, Any]) -> int:
    """Data-parallel degree: that of the GPUs given, else of the file, else of its GPUs."""
    if counts and len(counts.get("counts", ())) != 1:
        raise InputError("--degrees file: the plan is one of so many GPUs; give --gpus one number")
    num_gpus = counts["counts"][0] if counts else plan.num_gpus
    if not counts and plan.dp is not None:
        return plan.dp
    if num_gpus is None:
        raise InputError("--degrees file: the file does not say on how many GPUs it runs; give --gpus")
    dp, rest = divmod(num_gpus, plan.pp * plan.tp * plan.cp)
    if rest or not dp:
        size = f"pp {plan.pp} x tp {plan.tp}" + (f" x cp {plan.cp}" if plan.cp > 1 else "")
        raise InputError(f"--degrees file: {num_gpus} GPUs do not divide into replicas of {size}; give --gpus")
    return dp

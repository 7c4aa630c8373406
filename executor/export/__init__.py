"""A plan as other launchers, frameworks and schedulers read it: pure text, none of them is imported. `FORMATS` names
those that read one job, `PLAN_FORMATS` those that take over a whole plan; one is loaded when it writes.

Ranks go pipe slowest, then data, then tensor, as they do in all of the frameworks; `docs/export.md` says where that
stands in their code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pkgutil import resolve_name
from types import MappingProxyType

from executor.export.job import ExportedJob
from executor.export.options import ExportOption, checked
from executor.export.plan import ExportedPlan, PlanFiles
from stowplan.errors import InputError

__all__ = [
    "FORMATS",
    "PLAN_FORMATS",
    "ExportedJob",
    "ExportedPlan",
    "Format",
    "PlanFiles",
    "PlanFormat",
    "export",
    "export_plan",
    "refuse_unknown",
]


@dataclass(frozen=True, slots=True)
class Format:
    """A launcher or framework. `function` is `module:function`, ExportedJob -> text by name of file; it raises
    InputError where it cannot say what the plan wants. `title`: for people."""

    function: str
    title: str

    def __call__(self, job: ExportedJob) -> Mapping[str, str]:
        """Write the files."""
        files: Mapping[str, str] = resolve_name(self.function)(job)
        return files


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFormat:
    """A scheduler. `function` is `module:function`, (ExportedPlan, options by name) -> `PlanFiles`; it raises
    InputError where it cannot say what the plan wants. `title`: for people. `options`: what may be said beside the
    plan."""

    function: str
    title: str
    options: Mapping[str, ExportOption] = field(default_factory=dict)


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "megatron": Format("executor.export.megatron:write_megatron", "arguments of Megatron-LM"),
        "nemo": Format("executor.export.nemo:write_nemo", "fields of a recipe of NeMo or Megatron-Bridge"),
        "torchtitan": Format("executor.export.torchtitan:write_torchtitan", "TOML of torchtitan"),
        "deepspeed": Format("executor.export.deepspeed:write_deepspeed", "hostfile and configuration of DeepSpeed"),
        "torchrun": Format("executor.export.torchrun:write_torchrun", "torchrun with static ranks"),
        "slurm": Format("executor.export.schedulers:write_slurm", "SLURM_HOSTFILE with --distribution=arbitrary"),
        "mpi": Format("executor.export.schedulers:write_mpi", "rankfile of Open MPI"),
    }
)


PLAN_FORMATS: Mapping[str, PlanFormat] = MappingProxyType({})


def export(job: ExportedJob, formats: Sequence[str]) -> dict[str, str]:
    """Text by name of file, in all of the formats.

    Raises
    ------
    InputError
        When a format is not known, or cannot say what the plan wants.
    """
    refuse_unknown(formats)
    return {name: text for wanted in formats for name, text in FORMATS[wanted](job).items()}


def export_plan(plan: ExportedPlan, format_: str, options: Mapping[str, str]) -> PlanFiles:
    """Hand a whole plan over to a scheduler. Nothing is carried out: that is for whoever runs the files.

    Raises
    ------
    InputError
        When the format is not known, has no such option, or cannot say what the plan wants.
    """
    if format_ not in PLAN_FORMATS:
        known = ", ".join(f"{name} ({known.title})" for name, known in PLAN_FORMATS.items())
        raise InputError(f"there is no export of whole plans to {format_!r}; known: {known}")
    found = PLAN_FORMATS[format_]
    files: PlanFiles = resolve_name(found.function)(plan, checked(options, found.options, format_))
    return files


def refuse_unknown(formats: Sequence[str]) -> None:
    """Raise InputError when a format is not known."""
    if unknown := [name for name in formats if name not in FORMATS]:
        known = ", ".join(f"{name} ({known.title})" for name, known in FORMATS.items())
        raise InputError(f"there is no export to {unknown[0]!r}; known: {known}")

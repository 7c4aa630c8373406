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
from executor.export.kubernetes.declared import GROUP, JOB, JOBSET, TRAINJOB, WHOLE
from executor.export.options import ExportOption, checked
from executor.export.plan import ExportedPlan, PlanFiles
from executor.launch.slurm_options import GpuRequest
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
    "options_of",
    "refuse_unknown",
]


@dataclass(frozen=True, slots=True)
class Format:
    """A launcher or framework. `function` is `module:function`, ExportedJob -> text by name of file, which also gets
    the options by name where there are any; it raises InputError where it cannot say what the plan wants. `title`: for
    people. `options`: what may be said beside the plan."""

    function: str
    title: str
    options: Mapping[str, ExportOption] = field(default_factory=dict)

    def __call__(self, job: ExportedJob, options: Mapping[str, str]) -> Mapping[str, str]:
        """Write the files."""
        write = resolve_name(self.function)
        files: Mapping[str, str] = write(job, options) if self.options else write(job)
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
        "slurm": Format(
            "executor.export.schedulers:write_slurm",
            "SLURM_HOSTFILE with --distribution=arbitrary",
            {
                "command": ExportOption(summary="the program that ranks run, with its arguments"),
                "partition": ExportOption(summary="as --partition of sbatch"),
                "account": ExportOption(summary="as --account"),
                "qos": ExportOption(summary="as --qos"),
                "reservation": ExportOption(summary="as --reservation"),
                "constraint": ExportOption(summary="as --constraint"),
                "time": ExportOption(summary="as --time: minutes, 12:00:00, 2-12"),
                "gpus": ExportOption(
                    summary="how GPUs are asked for; none where whole nodes bring theirs",
                    choices=(GpuRequest.NONE, GpuRequest.GRES, GpuRequest.GPUS_PER_NODE),
                ),
                "gpu-type": ExportOption(summary="what Slurm calls the type, where it is to be named"),
            },
        ),
        "mpi": Format("executor.export.schedulers:write_mpi", "rankfile of Open MPI"),
        "jobset": Format("executor.export.kubernetes.jobset:write_jobset", "JobSet for Kubernetes", JOBSET),
        "job": Format("executor.export.kubernetes.indexed_job:write_job", "Indexed Job for Kubernetes", JOB),
        "leaderworkerset": Format(
            "executor.export.kubernetes.leaderworkerset:write_leaderworkerset", "LeaderWorkerSet for Kubernetes", GROUP
        ),
        "trainjob": Format(
            "executor.export.kubernetes.trainjob:write_trainjob", "TrainJob of Kubeflow Trainer", TRAINJOB
        ),
    }
)


PLAN_FORMATS: Mapping[str, PlanFormat] = MappingProxyType(
    {
        "scontrol": PlanFormat(
            function="executor.export.scontrol:write_scontrol",
            title="script for a Slurm that has the queue",
            options={
                "running": ExportOption(
                    summary="jobs that run and lose GPUs in the plan: refuse that, requeue them, or cancel those that "
                    "get none",
                    choices=("keep", "requeue", "cancel"),
                ),
                "waiting": ExportOption(
                    summary="jobs that the plan lets wait: leave them to Slurm's own scheduler, or hold them",
                    choices=("leave", "hold"),
                ),
                "calendar": ExportOption(
                    summary="entries of the calendar: reserve those that Slurm has not, or leave them",
                    choices=("reserve", "leave"),
                ),
                "users": ExportOption(summary="who may use reservations whose jobs have no user, by commas"),
                "accounts": ExportOption(summary="accounts that may, by commas"),
                "priority": ExportOption(
                    summary="of the first job that starts, each behind it gets one less (above all that Slurm gives); "
                    "keep: as they are"
                ),
            },
        ),
        "kubernetes": PlanFormat(
            function="executor.export.kubernetes.whole:write_kubernetes",
            title="patches for workloads of Kueue and for pods behind our gate",
            options=WHOLE,
        ),
    }
)


def export(job: ExportedJob, formats: Sequence[str], options: Mapping[str, str] | None = None) -> dict[str, str]:
    """Text by name of file, in all of the formats; an option goes to those that have it.

    Raises
    ------
    InputError
        When a format is not known, none has an option, or one cannot say what the plan wants.
    """
    files: dict[str, str] = {}
    for wanted, chosen in options_of(formats, options or {}).items():
        files |= FORMATS[wanted](job, checked(chosen, FORMATS[wanted].options, wanted))
    return files


def options_of(formats: Sequence[str], given: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The options of each format.

    Raises
    ------
    InputError
        When a format is not known, none has an option, or it has other values.
    """
    refuse_unknown(formats)
    checked(given, {name: known for wanted in formats for name, known in FORMATS[wanted].options.items()}, *formats)
    return {
        wanted: {name: value for name, value in given.items() if name in FORMATS[wanted].options} for wanted in formats
    }


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

"""A plan as other launchers and frameworks read it: pure text, none of them is imported. `FORMATS` names them, and
loads one when it writes.

Ranks go pipe slowest, then data, then tensor, as they do in all of the frameworks; `docs/export.md` says where that
stands in their code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from types import MappingProxyType

from executor.export.job import ExportedJob
from stowplan.errors import InputError

__all__ = ["FORMATS", "ExportedJob", "Format", "export", "refuse_unknown"]


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


def export(job: ExportedJob, formats: Sequence[str]) -> dict[str, str]:
    """Text by name of file, in all of the formats.

    Raises
    ------
    InputError
        When a format is not known, or cannot say what the plan wants.
    """
    refuse_unknown(formats)
    return {name: text for wanted in formats for name, text in FORMATS[wanted](job).items()}


def refuse_unknown(formats: Sequence[str]) -> None:
    """Raise InputError when a format is not known."""
    if unknown := [name for name in formats if name not in FORMATS]:
        known = ", ".join(f"{name} ({known.title})" for name, known in FORMATS.items())
        raise InputError(f"there is no export to {unknown[0]!r}; known: {known}")

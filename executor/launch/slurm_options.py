"""What a cluster with Slurm wants to be told of a job beyond its hosts, as options of sbatch."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from stowplan.errors import Issue, pointer_of, raise_for_errors

# The longest time before the end of a job at which Slurm can be asked for a signal.
MAX_SIGNAL_S = 65_535
_MIB = 2**20
_NAMES = ("partition", "account", "qos", "reservation", "constraint")
# Options that say when and with what a job runs. Others lead to files, other users or more jobs, or are ours.
_EXTRA_OPTIONS = (
    "acctg-freq|begin|comment|contiguous|core-spec|cpu-freq|cpus-per-gpu|deadline|delay-boot|dependency|gpu-bind|"
    "gpu-freq|gres-flags|hint|kill-on-invalid-dep|licenses|mail-type|mail-user|mcs-label|network|nice|power|prefer|"
    "priority|propagate|switches|thread-spec|threads-per-core|tmp|wckey"
)
# One option in one word, since Slurm reads what follows a space as another one; no quotes, backslash or comment.
_EXTRA_LINE = re.compile(rf"#SBATCH --(?:{_EXTRA_OPTIONS})(?:=[!$-&(-\[\]-~]+)?")


class GpuRequest(StrEnum):
    """How GPUs are asked for. none: not at all, where they come with the node; ranks use the indices of the plan."""

    GRES = "gres"
    GPUS_PER_NODE = "gpus-per-node"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmOptions:
    """What a user chooses.

    `gpu_type`: as Slurm calls it, where it is to be named. `exclusive`: whole nodes with all their CPUs and memory;
    without it `cpus_per_node` and `memory_bytes` (of a node) say what is taken, None leaves that to the cluster.
    `checkpoint_s`: that long before the time limit the ranks are asked to write a checkpoint and end, but not before
    half of it. `extra_lines`: further `#SBATCH --option=value` lines.

    Raises
    ------
    InputError
        When a name cannot stand in a line, or a line is not one of a harmless option.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    constraint: str | None = None
    gpu_request: GpuRequest = GpuRequest.GRES
    gpu_type: str | None = None
    exclusive: bool = True
    cpus_per_node: int | None = None
    memory_bytes: int | None = None
    checkpoint_s: float = 600.0
    extra_lines: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        raise_for_errors(list(_faults(self)), "options for Slurm")

    def arguments(self, gpus_per_host: int, time_limit_s: float | None) -> Iterator[tuple[str, str]]:
        """Options of sbatch, by name, with their values; without a time limit, no signal before it."""
        for name in _NAMES:
            if value := getattr(self, name):
                yield name, value
        if gpus_per_host and self.gpu_request is not GpuRequest.NONE:
            kind = "" if self.gpu_type is None else f"{self.gpu_type}:"
            yield self.gpu_request, f"{'gpu:' if self.gpu_request is GpuRequest.GRES else ''}{kind}{gpus_per_host}"
        if self.cpus_per_node is not None:
            yield "cpus-per-task", str(self.cpus_per_node)
        if self.memory_bytes is not None:
            yield "mem", f"{-(-self.memory_bytes // _MIB)}M"
        elif self.exclusive:
            # All of it; without this the cluster's default for as many CPUs.
            yield "mem", "0"
        if time_limit_s is not None:
            yield "signal", f"B:USR1@{int(min(self.checkpoint_s, time_limit_s / 2))}"


def _faults(options: SlurmOptions) -> Iterator[Issue]:
    for name in (*_NAMES, "gpu_type"):
        value = getattr(options, name)
        if value is not None and not (value and value.isprintable()):
            detail = f"is {value!r}; must be a name without line breaks"
            yield Issue(code="bad_slurm_option", pointer=pointer_of(name), detail=detail)
    form = "must be one `#SBATCH --option=value` without spaces, quotes and #"
    known = _EXTRA_OPTIONS.replace("|", ", ")
    for k, line in enumerate(options.extra_lines):
        if not _EXTRA_LINE.fullmatch(line):
            detail = f"is {line!r}; {form}; the option one of {known}"
            yield Issue(code="bad_slurm_option", pointer=pointer_of("extra_lines", k), detail=detail)

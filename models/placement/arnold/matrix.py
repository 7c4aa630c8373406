"""Communication matrix of a pre-training job (Arnold section 5.1, Eq. 1).

    DP = GPUs / TP / PP,    rows = DP / (GPUs per node / TP),    columns = PP

A row is a PP group, a column a DP group (one pipeline stage), a cell one whole node: tensor parallelism stays
inside a node, so a node holds GPUs per node / TP data-parallel ranks of one stage.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from models.placement.arnold.parameters import SchedulingUnit
from models.wording import counted
from models.workload import Parallelism
from stowplan.errors import Issue, raise_for_errors


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicationMatrix:
    """Shape of the matrix: `num_rows` PP groups by `num_columns` stages, nodes of `gpus_per_node` GPUs."""

    num_rows: int
    num_columns: int
    gpus_per_node: int

    @property
    def num_nodes(self) -> int:
        """Number of cells."""
        return self.num_rows * self.num_columns

    def groups(self, unit: SchedulingUnit) -> tuple[int, int]:
        """Count and size, in nodes, of the groups that are the scheduling unit."""
        if unit is SchedulingUnit.PP:
            return self.num_rows, self.num_columns
        return self.num_columns, self.num_rows


def matrix_faults(parallelism: Parallelism, gpus_per_node: int) -> Iterator[Issue]:
    """Why the job has no communication matrix on nodes of `gpus_per_node` GPUs; pointers relative to the job."""
    tp, dp = parallelism.tp, parallelism.dp
    if gpus_per_node % tp:
        divisors = [k for k in range(1, gpus_per_node + 1) if gpus_per_node % k == 0]
        yield Issue(
            code="tp_does_not_divide_node",
            pointer="/parallelism/tp",
            detail=f"tp is {tp}, but nodes have {counted(gpus_per_node, 'GPU')} and tensor parallelism stays inside a "
            f"node; tp must be one of {divisors}",
        )
    elif dp % (gpus_per_node // tp):
        replicas = gpus_per_node // tp
        yield Issue(
            code="dp_not_divisible",
            pointer="/parallelism/dp",
            detail=f"dp is {dp}, but a node of {counted(gpus_per_node, 'GPU')} holds "
            f"{counted(replicas, 'data-parallel rank')} at tp {tp}; "
            f"dp must be a multiple of {replicas}, such as {dp + replicas - dp % replicas}",
        )


def communication_matrix(parallelism: Parallelism, gpus_per_node: int) -> CommunicationMatrix:
    """Matrix of a job on nodes of `gpus_per_node` GPUs (Eq. 1).

    Raises
    ------
    InputError
        When TP does not divide the GPUs of a node, or a PP group would not fill whole nodes.
    """
    raise_for_errors(list(matrix_faults(parallelism, gpus_per_node)), "job")
    return CommunicationMatrix(
        num_rows=parallelism.dp * parallelism.tp // gpus_per_node,
        num_columns=parallelism.pp,
        gpus_per_node=gpus_per_node,
    )


def stage_major(cells: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Hosts in rank order: column by column.

    DeepSpeed numbers ranks with the pipe axis slowest, then data, then model, so that
    rank = (stage * DP + data) * TP + tensor and all nodes of a stage come before those of the next.
    """
    return tuple(chain.from_iterable(zip(*cells, strict=True)))

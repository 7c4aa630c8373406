r"""Suika's Problem 1 as an integer linear program over scale-outs (Suika section 2.2, Eq. 1), declared in CVXPY.

Stated on the settled state: the basic demands of waiting jobs are served and scale-outs below the threshold taken back,
by the same rules for the heuristic and for this program.

Sets
  J          jobs that run in the settled state
  C_j        scale-outs that job j is offered: R^d_c, the new GPUs of scale-out c
  N          nodes with GPUs that are released
Data
  R^0_j, T^0_j   GPUs and throughput of the job in the settled state
  T_c            throughput with scale-out c
  W_j            w_j ||R^0_j||, job weight times GPUs (in GPUs of the fastest type where there are several types)
  a_nc           GPUs of scale-out c on node n;  f_n  GPUs released on node n
Variables
  x_c in {0,1}   scale-out c is given

max  sum_j W_j (1 + sum_{c in C_j} (T_c / T^0_j - 1) x_c)        sum of ||R^0|| normalised throughput, Eq. 1

  one_scale_out[j]   sum_{c in C_j} x_c <= 1            jobs with more than one scale-out
  released[n]        sum_c a_nc x_c     <= f_n          nodes for which this can be violated

The released GPUs of a node are alike: the performance of a plan depends on nodes only. So counts per node say the same
as one row per GPU with disjoint sets, up to the names of GPUs, which `extraction` gives; and the program is smaller.

What is in C_j, and what the optimum is a bound of: Problem 1 allows every subset of the released GPUs. As in the paper,
jobs are offered prefixes of their affinity order only; here of every order that they had in a round of Algorithm 2:
before the first round those of all released GPUs, for every job; later those of what was left, for the jobs that were
asked then, and the plans that they had. A scale-out of a later round stands for the chain that led to it, and every
link has a benefit of tau at least, so that scale-outs below the threshold are not offered. What Algorithm 2 ends with
is such a choice of chains, hence it is a point of this program: heuristic <= optimum <= bound. It is no bound on what
other subsets of GPUs could give; with `offers` met, nor on what jobs could have that Algorithm 2 did not ask.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from models.allocation.suika.scale_out import Column, ScaleOuts
from models.allocation.suika.state import ClusterState, RunningJob
from solver.problem import MatrixProblem
from solver.sense import Sense
from stowplan.arrays import FloatVector


@dataclass(frozen=True, kw_only=True, eq=False)
class ScaleOutProgram:
    """The data of the program: jobs of the settled state in order, columns by job, released GPUs per node.

    applied: index of the column that Algorithm 2 ends with, per job that has one.
    """

    state: ClusterState
    columns: Sequence[Column]
    applied: Mapping[str, int]

    @property
    def jobs(self) -> Mapping[str, RunningJob]:
        """The settled jobs."""
        return self.state.running

    def weight(self, job_id: str) -> float:
        """W_j."""
        settled = self.jobs[job_id]
        return settled.job.weight * self.state.machines.size(settled.gpu_type, settled.plan.num_gpus)

    @cached_property
    def gain(self) -> FloatVector:
        """W_j (T_c / T0_j - 1), (C,)."""
        return np.array(
            [
                self.weight(column.job_id) * (column.throughput / self.jobs[column.job_id].throughput - 1.0)
                for column in self.columns
            ],
            dtype=np.float64,
        )

    @cached_property
    def constant(self) -> float:
        """Objective without any scale-out."""
        return math.fsum(self.weight(job_id) for job_id in self.jobs)

    @cached_property
    def heuristic_point(self) -> FloatVector:
        """The choice of Algorithm 2, (C,)."""
        point = np.zeros(len(self.columns))
        point[list(self.applied.values())] = 1.0
        return point

    @cached_property
    def simple_bound(self) -> float:
        """Objective if every job had its best scale-out: no solver is needed for it."""
        best: dict[str, float] = {}
        for column, gain in zip(self.columns, self.gain.tolist(), strict=True):
            best[column.job_id] = max(gain, best.get(column.job_id, 0.0))
        return self.constant + math.fsum(best.values())

    @cached_property
    def rows(self) -> "Rows":
        """Both groups of constraints."""
        return _rows(self)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Constraints `matrix x <= limits`: CSR (m, C), limits (m,), m names."""

    matrix: "sparse.csr_array"
    limits: FloatVector
    names: tuple[str, ...]


def scale_out_program(state: ClusterState, offered: Iterable[Column], found: ScaleOuts) -> ScaleOutProgram:
    """The program of a settled state, with its columns in the order of the jobs: what was `offered` to all jobs at
    first, and what Algorithm 2 met."""
    known = {column.key: column for column in (*offered, *found.columns, *found.applied.values())}
    position = {job_id: k for k, job_id in enumerate(state.running)}
    columns = sorted(known.values(), key=lambda column: position[column.job_id])
    index = {column.key: c for c, column in enumerate(columns)}
    return ScaleOutProgram(
        state=state,
        columns=columns,
        applied={job_id: index[column.key] for job_id, column in found.applied.items()},
    )


def _rows(program: ScaleOutProgram) -> Rows:
    of_job: dict[str, list[int]] = {}
    on_node: dict[str, dict[int, int]] = {}
    for c, column in enumerate(program.columns):
        of_job.setdefault(column.job_id, []).append(c)
        for node, _ in column.added:
            counts = on_node.setdefault(node, {})
            counts[c] = counts.get(c, 0) + 1
    free = {node: len(gpus) for nodes in program.state.free.values() for node, gpus in nodes.items()}
    entries: list[tuple[str, float, dict[int, int]]] = [
        (f"one_scale_out[{job_id}]", 1.0, dict.fromkeys(own, 1)) for job_id, own in of_job.items() if len(own) > 1
    ]
    for node in (node for node in free if node in on_node):
        counts = on_node[node]
        most: dict[str, int] = {}
        for c, count in counts.items():
            job_id = program.columns[c].job_id
            most[job_id] = max(count, most.get(job_id, 0))
        if sum(most.values()) > free[node]:
            entries.append((f"released[{node}]", float(free[node]), counts))
    rows = np.repeat(np.arange(len(entries)), [len(counts) for _, _, counts in entries])
    columns = np.array([c for _, _, counts in entries for c in counts], dtype=np.int64)
    values = np.array([count for _, _, counts in entries for count in counts.values()], dtype=np.float64)
    return Rows(
        matrix=sparse.csr_array((values, (rows, columns)), shape=(len(entries), len(program.columns))),
        limits=np.array([limit for _, limit, _ in entries], dtype=np.float64),
        names=tuple(name for name, _, _ in entries),
    )


def assemble(program: ScaleOutProgram) -> MatrixProblem:
    """The program in matrix form, without names; declaring and compiling takes longer than solving."""
    rows = program.rows
    num_columns = len(program.columns)
    return MatrixProblem(
        name="suika",
        sense=Sense.MAXIMIZE,
        objective=program.gain,
        offset=program.constant,
        matrix=sparse.csc_array(rows.matrix),
        row_lower=np.full(rows.limits.size, -np.inf),
        row_upper=rows.limits,
        lower=np.zeros(num_columns),
        upper=np.ones(num_columns),
        integrality=np.ones(num_columns, dtype=np.bool_),
    )

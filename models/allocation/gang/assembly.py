"""The program's columns and rows as arrays: shared by the declared model and by the direct way to the matrix form.

`assemble` gives the matrix form that CVXPY would compile, without names and in a fraction of the time; tests compare
the two. See `models.allocation.gang.formulation` for the mathematics.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from models.allocation.constraint_group import ConstraintGroup, stacked
from models.allocation.gang.backfill import Backfilled
from models.allocation.gang.instance import GangInstance, Ground
from models.allocation.gang.packing import Flows
from solver.problem import MatrixProblem
from solver.sense import Sense
from stowplan.arrays import FloatVector

OPEN, HELD, SHARED_IN_TIME, SHARED_LATE = "open", "held", "shared_in_time", "shared_late"
# (kind, group, free GPUs, size): how often an item is put on such a node; the shared node is one, at level 0.
FlowKey = tuple[str, int, int, int]
_Entries = list[tuple[int, float]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Columns:
    """The columns: z of every pair of the instance, then the flows `flows`, with their upper bounds (n,)."""

    instance: GangInstance
    flows: tuple[FlowKey, ...]
    upper: FloatVector

    @cached_property
    def of_flow(self) -> Mapping[FlowKey, int]:
        """Column of every flow."""
        first = len(self.instance.pairs)
        return {flow: first + k for k, flow in enumerate(self.flows)}

    @property
    def num_columns(self) -> int:
        """All of them."""
        return int(self.upper.size)

    def point(self, counts: Iterable[int], flows: Mapping[FlowKey, int]) -> FloatVector:
        """The point (n,) with these counts per pair and flows."""
        values = np.zeros(self.num_columns)
        values[: len(self.instance.pairs)] = list(counts)
        for flow, count in flows.items():
            values[self.of_flow[flow]] = count
        return values


def columns_of(instance: GangInstance) -> Columns:
    """The columns of an instance."""
    flows: list[FlowKey] = []
    upper: list[float] = [float(len(instance.classes[c].positions)) for c, _ in instance.pairs]
    for g, ground in instance.grounds.items():
        in_time, late = _sizes(instance, g)
        for kind, packing, sizes in ((OPEN, ground.open, in_time | late), (HELD, ground.held, in_time)):
            most = float(sum(packing.start))
            found = [(kind, g, a, s) for a in range(ground.node_size + 1) for s in sorted(sizes) if s <= a and most]
            flows += found
            upper += [most] * len(found)
        rooms = ((SHARED_IN_TIME, in_time, ground.shared_now), (SHARED_LATE, late, _late_room(ground)))
        for kind, sizes, room in rooms:
            fitting = [s for s in sorted(sizes) if s <= room]
            flows += [(kind, g, 0, s) for s in fitting]
            upper += [float(room // s) for s in fitting]
    return Columns(instance=instance, flows=tuple(flows), upper=np.array(upper, dtype=np.float64))


def flows_of(backfilled: Backfilled) -> dict[FlowKey, int]:
    """The flows of what the heuristic found."""
    flows: dict[FlowKey, int] = {}
    for g, filling in backfilled.fillings.items():
        for kind, arcs in ((OPEN, filling.open.flows), (HELD, filling.held.flows)):
            flows |= {(kind, g, level, size): count for (level, size), count in arcs.items()}
        for kind, items in ((SHARED_IN_TIME, filling.shared_in_time), (SHARED_LATE, filling.shared_late)):
            flows |= {(kind, g, 0, size): count for size, count in items.items() if count}
    return flows


def arcs(flows: Mapping[FlowKey, int], kind: str, group: int) -> Flows:
    """The flows of one kind of nodes of one type."""
    return {(a, s): count for (found, g, a, s), count in flows.items() if (found, g) == (kind, group)}


def constraint_groups(columns: Columns) -> Iterator[ConstraintGroup]:
    """Every group of constraints that is not empty."""
    for label, is_equality, rows in (
        ("one_shape", False, _one_shape(columns)),
        ("free_nodes", False, _free_nodes(columns)),
        ("items", True, _items(columns)),
        ("in_time", False, _in_time(columns)),
        ("left_over", False, _left_over(columns)),
        ("shared", False, _shared(columns)),
        ("quota", False, _quotas(columns)),
    ):
        found = [row for row in rows if row[1]]
        if found:
            yield _group(columns, label, found, is_equality=is_equality)


def assemble(columns: Columns) -> MatrixProblem:
    """The program in matrix form, without names."""
    num_columns = columns.num_columns
    matrix, row_lower, row_upper = stacked(constraint_groups(columns), num_columns)
    return MatrixProblem(
        name="gang",
        sense=Sense.MAXIMIZE,
        objective=gains(columns),
        offset=columns.instance.constant,
        matrix=matrix,
        row_lower=row_lower,
        row_upper=row_upper,
        lower=np.zeros(num_columns),
        upper=columns.upper,
        integrality=np.ones(num_columns, dtype=np.bool_),
    )


def gains(columns: Columns) -> FloatVector:
    """Objective (n,) of the columns."""
    instance = columns.instance
    gain = np.zeros(columns.num_columns)
    gain[: len(instance.pairs)] = [instance.classes[c].worth for c, _ in instance.pairs]
    return gain


def column_names(columns: Columns) -> tuple[str, ...]:
    """`z[first job of the class,type]`, then `y[...]` and `u[...]` of the flows."""
    it = columns.instance
    groups, jobs = it.admission.groups.all, it.admission.jobs
    counts = [
        f"z[{jobs[it.classes[c].positions[0]].id},{groups[it.classes[c].shapes[k].group].name}]" for c, k in it.pairs
    ]
    flows = [
        f"y_{kind}[{groups[g].name},{a},{s}]" if kind in (OPEN, HELD) else f"u_{kind}[{groups[g].name},{s}]"
        for kind, g, a, s in columns.flows
    ]
    return (*counts, *flows)


# A row: its name, its entries, its limit.
_Row = tuple[str, _Entries, float]


def _one_shape(columns: Columns) -> Iterator[_Row]:
    it = columns.instance
    of_class: dict[int, _Entries] = {}
    for column, (c, _) in enumerate(it.pairs):
        of_class.setdefault(c, []).append((column, 1.0))
    for c, entries in of_class.items():
        if len(entries) > 1:
            first = it.admission.jobs[it.classes[c].positions[0]].id
            yield f"one_shape[{first}]", entries, float(len(it.classes[c].positions))


def _free_nodes(columns: Columns) -> Iterator[_Row]:
    """What leaves a level is what was there, and what came from above."""
    leaving: dict[tuple[str, int, int], _Entries] = {}
    coming: dict[tuple[str, int, int], _Entries] = {}
    for (kind, g, a, s), column in columns.of_flow.items():
        if kind in (OPEN, HELD):
            leaving.setdefault((kind, g, a), []).append((column, 1.0))
            coming.setdefault((kind, g, a - s), []).append((column, -1.0))
    for (kind, g, a), entries in leaving.items():
        ground = columns.instance.grounds[g]
        start = (ground.open if kind == OPEN else ground.held).start
        name = columns.instance.admission.groups.all[g].name
        yield f"free_nodes[{name},{kind},{a}]", entries + coming.get((kind, g, a), []), float(start[a])


def _items(columns: Columns) -> Iterator[_Row]:
    """Every item of a job that starts is somewhere."""
    yield from _balance(columns, "items", (OPEN, HELD, SHARED_IN_TIME, SHARED_LATE), (True, False))


def _in_time(columns: Columns) -> Iterator[_Row]:
    """Held nodes, and more of the shared one, are for jobs that end in time."""
    yield from _balance(columns, "in_time", (HELD, SHARED_IN_TIME), (True,))


def _left_over(columns: Columns) -> Iterator[_Row]:
    """What counts as late on the shared node is the item of a job that is."""
    yield from _balance(columns, "left_over", (SHARED_LATE,), (False,))


def _balance(columns: Columns, label: str, kinds: tuple[str, ...], whose: tuple[bool, ...]) -> Iterator[_Row]:
    """Flows of these kinds minus the items of jobs that end in time, or late, or both, by type and size."""
    it = columns.instance
    entries: dict[tuple[int, int], _Entries] = {}
    for (kind, g, _, s), column in columns.of_flow.items():
        if kind in kinds:
            entries.setdefault((g, s), []).append((column, 1.0))
    # Without a flow nothing is asked of jobs, but where the item has to be: there it forbids them.
    for column, (c, k) in enumerate(it.pairs):
        found = it.classes[c]
        for size, count in found.shapes[k].items.items():
            key = found.shapes[k].group, size
            if found.in_time[k] in whose and (key in entries or len(whose) > 1):
                entries.setdefault(key, []).append((column, -float(count)))
    for (g, s), row in sorted(entries.items()):
        yield f"{label}[{it.admission.groups.all[g].name},{s}]", row, 0.0


def _shared(columns: Columns) -> Iterator[_Row]:
    """GPUs of the shared nodes: now, and when the job that is next starts."""
    for g, ground in columns.instance.grounds.items():
        sized = [(kind, column, float(s)) for (kind, of, _, s), column in columns.of_flow.items() if of == g]
        now = [(column, s) for kind, column, s in sized if kind in (SHARED_IN_TIME, SHARED_LATE)]
        late = [(column, s) for kind, column, s in sized if kind == SHARED_LATE]
        name = columns.instance.admission.groups.all[g].name
        yield f"shared_now[{name}]", now, float(ground.shared_now)
        yield f"shared_over[{name}]", late, float(ground.shared_over)


def _quotas(columns: Columns) -> Iterator[_Row]:
    it = columns.instance
    entries: dict[str, _Entries] = {}
    for column, (c, _) in enumerate(it.pairs):
        queue = it.classes[c].quota
        if queue is not None:
            entries.setdefault(queue, []).append((column, float(it.classes[c].size)))
    for queue, row in entries.items():
        yield f"quota[{queue}]", row, float(it.admission.quota_left[queue])


def _group(columns: Columns, label: str, rows: list[_Row], *, is_equality: bool) -> ConstraintGroup:
    counts = [len(entries) for _, entries, _ in rows]
    index = np.array([column for _, entries, _ in rows for column, _ in entries], dtype=np.int64)
    values = np.array([value for _, entries, _ in rows for _, value in entries])
    where = np.repeat(np.arange(len(rows)), counts)
    return ConstraintGroup(
        label=label,
        matrix=sparse.csr_array((values, (where, index)), shape=(len(rows), columns.num_columns)),
        limits=np.array([limit for _, _, limit in rows]),
        is_equality=is_equality,
        row_names=tuple(name for name, _, _ in rows),
    )


def _sizes(instance: GangInstance, group: int) -> tuple[set[int], set[int]]:
    """Sizes of the items on a type: of jobs that end in time, and of the others."""
    sizes: tuple[set[int], set[int]] = set(), set()
    for found in instance.classes:
        for shape, in_time in zip(found.shapes, found.in_time, strict=True):
            if shape.group == group:
                sizes[not in_time].update(shape.items)
    return sizes


def _late_room(ground: Ground) -> int:
    return max(0, min(ground.shared_now, ground.shared_over))

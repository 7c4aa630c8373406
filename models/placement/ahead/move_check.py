"""Independent check of the moves of a plan ahead: who is moved may be, to nodes that are free and stay so."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from models.placement.ahead.parameters import AheadParameters
from models.plan import AheadPlacement, JobMove, Plan
from models.workload import Job, Snapshot
from stowplan.errors import Issue
from topology.calendar import CalendarEntry
from topology.cluster import Node, NodeState

TOLERANCE = 1e-6
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The snapshot as the check needs it: nodes by id, who is on them with how many GPUs, running jobs; reservations of
    jobs that wait to be planned, which they name."""

    snapshot: Snapshot
    parameters: AheadParameters
    nodes: Mapping[str, Node]
    jobs: Mapping[str, Job]
    reservations: Mapping[str, CalendarEntry]
    on: Mapping[str, Mapping[str, int]]
    running: frozenset[str]


def move_violations(scene: Scene, k: int, job: Job, placed: AheadPlacement) -> Iterator[Issue]:
    """Each job may be moved, its new nodes suit it, nothing runs there, and nothing closes them; the price is right."""
    opened_s, closing = dict(opened_at(scene, job, placed.start_s)), dict[str, list[CalendarEntry]]()
    for entry in scene.snapshot.calendar if placed.moves else ():
        for node in entry.nodes if placed.start_s < entry.end_s else ():
            closing.setdefault(node, []).append(entry)
    for m, move in enumerate(placed.moves):
        moved, at = scene.jobs.get(move.job_id), f"moves/{m}"
        if moved is None or moved.id not in scene.running or not _may_move(scene, moved):
            yield violation(k, "may_not_move", at, f"job {move.job_id!r} does not run, or must stay where it is")
            continue
        current = tuple(part.node for part in moved.current or ())
        if move.from_nodes != current or move.latest_s != placed.start_s:
            detail = f"must be from {list(current)}, at the latest when job {job.id!r} starts ({placed.start_s:g})"
            yield violation(k, "wrong_move", at, detail)
        if len(set(move.to_nodes)) != len(current):
            detail = f"must be to {len(current)} nodes, is to {len(set(move.to_nodes))}"
            yield violation(k, "wrong_move", f"{at}/to_nodes", detail)
        yield from _targets(scene, k, at, moved, move, closing)
        price = move_price(scene, placed, move, opened_s)
        if not abs(move.price - price) <= TOLERANCE * max(1.0, price):
            yield violation(k, "wrong_price", f"{at}/price", f"is {move.price}, recomputed {price}")


def move_meetings(plan: Plan) -> Iterator[Issue]:
    """Nobody is moved twice, and new nodes belong to no other job from then on."""
    moves = [(k, move) for k, placed in enumerate(plan.ahead) for move in placed.moves]
    counts = Counter(move.job_id for _, move in moves)
    given = Counter(node for _, move in moves for node in move.to_nodes)
    taken: dict[str, list[float]] = {}
    for placed in plan.ahead:
        for kept in placed.nodes:
            taken.setdefault(kept.node, []).append(math.inf if placed.end_s is None else placed.end_s)
    for k, move in moves:
        if counts[move.job_id] > 1:
            yield violation(k, "moved_twice", "moves", f"job {move.job_id!r} is moved more than once")
        for node in move.to_nodes:
            if given[node] > 1 or any(end_s > move.latest_s for end_s in taken.get(node, ())):
                detail = f"node {node!r} is given to {move.job_id!r} and to somebody else after that"
                yield violation(k, "node_taken_twice", "moves", detail)


def move_price(scene: Scene, placed: AheadPlacement, move: JobMove, opened_s: Mapping[str, float]) -> float:
    """What the moved job is expected to lose, and for how long new nodes are kept free (`opened_s`: `opened_at`)."""
    moved, parameters = scene.jobs[move.job_id], scene.parameters
    num_gpus = sum(len(part.gpus) for part in moved.current or ())
    lost_gpu_s = (1.0 - over_by(moved, placed.start_s)) * num_gpus * moved.restart_cost_s
    idle_s = math.fsum(placed.start_s - opened_s.get(node, 0.0) for node in move.to_nodes)
    restart, idle = parameters.restart_price_per_gpu_hour, parameters.idle_price_per_node_hour
    return (restart * lost_gpu_s + idle * idle_s) / _HOUR_S


def opened_at(scene: Scene, job: Job, start_s: float) -> Iterator[tuple[str, float]]:
    """Nodes that the calendar closes until some time before the start, with the last of these times."""
    ended = [e for e in scene.snapshot.calendar if e.name != job.calendar_entry and 0.0 < e.end_s <= start_s]
    for entry in sorted(ended, key=lambda entry: entry.end_s):
        yield from ((node, entry.end_s) for node in entry.nodes)


def over_by(job: Job, time_s: float) -> float:
    """Probability that a running job is over by then."""
    if job.lasting is not None:
        return job.lasting.probability_within(time_s)
    return 1.0 if job.remaining_s and job.remaining_s <= time_s else 0.0


def lasts_s(scene: Scene, job: Job) -> float:
    """Until when a running job lasts, but for epsilon."""
    if job.lasting is not None:
        return job.lasting.quantile(round(1.0 - scene.parameters.epsilon, 12))
    return job.remaining_s or math.inf


def _may_move(scene: Scene, job: Job) -> bool:
    is_free = job.preemptible and job.reservation is None and job.calendar_entry is None
    return is_free and len(job.current or ()) <= scene.parameters.moved_nodes


def _targets(
    scene: Scene, k: int, at: str, moved: Job, move: JobMove, closing: Mapping[str, list[CalendarEntry]]
) -> Iterator[Issue]:
    """`closing`: the entries over each node that end after the start."""
    kinds = {_kind(scene, part.node) for part in moved.current or ()}
    until_s = lasts_s(scene, moved)
    for node in move.to_nodes:
        known = scene.nodes.get(node)
        is_free = known is not None and known.state is NodeState.UP and not known.gpus_in_use
        if not is_free or node in scene.on or {_kind(scene, node)} != kinds:
            detail = f"node {node!r} is not free, or not of the kind of those of job {moved.id!r}"
            yield violation(k, "node_not_free", f"{at}/to_nodes", detail)
        closed = [entry.name for entry in closing.get(node, ()) if entry.begin_s < until_s]
        if closed:
            detail = f"node {node!r} is closed by {closed[0]!r} before job {moved.id!r} is over"
            yield violation(k, "calendar_not_honoured", f"{at}/to_nodes", detail)


def _kind(scene: Scene, node: str) -> tuple[str, int] | None:
    known = scene.nodes.get(node)
    return None if known is None else (known.gpu_type, known.num_gpus)


def violation(k: int, code: str, field: str, detail: str) -> Issue:
    """What is wrong with job k of the plan."""
    return Issue(code=code, pointer=f"/ahead/{k}/{field}", detail=detail)

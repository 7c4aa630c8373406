"""Independent check of a plan ahead. Knows no solver and nothing of how plans are built; all comes from the snapshot.

Pointers are relative to the plan (`/ahead/0/start_s`).
"""

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise

from models.calendar_check import calendar_violations
from models.forecast.lasting import Lasting
from models.placement.ahead.move_check import (
    TOLERANCE,
    Scene,
    lasts_s,
    move_meetings,
    move_price,
    move_violations,
    opened_at,
    over_by,
    violation,
)
from models.placement.ahead.parameters import AheadParameters
from models.placement.ahead.training_check import degree_violations, held_s
from models.placement.arnold.check import placement_violations
from models.placement.arnold.parameters import SchedulingUnit
from models.plan import AheadPlacement, Change, JobAllocation, KeptNode, Plan, Promise
from models.workload import Job, Snapshot
from stowplan.errors import Issue
from topology.calendar import CalendarEntry, EntryKind
from topology.cluster import NodeState

_DAY_S, _HOUR_S = 86_400.0, 3600.0
# Gauss-Legendre on [0, 1]: exact for polynomials up to degree 5 in pieces that are cut until nothing changes.
_POINTS = ((0.5 - math.sqrt(0.15), 5 / 18), (0.5, 8 / 18), (0.5 + math.sqrt(0.15), 5 / 18))


def plan_violations(snapshot: Snapshot, parameters: AheadParameters, plan: Plan, objective: float) -> list[Issue]:
    """Everything that is wrong with a plan ahead, or with its claim to be at least as good as `objective`."""
    scene = _scene(snapshot, parameters)
    found = [*_coverage(scene, plan), *calendar_violations(snapshot, plan.allocations, parameters.epsilon)]
    for k, placed in enumerate(plan.ahead):
        job = scene.jobs.get(placed.placement.job_id)
        if job is None or not _is_wanted(job) or job.id in scene.running:
            detail = f"the snapshot has no job {placed.placement.job_id!r} that waits to be planned ahead"
            found.append(violation(k, "unknown_job", "placement/job_id", detail))
            continue
        found += [
            *degree_violations(scene, k, job, placed),
            *_placement(scene, k, job, placed),
            *_window(scene, k, job, placed),
            *_nodes(scene, k, job, placed),
            *move_violations(scene, k, job, placed),
            *_promise(scene, k, job, placed),
        ]
    found += [*_meetings(plan), *move_meetings(plan)]
    return found or list(_score(scene, plan, objective))


def _scene(snapshot: Snapshot, parameters: AheadParameters) -> Scene:
    nodes = {node.id: node for node in snapshot.cluster.nodes}
    on: dict[str, dict[str, int]] = {}
    running = set()
    for job in snapshot.jobs:
        if job.current and all(nodes[part.node].state is not NodeState.DOWN for part in job.current):
            running.add(job.id)
            for part in job.current:
                on.setdefault(part.node, {})[job.id] = len(part.gpus)
    jobs = {job.id: job for job in snapshot.jobs}
    reservations: dict[str, CalendarEntry] = {}
    for job in snapshot.jobs:
        entry = _reserved(job, snapshot.calendar) if _is_wanted(job) and job.id not in running else None
        if entry is not None:
            reservations[job.id] = entry
            jobs[job.id] = replace(job, calendar_entry=entry.name)
    return Scene(
        snapshot=snapshot,
        parameters=parameters,
        nodes=nodes,
        jobs=jobs,
        reservations=reservations,
        on=on,
        running=frozenset(running),
    )


def _coverage(scene: Scene, plan: Plan) -> Iterator[Issue]:
    """Running jobs stay where they are unless the calendar closes that to them now, all others are unplaced; whoever is
    to be planned is planned once."""
    kept = {allocation.job_id: allocation for allocation in plan.allocations}
    unplaced = [job.job_id for job in plan.unplaced]
    for job in scene.snapshot.jobs:
        if job.id in scene.running and unplaced.count(job.id) == 1 and job.id not in kept:
            stays = JobAllocation(job_id=job.id, gpu_type="", num_gpus=0, gpus=job.current or (), change=Change.KEPT)
            # Of a shape it is not known here which nodes it is.
            is_named = all(entry.shape is None for entry in scene.snapshot.calendar)
            if is_named and not calendar_violations(scene.snapshot, (stays,), scene.parameters.epsilon):
                detail = f"job {job.id!r} runs, and the calendar lets it stay; it must keep its GPUs"
                yield Issue(code="job_moved", pointer="/unplaced", detail=detail)
        elif job.id in scene.running:
            allocation = kept.get(job.id)
            if allocation is None or set(allocation.gpus) != set(job.current or ()):
                detail = f"job {job.id!r} runs; it must keep its GPUs"
                yield Issue(code="job_moved", pointer="/allocations", detail=detail)
        elif unplaced.count(job.id) != 1:
            detail = f"job {job.id!r} waits; it must be unplaced once, and is {unplaced.count(job.id)} times"
            yield Issue(code="job_not_covered", pointer="/unplaced", detail=detail)
    if len(kept) != len(plan.allocations) or len(kept) + len(unplaced) != len(scene.jobs):
        yield Issue(code="job_not_covered", pointer="/allocations", detail="every job must be covered once")
    planned = [placed.placement.job_id for placed in plan.ahead]
    wanted = [job.id for job in scene.snapshot.jobs if _is_wanted(job) and job.id not in scene.running]
    if sorted(planned) != sorted(wanted):
        detail = f"plans {sorted(planned)}; the jobs that wait to be planned are {sorted(wanted)}"
        yield Issue(code="job_not_covered", pointer="/ahead", detail=detail)


def _is_wanted(job: Job) -> bool:
    return job.parallelism is not None or (job.transformer is not None and job.latest_start_s is not None)


def _placement(scene: Scene, k: int, job: Job, placed: AheadPlacement) -> Iterator[Issue]:
    """Shape, rank order, spreads and spares, as if nothing ran: who must make way is looked at elsewhere."""
    cluster = scene.snapshot.cluster
    alone = replace(job, current=None, parallel_plan=None, expansions=(), parallelism=placed.parallelism)
    empty = Snapshot(cluster=cluster, jobs=(alone,))
    tier = scene.parameters.minipod_tier or cluster.minipod_tier or ""
    num_spares = scene.parameters.spare_nodes_per_minipod
    for issue in placement_violations(empty, placed.placement, tier, num_spares):
        yield replace(issue, pointer=f"/ahead/{k}/placement" + issue.pointer.removeprefix("/pretraining"))
    if placed.placement.scheduling_unit != scene.parameters.scheduling_unit.value:
        yield violation(k, "wrong_unit", "placement/scheduling_unit", f"must be {scene.parameters.scheduling_unit}")
    types = {scene.nodes[node].gpu_type for row in placed.placement.cells for node in row if node in scene.nodes}
    if types != {placed.gpu_type}:
        yield violation(k, "wrong_gpu_type", "gpu_type", f"says {placed.gpu_type!r}, its nodes are {sorted(types)}")


def _reserved(job: Job, calendar: Sequence[CalendarEntry]) -> CalendarEntry | None:
    """The reservation of a job: the one it names, else the first of its name, else the first that it owns."""
    open_ones = [e for e in calendar if e.kind is EntryKind.RESERVATION and e.end_s > 0.0]
    if job.calendar_entry is not None:
        return next((entry for entry in open_ones if entry.name == job.calendar_entry), None)
    owned = sorted((entry for entry in open_ones if entry.owner == job.id), key=lambda e: (e.begin_s, e.name))
    return next((entry for entry in open_ones if entry.name == job.id), owned[0] if owned else None)


def _promise(scene: Scene, k: int, job: Job, placed: AheadPlacement) -> Iterator[Issue]:
    """What is said of the reservation of the job, and of what has changed."""
    entry, said = scene.reservations.get(job.id), placed.promise
    real = None
    if entry is not None:
        nodes = {node.node: None for node in placed.nodes}
        promised = set(entry.nodes)
        new = tuple(node for node in nodes if node not in promised) if promised else ()
        left = tuple(node for node in entry.nodes if node not in nodes)
        real = Promise(reservation=entry.name, start_s=max(0.0, entry.begin_s), new_nodes=new, left_nodes=left)
    if said != real:
        yield violation(k, "wrong_promise", "promise", f"is {said}, recomputed {real}")


def _window(scene: Scene, k: int, job: Job, placed: AheadPlacement) -> Iterator[Issue]:
    horizon_s = scene.parameters.horizon_days * _DAY_S
    latest_s = horizon_s if job.latest_start_s is None else job.latest_start_s
    if not job.earliest_start_s - TOLERANCE <= placed.start_s <= latest_s + TOLERANCE:
        detail = f"is {placed.start_s:g}; job {job.id!r} starts from {job.earliest_start_s:g} to {latest_s:g}"
        yield violation(k, "outside_window", "start_s", detail)
    length_s = held_s(scene, job, placed)
    end_s = math.inf if placed.end_s is None else placed.end_s
    if end_s < placed.start_s + length_s - TOLERANCE:
        detail = f"is {end_s:g}; job {job.id!r} lasts {length_s:g} s from {placed.start_s:g} on, as is to be expected"
        yield violation(k, "ends_too_early", "end_s", detail)


def _nodes(scene: Scene, k: int, job: Job, placed: AheadPlacement) -> Iterator[Issue]:
    """Each node up, open to the job while it lasts, free of those that cannot make way, with the odds that are said."""
    expected = (*placed.placement.hosts, *placed.placement.spares)
    if tuple(node.node for node in placed.nodes) != expected:
        yield violation(k, "wrong_nodes", "nodes", "must be the hosts in rank order, then the spares")
        return
    end_s = math.inf if placed.end_s is None else placed.end_s
    closing = [
        entry
        for entry in scene.snapshot.calendar
        if entry.name != job.calendar_entry and entry.begin_s < end_s and placed.start_s < entry.end_s
    ]
    closed = {node: entry for entry in closing for node in entry.nodes}
    opened_s, moved = dict(opened_at(scene, job, placed.start_s)), {move.job_id for move in placed.moves}
    for i, node in enumerate(placed.nodes):
        if node.node in closed:
            detail = f"node {node.node!r} is closed by {closed[node.node].kind} {closed[node.node].name!r} meanwhile"
            yield violation(k, "calendar_not_honoured", f"nodes/{i}", detail)
        yield from _node(scene, f"nodes/{i}", k, node, placed.start_s, moved, opened_s.get(node.node, 0.0))
    all_free = math.prod(
        over_by(scene.jobs[name], placed.start_s)
        for node in placed.placement.hosts
        for name in scene.on.get(node, {})
        if name not in moved
    )
    wanted = scene.parameters.start_probability
    if wanted is not None and all_free < wanted - TOLERANCE:
        detail = f"all its nodes are free then with probability {all_free:.4g}, less than {wanted:g}"
        yield violation(k, "start_not_likely_enough", "start_s", detail)
    for field, value, real in (
        (
            "expected_evictions",
            placed.expected_evictions,
            math.fsum(1 - node.free_probability for node in placed.nodes),
        ),
        ("idle_s", placed.idle_s, math.fsum(node.idle_s for node in placed.nodes)),
    ):
        if not abs(value - real) <= TOLERANCE * max(1.0, abs(real)):
            yield violation(k, "wrong_sum", field, f"is {value}, the nodes add up to {real}")
    for i, told in enumerate(placed.retention):
        busy = math.fsum(
            1.0
            - math.prod(
                over_by(scene.jobs[name], told.at_s)
                for name in scene.on.get(node.node, {})
                if told.at_s < placed.start_s or name not in moved
            )
            for node in placed.nodes
        )
        if not (0.0 <= told.at_s <= placed.start_s and abs(busy - told.num_nodes) <= TOLERANCE * max(1.0, busy)):
            detail = f"says {told.num_nodes} nodes at {told.at_s:g} s, recomputed {busy}"
            yield violation(k, "wrong_retention", f"retention/{i}", detail)
    yield from _shapes(scene, k, placed)


def _node(
    scene: Scene, at: str, k: int, node: KeptNode, start_s: float, moved: Container[str], opened_s: float
) -> Iterator[Issue]:
    """Who is there can make way, is moved, or is over, and the odds are as is said."""
    there = [scene.jobs[name] for name in scene.on.get(node.node, {})]
    for other in there:
        over = over_by(other, start_s)
        if not other.preemptible and over < 1.0 - scene.parameters.epsilon - TOLERANCE:
            detail = f"job {other.id!r} there cannot be preempted, and is over by then with probability {over:.3g}"
            yield violation(k, "node_not_free", at, detail)
    free = math.prod(over_by(other, start_s) for other in there if other.id not in moved)
    idle_s = _idle_s(there, opened_s, start_s)
    if not abs(free - node.free_probability) <= TOLERANCE:
        detail = f"is {node.free_probability}, recomputed {free}"
        yield violation(k, "wrong_probability", f"{at}/free_probability", detail)
    if not abs(idle_s - node.idle_s) <= TOLERANCE * max(1.0, start_s):
        yield violation(k, "wrong_idle_time", f"{at}/idle_s", f"is {node.idle_s}, recomputed {idle_s}")


def _shapes(scene: Scene, k: int, placed: AheadPlacement) -> Iterator[Issue]:
    """Of an entry over a shape nobody says which nodes it will be: enough must be left for each."""
    job = scene.jobs[placed.placement.job_id]
    end_s = math.inf if placed.end_s is None else placed.end_s
    taking = [(job, {node.node for node in placed.nodes}, end_s)]
    for move in placed.moves:
        moved = scene.jobs[move.job_id]
        taking.append((moved, set(move.to_nodes), lasts_s(scene, moved)))
    tiers = [tier.name for tier in scene.snapshot.cluster.tiers]
    marked = scene.snapshot.cluster.minipod_tier
    depth = tiers.index(marked) + 1 if marked is not None else 0
    for entry in scene.snapshot.calendar:
        shape = entry.shape
        if shape is None:
            continue
        taken = {
            node
            for who, nodes, until_s in taking
            if entry.name != who.calendar_entry and entry.begin_s < until_s and placed.start_s < entry.end_s
            for node in nodes
        }
        of_shape = [
            node
            for node in scene.nodes.values()
            if shape.gpu_type in (None, node.gpu_type) and shape.minipod in (None, "/".join(node.path[:depth]))
        ]
        left = sum(node.id not in taken for node in of_shape)
        if taken and left < shape.num_nodes:
            detail = f"leaves {left} nodes for {entry.kind} {entry.name!r}, which needs {shape.num_nodes} meanwhile"
            yield violation(k, "calendar_not_honoured", "nodes", detail)


def _meetings(plan: Plan) -> Iterator[Issue]:
    """No node for two jobs at a time."""
    for (k, one), (m, other) in combinations(enumerate(plan.ahead), 2):
        ends = [math.inf if placed.end_s is None else placed.end_s for placed in (one, other)]
        if one.start_s < ends[1] and other.start_s < ends[0]:
            shared = {node.node for node in one.nodes} & {node.node for node in other.nodes}
            if shared:
                detail = f"node {min(shared)!r} is kept for {other.placement.job_id!r}, too (/ahead/{m}), at one time"
                yield violation(k, "node_taken_twice", "nodes", detail)


def _score(scene: Scene, plan: Plan, objective: float) -> Iterator[Issue]:
    """The terms, recomputed, and the objective, which they may not exceed."""
    real: dict[tuple[str | None, str], float] = {}
    for placed in plan.ahead:
        real |= {(placed.placement.job_id, term): value for term, value in _terms(scene, placed).items()}
    said = {(term.job_id, term.term): term.value for term in plan.score}
    for job_id, term in sorted(real.keys() | said.keys(), key=str):
        value, expected = said.get((job_id, term)), real.get((job_id, term))
        if value is None or expected is None or not abs(value - expected) <= TOLERANCE * max(1.0, abs(expected)):
            detail = f"term {term!r} of job {job_id!r} is given as {value}, recomputed {expected}"
            yield Issue(code="wrong_score", pointer="/score", detail=detail)
    total = math.fsum(real.values())
    if not total <= objective + TOLERANCE * max(1.0, abs(total)):
        detail = f"the plan costs {total}, more than the {objective} that the solver claims"
        yield Issue(code="objective_mismatch", pointer="/score", detail=detail)
    for k, placed in enumerate(plan.ahead):
        own = math.fsum(value for (job_id, _), value in real.items() if job_id == placed.placement.job_id)
        at_start = [other.cost for other in placed.other_starts if other.start_s == placed.start_s]
        if len(at_start) != 1 or at_start[0] is None or not abs(at_start[0] - own) <= TOLERANCE * max(1.0, abs(own)):
            detail = f"must have the start of the plan once, at its cost {own}; found {at_start}"
            yield violation(k, "wrong_start_cost", "other_starts", detail)


def _terms(scene: Scene, placed: AheadPlacement) -> dict[str, float]:
    parameters, placement = scene.parameters, placed.placement
    job = scene.jobs[placement.job_id]
    moved = {move.job_id for move in placed.moves}
    lost_gpu_s = math.fsum(
        (1.0 - over_by(scene.jobs[name], placed.start_s)) * scene.jobs[name].restart_cost_s * num_gpus
        for node in placed.nodes
        for name, num_gpus in scene.on.get(node.node, {}).items()
        if scene.jobs[name].preemptible and name not in moved
    )
    by_minipods, by_spread = placement.alpha, 1 - placement.alpha
    names = ("dp_minipods", "pp_spread")
    if parameters.scheduling_unit is SchedulingUnit.DP:
        by_minipods, by_spread, names = by_spread, by_minipods, ("pp_minipods", "dp_spread")
    price = parameters.spread_price * job.weight
    promise = placed.promise
    opened_s = dict(opened_at(scene, job, placed.start_s)) if placed.moves else {}
    late_days = (placed.start_s - job.earliest_start_s) / _DAY_S
    length_s = held_s(scene, job, placed)
    chosen_days = length_s / _DAY_S if job.parallelism is None and math.isfinite(length_s) else 0.0
    terms = {
        names[0]: price * by_minipods * placement.num_minipods_used,
        names[1]: price * by_spread * placement.max_unit_spread,
        "lateness": parameters.lateness_price_per_day * job.weight * late_days,
        "training": parameters.lateness_price_per_day * job.weight * chosen_days,
        "evictions": parameters.eviction_price_per_node * placed.expected_evictions,
        "restarts": parameters.restart_price_per_gpu_hour * lost_gpu_s / _HOUR_S,
        "idle_nodes": parameters.idle_price_per_node_hour * placed.idle_s / _HOUR_S,
        "moves": math.fsum(move_price(scene, placed, move, opened_s) for move in placed.moves),
    }
    if promise is not None:
        is_changed = abs(placed.start_s - promise.start_s) > TOLERANCE
        terms["start_change"] = parameters.start_change_price * job.weight if is_changed else 0.0
        terms["node_changes"] = parameters.node_change_price * job.weight * len(promise.new_nodes)
    return terms


def _idle_s(there: list[Job], opened_s: float, start_s: float) -> float:
    """Expected seconds that a node is free from `opened_s` to the start: the integral of the probability that it is."""
    known: list[Lasting] = []
    for job in there:
        if job.lasting is None and not job.remaining_s:
            return 0.0
        known.append(job.lasting or Lasting(probabilities=(1.0,), seconds=(job.remaining_s or 0.0,)))
    inner = {time_s for lasting in known for time_s in lasting.seconds if opened_s < time_s < start_s}
    cuts = sorted({opened_s, start_s, *inner})
    # Six probabilities that each grow linearly are a polynomial of degree 6; pieces make up for more of them.
    pieces = 1 if len(known) <= 5 else 8
    total = 0.0
    for begin_s, end_s in pairwise(cuts):
        length_s = (end_s - begin_s) / pieces
        for piece in range(pieces):
            total += length_s * math.fsum(
                weight * math.prod(one.probability_within(begin_s + (piece + point) * length_s) for one in known)
                for point, weight in _POINTS
            )
    return total

"""From placings to a plan: single nodes, rank order, expectations, score, other starts, and the other jobs."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import islice

import numpy as np

from models.access import Access
from models.placement.ahead.building import AheadProblem, NodeClass, jobs_on, opened
from models.placement.ahead.future import free_within, idle_between
from models.placement.ahead.instance import Option, Placing, placing_cost, stays
from models.placement.ahead.moves import place_with_moves
from models.placement.ahead.promise import promise_of
from models.placement.ahead.single import free_at
from models.placement.ahead.wanted import DAY_S, WantedJob
from models.placement.arnold.assignment import arrange, pick_nodes
from models.placement.arnold.extraction import kept_where_they_are, pretraining_placement
from models.placement.arnold.instance import affinity_weights
from models.placement.arnold.labels import labels_of
from models.placement.arnold.parameters import SchedulingUnit
from models.placement.occupancy import occupancy
from models.plan import (
    AheadPlacement,
    JobMove,
    KeptNode,
    Plan,
    PretrainingPlacement,
    Promise,
    Retention,
    ScoreTerm,
    StartCost,
    UnplacedJob,
)
from models.windows import lasting_of
from models.wording import counted
from models.workload import Job, Parallelism
from stowplan.arrays import IntMatrix

_HOUR_S = 3600.0
# Nodes named in a sentence.
_MOST_NAMES = 8
# Moments at which nodes in use are told.
_NUM_TIMES = 9
# Starts of a job whose cost is shown at least, and classes x starts x jobs at most.
_FEWEST_STARTS, _MOST_WORK = 8, 200_000


def ahead_plan(problem: AheadProblem, placings: tuple[Placing, ...]) -> Plan:
    """Plan from placings, one for each wanted job: these are unplaced until they start, running jobs stay where they
    are, but for those that the calendar makes leave now."""
    jobs = problem.snapshot.jobs
    running = occupancy(problem.snapshot).running
    planned = {wanted.job.id for wanted in problem.wanted}
    ahead = tuple(_placements(problem, placings))
    access = Access(problem.snapshot, problem.parameters.epsilon)
    leaving = [job for job in jobs if job.id in running and access.must_leave(job)]
    gone = {job.id for job in leaving}
    staying = [job for job in jobs if job.id in running and job.id not in gone]
    others = [job for job in jobs if job.id not in running and job.id not in planned]
    return Plan(
        allocations=tuple(kept_where_they_are(problem.snapshot, staying)),
        unplaced=(*map(_starts_later, ahead), *map(_not_planned, others), *map(_must_leave, leaving)),
        score=tuple(
            term
            for wanted, placed in zip(problem.wanted, ahead, strict=True)
            for term in score_terms(problem, wanted, placed)
        ),
        ahead=ahead,
    )


def score_terms(problem: AheadProblem, wanted: WantedJob, placed: AheadPlacement) -> Iterator[ScoreTerm]:
    """Summands of the objective that one job has."""
    parameters, placement, job = problem.parameters, placed.placement, wanted.job
    unit = parameters.scheduling_unit
    minipod_weight, spread_weight = affinity_weights(placement.alpha, unit)
    price = parameters.spread_price * job.weight
    crossing = "dp" if unit is SchedulingUnit.PP else "pp"
    lost_gpu_h = _lost_gpu_s(problem, placed) / _HOUR_S
    plan = next(plan for plan in wanted.plans if plan.parallelism == placed.parallelism)
    terms = {
        f"{crossing}_minipods": price * minipod_weight * placement.num_minipods_used,
        f"{unit.value}_spread": price * spread_weight * placement.max_unit_spread,
        **problem.time_terms(wanted, plan, placed.start_s),
        "evictions": parameters.eviction_price_per_node * placed.expected_evictions,
        "restarts": parameters.restart_price_per_gpu_hour * lost_gpu_h,
        "idle_nodes": parameters.idle_price_per_node_hour * placed.idle_s / _HOUR_S,
        "moves": math.fsum(move.price for move in placed.moves),
    }
    if placed.promise is not None:
        terms["node_changes"] = parameters.node_change_price * job.weight * len(placed.promise.new_nodes)
    for term, value in terms.items():
        yield ScoreTerm(term=term, job_id=job.id, value=value)


def _placements(problem: AheadProblem, placings: tuple[Placing, ...]) -> Iterator[AheadPlacement]:
    """What each job gets. Nodes of a class go to the jobs in the order of their starts: there are always enough."""
    instance = problem.instance
    options = [job.options[placing.option] for job, placing in zip(instance.jobs, placings, strict=True)]
    dealt = _Dealt(problem)
    taken: dict[int, list[list[str]]] = {}
    moves: dict[int, tuple[JobMove, ...]] = {}
    for p in sorted(range(len(placings)), key=lambda p: (options[p].start_s, p)):
        taken[p] = [[] for _ in problem.minipods]
        for c in np.flatnonzero(placings[p].nodes).tolist():
            chosen = dealt.nodes(c, int(placings[p].nodes[c]), options[p].start_s, options[p].end_s)
            taken[p][problem.classes[c].minipod] += chosen
        moves[p] = tuple(_moves(problem, options[p], placings[p], dealt))
    class_of = {node: c for c, each in enumerate(problem.classes) for node in each.nodes}
    for p, wanted in enumerate(problem.wanted):
        plan = wanted.plans[options[p].plan]
        placement = _placement(problem, wanted, plan.parallelism, placings[p].counts, taken[p])
        kept = (*placement.hosts, *placement.spares)
        counts = Counter(class_of[node] for node in kept)
        expected = {c: _expected(problem, problem.classes[c], wanted.job, options[p].start_s) for c in counts}
        relocation = placings[p].relocation
        cleared = set() if relocation is None else set(np.flatnonzero(relocation.cleared).tolist())
        expected |= {c: (1.0, idle_s) for c, (_, idle_s) in expected.items() if c in cleared}
        nodes = tuple(
            KeptNode(node=node, free_probability=free, idle_s=idle_s)
            for node in kept
            for free, idle_s in [expected[class_of[node]]]
        )
        yield AheadPlacement(
            placement=placement,
            parallelism=plan.parallelism,
            gpu_type=wanted.gpu_type,
            start_s=options[p].start_s,
            end_s=options[p].end_s if math.isfinite(options[p].end_s) else None,
            nodes=nodes,
            expected_evictions=math.fsum(1.0 - node.free_probability for node in nodes),
            idle_s=math.fsum(node.idle_s for node in nodes),
            other_starts=tuple(_other_starts(problem, placings, p)),
            retention=tuple(_retention(problem, counts, options[p].start_s, cleared)),
            training=plan.training,
            moves=moves[p],
            promise=None if wanted.reservation is None else promise_of(wanted.reservation, kept),
        )


class _Dealt:
    """Which nodes of each class are given to whom: to the jobs in the order of their starts."""

    def __init__(self, problem: AheadProblem) -> None:
        self._free_from_s = [dict.fromkeys(each.nodes, -math.inf) for each in problem.classes]

    def nodes(self, c: int, count: int, start_s: float, end_s: float) -> list[str]:
        """So many nodes of a class, which nobody has from `start_s` on; they are given until `end_s`."""
        ready = (node for node, free_s in self._free_from_s[c].items() if free_s <= start_s)
        chosen = list(islice(ready, count))
        self._free_from_s[c].update(dict.fromkeys(chosen, end_s))
        return chosen


def _moves(problem: AheadProblem, option: Option, placing: Placing, dealt: _Dealt) -> Iterator[JobMove]:
    """Who is moved for a job, in the order of the snapshot."""
    moves, relocation = option.moves, placing.relocation
    if moves is None or relocation is None:
        return
    to: dict[int, list[str]] = {}
    prices = {i: float(moves.move_cost[i]) for i in relocation.movers}
    for i, c, count in relocation.to:
        to.setdefault(i, []).extend(dealt.nodes(c, count, option.start_s, math.inf))
        prices[i] += count * float(moves.target_cost[c])
    for i, nodes in sorted(to.items()):
        job = problem.snapshot.jobs[problem.movable[i].position]
        yield JobMove(
            job_id=job.id,
            from_nodes=tuple(part.node for part in job.current or ()),
            to_nodes=tuple(nodes),
            latest_s=option.start_s,
            price=prices[i],
        )


def _placement(
    problem: AheadProblem, wanted: WantedJob, parallelism: Parallelism, counts: IntMatrix, taken: list[list[str]]
) -> PretrainingPlacement:
    """Communication matrix of one job from nodes of its groups (G, M), and the nodes `taken` in each minipod."""
    unit = problem.parameters.scheduling_unit
    minipods = arrange(labels_of(counts), unit)
    cells = pick_nodes(minipods, taken, unit)
    used = np.bincount(minipods.ravel(), minlength=len(taken)).tolist()
    spares = tuple(node for nodes, count in zip(taken, used, strict=True) for node in nodes[count:])
    return pretraining_placement(
        wanted.job.id, parallelism, unit, wanted.affinity, problem.minipods, minipods, cells, spares=spares
    )


def _expected(problem: AheadProblem, each: NodeClass, job: Job, start_s: float) -> tuple[float, float]:
    """Probability that a node of a class is free when a job starts, and the seconds for which it is before."""
    lastings, at = [lasting_of(other) for other in jobs_on(problem, each)], np.array([start_s])
    since = np.array([opened(each, job, start_s)])
    return float(free_within(lastings, at)[0]), float(idle_between(lastings, since, at)[0])


def _retention(
    problem: AheadProblem, nodes: Mapping[int, int], start_s: float, cleared: Collection[int]
) -> Iterator[Retention]:
    """Nodes in use at equal intervals from now to the start, of so many of each class, by its position; those of
    classes that are cleared are free at the start."""
    times_s = np.linspace(0.0, start_s, _NUM_TIMES) if start_s > 0.0 else np.zeros(1)
    busy = np.zeros_like(times_s)
    for c, count in nodes.items():
        lastings = [lasting_of(job) for job in jobs_on(problem, problem.classes[c])]
        busy += count * (1.0 - free_within(lastings, times_s)) * ((times_s < start_s) | (c not in cleared))
    for at_s, num_nodes in zip(times_s.tolist(), busy.tolist(), strict=True):
        yield Retention(at_s=at_s, num_nodes=num_nodes)


def _lost_gpu_s(problem: AheadProblem, placed: AheadPlacement) -> float:
    """GPU seconds that the jobs are expected to lose that are still there and have to start again."""
    kept = {node.node for node in placed.nodes}
    moved = {move.job_id for move in placed.moves}
    lost = 0.0
    for each in problem.classes:
        num_nodes = sum(node in kept for node in each.nodes)
        for (_, num_gpus), job in zip(each.occupants, jobs_on(problem, each), strict=True) if num_nodes else ():
            if job.preemptible and job.id not in moved:
                over = free_within([lasting_of(job)], np.array([placed.start_s]))[0]
                lost += (1.0 - over) * job.restart_cost_s * num_gpus * num_nodes
    return float(lost)


def _other_starts(problem: AheadProblem, placings: tuple[Placing, ...], p: int) -> Iterator[StartCost]:
    """What each start of a job costs beside the others, by the best of its plans; its own start as it is planned.

    Of many starts on many nodes some are left out, evenly, so that this does not take longer than the search.
    """
    instance = problem.instance
    job, wanted = instance.jobs[p], problem.wanted[p]
    others = [
        (other, placing) for q, (other, placing) in enumerate(zip(instance.jobs, placings, strict=True)) if q != p
    ]
    taken = [stay for other, placing in others for stay in stays(other.options[placing.option], placing)]
    moved = frozenset(i for _, placing in others if placing.relocation for i in placing.relocation.movers)
    own_s = job.options[placings[p].option].start_s
    cheapest: dict[float, float | None] = {own_s: placing_cost(job, placings[p])}
    # With moves a job is placed up to three times.
    num_placed = sum(1 if option.moves is None else 3 for option in job.options)
    work = instance.class_size.size * len(instance.jobs) * len(wanted.plans) * num_placed // len(job.options)
    most = max(_FEWEST_STARTS, _MOST_WORK // work)
    starts = sorted({option.start_s for option in job.options} - {own_s})
    shown = set(starts[:: -(-len(starts) // most)] if starts else ())
    for o, option in enumerate(job.options):
        if option.start_s not in shown:
            continue
        room = free_at(instance, taken, option.start_s, option.end_s)
        for_ever = free_at(instance, taken, option.start_s, math.inf) if option.moves is not None else room
        answer = place_with_moves(instance, job, o, room, for_ever, moved)
        cost = None if answer.placing is None else float(answer.cost)
        known = cheapest.get(option.start_s)
        cheapest[option.start_s] = known if cost is None else cost if known is None else min(cost, known)
    for start_s, cost in sorted(cheapest.items()):
        yield StartCost(start_s=start_s, cost=cost)


def _starts_later(placed: AheadPlacement) -> UnplacedJob:
    days, num_nodes = placed.start_s / DAY_S, len(placed.nodes)
    remedy = "reserve the nodes, and plan again as forecasts change"
    if placed.promise is not None:
        remedy = _promised(placed.promise, placed.start_s)
    return UnplacedJob(
        job_id=placed.placement.job_id,
        reason="planned_ahead",
        detail=f"job {placed.placement.job_id!r} starts in {days:.2f} days on {counted(num_nodes, 'node')}; of these "
        f"{placed.expected_evictions:.1f} are expected to be in use still",
        counts={"nodes": num_nodes},
        remedy=remedy,
        preempted=False,
    )


def _promised(promise: Promise, start_s: float) -> str:
    """What to do with the reservation of the job."""
    changes = [] if start_s == promise.start_s else [f"its start (was {promise.start_s / DAY_S:.2f} days)"]
    if promise.new_nodes:
        changes.append(f"{len(promise.new_nodes)} of its nodes (now {', '.join(promise.new_nodes[:_MOST_NAMES])})")
    if not changes:
        return f"reservation {promise.reservation!r} stays as it is"
    return f"change {' and '.join(changes)} in reservation {promise.reservation!r}"


def _must_leave(job: Job) -> UnplacedJob:
    return UnplacedJob(
        job_id=job.id,
        reason="reserved",
        detail=f"job {job.id!r} runs on nodes that the calendar closes to it now",
        counts={"min_gpus": job.min_gpus},
        remedy="plan it with an allocation policy, which finds other nodes for it",
        preempted=True,
    )


def _not_planned(job: Job) -> UnplacedJob:
    return UnplacedJob(
        job_id=job.id,
        reason="not_pretraining",
        detail=f"job {job.id!r} waits and has no parallelism (tp, pp, dp); only jobs that have are planned ahead",
        counts={"min_gpus": job.min_gpus},
        remedy="plan it with an allocation policy such as sia, or give its parallelism",
        preempted=False,
    )

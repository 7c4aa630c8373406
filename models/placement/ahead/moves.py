"""Moves of running jobs: what they are worth at best, and which are made.

Let job i be moved as a whole, at e_i, to n_i nodes. Whoever takes nodes from which it is moved takes at most n_i of
them. So with u_i, the least that a node costs that it may get, no choice of moves makes a node of class c cheaper than

  min(w_c, w'_c + sum over the jobs i on c of (e_i / n_i + u_i))

where w_c is what the node costs with all jobs left there, w'_c with all moved. Planned with these costs (`loosened`),
as if nobody could be moved, a job costs no more than it does with the best moves: a lower bound, with the nodes that
moves would have to clear. `settled` makes these moves as far as they gain and there are nodes for who is moved, plans
the job anew with them, and takes the better of that and no moves.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from models.placement.ahead.instance import AheadInstance, AheadJob, Moves, Option, Placing, Relocation, placing_cost
from models.placement.ahead.single import SingleAnswer, place_at_best
from stowplan.arrays import FloatVector, IntVector, Mask

NOBODY: frozenset[int] = frozenset()


def loosened(instance: AheadInstance) -> AheadInstance:
    """The instance without moves, with the least that nodes cost whatever is moved."""
    if not instance.movers:
        return instance
    return replace(instance, jobs=tuple(_loosened_job(instance, job) for job in instance.jobs))


def loosened_cost(instance: AheadInstance, node_cost: FloatVector, moves: Moves) -> FloatVector:
    """The least that a node of each class costs whatever is moved, (C,)."""
    by_open = np.argsort(-moves.open_until_s, kind="stable")
    least = np.minimum.accumulate(moves.target_cost[by_open])
    num_open = np.searchsorted(-moves.open_until_s[by_open], -instance.mover_until_s, side="right")
    targets = np.where(num_open > 0, least[num_open - 1], np.inf)
    shares = moves.move_cost / instance.mover_nodes + targets
    return np.asarray(np.minimum(node_cost, moves.cleared_cost + instance.on_class @ shares), dtype=np.float64)


def place_with_moves(
    instance: AheadInstance,
    job: AheadJob,
    option: int,
    room: IntVector,
    target_room: IntVector,
    staying: frozenset[int] = NOBODY,
) -> SingleAnswer:
    """Place a job as `single.place_at_best`, with moves; see `settled`."""
    if job.options[option].moves is None:
        return place_at_best(instance, job, option, room)
    answer = place_at_best(instance, _with_option(job, option, _loosened(instance, job.options[option])), option, room)
    return settled(instance, job, option, answer, room, target_room, staying)


def settled(
    instance: AheadInstance,
    job: AheadJob,
    option: int,
    answer: SingleAnswer,
    room: IntVector,
    target_room: IntVector,
    staying: frozenset[int] = NOBODY,
) -> SingleAnswer:
    """The best placing found with moves, and the bound of `answer`, which is that of the loosened job.

    room: nodes of each class (C,) that are left while the option lasts. target_room: those left from its start on for
    ever. staying: movers that others have moved.
    """
    chosen = job.options[option]
    moves, loose = chosen.moves, answer.placing
    if moves is None or loose is None:
        return answer
    cheaper = (loose.nodes > 0) & (loosened_cost(instance, chosen.node_cost, moves) < chosen.node_cost)
    if not cheaper.any():
        return answer
    best, cost = None, np.inf
    moved = _worth_moving(instance, chosen, loose.nodes * cheaper, target_room - loose.nodes, staying)
    if moved is not None:
        best = _placed_beside(instance, job, option, moved, room, target_room)
        cost = np.inf if best is None else placing_cost(job, best)
    if cost > answer.bound + 1e-9:
        plain = place_at_best(instance, job, option, room)
        if plain.cost < cost:
            best, cost = plain.placing, plain.cost
    return SingleAnswer(placing=best, cost=cost, bound=min(answer.bound, cost))


def relocation(
    instance: AheadInstance, option: Option, nodes: IntVector, movers: frozenset[int], room: IntVector
) -> Relocation | None:
    """Move those of the `movers` whose moves clear some of the `nodes` (C,), to the cheapest of `room` nodes (C,); None
    when nobody is to be moved, or there are too few nodes."""
    if option.moves is None:
        return None
    useful = np.flatnonzero(cleared_by(instance, option, movers) & (nodes > 0))
    moved = frozenset(i for c in useful.tolist() for i in instance.class_movers[c])
    dealer = _Dealer(instance, option.moves, room)
    to: list[tuple[int, int, int]] = []
    # Who may go to the fewest nodes goes first: then the cheapest is the best for each.
    for i in sorted(moved, key=lambda i: (-instance.movers[i].until_s, i)):
        dealt = dealer.deal(i)
        if dealt is None:
            return None
        to += ((i, c, count) for c, count in dealt)
    return Relocation(to=tuple(to), cleared=cleared_by(instance, option, moved)) if to else None


def cleared_by(instance: AheadInstance, option: Option, movers: Iterable[int]) -> Mask:
    """Classes (C,) from which all jobs are moved, and whose nodes are cheaper by that."""
    if option.moves is None:
        return np.zeros(instance.class_size.size, dtype=np.bool_)
    stays = np.ones(len(instance.movers))
    stays[list(movers)] = 0.0
    return np.asarray((instance.on_class @ stays == 0.0) & (option.moves.cleared_cost < option.node_cost))


def wanted_targets(instance: AheadInstance, option: Option, nodes: IntVector) -> FloatVector:
    """Nodes of each class (C,) that would have to be free for all moves with which a loosened job takes its `nodes`."""
    wanted = np.zeros(instance.class_size.size)
    if option.moves is None:
        return wanted
    cheaper = loosened_cost(instance, option.node_cost, option.moves) < option.node_cost
    total = float((nodes * cheaper) @ np.asarray(instance.on_class.sum(axis=1)))
    free = np.flatnonzero(np.isfinite(option.moves.target_cost))
    if not total or not free.size:
        return wanted
    order = free[np.argsort(option.moves.target_cost[free], kind="stable")]
    sizes = instance.class_size[order].astype(np.float64)
    # The cheapest first; of what there is no room for each class has its share.
    wanted[order] = np.clip(total - (sizes.cumsum() - sizes), 0.0, sizes) * max(1.0, total / sizes.sum())
    return wanted


def _loosened_job(instance: AheadInstance, job: AheadJob) -> AheadJob:
    return replace(job, options=tuple(_loosened(instance, option) for option in job.options))


def _loosened(instance: AheadInstance, option: Option) -> Option:
    if option.moves is None:
        return option
    return replace(option, node_cost=loosened_cost(instance, option.node_cost, option.moves), moves=None)


def _with_option(job: AheadJob, number: int, option: Option) -> AheadJob:
    return replace(job, options=(*job.options[:number], option, *job.options[number + 1 :]))


def _placed_beside(
    instance: AheadInstance, job: AheadJob, option: int, moved: Relocation, room: IntVector, target_room: IntVector
) -> Placing | None:
    """The best placing when these jobs are moved, without the moves that it does not need."""
    chosen = job.options[option]
    if chosen.moves is None:
        return None
    costs = np.where(moved.cleared, chosen.moves.cleared_cost, chosen.node_cost)
    priced = _with_option(job, option, replace(chosen, node_cost=costs, moves=None))
    found = place_at_best(instance, priced, option, room - moved.targets).placing
    if found is None:
        return None
    needed = relocation(instance, chosen, found.nodes, moved.movers, target_room - found.nodes)
    return replace(found, relocation=needed)


def _worth_moving(
    instance: AheadInstance, option: Option, nodes: IntVector, room: IntVector, staying: frozenset[int]
) -> Relocation | None:
    """The moves that clear `nodes` (C,), as far as they gain more than they cost; those with most gain a node first."""
    if option.moves is None:
        return None
    with np.errstate(invalid="ignore"):
        gains = np.where(nodes > 0, nodes * (option.node_cost - option.moves.cleared_cost), 0.0)
    by_movers: dict[tuple[int, ...], float] = {}
    for c in np.flatnonzero(gains).tolist():
        movers = instance.class_movers[c]
        by_movers[movers] = by_movers.get(movers, 0.0) + float(gains[c])
    sizes = {movers: sum(instance.movers[i].num_nodes for i in movers) for movers in by_movers}
    dealer = _Dealer(instance, option.moves, room)
    moved: set[int] = set()
    for movers, gain in sorted(by_movers.items(), key=lambda item: (-item[1] / sizes[item[0]], item[0])):
        new = [i for i in movers if i not in moved]
        if staying.isdisjoint(new) and dealer.deal_all(new, gain):
            moved.update(new)
    return relocation(instance, option, nodes, frozenset(moved), room)


class _Dealer:
    """Gives free nodes to movers, the cheapest first."""

    def __init__(self, instance: AheadInstance, moves: Moves, room: IntVector) -> None:
        classes = np.flatnonzero(np.isfinite(moves.target_cost) & (room > 0))
        self._classes: list[int] = classes[np.argsort(moves.target_cost[classes], kind="stable")].tolist()
        self._place = {c: at for at, c in enumerate(self._classes)}
        self._left = {c: int(room[c]) for c in self._classes}
        self._levels: list[float] = np.unique(moves.open_until_s[classes]).tolist()
        # Where the first class is that may have room for those of each level.
        self._first = dict.fromkeys(self._levels, 0)
        self._movers, self._moves = instance.movers, moves

    def deal_all(self, movers: Iterable[int], gain: float) -> bool:
        """Move all of the movers, if that costs less than it gains."""
        dealt: list[tuple[int, int]] = []
        cost = 0.0
        for i in movers:
            found = self.deal(i)
            cost += float(self._moves.move_cost[i])
            if found is None:
                cost = np.inf
                break
            cost += sum(count * float(self._moves.target_cost[c]) for c, count in found)
            dealt += found
        if cost >= gain:
            self._give_back(dealt)
        return cost < gain

    def deal(self, mover: int) -> list[tuple[int, int]] | None:
        """Nodes for a mover, how many of which class; None: there are too few."""
        level = bisect_left(self._levels, self._movers[mover].until_s)
        if level == len(self._levels) or not np.isfinite(self._moves.move_cost[mover]):
            return None
        until_s, missing = self._levels[level], self._movers[mover].num_nodes
        dealt: list[tuple[int, int]] = []
        for at in range(self._first[until_s], len(self._classes)):
            c = self._classes[at]
            if self._left[c] and self._moves.open_until_s[c] >= until_s:
                count = min(missing, self._left[c])
                dealt.append((c, count))
                self._left[c] -= count
                missing -= count
                if not missing:
                    self._first[until_s] = at
                    return dealt
        self._give_back(dealt)
        return None

    def _give_back(self, dealt: list[tuple[int, int]]) -> None:
        for c, count in dealt:
            self._left[c] += count
        # Those of the classes before that may have room again.
        if dealt:
            earliest = min(self._place[c] for c, _ in dealt)
            self._first = {until_s: min(at, earliest) for until_s, at in self._first.items()}

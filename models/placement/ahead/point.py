"""The point of the declared program that stands for placings, and back, without declaring it: it may be very large."""

from functools import cached_property

import numpy as np

from models.placement.ahead.instance import AheadInstance, Placing
from models.placement.ahead.moves import cleared_by, relocation
from models.placement.ahead.single import cheapest_nodes
from stowplan.arrays import FloatVector, IntVector, Mask


class Layout:
    """Columns of `declaration.ahead_model` in the order in which it declares them: z, q, f, m, r, y, s, x, T."""

    def __init__(self, instance: AheadInstance) -> None:
        self._instance = instance
        jobs = instance.jobs
        self._first_option = np.cumsum([0, *(len(job.options) for job in jobs)])
        self._shapes = [list(dict.fromkeys(option.shape for option in job.options)) for job in jobs]
        groups = [shape.num_groups for own in self._shapes for shape in own]
        self._first_group = np.cumsum([0, *groups])
        # Position of a job's first plan among all plans.
        self._first_plan = np.cumsum([0, *(len(own) for own in self._shapes)])
        num_minipods = len(instance.minipods)
        sizes = (
            int(self._first_option[-1]),
            *(int(mask.sum()) for mask in self._masks),
            len(jobs) * num_minipods,
            int(self._first_group[-1]) * num_minipods,
            int(self._first_group[-1]) * num_minipods,
            len(jobs),
        )
        self._ends = np.cumsum(sizes)
        self.num_columns = int(self._ends[-1])

    @cached_property
    def _masks(self) -> tuple[Mask, Mask, Mask, Mask]:
        """Whether there are columns q, f, r for each option and class, (O, C), and m for each and mover, (O, I), in the
        order q, f, m, r."""
        options = [option for job in self._instance.jobs for option in job.options]
        nothing, nobody = (
            np.zeros(n, dtype=np.bool_) for n in (self._instance.class_size.size, len(self._instance.movers))
        )
        moves = [option.moves for option in options]
        return (
            np.array([np.isfinite(option.node_cost) for option in options]),
            np.array([nothing if each is None else np.isfinite(each.cleared_cost) for each in moves]),
            np.array([nobody if each is None else np.isfinite(each.move_cost) for each in moves]),
            np.array([nothing if each is None else np.isfinite(each.target_cost) for each in moves]),
        )

    def point(self, placings: tuple[Placing, ...]) -> FloatVector:
        """The point (n,) of placings, one for each job."""
        x = np.zeros(self.num_columns)
        z, *of_classes, y, s, nodes, spread = np.split(x, self._ends[:-1])
        num_minipods = len(self._instance.minipods)
        taken, cleared, moved, targets = (np.zeros(mask.shape) for mask in self._masks)
        for p, placing in enumerate(placings):
            option = int(self._first_option[p]) + placing.option
            z[option] = 1.0
            if placing.relocation is None:
                taken[option] = placing.nodes
            else:
                taken[option] = np.where(placing.relocation.cleared, 0, placing.nodes)
                cleared[option] = np.where(placing.relocation.cleared, placing.nodes, 0)
                moved[option][list(placing.relocation.movers)] = 1.0
                targets[option] = placing.relocation.targets
            y[p * num_minipods : (p + 1) * num_minipods] = placing.counts.any(axis=0)
            here = self._groups_of(p, placing.option, num_minipods)
            s[here] = (placing.counts > 0).ravel()
            nodes[here] = placing.counts.ravel()
            spread[p] = np.count_nonzero(placing.counts, axis=1).max()
        for part, values, mask in zip(of_classes, (taken, cleared, moved, targets), self._masks, strict=True):
            part[:] = values[mask]
        return x

    def placings(self, x: FloatVector) -> tuple[Placing, ...]:
        """Placings that cost no more than the point `x` (n,), which is feasible."""
        z, *of_classes, _, _, nodes, _ = np.split(x, self._ends[:-1])
        num_minipods = len(self._instance.minipods)
        taken, cleared, moved, targets = (np.zeros(mask.shape, dtype=np.int64) for mask in self._masks)
        for part, values, mask in zip(of_classes, (taken, cleared, moved, targets), self._masks, strict=True):
            values[mask] = np.rint(part).astype(np.int64)
        found = []
        for p, job in enumerate(self._instance.jobs):
            options = slice(int(self._first_option[p]), int(self._first_option[p + 1]))
            chosen = int(z[options].argmax())
            here = self._groups_of(p, chosen, num_minipods)
            counts = np.rint(nodes[here]).astype(np.int64).reshape(-1, num_minipods)
            option = job.options[chosen]
            movers = frozenset(np.flatnonzero(moved[options][chosen]).tolist())
            is_cleared, costs = cleared_by(self._instance, option, movers), option.node_cost
            if option.moves is not None:
                costs = np.where(is_cleared, option.moves.cleared_cost, costs)
            room: IntVector = taken[options][chosen] + cleared[options][chosen]
            own = cheapest_nodes(self._instance, costs, job.num_spares, room, counts)
            moves = relocation(self._instance, option, own, movers, targets[options][chosen])
            found.append(Placing(option=chosen, nodes=own, counts=counts, relocation=moves))
        return tuple(found)

    def _groups_of(self, p: int, option: int, num_minipods: int) -> slice:
        """Columns of s, and of x, of the groups of the plan of an option."""
        plan = self._first_plan[p] + self._shapes[p].index(self._instance.jobs[p].options[option].shape)
        first, last = self._first_group[plan], self._first_group[plan + 1]
        return slice(int(first) * num_minipods, int(last) * num_minipods)

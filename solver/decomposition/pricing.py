"""Prices of a problem's coupling rows, and what options cost at them: those that came with it, of the relaxation by
simplex, or of the smoothed dual; each way as far as it pays.
"""

import numpy as np

from solver.decomposition.core import build_core, threshold_for
from solver.decomposition.dual import DualPoint, ReducedCosts, best_choice, dual_at, maximise_dual, reduced_costs
from solver.decomposition.known import ROUNDING, Known
from solver.decomposition.relaxation import solve_relaxation
from solver.decomposition.rounding import round_choice

# Up to so many columns after merging the linear relaxation is solved by simplex.
_LINEAR = 5000
# Share of the gap that the bound may lack of the linear relaxation when a point is looked for.
_DUAL_SHARE = 0.1
# Share of split blocks among those that choose from which no rounded point is near the bound.
_SCATTERED = 0.25
# Share of the columns, beside one of each block, that is few to search; how near the bound a good point may be, and of
# how many blocks for every coupling row the relaxation splits few.
_FEW_LEFT = 0.25
_NEAR = 0.005
_SPLIT = 4
# Options beside the best one of each class in the core whose relaxation sharpens prices.
_SHARPENING_EXTRA = 1000


class Pricing:
    """Finds prices; points and bounds that come with them become known."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._structure = known.structure
        guess = known.options.prices
        self._guess = None if guess is None else guess[known.structure.rows]

    @property
    def is_quick(self) -> bool:
        """Whether there are so few columns that their relaxation is solved by simplex."""
        return bool(self._structure.cost.size <= _LINEAR)

    def near(self) -> ReducedCosts | None:
        """Reduced costs of few blocks at prices that leave few options beside a point that is known: those that came
        with the problem, else those of its relaxation. None where there is no point, or they leave many."""
        structure = self._structure
        if self._known.point is None or _SPLIT * structure.limit.size > structure.num_blocks:
            return None
        multipliers = guessed = None
        if self._guess is not None:
            multipliers = np.maximum(self._guess, 0.0)
            guessed = reduced_costs(structure, multipliers)
        # Where nothing is scarce no prices prove more than none do.
        if guessed is None or guessed.bound <= self._free() + ROUNDING * abs(guessed.bound):
            reduced = self._unpriced()
            if reduced is not None:
                return reduced
        if guessed is not None and self._leaves_few(guessed, self._known.beyond(guessed)):
            self._known.multipliers, self._known.bound = multipliers, guessed.bound
            return guessed
        linear = self._linear()
        if linear is None:
            return None
        reduced = reduced_costs(structure, linear.multipliers)
        if self._leaves_few(reduced, self._known.beyond(reduced)):
            return reduced
        # A point that is better by far may leave few.
        return self._rounded(linear) if self._leaves_few(reduced, _NEAR * abs(reduced.bound)) else None

    def good(self) -> ReducedCosts | None:
        """Reduced costs at good prices, after rounding what blocks choose at them; None where there are no prices."""
        structure, guess = self._structure, self._guess
        reduced = self._unpriced()
        if reduced is not None:
            return reduced
        if guess is not None:
            # Where little has changed since they were found, they prove a point near them.
            dual = dual_at(structure, guess)
            reduced = self._rounded(dual)
            if self._known.is_done():
                return reduced
        if self.is_quick:
            linear = self._linear()
            return None if linear is None or self._is_scattered(linear) else self._rounded(linear)
        lacking = _DUAL_SHARE * self._known.options.relative_gap
        if guess is not None:
            # Or better ones nearby do.
            dual = maximise_dual(structure, guess, self._known.must_stop, lacking, temperature=dual.temperature)
            reduced = self._rounded(dual)
            if self._known.is_done():
                return reduced
            guess = dual.multipliers
        dual = maximise_dual(structure, guess, self._known.must_stop, lacking)
        reduced = self._rounded(dual)
        if lacking > 0 and not self._known.is_done():
            dual = maximise_dual(structure, dual.multipliers, self._known.must_stop, temperature=dual.temperature)
            reduced = self._rounded(dual)
        return reduced if self._known.is_done() else self._sharpened(reduced)

    def _unpriced(self) -> ReducedCosts | None:
        """Reduced costs where nothing is scarce, which every block's best option then proves; None where something
        is."""
        structure = self._structure
        without = np.zeros(structure.limit.size)
        reduced = reduced_costs(structure, without)
        favourites = best_choice(structure, reduced)
        if not (structure.used_by(favourites) <= structure.limit).all():
            return None
        self._known.multipliers, self._known.bound = without, reduced.bound
        self._known.take(favourites)
        return reduced

    def _free(self) -> float:
        """The bound without prices: what all blocks cost at their best."""
        structure = self._structure
        best = np.minimum(np.minimum.reduceat(structure.cost, structure.start[:-1]), structure.nothing)
        return structure.offset + float(structure.copies @ best)

    def _linear(self) -> DualPoint | None:
        """Prices of the linear relaxation by simplex; None where there are none, or not in time."""
        linear = solve_relaxation(self._structure, self._known.left_s)
        if linear is not None:
            self._known.multipliers, self._known.bound = linear.multipliers, linear.bound
        return linear

    def _leaves_few(self, reduced: ReducedCosts, beyond: float) -> bool:
        """Whether few columns are left of those that cost at most `beyond` more than the best ones of their blocks."""
        num_left = np.count_nonzero(reduced.columns <= beyond)
        return bool(num_left <= self._structure.copies.size + _FEW_LEFT * self._structure.cost.size)

    def _sharpened(self, reduced: ReducedCosts) -> ReducedCosts:
        """Reduced costs at the prices of the relaxation of a wide core, where these prove more: the smoothed dual ends
        some 1e-7 below its maximum, which is as much as narrow gaps are wide."""
        structure = self._structure
        core = build_core(structure, reduced, threshold_for(reduced, structure.copies.size, _SHARPENING_EXTRA))
        linear = solve_relaxation(structure, self._known.left_s, core)
        return reduced if linear is None or linear.bound <= reduced.bound else self._rounded(linear)

    def _is_scattered(self, linear: DualPoint) -> bool:
        """Whether so few blocks choose that those of them that the relaxation splits are many: far from any point."""
        structure = self._structure
        is_split = (linear.fraction > ROUNDING) & (linear.fraction < 1.0 - ROUNDING)
        num_split = np.unique(structure.class_of[is_split]).size
        return bool(structure.copies.max() == 1 and num_split > _SCATTERED * linear.fraction.sum())

    def _rounded(self, dual: DualPoint) -> ReducedCosts:
        structure, known = self._structure, self._known
        reduced = reduced_costs(structure, dual.multipliers)
        known.multipliers, known.bound = dual.multipliers, max(known.bound, reduced.bound)
        known.is_refuted = known.point is None and structure.refutes(dual.multipliers, reduced.bound)
        if not known.is_done():
            counts = round_choice(structure, dual.multipliers, reduced, dual.fraction, known.is_enough, known.must_stop)
            if counts is not None:
                known.take(counts)
        return reduced

"""Suika as a policy: Algorithm 2 with the bound of Problem 1 beside it (`suika`), or Problem 1 itself (`suika-ilp`)."""

import time
from dataclasses import replace

import numpy as np

from models.allocation.suika.agent import Agents
from models.allocation.suika.check import suika_violations
from models.allocation.suika.extraction import extract_plan
from models.allocation.suika.heuristic import Decision, decide
from models.allocation.suika.ilp import ScaleOutProgram, assemble, scale_out_program
from models.allocation.suika.parameters import Offers, SuikaMethod, SuikaParameters
from models.allocation.suika.scale_out import first_offers
from models.clock import PhaseClock
from models.formulation import Formulation
from models.placement.check import placement_violations
from models.plan import Plan
from models.workload import Snapshot
from solver.monitor import Progress, SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.result import SolveResult, TerminationReason
from solver.solve import solve
from stowplan import __version__
from stowplan.arrays import FloatVector
from stowplan.errors import Issue

# A boolean variable above this is chosen; incumbents are integers up to the solver's tolerance.
_CHOSEN = 0.5
_ROUNDING = 1e-9


class SuikaFormulation(Formulation):
    """One event: the decision of Algorithm 2, the program over its scale-outs, and the way back to a plan."""

    def __init__(self, *, snapshot: Snapshot, parameters: SuikaParameters, agents: Agents, decision: Decision) -> None:
        self.snapshot = snapshot
        self.parameters = parameters
        self.agents = agents
        self.decision = decision
        is_asked = parameters.offers is Offers.ALL
        offered = first_offers(decision.settled, agents, decision.tau) if is_asked else ()
        self.program: ScaleOutProgram = scale_out_program(decision.settled, offered, decision.scale_outs)
        self.problem: MatrixProblem = assemble(self.program)
        self.warm_start: FloatVector | None = self.program.heuristic_point
        self.warnings = agents.warnings(decision.settled.fixed)

    def named(self) -> MatrixProblem:
        """The same problem with names, as declared."""
        # CVXPY takes a second to load; a plan needs the declaration only to be exported or explained.
        from models.allocation.suika.declaration import compiled

        return compiled(self.program)

    def solve(self, options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
        """Solve Problem 1: its relaxation, which often proves what Algorithm 2 found, then the integer program.

        The heuristic answers with its own point, and takes the bound.
        """
        started = time.perf_counter()
        point = self.program.heuristic_point
        objective = self.problem.value(point)
        relaxation = replace(self.problem, integrality=np.zeros(point.size, dtype=np.bool_))
        relaxed = solve(relaxation, options, SolveMonitor(canceled=monitor.canceled))
        bound = self.program.simple_bound if relaxed.bound is None else min(relaxed.bound, self.program.simple_bound)
        elapsed_s = time.perf_counter() - started
        monitor.on_progress(Progress(elapsed_s=elapsed_s, objective=objective, bound=bound, incumbent=point))
        left_s = options.time_limit_s - elapsed_s
        if left_s <= 0 or self._proves(bound, objective, options):
            return self._answer(options, relaxed, bound)
        is_heuristic = self.parameters.method is SuikaMethod.HEURISTIC
        watcher = _later(monitor, elapsed_s, objective if is_heuristic else None)
        result = super().solve(replace(options, time_limit_s=left_s), watcher)
        bound = bound if result.bound is None else min(bound, result.bound)
        if is_heuristic or result.objective is None:
            return self._answer(options, result, bound)
        return replace(result, bound=max(bound, result.objective))

    def _proves(self, bound: float, objective: float, options: SolveOptions) -> bool:
        return bound - objective <= (options.relative_gap + _ROUNDING) * abs(objective)

    def _answer(self, options: SolveOptions, proof: SolveResult, bound: float) -> SolveResult:
        """The point of Algorithm 2 beside a bound that `proof` gave."""
        point = self.program.heuristic_point
        objective = self.problem.value(point)
        # A bound that rounding puts below the objective is the objective itself.
        bound = max(bound, objective)
        is_proven = self._proves(bound, objective, options)
        return SolveResult(
            termination=TerminationReason.OPTIMAL if is_proven else TerminationReason.FEASIBLE,
            limit=None if is_proven else proof.limit,
            sense=self.problem.sense,
            incumbent=point,
            objective=objective,
            bound=bound,
            statistics=replace(proof.statistics, first_incumbent_s=0.0),
            solver="heuristic",
            solver_version=__version__,
            message=f"Algorithm 2 in {self.decision.scale_outs.num_rounds} scale-outs, threshold "
            f"{self.decision.tau:.3g}; bound of Problem 1 by {proof.solver} ({proof.termination})",
        )

    def extract(self, incumbent: FloatVector, clock: PhaseClock) -> Plan:
        """Name the GPUs of the chosen scale-outs and consolidate."""
        with clock.phase("place"):
            chosen = [self.program.columns[c] for c in np.flatnonzero(incumbent > _CHOSEN).tolist()]
            return extract_plan(self.snapshot, self.program, chosen, self.decision.refused, self.agents)

    def violations(self, plan: Plan, objective: float) -> list[Issue]:
        """Faults of the placement, of every 3D plan, of the order of demands, and of the objective."""
        return [
            *placement_violations(self.snapshot, plan.allocations, whole_nodes=False),
            *suika_violations(self.snapshot, self.parameters, self.decision, self.agents.model, plan, objective),
        ]


def _later(monitor: SolveMonitor, elapsed_s: float, objective: float | None) -> SolveMonitor:
    """Progress of a solve that starts after `elapsed_s`; with an objective, it is asked for its bound only."""

    def tell(progress: Progress) -> None:
        news = replace(progress, elapsed_s=elapsed_s + progress.elapsed_s)
        monitor.on_progress(news if objective is None else replace(news, objective=objective, incumbent=None))

    return SolveMonitor(on_progress=tell, canceled=monitor.canceled)


def formulate_suika(snapshot: Snapshot, parameters: SuikaParameters, clock: PhaseClock) -> SuikaFormulation:
    """Decide by Algorithm 2 and declare Problem 1, for a snapshot that passed `policy_issues`."""
    with clock.phase("performance"):
        agents = Agents(snapshot, parameters.planning)
    with clock.phase("decide"):
        decision = decide(snapshot, parameters, agents)
    with clock.phase("build"):
        return SuikaFormulation(snapshot=snapshot, parameters=parameters, agents=agents, decision=decision)

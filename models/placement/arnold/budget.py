"""What a search of ours may still spend: wall-clock time, and the patience of whoever waits."""

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from solver.monitor import Progress, SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.result import Limit, SolveResult
from solver.solve import solve
from stowplan.arrays import FloatVector

if TYPE_CHECKING:
    import pyomo.environ as pyo

    from solver.compilers.pyomo import PyomoCompilation


@dataclass(slots=True, kw_only=True, eq=False)
class Budget:
    """Time limit and cancellation of one search, and the solves inside it.

    `num_nodes` adds up the nodes of those solves. Unless `may_solve`, only what needs no solve is done.
    """

    options: SolveOptions
    monitor: SolveMonitor
    may_solve: bool = True
    started: float = field(default_factory=time.perf_counter)
    started_cpu: float = field(default_factory=time.process_time)
    first_incumbent_s: float | None = None
    num_nodes: int = 0

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started

    @property
    def elapsed_cpu_s(self) -> float:
        """CPU seconds of the process since the start."""
        return time.process_time() - self.started_cpu

    @property
    def remaining_s(self) -> float:
        """Seconds left, negative when none are."""
        return self.options.time_limit_s - self.elapsed_s

    @property
    def ended_by(self) -> Limit | None:
        """The limit that ends the search now, None while it may go on."""
        if self.monitor.canceled.is_set():
            return Limit.INTERRUPTED
        return Limit.TIME if self.remaining_s <= 0 else None

    def solve(
        self, model: "pyo.ConcreteModel", *, share: float = 1.0, gap: float = 0.0, start: FloatVector | None = None
    ) -> "tuple[PyomoCompilation, SolveResult] | None":
        """Solve a model of ours with HiGHS in `share` of what is left; None when nothing is."""
        if not self.may_solve or self.ended_by is not None:
            return None
        # Who has a model has loaded Pyomo.
        from solver.compilers.pyomo import compile_pyomo

        compiled = compile_pyomo(model)
        result = self.solve_problem(compiled.problem, share=share, gap=gap, start=start)
        return None if result is None else (compiled, result)

    def solve_problem(
        self, problem: MatrixProblem, *, share: float = 1.0, gap: float = 0.0, start: FloatVector | None = None
    ) -> SolveResult | None:
        """Solve a problem of ours, as `solve` does a model."""
        if not self.may_solve or self.ended_by is not None:
            return None
        options = SolveOptions(
            time_limit_s=self.remaining_s * share,
            relative_gap=gap,
            threads=self.options.threads,
            seed=self.options.seed,
            warm_start=start,
        )
        result = solve(problem, options, SolveMonitor(canceled=self.monitor.canceled))
        self.num_nodes += result.statistics.num_nodes or 0
        return result

    def tell(self, *, objective: float | None, bound: float | None, incumbent: FloatVector | None = None) -> None:
        """Report to whoever watches."""
        if incumbent is not None and self.first_incumbent_s is None:
            self.first_incumbent_s = self.elapsed_s
        self.monitor.on_progress(
            Progress(
                elapsed_s=self.elapsed_s,
                objective=objective,
                bound=bound,
                incumbent=incumbent,
                num_nodes=self.num_nodes,
            )
        )

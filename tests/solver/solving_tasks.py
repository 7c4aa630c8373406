"""What the pool's tests run in workers that solve."""

from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.result import SolveResult
from solver.solve import solve
from tests.solver.instances import slow_knapsack


def optimise(options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
    """Solve for real."""
    return solve(slow_knapsack(), options, monitor)

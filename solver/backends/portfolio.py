"""Portfolio: two backends race on the same problem in parallel threads; the first proof wins and stops the other.

Both release the interpreter lock while they search, so this needs two cores. Without a proof the better incumbent and
the tighter of the two bounds, both proved for the same problem, are put together.
"""

import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace

from solver.backends.base import Backend, finite
from solver.backends.decomposition import DecompositionBackend
from solver.backends.scip import ScipBackend
from solver.monitor import Progress, SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.result import SolveResult, TerminationReason

_PROOFS = (TerminationReason.OPTIMAL, TerminationReason.INFEASIBLE, TerminationReason.UNBOUNDED)
# How often a cancellation from outside is looked for.
_POLL_S = 0.05


class PortfolioBackend:
    """Races `backends`, which are the decomposition and SCIP where none are given; the result names the winner."""

    name = "portfolio"

    def __init__(self, *backends: Backend) -> None:
        self._backends = backends or (DecompositionBackend(), ScipBackend())

    @property
    def version(self) -> str:
        """Names and versions of the racers."""
        return ", ".join(f"{backend.name} {backend.version}" for backend in self._backends)

    def solve(self, problem: MatrixProblem, options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
        """Solve `problem`; see the protocol."""
        stop = threading.Event()
        inner = SolveMonitor(on_progress=_Merged(problem, monitor).forward, canceled=stop)
        with ThreadPoolExecutor(len(self._backends), thread_name_prefix="portfolio") as threads:
            running = {threads.submit(backend.solve, problem, options, inner) for backend in self._backends}
            try:
                results = _race(running, monitor.canceled, stop)
            finally:
                stop.set()
        proofs = [result for result in results if result.termination in _PROOFS]
        return proofs[0] if proofs else _combined(problem, results)


class _Merged:
    """One monotone feed from several: an incumbent or a bound passes only when it is the best so far."""

    def __init__(self, problem: MatrixProblem, monitor: SolveMonitor) -> None:
        self._sign = problem.sense.sign
        self._problem = problem
        self._monitor = monitor
        self._lock = threading.Lock()
        self._objective: float | None = None
        self._bound: float | None = None

    def forward(self, progress: Progress) -> None:
        """Pass on what is new."""
        point, bound = progress.incumbent, finite(progress.bound)
        with self._lock:
            news = False
            if point is not None:
                value = self._problem.value(point)
                if self._objective is None or self._sign * (value - self._objective) < 0:
                    self._objective, news = value, True
            if bound is not None and (self._bound is None or self._sign * (bound - self._bound) > 0):
                self._bound = bound
            told = replace(progress, objective=self._objective, bound=self._bound, incumbent=point if news else None)
            self._monitor.on_progress(told)


def _race(running: set["Future[SolveResult]"], canceled: threading.Event, stop: threading.Event) -> list[SolveResult]:
    """Results in the order of arrival; the losers of a proof are told to stop and waited for."""
    results: list[SolveResult] = []
    while running:
        done, running = wait(running, timeout=_POLL_S, return_when=FIRST_COMPLETED)
        results += [future.result() for future in done]
        if canceled.is_set() or any(result.termination in _PROOFS for result in results):
            stop.set()
    return results


def _combined(problem: MatrixProblem, results: list[SolveResult]) -> SolveResult:
    """The best incumbent with the best bound."""
    sign = problem.sense.sign
    bounds = [sign * result.bound for result in results if result.bound is not None]
    found = [result for result in results if result.objective is not None]
    best = min(found, key=lambda result: sign * (result.objective or 0.0)) if found else results[0]
    return replace(best, bound=sign * max(bounds) if bounds else None)

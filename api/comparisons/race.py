"""One instance through several solvers: one after another, each in a fresh worker, under the same limits."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from models.comparison import History, RunFailure, SolverRun
from models.plan import PlanRequest
from models.planning_task import limit_named
from models.policies import policy_of
from solver.engine import WorkerEngine
from solver.pool import WorkerPool
from solver.registry import BACKENDS
from solver.ticket import TaskCanceledError, Ticket
from stowplan.errors import StowplanError

RUN_TASK = "models.tracing:traced_task"
_NOT_BEGUN = RunFailure(code=TaskCanceledError.code, detail="the comparison was stopped before this solver began")


class SolverComparison:
    """Runs solvers on `request`. `stop` and `kill` may come from any thread, `run` is for one.

    `slack_s` is how long a worker may take beyond the time limit of its solve. `wait` waits for the result of a
    ticket; it may look on, and may call `stop`.
    """

    def __init__(
        self,
        request: PlanRequest,
        slack_s: float,
        wait: Callable[[Ticket], Any] = lambda ticket: ticket.result(),
        engine: WorkerEngine | None = None,
    ) -> None:
        self._request = request
        self._deadline_s = request.options.time_limit_s + slack_s
        self._wait = wait
        self._engine = engine
        self._lock = threading.Lock()
        self._stopped = False
        self._pool: WorkerPool | None = None
        self._ticket: Ticket | None = None

    def run(self, solver: str) -> SolverRun:
        """Run one solver. Whatever goes wrong is in the answer, so that others can still be run."""
        if self._stopped:
            return _failed(solver, History(), _NOT_BEGUN)
        history = History()
        try:
            run: SolverRun = self._run_in_fresh_worker(solver, history)
        except TaskCanceledError:
            return _failed(solver, history, _NOT_BEGUN)
        except StowplanError as error:
            return _failed(solver, history, RunFailure(code=error.code, detail=error.detail, issues=error.issues))
        if run.outcome is None:
            return run
        limit = limit_named(run.outcome.limit, canceled=self._stopped)
        return replace(run, outcome=replace(run.outcome, limit=limit))

    def stop(self) -> None:
        """Ask the solver that runs to come back with its best plan; later ones are not run."""
        with self._lock:
            self._stopped = True
            ticket = self._ticket
        if ticket is not None:
            ticket.cancel()

    def kill(self) -> None:
        """Stop, and end the worker now."""
        self.stop()
        with self._lock:
            pool = self._pool
        if pool is not None:
            pool.close()

    def _run_in_fresh_worker(self, solver: str, history: History) -> Any:
        request = replace(self._request, options=replace(self._request.options, solver=solver))
        with WorkerPool(num_workers=1, max_queue=1, preload=_preload(request), engine=self._engine) as pool:
            ticket = pool.submit(RUN_TASK, request, self._deadline_s, on_progress=history.add)
            with self._lock:
                self._pool, self._ticket = pool, ticket
                stopped = self._stopped
            if stopped:
                ticket.cancel()
            return self._wait(ticket)


def _preload(request: PlanRequest) -> tuple[str, ...]:
    """What a worker loads before the clock runs: what is compared are solvers, not imports, nor what others need."""
    policy, solver = policy_of(request.parameters), request.options.solver
    # A snapshot may travel as text, which the worker reads.
    reads = type(request.snapshot).__module__
    needed = (RUN_TASK, reads, policy.formulate, *policy.declarations, BACKENDS.get(solver, RUN_TASK))
    return tuple(dict.fromkeys(name.partition(":")[0] for name in needed))


def _failed(solver: str, history: History, failure: RunFailure) -> SolverRun:
    return SolverRun(solver=solver, outcome=None, failure=failure, history=history.points)

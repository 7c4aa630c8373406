"""SCIP: branch-and-cut on one thread (the distributed libraries have no concurrent solve).

Traps that this file steps around (each has a test):
- `optimize` holds the interpreter lock, `optimizeNogil` does not;
- `interruptSolve` fails between the stages of a solve, and is forgotten when it comes before: it is repeated;
- SCIP catches Ctrl-C by itself unless told not to;
- rows without coefficients cannot be written as sums of variables;
- integers come as 3.999999999999992.
"""

import contextlib
import functools
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from pyscipopt import SCIP_EVENTTYPE, SCIP_STAGE, Eventhdlr, Expr, ExprCons, Model, Variable
from pyscipopt.scip import Term
from scipy import sparse

from solver.backends.base import NativeOutcome, ProgressFeed, conclude
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.result import Limit, SolveResult, SolveStatistics, TerminationReason
from solver.sense import Sense
from stowplan.arrays import FloatVector

# Every string that Model.getStatus can return.
ENDINGS: dict[str, TerminationReason | Limit] = {
    "unknown": TerminationReason.OTHER_ERROR,
    "userinterrupt": Limit.INTERRUPTED,
    "nodelimit": Limit.NODE,
    "totalnodelimit": Limit.NODE,
    "stallnodelimit": Limit.NODE,
    "timelimit": Limit.TIME,
    "memlimit": Limit.MEMORY,
    # The gap that was asked for is proved; whether it really is, solver.solve checks.
    "gaplimit": TerminationReason.OPTIMAL,
    "sollimit": Limit.SOLUTION,
    "bestsollimit": Limit.SOLUTION,
    "restartlimit": Limit.OTHER,
    "primallimit": Limit.OBJECTIVE,
    "duallimit": Limit.OBJECTIVE,
    "optimal": TerminationReason.OPTIMAL,
    "infeasible": TerminationReason.INFEASIBLE,
    "unbounded": TerminationReason.UNBOUNDED,
    "inforunbd": TerminationReason.INFEASIBLE_OR_UNBOUNDED,
}
_CANCEL_POLL_S = 0.05


class ScipBackend:
    """The SCIP constraint integer programming framework. Ignores `threads`."""

    name = "scip"

    @property
    def version(self) -> str:
        """Version of the SCIP library."""
        return _version()

    def solve(self, problem: MatrixProblem, options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
        """Solve `problem`; see the protocol."""
        feed = ProgressFeed(monitor=monitor)
        model, variables = load(problem)
        _set_options(model, options)
        _set_start(model, variables, options.warm_start)
        model.includeEventhdlr(_Reporter(variables, feed), "stowplan", "reports incumbents and bounds")
        load_s, cpu_s = feed.elapsed_s(), time.process_time()
        model.setParam("limits/time", max(0.0, options.time_limit_s - load_s))
        with interruptible(model, monitor.canceled):
            model.optimizeNogil()
        statistics = SolveStatistics(
            load_s=load_s,
            solve_s=feed.elapsed_s() - load_s,
            solve_cpu_s=time.process_time() - cpu_s,
            first_incumbent_s=feed.first_incumbent_s,
            num_nodes=int(model.getNTotalNodes()),
        )
        result = conclude(self, problem, _outcome(model, variables), statistics)
        model.freeProb()
        return result


@functools.cache
def _version() -> str:
    model = Model()
    return f"{model.getMajorVersion()}.{model.getMinorVersion()}.{model.getTechVersion()}"


def load(problem: MatrixProblem) -> tuple[Model, list[Variable]]:
    """Build a silent SCIP model; row i is the constraint `r{i}`."""
    model = Model()
    model.hideOutput()
    model.setParam("misc/catchctrlc", False)
    types = np.where(problem.integrality, "I", "C").tolist()
    columns = zip(types, _open(problem.lower), _open(problem.upper), problem.objective.tolist(), strict=True)
    variables = [model.addVar(f"c{j}", *column) for j, column in enumerate(columns)]
    terms = [Term(variable) for variable in variables]
    rows = sparse.csr_array(problem.matrix)
    starts, indices, data = rows.indptr.tolist(), rows.indices.tolist(), rows.data.tolist()
    for i, (lower, upper) in enumerate(zip(_open(problem.row_lower), _open(problem.row_upper), strict=True)):
        if lower is None and upper is None:
            continue
        entries = range(starts[i], starts[i + 1])
        # Building the expression directly is several times faster than summing, and empty rows are allowed.
        body = Expr({terms[indices[k]]: data[k] for k in entries})
        model.addCons(ExprCons(body, lower, upper), name=f"r{i}")
    if problem.sense is Sense.MAXIMIZE:
        model.setMaximize()
    model.addObjoffset(problem.offset)
    return model, variables


def _open(limits: FloatVector) -> list[float | None]:
    return [None if np.isinf(limit) else limit for limit in limits.tolist()]


def _set_options(model: Model, options: SolveOptions) -> None:
    model.setParam("limits/gap", options.relative_gap)
    model.setParam("limits/absgap", 0.0)
    model.setParam("randomization/randomseedshift", options.seed)
    if options.log is not None:
        model.setLogfile(str(options.log))


def _set_start(model: Model, variables: Sequence[Variable], start: FloatVector | None) -> None:
    """Give what is known of the start. SCIP completes it, or drops it when it is of no use."""
    if start is None:
        return
    known = np.flatnonzero(np.isfinite(start)).tolist()
    solution = model.createSol() if len(known) == len(variables) else model.createPartialSol()
    for j in known:
        model.setSolVal(solution, variables[j], float(start[j]))
    model.addSol(solution)


class _Reporter(Eventhdlr):  # type: ignore[misc]  # pyscipopt's types are not followed
    """Reports every new best solution and dual bound."""

    _EVENTS = (SCIP_EVENTTYPE.BESTSOLFOUND, SCIP_EVENTTYPE.DUALBOUNDIMPROVED)

    def __init__(self, variables: Sequence[Variable], feed: ProgressFeed) -> None:
        self._variables = variables
        self._feed = feed

    def eventinit(self) -> None:
        """Subscribe."""
        for event_type in self._EVENTS:
            self.model.catchEvent(event_type, self)

    def eventexit(self) -> None:
        """Unsubscribe."""
        for event_type in self._EVENTS:
            self.model.dropEvent(event_type, self)

    def eventexec(self, event: Any) -> None:
        """Report."""
        model = self.model
        bound, nodes = float(model.getDualbound()), int(model.getNTotalNodes())
        if event.getType() == SCIP_EVENTTYPE.BESTSOLFOUND:
            best = model.getBestSol()
            self._feed.incumbent(_values(model, best, self._variables), model.getSolObjVal(best), bound, nodes)
        else:
            self._feed.bound(bound, nodes)


def _values(model: Model, solution: Any, variables: Sequence[Variable]) -> FloatVector:
    return np.array([model.getSolVal(solution, variable) for variable in variables])


@contextlib.contextmanager
def interruptible(model: Model, canceled: threading.Event) -> Iterator[None]:
    """Interrupt the solve inside the block once `canceled` is set."""
    finished = threading.Event()

    def watch() -> None:
        while not finished.wait(_CANCEL_POLL_S):
            if canceled.is_set() and model.getStage() in (SCIP_STAGE.PRESOLVING, SCIP_STAGE.SOLVING):
                # The stage may have changed meanwhile, which SCIP refuses with a bare Exception; then again.
                with contextlib.suppress(Exception):
                    model.interruptSolve()

    watcher = threading.Thread(target=watch, name="scip-interrupt", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join()


def _outcome(model: Model, variables: Sequence[Variable]) -> NativeOutcome:
    native = model.getStatus()
    return NativeOutcome(
        ending=ENDINGS[native],
        point=_values(model, model.getBestSol(), variables) if model.getNSols() > 0 else None,
        bound=float(model.getDualbound()),
        message=f"SCIP: {native}",
    )

"""The one way to solve a matrix problem: prepare, hand to a backend, check, answer.

No answer of a backend is taken on trust: every incumbent, also those reported on the way, is rounded and checked
against the problem as it was declared, its objective is computed here, and an optimum whose gap is not proved is
only feasible.
"""

import math
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pkgutil import resolve_name

import numpy as np

from solver.backends.base import CROSSING_TOLERANCE, Backend, NativeOutcome, conclude, finite, rounded
from solver.feasibility import violations
from solver.monitor import Progress, SolveMonitor
from solver.options import SolveOptions
from solver.preparation import Prepared, prepare
from solver.problem import MatrixProblem
from solver.registry import AUTO, BACKENDS
from solver.result import Limit, SolveResult, SolveStatistics, TerminationReason
from stowplan.arrays import FloatVector, all_of
from stowplan.errors import BackendError, InputError
from stowplan.slots import copier

# What `auto` asks.
_DEFAULT = "decomposition"
_left = copier(SolveOptions, "time_limit_s", "prices")
_completed = copier(SolveResult, "prices", "statistics")
# Backends that have been asked for: loading a solver takes tenths of a second.
_loaded: dict[str, Backend] = {}
_loading = threading.Lock()


def load_backend(name: str) -> Backend | None:
    """Load the backend of this name, once; None where none is called so.

    Raises
    ------
    BackendError
        When its solver is not installed.
    """
    asked = _DEFAULT if name == AUTO else name
    if asked in _loaded:
        return _loaded[asked]
    with _loading:
        if asked in BACKENDS and asked not in _loaded:
            try:
                _loaded[asked] = resolve_name(BACKENDS[asked])()
            except ImportError as error:
                raise BackendError(f"the solver {name} is not installed: {error}") from error
        return _loaded.get(asked)


def available_solvers() -> Mapping[str, str]:
    """Names of the backends and the versions of their solvers."""
    return {name: _find(name).version for name in BACKENDS}


def solve(problem: MatrixProblem, options: SolveOptions, monitor: SolveMonitor | None = None) -> SolveResult:
    """Solve under the limits of `options`; progress and cancellation go through `monitor`.

    A warm start that is complete and feasible is the first incumbent, whatever the backend makes of it.

    Raises
    ------
    InputError
        For an unknown solver, a warm start of another shape than (n,), prices of another shape than (m,), or a log
        that cannot be written.
    BackendError
        When the solver cannot represent the problem or refuses an option.
    """
    started = time.perf_counter()
    monitor = monitor or SolveMonitor()
    backend = _find(options.solver)
    start = options.warm_start
    if start is not None and start.shape != (problem.num_columns,):
        raise InputError(f"the warm start has shape {start.shape}; {problem.name} has {problem.num_columns} columns")
    if options.prices is not None and options.prices.shape != (problem.num_rows,):
        raise InputError(f"the prices have shape {options.prices.shape}; {problem.name} has {problem.num_rows} rows")
    _open_log(options)
    prepared = prepare(problem)
    watch = _Watch(problem, monitor, prepared, started)
    if start is not None and watch.consider(start) and watch.best is not None and prepared.is_given:
        prepared.problem.tell_point(watch.best)
    result = _dispatch(backend, prepared, options, monitor, watch, started)
    result = _settled(problem, prepared.factor, options, result, watch)
    prices = None if result.prices is None else result.prices * prepared.row_factors / prepared.factor
    return _completed(result, prices, _statistics(problem, result, watch, started))


def _find(name: str) -> Backend:
    backend = load_backend(name)
    if backend is None:
        raise InputError(f"unknown solver {name!r}; available: {', '.join(sorted({AUTO, *BACKENDS}))}")
    return backend


def _open_log(options: SolveOptions) -> None:
    """Solvers go on without a word when they cannot write their log."""
    if options.log is None:
        return
    try:
        options.log.touch()
    except OSError as error:
        raise InputError(f"the log {options.log} cannot be written: {error.strerror}") from error


def _dispatch(
    backend: Backend,
    prepared: Prepared,
    options: SolveOptions,
    monitor: SolveMonitor,
    watch: "_Watch",
    started: float,
) -> SolveResult:
    """Answer what needs no search; ask the backend for the rest."""
    problem = prepared.problem
    outcome = None
    remaining_s = options.time_limit_s - (time.perf_counter() - started)
    if prepared.conflicts:
        named = ", ".join(prepared.conflicts[:10])
        outcome = NativeOutcome(ending=TerminationReason.INFEASIBLE, message=f"contradictory by itself: {named}")
    elif not problem.matrix.indptr[-1]:
        outcome = _separable(problem)
    elif monitor.canceled.is_set():
        outcome = NativeOutcome(ending=Limit.INTERRUPTED)
    elif remaining_s <= 0:
        outcome = NativeOutcome(ending=Limit.TIME)
    if outcome is not None:
        return conclude(backend, problem, outcome, SolveStatistics())
    inner = SolveMonitor(on_progress=watch.forward, canceled=monitor.canceled)
    prices = None if options.prices is None else options.prices * prepared.factor / prepared.row_factors
    return backend.solve(problem, _left(options, remaining_s, prices), inner)


def _separable(problem: MatrixProblem) -> NativeOutcome:
    """Without coefficients every column goes to its better bound."""
    slope = problem.sense.sign * problem.objective
    indifferent = np.clip(0.0, problem.lower, problem.upper)
    point = np.select([slope > 0, slope < 0], [problem.lower, problem.upper], indifferent)
    if not np.isfinite(point).all():
        return NativeOutcome(ending=TerminationReason.UNBOUNDED)
    return NativeOutcome(ending=TerminationReason.OPTIMAL, point=point, bound=problem.value(point))


class _Watch:
    """Stands between a backend and whoever watches: unscales, checks, keeps the best incumbent."""

    def __init__(self, problem: MatrixProblem, monitor: SolveMonitor, prepared: Prepared, started: float) -> None:
        self._problem = problem
        self._monitor = monitor
        self._prepared = prepared
        self._started = started
        self.best: FloatVector | None = None
        self.objective: float | None = None
        self.first_incumbent_s: float | None = None

    def consider(self, x: FloatVector) -> bool:
        """Keep `x` (n,) when it is complete, feasible and better than what is known."""
        if self.knows(x) or not all_of(np.isfinite(x)):
            return False
        point = rounded(self._problem, x)
        objective = self._problem.value(point)
        if self.objective is not None and self._problem.sense.sign * (objective - self.objective) >= 0:
            return False
        if violations(self._problem, point):
            return False
        self.best, self.objective = point, objective
        if self.first_incumbent_s is None:
            self.first_incumbent_s = time.perf_counter() - self._started
        return True

    def knows(self, x: FloatVector) -> bool:
        """Whether `x` (n,) is the best so far, which has been checked."""
        return self.best is not None and (x is self.best or all_of(x == self.best))

    def declared(self, bound: float | None) -> float | None:
        """A bound of the prepared problem as one of the declared, less what solvers did not see."""
        if bound is None or not math.isfinite(self._prepared.unseen):
            return None
        return bound / self._prepared.factor - self._problem.sense.sign * self._prepared.unseen

    def forward(self, progress: Progress) -> None:
        """Pass progress on in the declared units, incumbents only when they hold."""
        news = progress.incumbent is not None and self.consider(progress.incumbent)
        self._monitor.on_progress(
            Progress(
                elapsed_s=time.perf_counter() - self._started,
                objective=self.objective,
                bound=self.declared(finite(progress.bound)),
                incumbent=self.best if news else None,
                num_nodes=progress.num_nodes,
            )
        )


def _settled(
    problem: MatrixProblem, factor: float, options: SolveOptions, result: SolveResult, watch: _Watch
) -> SolveResult:
    """Bring the backend's result back to the declared units and believe only what can be checked."""
    bound = watch.declared(result.bound)
    if result.incumbent is None:
        return _with_best(replace(result, bound=bound), watch, factor)
    point = result.incumbent
    if not watch.knows(point):
        point = rounded(problem, point)
        broken = violations(problem, point)
        if broken:
            failed = _failed(result, f"{result.solver} returned an infeasible point: {broken[0]}")
            return _with_best(failed, watch, factor)
    # The factor is a power of two: both values are exactly those that the backend compared.
    objective = problem.value(point)
    if result.termination is TerminationReason.OPTIMAL:
        distance = np.inf if bound is None else problem.sense.sign * (objective - bound)
        if distance > options.relative_gap * abs(objective) + _rounding(objective, factor):
            message = f"{result.solver} claims an optimum at a gap of {distance:g}"
            result = replace(result, termination=TerminationReason.FEASIBLE, message=message)
    return _with_best(replace(result, incumbent=point, objective=objective, bound=bound), watch, factor)


def _failed(result: SolveResult, message: str) -> SolveResult:
    return replace(
        result,
        termination=TerminationReason.NUMERICAL_ERROR,
        limit=None,
        incumbent=None,
        objective=None,
        bound=None,
        message=message,
    )


def _rounding(objective: float, factor: float) -> float:
    """How far apart two values may be that are the same to a solver."""
    return CROSSING_TOLERANCE * max(abs(objective), min(1.0, 1.0 / factor))


def _with_best(result: SolveResult, watch: _Watch, factor: float) -> SolveResult:
    """No ending loses an incumbent that was known before: the warm start, or one reported on the way. Where it is
    unbounded, none is worth anything."""
    if watch.best is None or watch.objective is None or result.termination is TerminationReason.UNBOUNDED:
        return result
    sign, rounding = result.sense.sign, _rounding(watch.objective, factor)
    if result.objective is not None and sign * (result.objective - watch.objective) <= rounding:
        return result
    termination, bound, message = result.termination, result.bound, result.message
    if bound is None or sign * (bound - watch.objective) > rounding:
        bound = None
    else:
        bound = sign * min(sign * bound, sign * watch.objective)
    if bound is None or termination is not TerminationReason.OPTIMAL:
        termination = TerminationReason.FEASIBLE
    if result.limit is None:
        said = f"{result.solver} ends as {result.termination} beside a better solution that is known"
        message = f"{said}; {message}" if message else said
    return replace(
        result,
        termination=termination,
        incumbent=watch.best,
        objective=watch.objective,
        bound=bound,
        message=message,
    )


def _statistics(problem: MatrixProblem, result: SolveResult, watch: _Watch, started: float) -> SolveStatistics:
    """Complete what the backend measured; load time includes the preparation."""
    given = result.statistics
    elapsed_s = time.perf_counter() - started
    first_s = watch.first_incumbent_s if watch.first_incumbent_s is not None else elapsed_s
    return SolveStatistics(
        load_s=elapsed_s if given.solve_s is None else elapsed_s - given.solve_s,
        solve_s=given.solve_s or 0.0,
        solve_cpu_s=given.solve_cpu_s,
        first_incumbent_s=None if result.incumbent is None else first_s,
        num_nodes=given.num_nodes,
        num_columns=problem.num_columns,
        num_rows=problem.num_rows,
        num_nonzeros=int(problem.matrix.indptr[-1]),
    )

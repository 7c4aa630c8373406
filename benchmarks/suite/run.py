"""Make the runs of a suite: one after another, each in a fresh process with a hard deadline."""

import datetime
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.suite.case import Case
from benchmarks.suite.machine import environment
from benchmarks.suite.record import CaseFacts, Protocol, RunRecord, Status, SuiteResult
from benchmarks.suite.registry import answers_heuristically, find_case, solvers_for
from benchmarks.suite.task import TASK, RunOrder
from models.policies import DECLARATIONS
from solver.pool import WorkerPool
from stowplan.errors import StowplanError, WorkerError

# Beyond the limit of the solve, for making the input, the warm-up, declaring large models, placing and checking.
GRACE_S = 120.0
_PRELOAD = (TASK.partition(":")[0], *DECLARATIONS)
# The modelling layer is measured beside this solver, once per case and seed.
_MODELLING_BESIDE = "highs"


def orders(cases: Sequence[Case], protocol: Protocol) -> Iterator[RunOrder]:
    """Every run of the protocol. Solvers take turns, so that what the machine does meanwhile meets all of them."""
    for case in cases:
        for seed in protocol.seeds if case.seeded else protocol.seeds[:1]:
            for run in range(protocol.num_runs):
                for solver in solvers_for(case.problem, protocol.solvers):
                    yield RunOrder(
                        case=case.name,
                        seed=seed,
                        run=run,
                        solver=solver,
                        limit_s=protocol.limit_s,
                        relative_gap=protocol.relative_gap,
                        modelling=run == 0 and solver == _MODELLING_BESIDE,
                    )


def run_suite(
    cases: Sequence[Case],
    protocol: Protocol,
    command: str,
    path: Path | None = None,
    watch: Callable[[RunOrder, RunRecord | None], None] = lambda *_: None,
) -> SuiteResult:
    """Make all runs.

    A run that did not prove its answer is not repeated, but for heuristics: its time says no more than the limit.

    Parameters
    ----------
    cases, protocol
        What is run, and how.
    command
        The command line, for the record.
    path
        Where the result is written, after every run.
    watch
        Called before every run, and after it with its record.
    """
    result = SuiteResult(
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        command=command,
        environment=environment(),
        protocol=protocol,
        cases=tuple(_facts(case) for case in cases),
        runs=(),
    )
    unproven: set[tuple[str, int, str]] = set()
    with WorkerPool(num_workers=1, max_queue=1, max_tasks_per_worker=1, preload=_PRELOAD) as pool:
        for order in orders(cases, protocol):
            subject = (order.case, order.seed, order.solver)
            if subject in unproven:
                continue
            watch(order, None)
            record = _made(pool, order)
            watch(order, record)
            is_done = record.checked is True and answers_heuristically(find_case(order.case).problem)
            if not (record.is_proven or is_done):
                unproven.add(subject)
            result = replace(result, runs=(*result.runs, record))
            if path is not None:
                result.write(path)
    return result


def _made(pool: WorkerPool, order: RunOrder) -> RunRecord:
    """One run; what the process last reported when it had to be killed."""
    ticket = pool.submit(TASK, order, order.limit_s + GRACE_S)
    try:
        record = ticket.result()
    except WorkerError as error:
        progress = ticket.last_progress
        return replace(
            order.record(Status.KILLED, str(error)),
            bound=None if progress is None else progress.bound,
            trajectory=() if progress is None else ((progress.elapsed_s, progress.objective, progress.bound),),
        )
    except StowplanError as error:
        return order.record(Status.FAILED, str(error))
    if not isinstance(record, RunRecord):
        raise TypeError(f"the task answered with {type(record).__name__}")
    return record


def _facts(case: Case) -> CaseFacts:
    return CaseFacts(
        name=case.name,
        problem=case.problem,
        series=case.series,
        scale=case.scale,
        size=dict(case.size),
        source=case.source,
        seeded=case.seeded,
    )

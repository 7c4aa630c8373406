"""Made-up results that the tests of this folder share."""

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.suite.record import CaseFacts, Environment, Protocol, RunRecord, Status, SuiteResult

ENVIRONMENT = Environment(
    cpu="cpu",
    num_cores=2,
    memory_bytes=2**34,
    load=0.1,
    system="Linux",
    python="3.12.0",
    versions={"highs": "1"},
    commit="0" * 40,
    dirty=False,
)
PROTOCOL = Protocol(suite="test", solvers=("exact", "highs"), num_runs=3, seeds=(0,), limit_s=60.0, relative_gap=1e-4)


def record(case: str, solver: str, cpu_s: float | None, run: int = 0, seed: int = 0) -> RunRecord:
    """A proven run that took `cpu_s`, half of it to place; None for one that found nothing within its limit."""
    base = RunRecord(case=case, seed=seed, run=run, solver=solver, status=Status.ANSWERED, sense="minimize")
    if cpu_s is None:
        phases = {"export": 1.0, "build": 1.0, "solve": 60.0}
        return replace(base, termination="no_solution_found", limit="time", bound=1.0, cpu_s=phases, wall_s=phases)
    phases = {"export": 1.0, "solve": cpu_s / 2, "place": cpu_s / 2}
    return replace(
        base,
        termination="optimal",
        objective=2.0,
        bound=2.0,
        relative_gap=0.0,
        checked=True,
        cpu_s=phases,
        wall_s=phases,
        peak_memory_bytes=2**28,
        first_incumbent_s=cpu_s / 10,
        trajectory=((cpu_s / 10, 2.0, 1.0), (cpu_s / 2, 2.0, 2.0)),
    )


def result(runs: Sequence[RunRecord]) -> SuiteResult:
    """A result with these runs."""
    names = dict.fromkeys(run.case for run in runs)
    cases = [
        CaseFacts(
            name=name,
            problem=name.partition("/")[0],
            series=f"{name.partition('/')[0]} series",
            scale=10 ** (k + 1),
            size={"gpus": 10 ** (k + 1)},
            source="made up",
            seeded=True,
        )
        for k, name in enumerate(names)
    ]
    return SuiteResult(
        started="2026-01-01T00:00:00+00:00",
        command="python -m benchmarks run",
        environment=ENVIRONMENT,
        protocol=PROTOCOL,
        cases=tuple(cases),
        runs=tuple(runs),
    )

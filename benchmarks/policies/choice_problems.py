"""The decomposition next to HiGHS on random choice problems: `python -m benchmarks choice-problems --instances 1000`.

Problems are those of `benchmarks.workloads.choice_problems`. Every one is solved by both, in one process with one
thread, each of them first in every other run; its times are the least of the runs, since what else a machine does makes
single ones half as long again, also where both make the same call. Where both are done, their objectives must differ by
no more than the gap. Ratios are CPU of the decomposition over CPU of HiGHS, where HiGHS takes longer than `--above`;
one that ended at the limit counts with the limit.
"""

import os
import time
from dataclasses import replace
from typing import Annotated

import numpy as np
import typer

from benchmarks.rows import Row, show, write
from benchmarks.workloads.choice_problems import drawn_choice_problem
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.result import SolveResult, TerminationReason
from solver.solve import solve

_OURS, _THEIRS = "decomposition", "highs"
_TARGET_RATIO = 1.3
_ROUNDING = 1e-6


def main(
    instances: Annotated[int, typer.Option(help="Problems.")] = 200,
    first: Annotated[int, typer.Option(help="Seed of the first one.")] = 0,
    runs: Annotated[int, typer.Option(help="Of every problem and solver.")] = 3,
    gap: Annotated[float, typer.Option(help="Relative gap.")] = 1e-4,
    least: Annotated[int, typer.Option(help="Fewest blocks.")] = 3,
    most: Annotated[int, typer.Option(help="Most blocks.")] = 2000,
    limit: Annotated[float, typer.Option(help="Seconds per solve.")] = 20.0,
    above: Annotated[float, typer.Option(help="Milliseconds that HiGHS takes at least where ratios count.")] = 10.0,
    result: Annotated[str, typer.Option(help="Name of the result.")] = "choice_problems",
) -> None:
    """Compare the decomposition with HiGHS on random choice problems; fails when they disagree."""
    if os.environ.get("OMP_NUM_THREADS") != "1":
        print("OMP_NUM_THREADS is not 1: products of small matrices wait for one another's threads")
    options = SolveOptions(relative_gap=gap, time_limit_s=limit)
    for solver in (_OURS, _THEIRS):
        solve(drawn_choice_problem(first, 200, 201), replace(options, solver=solver))
    rows: list[Row] = []
    for seed in range(first, first + instances):
        rows.append(_row(seed, drawn_choice_problem(seed, least, most), options, runs))
        print(rows[-1], flush=True)
    counted = [row for row in rows if float(str(row["highs_ms"])) >= above]
    show(f"least of {runs} runs, gap {gap:g}", [_summary(counted)] if counted else rows)
    protocol = (
        f"least of {runs} runs, gap {gap:g}, limit {limit:g} s, {least} to {most} blocks, ratios above {above:g} ms"
    )
    print(write(result, protocol, rows))
    wrong = [row["seed"] for row in rows if not row["agree"]]
    if wrong:
        print(f"they disagree on {wrong}")
        raise typer.Exit(1)


def _row(seed: int, problem: MatrixProblem, options: SolveOptions, runs: int) -> Row:
    times: dict[str, list[float]] = {_OURS: [], _THEIRS: []}
    results: dict[str, SolveResult] = {}
    for run in range(runs):
        for solver in (_OURS, _THEIRS)[:: 1 if run % 2 else -1]:
            started = time.process_time()
            results[solver] = solve(problem, replace(options, solver=solver))
            times[solver].append(time.process_time() - started)
        if max(map(max, times.values())) >= options.time_limit_s / 2:
            break
    ours, theirs = (1e3 * min(times[solver]) for solver in (_OURS, _THEIRS))
    return {
        "seed": seed,
        "columns": problem.num_columns,
        "rows": problem.num_rows,
        "decomposition_ms": ours,
        "highs_ms": theirs,
        "ratio": ours / theirs,
        "decomposition": results[_OURS].termination.value,
        "highs": results[_THEIRS].termination.value,
        "objective": results[_OURS].objective,
        "agree": _agree(results[_OURS], results[_THEIRS], options.relative_gap),
    }


def _agree(ours: SolveResult, theirs: SolveResult, gap: float) -> bool:
    """Whether both can be right: what one has found is not better than what the other has proven."""
    done = {TerminationReason.OPTIMAL, TerminationReason.INFEASIBLE}
    if ours.termination in done and theirs.termination in done and ours.termination is not theirs.termination:
        return False
    for one, other in ((ours, theirs), (theirs, ours)):
        if one.objective is not None and other.bound is not None:
            beyond = one.sense.sign * (other.bound - one.objective)
            if beyond > _ROUNDING * max(1.0, abs(one.objective)):
                return False
    if ours.objective is None or theirs.objective is None:
        return True
    apart = abs(ours.objective - theirs.objective)
    both_done = ours.termination is theirs.termination is TerminationReason.OPTIMAL
    return not both_done or apart <= (gap + _ROUNDING) * max(1.0, abs(theirs.objective))


def _summary(rows: list[Row]) -> Row:
    ratios = np.array([float(str(row["ratio"])) for row in rows])
    total = sum(float(str(row["decomposition_ms"])) for row in rows) / sum(float(str(row["highs_ms"])) for row in rows)
    return {
        "problems": len(rows),
        "median": float(np.median(ratios)),
        "p90": float(np.quantile(ratios, 0.9)),
        "p99": float(np.quantile(ratios, 0.99)),
        "max": float(ratios.max()),
        "of all time": total,
        f"above {_TARGET_RATIO}": int((ratios > _TARGET_RATIO).sum()),
    }

"""How often, and by how much, Eq. 2 itself beats the answer of Eq. 4: `python -m benchmarks arnold-true-spread`.

Free nodes are drawn by a Dirichlet distribution of weight 6 over the minipods, the fill (nodes of the job over free
nodes) uniformly in 0.5 to 0.99. On each instance both answers are measured in Eq. 2:
- Eq. 4: optimum of Eqs. 4-10 with PP groups as units (alpha up to 0.5, as in the paper), its groups arranged side by
  side so that columns cross as few minipods as they can (`arrangement`)
- Eq. 2: the search of `true_spread_search` under the limit, with its bound
"""

import time
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer

from benchmarks.rows import Row, show, write
from benchmarks.workloads.generators import dirichlet_split
from models.placement.arnold.arrangement import arrange_groups
from models.placement.arnold.budget import Budget
from models.placement.arnold.exact.search import solve_exactly
from models.placement.arnold.parameters import SchedulingUnit
from models.placement.arnold.true_spread.instance import TrueSpreadInstance
from models.placement.arnold.true_spread.search import solve_true_spread
from solver.monitor import SolveMonitor
from solver.options import SolveOptions

# Rows, columns, minipods: the shapes of Table 1, leaf groups of a real fabric, and a job of 1,200 nodes.
_FAMILIES = {
    "table 1 (i)": (6, 2, 3),
    "table 1 (ii)": (12, 8, 5),
    "table 1 (iii)": (46, 8, 11),
    "512 nodes on 80 leaves": (64, 8, 80),
    "1200 nodes on 40": (150, 8, 40),
    "1200 nodes on 300": (150, 8, 300),
}
_ALPHAS = (0.1, 0.3, 0.5)
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """Both answers in Eq. 2, the bound, and CPU seconds of the search."""

    eq4: float
    eq2: float
    bound: float
    proven: bool
    cpu_s: float


def main(
    instances: Annotated[int, typer.Option(help="Per family and alpha.")] = 20,
    limit: Annotated[float, typer.Option(help="Seconds per instance.")] = 2.0,
) -> None:
    """Measure how often, and by how much, Eq. 2 itself beats the answer of Eq. 4."""
    rows: list[Row] = []
    for family, shape in _FAMILIES.items():
        for alpha in _ALPHAS:
            results = [_measure(_instance(shape, alpha, seed), limit) for seed in range(instances)]
            rows.append(_row(family, alpha, results))
            print(rows[-1], flush=True)
    protocol = f"{instances} instances per row, limit {limit:g} s, gap 0, 1 thread"
    show(f"Eq. 2 next to the answer of Eq. 4, both measured in Eq. 2; {protocol}", rows)
    print(write("arnold_true_spread", protocol, rows))


def _instance(shape: tuple[int, int, int], alpha: float, seed: int) -> TrueSpreadInstance:
    rows, columns, num_minipods = shape
    fill = np.random.default_rng(seed).uniform(0.5, 0.99)
    free = dirichlet_split(round(rows * columns / fill), num_minipods, seed)
    return TrueSpreadInstance(
        num_rows=rows,
        num_columns=columns,
        minipods=tuple(str(j) for j in range(num_minipods)),
        free_nodes=np.array(free, dtype=np.int64),
        alpha=alpha,
    )


def _measure(instance: TrueSpreadInstance, limit_s: float) -> _Result:
    eq4 = solve_exactly(instance.groups(SchedulingUnit.PP, weighted=True), _budget(limit_s), lambda *_: None)
    started = time.process_time()
    answer = solve_true_spread(instance, _budget(limit_s), lambda *_: None)
    cpu_s = time.process_time() - started
    if eq4.solution is None or answer.objective is None or answer.bound is None:
        raise RuntimeError("every instance has room")
    return _Result(
        eq4=instance.objective(arrange_groups(eq4.solution)),
        eq2=answer.objective,
        bound=answer.bound,
        proven=answer.proven,
        cpu_s=cpu_s,
    )


def _budget(limit_s: float) -> Budget:
    return Budget(options=SolveOptions(time_limit_s=limit_s, relative_gap=0.0), monitor=SolveMonitor())


def _row(family: str, alpha: float, results: list[_Result]) -> Row:
    gains = [1 - result.eq2 / result.eq4 if result.eq4 else 0.0 for result in results]
    better = [gain for gain in gains if gain > _TOLERANCE]
    gaps = [(result.eq2 - result.bound) / result.eq2 if result.eq2 else 0.0 for result in results]
    return {
        "family": family,
        "alpha": alpha,
        "better": f"{len(better)}/{len(results)}",
        "mean gain": float(np.mean(gains)),
        "median gain where better": float(np.median(better)) if better else None,
        "largest gain": max(gains),
        "proven": f"{sum(result.proven for result in results)}/{len(results)}",
        "mean gap": float(np.mean(gaps)),
        "largest gap": max(gaps),
        "median cpu_s": float(np.median([result.cpu_s for result in results])),
    }

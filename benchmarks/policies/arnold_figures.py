"""Figures 7 and 8 of Arnold: `python -m benchmarks arnold-figures`.

Fig. 7: weighted spread (Eq. 2) of a placement by algorithm, alpha 0 to 0.5, on the settings of Table 1. The paper
does not say which nodes are free. Three distributions are used, each with many seeds:
- idle: all nodes are free, minipods of equal size
- busy: free nodes are 5/4 of the job's (at most all), spread over minipods of equal size by a Dirichlet distribution
  of weight 6
- fragmented: the same with 20/19 of the job's nodes
Shown are median and range over the seeds. Baselines: `models.placement.baselines`. Arnold: optimum of Eq. 4, groups
arranged; Eq. 2: the search for Eq. 2 itself, limit 0.5 s.

Fig. 8: scheduling latency by nodes of the job. Enumeration tries all placements until 10 s have passed, on all nodes
free. The paper's MIP (HiGHS, from the constructive start, limit 10 s) and the exact algorithm go on to 512 nodes.
Columns: 2 in setting (i) and in what is enumerated, else 8.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import matplotlib as mpl
import numpy as np
import typer
from matplotlib.figure import Figure

from benchmarks.paths import RESULTS
from benchmarks.rows import Row, show, write
from benchmarks.workloads.generators import dirichlet_split, even_split
from models.placement.arnold.arrangement import arrange_groups
from models.placement.arnold.budget import Budget
from models.placement.arnold.constructive import construct
from models.placement.arnold.exact.search import solve_exactly
from models.placement.arnold.labels import counts_of, max_spread
from models.placement.arnold.paper.formulation import arnold_model
from models.placement.arnold.parameters import SchedulingUnit
from models.placement.arnold.true_spread.instance import TrueSpreadInstance
from models.placement.arnold.true_spread.search import solve_true_spread
from models.placement.baselines.enumeration import enumerate_placements
from models.placement.baselines.fitting import best_fit, gpu_packing, random_fit
from models.placement.baselines.topology_aware import topology_aware
from solver.compilers.pyomo import compile_pyomo
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.solve import solve
from stowplan.arrays import IntMatrix

# Minipods, nodes; rows and columns of the job.
_SETTINGS = {"i": (3, 18, 6, 2), "ii": (5, 438, 12, 8), "iii": (11, 1019, 46, 8)}
_DISTRIBUTIONS = {"idle": np.inf, "busy": 5 / 4, "fragmented": 20 / 19}
_ALPHAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
_EQ2_LIMIT_S = 0.5
_LATENCY_LIMIT_S = 10.0
_ENUMERATED = {"i": (2, 4, 6, 8, 10, 12, 14, 16), "ii": (2, 4, 6, 8, 10, 12), "iii": (2, 4, 6, 8)}
_PLANNED = {"i": (4, 8, 12, 16), "ii": (16, 32, 64, 96, 192, 384), "iii": (16, 64, 128, 256, 368, 512)}

Algorithm = Callable[[TrueSpreadInstance, int], IntMatrix]


def _eq4(instance: TrueSpreadInstance, _: int) -> IntMatrix:
    answer = solve_exactly(instance.groups(SchedulingUnit.PP, weighted=True), _budget(_LATENCY_LIMIT_S), _ignore)
    return arrange_groups(_known(answer.solution))


def _eq2(instance: TrueSpreadInstance, _: int) -> IntMatrix:
    return _known(solve_true_spread(instance, _budget(_EQ2_LIMIT_S), _ignore).solution)


_ALGORITHMS: dict[str, Algorithm] = {
    "Arnold (Eq. 4)": _eq4,
    "Eq. 2 itself": _eq2,
    "best-fit": lambda instance, _: best_fit(instance),
    "random-fit": lambda instance, seed: random_fit(instance, np.random.default_rng(seed)),
    "gpu-packing": lambda instance, _: gpu_packing(instance),
    "topo-aware": lambda instance, _: topology_aware(instance),
}
_OURS = ("Arnold (Eq. 4)", "Eq. 2 itself")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Latency:
    """One plan: seconds, and whether it was finished or proven within the limit."""

    setting: str
    nodes: int
    method: str
    seconds: float
    finished: bool


class FigureNumber(StrEnum):
    """Figures of the paper."""

    SPREAD = "7"
    LATENCY = "8"


def main(
    seeds: Annotated[int, typer.Option(help="Of the free nodes, from 0 on.")] = 10,
    only: Annotated[FigureNumber | None, typer.Option(help="One of the two.")] = None,
) -> None:
    """Draw Figures 7 and 8 of Arnold."""
    mpl.use("Agg")
    if only is not FigureNumber.LATENCY:
        _figure_7(seeds)
    if only is not FigureNumber.SPREAD:
        _figure_8()


def _figure_7(num_seeds: int) -> None:
    rows = [
        _spread_row(setting, distribution, alpha, num_seeds)
        for setting in _SETTINGS
        for distribution in _DISTRIBUTIONS
        for alpha in _ALPHAS
    ]
    protocol = f"median [least, greatest] of {num_seeds} seeds; see the module"
    show(f"Fig. 7: weighted spread (Eq. 2), {protocol}", [{key: _brief(row[key]) for key in row} for row in rows])
    ratios = [_ratio(row) for row in rows]
    known = [ratio for ratio in ratios if ratio is not None]
    print(
        f"best baseline over Arnold (Eq. 4), medians: mean {np.mean(known):.2f}, largest {max(known):.2f} (the paper: "
        "1.2 and 1.67)"
    )
    print(write("arnold_figure_7", protocol, rows))
    _draw_7(rows)


def _spread_row(setting: str, distribution: str, alpha: float, num_seeds: int) -> Row:
    row: dict[str, object] = {"setting": setting, "free nodes": distribution, "alpha": alpha}
    instances = [_instance(setting, distribution, alpha, seed) for seed in range(num_seeds)]
    for name, place in _ALGORITHMS.items():
        values = [instance.objective(place(instance, seed)) for seed, instance in enumerate(instances)]
        row[name] = [float(np.median(values)), min(values), max(values)]
    return row


def _instance(setting: str, distribution: str, alpha: float, seed: int) -> TrueSpreadInstance:
    num_minipods, num_nodes, rows, columns = _SETTINGS[setting]
    sizes = even_split(num_nodes, num_minipods)
    total = min(num_nodes, rows * columns * _DISTRIBUTIONS[distribution])
    free = sizes if total == num_nodes else dirichlet_split(-(-int(total) // 1), num_minipods, seed, most=sizes[-1])
    return _matrix(rows, columns, free, alpha)


def _matrix(rows: int, columns: int, free: tuple[int, ...], alpha: float) -> TrueSpreadInstance:
    return TrueSpreadInstance(
        num_rows=rows,
        num_columns=columns,
        minipods=tuple(str(j) for j in range(len(free))),
        free_nodes=np.array(free, dtype=np.int64),
        alpha=alpha,
    )


def _ratio(row: Row) -> float | None:
    """Best baseline over Arnold; None where Arnold has no spread at all."""
    arnold = _three(row, _OURS[0])[0]
    return min(_three(row, name)[0] for name in _ALGORITHMS if name not in _OURS) / arnold if arnold else None


def _three(row: Row, name: str) -> list[float]:
    values = row[name]
    if not isinstance(values, list):
        raise TypeError(f"{name} is no list of median, least and greatest")
    return values


def _brief(value: object) -> object:
    return f"{value[0]:.1f} [{value[1]:.1f}, {value[2]:.1f}]" if isinstance(value, list) else value


def _draw_7(rows: list[Row]) -> None:
    figure = Figure(figsize=(11, 9), layout="constrained")
    axes = figure.subplots(len(_SETTINGS), len(_DISTRIBUTIONS), sharex=True, squeeze=False)
    for axis, (setting, distribution) in zip(
        axes.flat, ((setting, name) for setting in _SETTINGS for name in _DISTRIBUTIONS), strict=True
    ):
        chosen = [row for row in rows if row["setting"] == setting and row["free nodes"] == distribution]
        for name, marker in zip(_ALGORITHMS, "osv^Dx", strict=True):
            median, least, greatest = np.array([_three(row, name) for row in chosen]).T
            axis.plot(_ALPHAS, median, marker=marker, label=name, linewidth=1.2, markersize=4)
            axis.fill_between(_ALPHAS, least, greatest, alpha=0.1)
        axis.set_title(f"setting ({setting}), {distribution}", fontsize=9)
    _finish(figure, axes, "alpha", "weighted spread (Eq. 2)", "arnold_figure_7")


def _figure_8() -> None:
    latencies = list(_latencies())
    rows: list[Row] = [
        {
            "setting": latency.setting,
            "nodes": latency.nodes,
            "method": latency.method,
            "seconds": latency.seconds,
            "finished": latency.finished,
        }
        for latency in latencies
    ]
    show("Fig. 8: scheduling latency, build included (all nodes free, alpha 0.3)", rows)
    print(write("arnold_figure_8", "one run each; see the module", rows))
    _draw_8(latencies)


def _latencies() -> Iterator[_Latency]:
    for setting, (num_minipods, num_nodes, _, columns) in _SETTINGS.items():
        free = even_split(num_nodes, num_minipods)
        for nodes in _ENUMERATED[setting]:
            instance = _matrix(nodes // 2, 2, free, 0.3)
            started = time.perf_counter()
            finished = enumerate_placements(instance, _LATENCY_LIMIT_S).complete
            yield _Latency(
                setting=setting,
                nodes=nodes,
                method="enumeration",
                seconds=time.perf_counter() - started,
                finished=finished,
            )
            if not finished:
                break
        for nodes in _PLANNED[setting]:
            instance = _matrix(nodes // columns, columns, free, 0.3)
            for method, plan in (("exact", _by_exact), ("the paper's MIP", _by_highs)):
                started = time.perf_counter()
                finished = plan(instance)
                seconds = time.perf_counter() - started
                yield _Latency(setting=setting, nodes=nodes, method=method, seconds=seconds, finished=finished)


def _by_exact(instance: TrueSpreadInstance) -> bool:
    units = instance.groups(SchedulingUnit.PP, weighted=True)
    return solve_exactly(units, _budget(_LATENCY_LIMIT_S), _ignore).proven


def _by_highs(instance: TrueSpreadInstance) -> bool:
    units = instance.groups(SchedulingUnit.PP, weighted=True)
    model = arnold_model(units)
    compiled = compile_pyomo(model)
    labels = _known(construct(units))
    counts, spread = counts_of(labels, units.num_minipods), max_spread(labels)
    used = counts.any(axis=0)
    shares = (counts / units.group_size).ravel()
    start = np.concatenate([used, (counts > 0).ravel(), shares, [spread]]).astype(np.float64)
    options = SolveOptions(time_limit_s=_LATENCY_LIMIT_S, relative_gap=0.0, warm_start=start)
    return solve(compiled.problem, options).limit is None


def _draw_8(latencies: list[_Latency]) -> None:
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    axes = figure.subplots(1, len(_SETTINGS), sharey=True, squeeze=False)
    for axis, setting in zip(axes.flat, _SETTINGS, strict=True):
        for method, marker in (("enumeration", "x"), ("the paper's MIP", "s"), ("exact", "o")):
            chosen = [known for known in latencies if (known.setting, known.method) == (setting, method)]
            axis.plot([k.nodes for k in chosen], [k.seconds for k in chosen], marker=marker, label=method)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_title(
            f"setting ({setting}): {_SETTINGS[setting][0]} minipods, {_SETTINGS[setting][1]} nodes", fontsize=9
        )
    _finish(figure, axes, "nodes of the job", "seconds", "arnold_figure_8")


def _finish(figure: Figure, axes: Any, x: str, y: str, name: str) -> None:
    """Label the outer axes, add the legend, write the picture."""
    for axis in axes[-1]:
        axis.set_xlabel(x)
    for axis in axes[:, 0]:
        axis.set_ylabel(y)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=9)
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / f"{name}.svg")
    print(RESULTS / f"{name}.svg")


def _budget(limit_s: float) -> Budget:
    return Budget(options=SolveOptions(time_limit_s=limit_s, relative_gap=0.0), monitor=SolveMonitor())


def _known(found: IntMatrix | None) -> IntMatrix:
    if found is None:
        raise RuntimeError("every instance has room")
    return found


def _ignore(*_: object) -> None:
    """Nobody watches."""

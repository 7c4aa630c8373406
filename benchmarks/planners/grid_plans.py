"""How near the grids' plans come to the best plan there is: `python -m benchmarks grid-plans`.

A case is a model of the catalogue on a number of GPUs of one product, in nodes of that product; global batch 256. The
reference (`models.parallelism.exhaustive`) tries every plan. Both cut the model into the same operators: 16, and 8 on
16 GPUs, where the reference takes powers of two as stages only. Shares are the reference's iteration time over that of

  proxy         the best proxy plan (Arena section 3.3) of all pipeline degrees; the paper: 93.4 % on average
  proxy_same    the same, when the reference has the micro-batches of the grids too; up to 8 GPUs
  best          the best plan of the grids: that, or a faster one of the frontiers
  answer        the planner's answer: that, or a faster plan of whole layers, which the reference may not have
  crius         the best of Crius' assembled plans
  pruned        the best plan that is left after the pruning of section 3.6, with its micro-batches; the paper: 96.2 %

`layers`: `answer` when the reference may cut between any two layers, up to 4 GPUs. `grids`: share of every grid's proxy
in the optimum of its pipeline degree and micro-batches, up to 8 GPUs. `pruning`: plans before over plans after.
`gap`: slowest stage of the best proxy's partition, by load per GPU, against the bound of the mixed-integer program.

For policies (`models.parallelism.adaptive`): CPU seconds for all plans of a model on 1,280 GPUs of four types, ten
counts each, when they are first asked for and when they are remembered.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer

from benchmarks.rows import Row, show, write
from models.catalogue import find_model
from models.parallelism.adaptive import adaptive_plans, forget_plans
from models.parallelism.exhaustive import ExhaustiveOptions, ExhaustiveResult, best_plan
from models.parallelism.grid.operators import cluster
from models.parallelism.grid.options import GridOptions, PlanRule
from models.parallelism.grid.partition_mip import best_partition, bottleneck_s
from models.parallelism.grid.planner import plan_grids
from models.parallelism.grid.pruning import remaining_plans
from models.parallelism.results import GridResult, PlanEstimate
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import virtual_model
from models.performance.iteration.whitebox import roofline_s
from models.transformer import JobModel
from topology.cluster import Cluster, GpuType, Node
from topology.gpu_catalogue import find_product, gpu_type_of

_MODELS = [
    "gpt2-350m",
    "gpt2-1.3b",
    "gpt2-2.6b",
    "llama2-7b",
    "qwen2-1.5b",
    "moe-1.3b",
    "moe-10b",
    "wide-resnet-1b",
    "wide-resnet-4b",
]
_PRODUCTS = ["a100-40gb", "v100", "a40", "a10", "l20", "h100"]
_COUNTS = [2, 4, 8, 16]
_GLOBAL_BATCH = 256
_SHARES = ("grids", "proxy", "proxy_same", "best", "answer", "crius", "pruned", "layers")
# GPU type -> nodes of 1,280 GPUs (Arena Table 1), and counts of 320.
_CLUSTER = {"a100-40gb": 80, "v100": 20, "a40": 160, "a10": 160}
_POLICY_COUNTS = (*(1 << k for k in range(9)), 320)
_EXPLAIN_BELOW = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One model on n GPUs of one product."""

    name: str
    model: JobModel
    gpu_type: GpuType
    gpus_per_node: int
    num_gpus: int
    num_operators: int

    @property
    def performance(self) -> PerformanceModel:
        """The performance model on as few nodes as hold the GPUs."""
        return virtual_model(self.model, self.gpu_type, self.gpus_per_node, -(-self.num_gpus // self.gpus_per_node))

    def options(self, rule: PlanRule = PlanRule.ARENA) -> GridOptions:
        """Options with the operators of the reference."""
        degrees = tuple(range(1, min(self.num_gpus, self.num_operators) + 1))
        return GridOptions(rule=rule, num_operators=self.num_operators, pipeline_degrees=degrees)

    def planned(self, rule: PlanRule = PlanRule.ARENA) -> GridResult:
        """What the grids find."""
        return plan_grids(self.model, self.gpu_type, self.gpus_per_node, [self.num_gpus], self.options(rule))

    def answer(self) -> PlanEstimate:
        """The plan that a request gets."""
        brief = GridOptions(details=False)
        (answer,) = plan_grids(self.model, self.gpu_type, self.gpus_per_node, [self.num_gpus], brief).best.values()
        return answer

    def reference(self, **options: object) -> ExhaustiveResult:
        """The best plans of all, with these options of the reference."""
        limits = {"powers_of_two": self.num_gpus > 8, "max_plans": 10**9} | options
        return best_plan(
            self.performance,
            self.gpu_type.name,
            self.gpus_per_node,
            self.num_gpus,
            ExhaustiveOptions(**limits),  # type: ignore[arg-type]  # the fields, given by name
        )


def main(
    models: Annotated[list[str], typer.Option(help="Of the catalogue; may be repeated.")] = _MODELS,
    products: Annotated[list[str], typer.Option(help="GPUs of the catalogue; may be repeated.")] = _PRODUCTS,
    gpus: Annotated[list[int], typer.Option(help="How many; may be repeated.")] = _COUNTS,
    output: Annotated[str, typer.Option(help="Name of the result; empty for none.")] = "grid_plans",
) -> None:
    """Measure how near the grids' plans come to the best plan there is."""
    rows: list[Row] = []
    for model in models:
        for product in products:
            for num_gpus in gpus:
                row = measured(case_of(model, product, num_gpus))
                if row is not None:
                    rows.append(row)
                    print(f"{row['case']}: proxy {row['proxy']:.3f}, best {row['best']:.3f}", flush=True)
    if not rows:
        sys.stderr.write("no plan fits in any of the cases\n")
        raise typer.Exit(1)
    show("Share of the best plan there is", _summary(rows))
    _explain(rows)
    for_policies = [policy_plans(model) for model in models]
    show("Plans for policies, 1,280 GPUs", for_policies)
    if output:
        print(f"written to {write(output, __doc__ or '', [*_summary(rows), *for_policies, *rows])}")


def case_of(model: str, product: str, num_gpus: int) -> Case:
    """The case of a model and a product of the catalogues."""
    known = find_product(product)
    described = find_model(model, global_batch=_GLOBAL_BATCH)
    return Case(
        name=f"{model} on {num_gpus} {known.name}",
        model=described,
        gpu_type=gpu_type_of(known, described.precision.value),
        gpus_per_node=known.gpus_per_node,
        num_gpus=num_gpus,
        num_operators=8 if num_gpus > 8 else 16,
    )


def measured(case: Case) -> Row | None:
    """All shares of one case; None when no plan fits."""
    started = time.process_time()
    planned = case.planned()
    planner_s = time.process_time() - started
    if not planned.best:
        return None
    loads = roofline_s(case.performance.profile, case.gpu_type)
    bounds = cluster(loads, case.num_operators)
    counts = {grid.pp: (grid.proxy.plan.num_micro_batches,) for grid in planned.grids if grid.proxy is not None}
    reference = case.reference(bounds=bounds)
    same = case.reference(bounds=bounds, num_micro_batches=counts) if case.num_gpus <= 8 else None
    ((_, proxy),), ((_, best),) = planned.proxies.items(), planned.best.items()
    answer = case.answer()
    optimum = reference.best
    assert optimum is not None  # noqa: S101 - the planner found a plan
    crius = case.planned(PlanRule.CRIUS).proxies.values()
    layers = case.reference().best if case.num_gpus <= 4 else None
    pruning = remaining_plans(case.model, case.gpu_type, case.gpus_per_node, case.num_gpus, planned, case.options())
    left = min(case.performance.iteration(plan).total_s for plan in pruning.plans())
    return {
        "case": case.name,
        "operators": len(bounds) - 1,
        "reference_plans": reference.num_plans,
        "proxy": _share(optimum, proxy),
        "proxy_same": None if same is None or same.best is None else _share(same.best, proxy),
        "best": _share(optimum, best),
        "answer": _share(optimum, answer),
        "crius": max((_share(optimum, found) for found in crius), default=None),
        "pruned": round(optimum.iteration.total_s / left, 4),
        "layers": None if layers is None else _share(layers, answer),
        "pruning": round(pruning.num_before / pruning.num_after, 2),
        "grids": _of_grids(planned, same),
        "gap": _gap(case, proxy, loads, bounds),
        "planner_cpu_s": round(planner_s, 3),
        "proxy_plan": proxy.plan.notation(),
        "best_plan": best.plan.notation(),
        "answered": answer.plan.notation(),
        "optimum": optimum.plan.notation(),
    }


def policy_plans(model: str) -> Row:
    """CPU seconds of all plans of a model on the cluster of Arena's simulations."""
    products = [find_product(name) for name in _CLUSTER]
    cluster_ = Cluster(
        gpu_types=tuple(gpu_type_of(product, "fp16") for product in products),
        nodes=tuple(
            Node(id=f"{product.name}-{k}", gpu_type=product.name, num_gpus=product.gpus_per_node)
            for product in products
            for k in range(_CLUSTER[product.name])
        ),
    )
    counts = dict.fromkeys(_CLUSTER, _POLICY_COUNTS)
    described = find_model(model, global_batch=_GLOBAL_BATCH)
    forget_plans()
    times = []
    for _ in range(2):
        started = time.process_time()
        found = adaptive_plans(described, cluster_, counts)
        times.append(time.process_time() - started)
    return {
        "model": model,
        "planned": len(found.best),
        "asked": sum(map(len, counts.values())),
        "first_cpu_s": round(times[0], 3),
        "again_cpu_s": round(times[1], 6),
    }


def _of_grids(planned: GridResult, same: ExhaustiveResult | None) -> list[float]:
    """Share of every proxy plan in the optimum of its grid."""
    proxies = [grid.proxy for grid in planned.grids if grid.proxy is not None]
    return [] if same is None else [_share(same.by_degree[proxy.plan.pp], proxy) for proxy in proxies]


def _share(optimum: PlanEstimate, found: PlanEstimate) -> float:
    return round(optimum.iteration.total_s / found.iteration.total_s, 4)


def _gap(case: Case, proxy: PlanEstimate, loads: np.ndarray, bounds: Sequence[int]) -> float | None:
    """Gap of the slowest stage of the proxy plan."""
    operators = np.add.reduceat(loads, bounds[:-1])
    cuts = np.cumsum([0, *(stage.num_layers for stage in proxy.plan.stages)]).tolist()
    sizes = [stage.num_gpus for stage in proxy.plan.stages]
    gap = best_partition(operators, case.num_gpus, proxy.plan.pp).gap(
        bottleneck_s(operators, [bounds.index(cut) for cut in cuts], sizes)
    )
    return None if gap is None else round(gap, 4)


def _summary(rows: Sequence[Row]) -> list[Row]:
    """Mean, least and quantiles of the shares; `grids` by grid, the others by case."""
    columns: dict[str, Callable[[Row], Sequence[object]]] = {"grids": lambda row: list(row["grids"])}  # type: ignore[call-overload]
    for name in (*_SHARES[1:], "pruning", "gap", "planner_cpu_s"):
        columns[name] = lambda row, name=name: [row[name]]  # type: ignore[misc]
    summary: list[Row] = []
    for name, values_of in columns.items():
        values = np.array([value for row in rows for value in values_of(row) if value is not None], dtype=np.float64)
        if values.size:
            summary.append(
                {
                    "share": name,
                    "cases": int(values.size),
                    "mean": round(float(values.mean()), 4),
                    "least": float(values.min()),
                    "10 %": round(float(np.quantile(values, 0.1)), 4),
                    "median": round(float(np.median(values)), 4),
                    "largest": float(values.max()),
                    "below 80 %": int((values < _EXPLAIN_BELOW).sum()) if name in _SHARES else None,
                }
            )
    return summary


def _explain(rows: Sequence[Row]) -> None:
    """Print both plans of every case below the target."""
    for row in rows:
        if float(str(row["proxy"])) < _EXPLAIN_BELOW:
            print(f"{row['case']}: {row['proxy']}\n  proxy   {row['proxy_plan']}\n  optimum {row['optimum']}")

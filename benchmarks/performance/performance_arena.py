"""Predicted against measured iteration times of the transformers in Arena's artifact.

Measured are the best plans that Alpa's search found (`alpa-searched`); the data do not say which plan that was, so the
prediction is that of the best symmetric plan by the model on the same nodes. What the artifact does elsewhere is taken
over: fp16, sequences of 1,024, whole layers recomputed, ZeRO 1. Nothing is fitted but what a row says:

white-box   data sheets only
calibrated  per (model, GPU type) one factor on k_comp and k_optim, from the row with the fewest GPUs (then nodes,
            batch), which does not count as a test row
network     besides, per GPU type one factor on the bandwidth between nodes, from one row on the most nodes (smallest
            batch, dense before experts, smallest model whose calibration row has one node): what an administrator
            measures once; that row does not count either
artifact    the best of Arena's own estimates for the same configuration (`arena-estimated`)

Errors are |predicted / measured - 1|. The rows with a known plan (`measured-plan`) are all Wide-ResNets.
"""

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from scipy.optimize import brentq

from benchmarks.planners.symmetric_plans import symmetric_plans
from benchmarks.rows import Row
from benchmarks.workloads.published.arena import DIRECTORY
from models.catalogue import find_model
from models.parallel_plan import ParallelPlan
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import scaled, virtual_model
from models.transformer import Attention, Checkpointing, Transformer
from topology.gpu_catalogue import find_product, gpu_type_of

PROTOCOL = __doc__
TABLE = DIRECTORY / "throughput.csv"
_MODELS = ("bert", "moe")
# Model, parameters, GPU type.
_Job = tuple[str, str, str]
# Factors are looked for within these bounds.
SLOWEST, FASTEST = 1e-3, 1e2


@dataclass(frozen=True, kw_only=True)
class Case:
    """One measured row. `artifact_s`: Arena's own estimate, None where there is none."""

    model: str
    params: str
    global_batch: int
    gpu_type: str
    num_gpus: int
    num_nodes: int
    measured_s: float
    artifact_s: float | None

    @property
    def job(self) -> _Job:
        """What is calibrated together."""
        return self.model, self.params, self.gpu_type

    @property
    def size(self) -> tuple[int, int, int]:
        """Small cases first."""
        return self.num_gpus, self.num_nodes, self.global_batch

    @cached_property
    def white(self) -> PerformanceModel:
        """The white-box model on the row's nodes."""
        model = find_model(
            f"{self.model}-{self.params}",
            global_batch=self.global_batch,
            checkpointing=Checkpointing.FULL,
            zero_stage=1,
        )
        if isinstance(model, Transformer):
            # XLA had no fused attention then.
            model = replace(model, attention=Attention.PLAIN)
        kind = gpu_type_of(find_product(self.gpu_type), model.precision.value)
        return virtual_model(model, kind, self.num_gpus // self.num_nodes, self.num_nodes)

    @cached_property
    def plans(self) -> tuple[ParallelPlan, ...]:
        """Plans that fit; speed and bandwidth do not change them."""
        (name,) = self.white.coefficients.gpus
        return tuple(symmetric_plans(self.white, name, self.num_nodes, self.num_gpus // self.num_nodes))

    def predicted_s(self, speed: float = 1.0, network: float = 1.0) -> float | None:
        """Time of the best plan on GPUs and a network faster by these factors; None where no plan fits."""
        coefficients, fabric = self.white.coefficients, self.white.fabric
        model = replace(
            self.white,
            coefficients=replace(
                coefficients, gpus={name: scaled(found, speed) for name, found in coefficients.gpus.items()}
            ),
            fabric=replace(
                fabric,
                hosts={
                    name: replace(host, inter_bytes_per_s=network * host.inter_bytes_per_s)
                    for name, host in fabric.hosts.items()
                },
            ),
        )
        return min((model.iteration(plan).total_s for plan in self.plans), default=None)


def cases() -> list[Case]:
    """Rows that were measured, small ones first."""
    with TABLE.open(newline="") as file:
        table = [row for row in csv.DictReader(file) if row["model"] in _MODELS and row["status"] == "ok"]
    artifact: dict[tuple[str, ...], float] = {}
    for row in table:
        if row["source"] == "arena-estimated":
            key = _key(row)
            artifact[key] = min(artifact.get(key, math.inf), float(row["iter_time_s"]))
    found = [
        Case(
            model=row["model"],
            params=row["params"],
            global_batch=int(row["global_batch"]),
            gpu_type=row["gpu_type"],
            num_gpus=int(row["n_gpus"]),
            num_nodes=int(row["n_nodes"]),
            measured_s=float(row["iter_time_s"]),
            artifact_s=artifact.get(_key(row)),
        )
        for row in table
        if row["source"] == "alpa-searched"
    ]
    return sorted(found, key=lambda case: (case.job, case.size))


def rows(measured: Sequence[Case]) -> Iterator[Row]:
    """Errors by stage of calibration, for all rows, by model and type, and where the artifact has an estimate."""
    possible = [case for case in measured if case.plans]
    speeds, used = _speeds(possible, {})
    networks, used_for_networks = _networks(possible, speeds)
    speeds_by_network, _ = _speeds(possible, networks)
    predictions: dict[str, Callable[[Case], float | None]] = {
        "white-box": lambda case: case.predicted_s(),
        "calibrated": lambda case: case.predicted_s(speeds[case.job]),
        "network": lambda case: case.predicted_s(speeds_by_network[case.job], networks.get(case.gpu_type, 1.0)),
        "artifact": lambda case: case.artifact_s,
    }
    calibration = {id(case) for case in [*used, *used_for_networks]}
    test = [case for case in possible if id(case) not in calibration]
    groups: dict[str, list[Case]] = {"all rows": possible, "test rows": test}
    groups["test rows with an estimate of the artifact"] = [case for case in test if case.artifact_s is not None]
    groups["the same on one node"] = [case for case in test if case.artifact_s is not None and case.num_nodes == 1]
    groups["the same on several nodes"] = [case for case in test if case.artifact_s is not None and case.num_nodes > 1]
    for case in test:
        groups.setdefault(f"test rows, {case.model} on {case.gpu_type}", []).append(case)
    for group, members in groups.items():
        for name, predict in predictions.items():
            if name in ("calibrated", "network") and group == "all rows":
                continue
            errors = [p / c.measured_s - 1.0 for c in members if (p := predict(c)) is not None]
            if errors:
                yield {"rows": group, "prediction": name, **_summary(errors)}


def _summary(errors: Sequence[float]) -> dict[str, object]:
    size = np.abs(errors)
    return {
        "cases": len(errors),
        "median": float(np.median(size)),
        "mean": float(size.mean()),
        "worst": float(size.max()),
        "median, signed": float(np.median(errors)),
    }


def _speeds(measured: Sequence[Case], networks: Mapping[str, float]) -> tuple[dict[_Job, float], list[Case]]:
    """Factor on the speed of computation per job and type, and the rows that it comes from."""
    first: dict[_Job, Case] = {}
    for case in measured:
        first.setdefault(case.job, case)
    speeds = {
        job: factor(partial(case.predicted_s, network=networks.get(case.gpu_type, 1.0)), case.measured_s)
        for job, case in first.items()
    }
    return speeds, list(first.values())


def _networks(measured: Sequence[Case], speeds: Mapping[_Job, float]) -> tuple[dict[str, float], list[Case]]:
    """Factor on the bandwidth between nodes per type, and the rows that it comes from."""
    on_one_node = {case.job for case in measured if case.num_nodes == 1}
    chosen: dict[str, Case] = {}
    for case in sorted(measured, key=lambda c: (-c.num_nodes, c.model, c.global_batch, c.job)):
        if case.num_nodes > 1 and case.job in on_one_node:
            chosen.setdefault(case.gpu_type, case)
    networks = {
        name: factor(partial(case.predicted_s, speeds[case.job]), case.measured_s) for name, case in chosen.items()
    }
    return networks, list(chosen.values())


def factor(predicted_s: Callable[[float], float | None], measured_s: float) -> float:
    """The factor that makes a prediction, which falls with it, the measured one; the nearest bound if none does."""

    def excess(logarithm: float) -> float:
        predicted = predicted_s(math.exp(logarithm))
        return math.log((predicted or math.inf) / measured_s)

    bounds = math.log(SLOWEST), math.log(FASTEST)
    at_bounds = [excess(bound) for bound in bounds]
    if at_bounds[0] <= 0:
        return SLOWEST
    if at_bounds[1] >= 0:
        return FASTEST
    return math.exp(float(brentq(excess, *bounds, xtol=1e-9)))


def _key(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(row[name] for name in ("model", "params", "global_batch", "gpu_type", "n_gpus", "n_nodes"))

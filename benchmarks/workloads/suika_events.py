"""Busy clusters of 3D-parallel jobs, event by event, as in Suika's simulation (section 5.5). Same seed, same events.

Cluster    nodes of 8 H100, racks of 16 nodes, half the bandwidth between racks.
Jobs       the models of Table 1 with their default degrees, S : M : L : XL = 12 : 4 : 4 : 1 (the paper states 3 : 1 : 1
           for the first three); on clusters below 512 GPUs no XL. Within a size every model is as likely. Global batch
           256 (S), 512 (M, L), 1024 (XL); XL with selective activation checkpointing.
Load       `load` x the cluster's GPUs are asked for on average: jobs arrive with exponential gaps, and need lognormal
           times on their basic demand (median 30 min, sigma 1). A job that is scaled out is done the sooner.
Events     a job arrives or ends; every plan is carried out at once. Before the first event the cluster is filled with
           jobs in the middle of their work.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from models.allocation.suika.parameters import SuikaParameters
from models.catalogue import find_model
from models.plan import Plan, PlanRequest
from models.planning import plan
from models.transformer import Checkpointing, Transformer
from models.workload import Job, Parallelism, Snapshot
from topology.cluster import Cluster, Node, Tier
from topology.gpu_catalogue import find_product, gpu_type_of
from workloads.generators.table_1 import GLOBAL_BATCH, TABLE_1, basic_demand

_NODES_PER_RACK = 16
_GPUS_PER_NODE = 8
_MEDIAN_S = 1800.0
_SMALLEST_WITH_XL = 512

_SHARES = {"S": 12, "M": 4, "L": 4, "XL": 1}


def rack_cluster(num_nodes: int) -> Cluster:
    """Nodes of 8 H100 in racks of 16."""
    h100 = gpu_type_of(find_product("h100"), "bf16")
    nodes = (
        Node(id=f"n{k:04}", gpu_type=h100.name, num_gpus=_GPUS_PER_NODE, path=(f"r{k // _NODES_PER_RACK:03}",))
        for k in range(num_nodes)
    )
    return Cluster(gpu_types=(h100,), nodes=tuple(nodes), tiers=(Tier(name="rack"),), core_bandwidth_fraction=0.5)


@dataclass(slots=True, kw_only=True, eq=False)
class EventStream:
    """A cluster and its jobs over time.

    work_s: what each job still needs on its basic demand. basic: throughput of each job on its basic demand, known once
    it has run.
    """

    cluster: Cluster
    load: float
    seed: int
    now_s: float = 0.0
    jobs: dict[str, Job] = field(default_factory=dict)
    arrived_s: dict[str, float] = field(default_factory=dict)
    work_s: dict[str, float] = field(default_factory=dict)
    speed: dict[str, float] = field(default_factory=dict)
    basic: dict[str, float] = field(default_factory=dict)

    def snapshots(self) -> Iterator[Snapshot]:
        """The snapshot after each event, without end; `carry_out` is called with the plan before the next."""
        rng = random.Random(self.seed)  # noqa: S311 - reproducible, no secret
        mean_gap_s = self._mean_gap_s()
        asked = 0
        while asked < self.load * self.cluster.num_gpus:
            asked += self._arrive(rng, rng.random()).min_gpus
        yield self._snapshot()
        next_s = self.now_s + rng.expovariate(1.0 / mean_gap_s)
        while True:
            ends = {job_id: self.now_s + self.work_s[job_id] / speed for job_id, speed in self.speed.items()}
            first = min(ends, key=lambda job_id: ends[job_id], default=None)
            if first is not None and ends[first] < next_s:
                self._pass(ends[first])
                self._end(first)
            else:
                self._pass(next_s)
                self._arrive(rng, 1.0)
                next_s = self.now_s + rng.expovariate(1.0 / mean_gap_s)
            yield self._snapshot()

    def carry_out(self, planned: Plan) -> None:
        """Let the jobs run as planned."""
        self.speed = {}
        for allocation in planned.allocations:
            name = allocation.job_id
            goodput = allocation.expected_goodput
            if goodput is None:
                raise ValueError(f"job {name!r} runs at an unknown speed")
            if not allocation.expansions:
                self.basic[name] = goodput
            self.speed[name] = goodput / self.basic.setdefault(name, goodput)
            self.jobs[name] = replace(
                self.jobs[name],
                current=allocation.gpus,
                parallel_plan=allocation.parallel_plan,
                expansions=allocation.expansions,
            )

    def _snapshot(self) -> Snapshot:
        jobs = tuple(replace(job, age_s=self.now_s - self.arrived_s[name]) for name, job in self.jobs.items())
        return Snapshot(cluster=self.cluster, jobs=jobs)

    def _pass(self, until_s: float) -> None:
        for name, speed in self.speed.items():
            self.work_s[name] -= (until_s - self.now_s) * speed
        self.now_s = until_s

    def _end(self, name: str) -> None:
        for record in (self.jobs, self.arrived_s, self.work_s, self.speed, self.basic):
            record.pop(name, None)

    def _arrive(self, rng: random.Random, left: float) -> Job:
        """A new job, of whose work a share is left."""
        shares = self._shares()
        size = rng.choices(list(shares), weights=list(shares.values()))[0]
        model, degrees = rng.choice(list(TABLE_1[size].items()))
        pp, dp, tp = degrees
        job = Job(
            id=f"{model}-{rng.getrandbits(32):08x}",
            min_gpus=pp * dp * tp,
            parallelism=Parallelism(tp=tp, pp=pp, dp=dp),
            transformer=table_1_model(size, model),
        )
        self.jobs[job.id] = job
        self.arrived_s[job.id] = self.now_s
        self.work_s[job.id] = left * rng.lognormvariate(math.log(_MEDIAN_S), 1.0)
        return job

    def _shares(self) -> dict[str, int]:
        with_xl = self.cluster.num_gpus >= _SMALLEST_WITH_XL
        return {size: share for size, share in _SHARES.items() if with_xl or size != "XL"}

    def _mean_gap_s(self) -> float:
        """Gap between arrivals that makes the load."""
        shares = self._shares()
        mean_gpus = sum(
            share * sum(basic_demand(degrees) for degrees in TABLE_1[size].values()) / len(TABLE_1[size])
            for size, share in shares.items()
        ) / sum(shares.values())
        return mean_gpus * _MEDIAN_S * math.exp(0.5) / (self.load * self.cluster.num_gpus)


def event_snapshot(num_nodes: int, load: float, event: int, seed: int) -> Snapshot:
    """The snapshot of an event, 0 for the first one, when Suika has planned all before it."""
    stream = EventStream(cluster=rack_cluster(num_nodes), load=load, seed=seed)
    for k, snapshot in enumerate(stream.snapshots()):
        if k == event:
            return snapshot
        planned = plan(PlanRequest(snapshot=snapshot, parameters=SuikaParameters())).plan
        if planned is None:
            raise RuntimeError(f"event {k} of seed {seed} has no plan")
        stream.carry_out(planned)
    raise AssertionError("the events of a cluster do not end")


def table_1_model(size: str, model: str) -> Transformer:
    """A model of Table 1 as it is trained here."""
    checkpointing = Checkpointing.SELECTIVE if size == "XL" else Checkpointing.NONE
    found = find_model(model, global_batch=GLOBAL_BATCH[size], checkpointing=checkpointing)
    if not isinstance(found, Transformer):
        raise TypeError(f"{model} is no transformer")
    return found

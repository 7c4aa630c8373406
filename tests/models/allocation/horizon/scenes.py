"""Small problems over time that the tests of this folder share."""

from copy import copy
from dataclasses import replace
from random import Random

from models.allocation.horizon.instance import HorizonInstance, horizon_instance
from models.allocation.horizon.parameters import HorizonParameters
from models.clock import PhaseClock
from models.performance.goodput.spec import GoodputTable, TableEntry, ThroughputTable
from models.workload import Job, Snapshot
from tests.models.allocation.sia.instances import random_snapshot

QUEUES = (None, "q", "r")


def timed_snapshot(rng: Random, *, num_nodes: int = 3, num_jobs: int = 4) -> Snapshot:
    """`random_snapshot`, of whose jobs it is mostly known how much is left."""
    snapshot = random_snapshot(rng, num_nodes=num_nodes, num_jobs=num_jobs)
    jobs: list[Job] = []
    for job in snapshot.jobs:
        entries: tuple[TableEntry, ...] = job.performance.entries if isinstance(job.performance, GoodputTable) else ()
        jobs.append(
            replace(
                job,
                performance=ThroughputTable(entries=entries, batch_size=1),
                remaining_iterations=rng.choice((None, 20.0, 500.0, 5000.0)),
                attained_gpu_s=rng.choice((0.0, 400.0)),
                age_s=rng.choice((0.0, 600.0, 30_000.0)),
                restart_cost_s=rng.choice((0.0, 10.0, 90.0)),
                num_restarts=rng.choice((0, 0, 3, 40)),
                deadline_s=rng.choice((None, 30.0, 400.0)),
                queue=QUEUES[len(jobs) % 3],
            )
        )
    return Snapshot(cluster=snapshot.cluster, jobs=tuple(jobs))


def random_parameters(rng: Random) -> HorizonParameters:
    num_intervals = rng.choice((1, 2, 3, 4))
    horizon_s = rng.choice((None, 1000.0)) if num_intervals > 1 else None
    return HorizonParameters(
        interval_s=rng.choice((30.0, 60.0)),
        num_intervals=num_intervals,
        horizon_s=horizon_s,
        restart_price=rng.choice((0.0, 1.0, 3.0)),
        longest_wait_s=rng.choice((None, 21_600.0)),
        tail=rng.choice((0.0, 0.0, 0.5, 1.0)),
        tail_level=rng.choice((0.0, 0.5, 0.9)),
        fairness=rng.choice((0.0, 0.0, 1.0)),
        lateness=rng.choice((0.0, 2.0)),
        throughput=rng.choice((0.0, 3.0)),
        backlog_efficiency=rng.choice((None, 0.4, 1.0)),
        arrivals_per_h=rng.choice((0.0, 0.0, 30.0)),
        quotas=_quotas(rng),
    )


def _quotas(rng: Random) -> dict[str, int]:
    """Drawn from a copy of the dice: some seeds stand for what was found with them."""
    return copy(rng).choice(({}, {"q": 3}, {"q": 2, "r": 0, "s": 1}))


def instance_of(snapshot: Snapshot, parameters: HorizonParameters | None = None) -> HorizonInstance:
    return horizon_instance(snapshot, parameters or HorizonParameters(), PhaseClock())

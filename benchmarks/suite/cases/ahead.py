"""Cases of planning ahead: five jobs over eight weeks on generated clusters in use, one on a real fabric."""

from collections.abc import Iterator
from functools import partial

from benchmarks.paths import PUBLISHED
from benchmarks.suite.case import Case
from benchmarks.workloads.ahead_weeks import generated_cluster, leads_job, wanted_jobs, weeks_snapshot
from benchmarks.workloads.generators import H800
from models.placement.ahead.descriptor import AHEAD
from models.placement.ahead.parameters import AheadParameters
from models.plan import PlanRequest
from topology.readers import NodeDefaults
from topology.readers.csv import read_csv

LINGJUN = PUBLISHED / "topology/lingjun_topo.csv"
_ALPHA = 0.3
_SCALES = ((96, 8), (1_000, 30), (2_000, 60), (10_000, 300))
# Small enough for general solvers of the declared program.
_SMALL = (24, 4)


def ahead_cases() -> Iterator[Case]:
    """All cases of planning ahead; those on the real fabric only where the data lie beside the checkout."""
    num_nodes, num_minipods = _SMALL
    yield Case(
        name="ahead/small",
        problem=AHEAD.name,
        series="",
        scale=num_nodes,
        size={"nodes": num_nodes, "minipods": num_minipods, "jobs": 2},
        source=f"generated (benchmarks/workloads/ahead_weeks.py): two jobs, six starts each; alpha {_ALPHA}",
        make=_small,
    )
    for num_nodes, num_minipods in _SCALES:
        yield Case(
            name=f"ahead/weeks/{num_nodes}n{num_minipods}m",
            problem=AHEAD.name,
            series="ahead",
            scale=num_nodes,
            size={"nodes": num_nodes, "minipods": num_minipods, "jobs": 5},
            source=f"generated (benchmarks/workloads/ahead_weeks.py): five jobs over eight weeks; alpha {_ALPHA}",
            make=partial(_weeks, num_nodes, num_minipods),
        )
    if LINGJUN.is_file():
        for tier, num_minipods in (("PSW", 3), ("ASW", 119)):
            yield Case(
                name=f"ahead/lingjun/{tier.lower()}",
                problem=AHEAD.name,
                series="",
                scale=847,
                size={"nodes": 847, "minipods": num_minipods, "jobs": 1},
                source="real fabric of 847 hosts, in use by made-up jobs; 368 hosts in two weeks for thirty days; "
                f"{'pods' if tier == 'PSW' else 'leaf groups'} as minipods; alpha {_ALPHA}",
                make=partial(_lingjun, tier),
            )


def _small(seed: int) -> PlanRequest:
    snapshot = weeks_snapshot(generated_cluster(*_SMALL), wanted_jobs(_SMALL[0])[:2], seed)
    return PlanRequest(snapshot=snapshot, parameters=AheadParameters(alpha=_ALPHA, num_starts=6))


def _weeks(num_nodes: int, num_minipods: int, seed: int) -> PlanRequest:
    cluster = generated_cluster(num_nodes, num_minipods)
    snapshot = weeks_snapshot(cluster, wanted_jobs(num_nodes), seed)
    return PlanRequest(snapshot=snapshot, parameters=AheadParameters(alpha=_ALPHA))


def _lingjun(tier: str, seed: int) -> PlanRequest:
    cluster = read_csv(LINGJUN, NodeDefaults(gpu_type=H800, num_gpus=8), minipod_tier=tier)
    parameters = AheadParameters(alpha=_ALPHA)
    return PlanRequest(snapshot=weeks_snapshot(cluster, (leads_job(),), seed), parameters=parameters)

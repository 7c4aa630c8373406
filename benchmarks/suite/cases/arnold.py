"""Cases of Arnold: Table 1 of the paper, a real fabric, generated fabrics, and the shapes on which the MIP is slow."""

from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.paths import PUBLISHED
from benchmarks.suite.case import Case
from benchmarks.workloads.generators import (
    H800,
    arnold_snapshot,
    dirichlet_split,
    even_split,
    halving_split,
    pretraining_job,
)
from models.placement.arnold.descriptor import ARNOLD
from models.placement.arnold.parameters import ArnoldParameters
from models.plan import PlanRequest
from models.workload import Snapshot
from topology.readers import NodeDefaults
from topology.readers.csv import read_csv

LINGJUN = PUBLISHED / "topology/lingjun_topo.csv"

# Minipods, nodes; rows and columns of the communication matrix. The paper does not say which nodes are free, so
# several splits are used: all nodes, evenly or by halves; half of the nodes; five per cent more than the job needs.
TABLE_1 = {"i": (3, 18, 6, 2), "ii": (5, 438, 12, 8), "iii": (11, 1019, 46, 8)}
SPLITS = ("even", "halving", "half", "scarce")

# Groups of so many nodes on minipods whose free nodes the job fills to so much: seconds to minutes for the paper's MIP.
HARD = ((100, 12, 16, 0.90), (100, 12, 60, 0.90), (100, 12, 32, 0.95), (100, 16, 16, 0.97), (30, 4, 8, 0.97))
ALPHAS = (0.1, 0.3)

# Nodes, minipods, nodes of the job, in groups of twelve.
SCALES = ((500, 15, 60), (1_000, 30, 120), (2_500, 75, 300), (5_000, 150, 600), (10_000, 300, 1_200))
FILLS = (0.5, 0.7, 0.9, 0.95, 0.99)
_GROUP_SIZE = 12
_ALPHA = 0.3


def arnold_cases() -> Iterator[Case]:
    """All cases of Arnold; those on the real fabric only where the data lie beside the checkout."""
    for setting, (num_minipods, num_nodes, rows, columns) in TABLE_1.items():
        for split in SPLITS:
            yield Case(
                name=f"arnold/table1/{setting}-{split}",
                problem=ARNOLD.name,
                series=f"arnold table 1, {split}",
                scale=num_nodes,
                size={"nodes": num_nodes, "minipods": num_minipods, "groups": rows, "group_size": columns},
                source=f"setting ({setting}) of Table 1; our split of the free nodes: {split}; alpha {_ALPHA}",
                make=partial(_table1, setting, split),
                seeded=split in ("half", "scarce"),
            )
    for groups, size, minipods, fill in HARD:
        for alpha in ALPHAS:
            yield Case(
                name=f"arnold/hard/{groups}x{size}on{minipods}-{fill:.0%}-alpha{alpha}".replace("%", ""),
                problem=ARNOLD.name,
                series="",
                scale=round(groups * size / fill),
                size={"groups": groups, "group_size": size, "minipods": minipods, "fill": fill},
                source="generated: free nodes by a Dirichlet distribution of weight 6, no other nodes",
                make=partial(_hard, groups, size, minipods, fill, alpha),
            )
    for num_nodes, minipods, job_nodes in SCALES:
        for fill in FILLS:
            yield Case(
                name=f"arnold/scale/{num_nodes}n{minipods}m-fill{fill}",
                problem=ARNOLD.name,
                series=f"arnold fill {fill}",
                scale=num_nodes,
                size={"nodes": num_nodes, "minipods": minipods, "job_nodes": job_nodes, "fill": fill},
                source="generated: free nodes by a Dirichlet distribution of weight 6 over minipods of one size, the "
                f"others in use; groups of {_GROUP_SIZE}; alpha {_ALPHA}",
                make=partial(_scale, num_nodes, minipods, job_nodes, fill),
            )
    if LINGJUN.is_file():
        for tier, rows, columns in (("PSW", 64, 8), ("PSW", 32, 16), ("ASW", 64, 8), ("ASW", 32, 16)):
            yield Case(
                name=f"arnold/lingjun/{tier.lower()}-{rows}x{columns}",
                problem=ARNOLD.name,
                series="",
                scale=847,
                size={"nodes": 847, "minipods": {"PSW": 3, "ASW": 119}[tier], "groups": rows, "group_size": columns},
                source=f"real fabric of 847 hosts, all free, {'pods' if tier == 'PSW' else 'leaf groups'} as minipods; "
                f"alpha {_ALPHA}",
                make=partial(_lingjun, tier, rows, columns),
                seeded=False,
            )


def _request(snapshot: Snapshot, alpha: float, minipod_tier: str | None = None) -> PlanRequest:
    return PlanRequest(snapshot=snapshot, parameters=ArnoldParameters(alpha=alpha, minipod_tier=minipod_tier))


def _table1(setting: str, split: str, seed: int) -> PlanRequest:
    num_minipods, num_nodes, rows, columns = TABLE_1[setting]
    sizes = even_split(num_nodes, num_minipods)
    if split in ("even", "halving"):
        free = sizes if split == "even" else halving_split(num_nodes, num_minipods)
        return _request(arnold_snapshot(free, rows, columns), _ALPHA)
    total = num_nodes // 2 if split == "half" else -(-rows * columns * 105 // 100)
    # Half of setting (i) is less than its job.
    free = dirichlet_split(max(total, rows * columns), num_minipods, seed, most=sizes[-1])
    return _request(arnold_snapshot(free, rows, columns, busy=_rest(sizes, free)), _ALPHA)


def _hard(groups: int, size: int, minipods: int, fill: float, alpha: float, seed: int) -> PlanRequest:
    free = dirichlet_split(-(-groups * size * 100 // round(100 * fill)), minipods, seed)
    return _request(arnold_snapshot(free, groups, size), alpha)


def _scale(num_nodes: int, minipods: int, job_nodes: int, fill: float, seed: int) -> PlanRequest:
    sizes = even_split(num_nodes, minipods)
    free = dirichlet_split(-(-job_nodes * 100 // round(100 * fill)), minipods, seed, most=sizes[-1])
    busy = _rest(sizes, free)
    return _request(arnold_snapshot(free, job_nodes // _GROUP_SIZE, _GROUP_SIZE, busy=busy), _ALPHA)


def _rest(sizes: Sequence[int], free: Sequence[int]) -> tuple[int, ...]:
    return tuple(size - count for size, count in zip(sizes, free, strict=True))


def _lingjun(tier: str, rows: int, columns: int, _: int) -> PlanRequest:
    cluster = read_csv(LINGJUN, NodeDefaults(gpu_type=H800, num_gpus=8), minipod_tier="PSW")
    return _request(Snapshot(cluster=cluster, jobs=(pretraining_job(rows, columns),)), _ALPHA, tier)

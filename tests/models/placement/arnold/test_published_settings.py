"""Table 1 of the paper and a 512-node job on a real fabric of 847 hosts, for alpha 0, 0.1, ... 0.5.

The optimum is proved without a solver wherever the largest minipods hold a group each. With T = 1 every minipod takes
whole groups only, so at least Y1 minipods are used, the fewest with enough of them. With T >= 2 at least Y2 are used,
the fewest with enough nodes; filling the Y2 largest one after the other reaches T = 2, since a group that does not
fit into what is left of one minipod finds the rest in the next.
"""

from collections.abc import Sequence

import numpy as np
import pytest

from models.placement.arnold.parameters import ArnoldParameters
from models.workload import Job, Parallelism
from solver.result import TerminationReason
from tests.models.placement.arnold.scenes import H800, fabric, formulated, planned, pretraining
from tests.paths import SHARED
from topology.cluster import Cluster
from topology.readers import NodeDefaults
from topology.readers.csv import read_csv

ALPHAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
LINGJUN = SHARED / "data" / "topology" / "lingjun_topo.csv"

# Table 1 gives minipods and nodes; which nodes are free, and in which minipod, it does not say. These splits are ours.
TABLE_1 = {
    "i": Job(id="llm", parallelism=Parallelism(dp=12, tp=4, pp=2)),
    "ii": Job(id="llm", parallelism=Parallelism(dp=24, tp=4, pp=8)),
    "iii": Job(id="llm", parallelism=Parallelism(dp=46, tp=8, pp=8)),
}
SPLITS: dict[str, dict[str, tuple[int, ...]]] = {
    "i": {"even": (6, 6, 6), "halving": (11, 5, 2), "scarce": (5, 4, 3), "lopsided": (7, 3, 2)},
    "ii": {
        "even": (88, 88, 88, 87, 87),
        "halving": (227, 113, 56, 28, 14),
        "half busy": (42, 52, 31, 65, 29),
        "scarce": (22, 9, 16, 21, 32),
    },
    "iii": {
        "even": (93, 93, 93, 93, 93, 93, 93, 92, 92, 92, 92),
        "halving": (518, 254, 127, 63, 31, 15, 7, 3, 1, 0, 0),
        "half busy": (52, 31, 77, 44, 25, 61, 48, 39, 70, 28, 34),
        "scarce": (30, 44, 35, 28, 53, 26, 30, 23, 34, 40, 27),
    },
}
SETTINGS = [(name, split) for name, splits in SPLITS.items() for split in splits]


def fewest(amounts: Sequence[int], needed: int) -> float:
    """Entries, largest first, that it takes to reach `needed`; infinity when all are not enough."""
    reached = np.cumsum(sorted(amounts, reverse=True))
    return int(np.searchsorted(reached, needed)) + 1 if reached[-1] >= needed else np.inf


def proved_optimum(free: Sequence[int], num_groups: int, size: int, alpha: float) -> float:
    """Optimum of Eq. 4 by the argument of this module."""
    y1 = fewest([count // size for count in free], num_groups)
    y2 = fewest(free, num_groups * size)
    if y1 > y2:  # only then the second case is needed, and the argument for it asks for large minipods
        assert sorted(free, reverse=True)[int(y2) - 1] >= size
    one = alpha * y1 + (1 - alpha) if np.isfinite(y1) else np.inf
    return min(one, alpha * y2 + 2 * (1 - alpha))


@pytest.mark.parametrize(("name", "split"), SETTINGS)
def test_table_1(name: str, split: str) -> None:
    """The exact algorithm for all values of alpha, HiGHS for one, which the next split has another of.

    Paper form for (i) and (ii); (iii) with the rows of ours, without which some splits take minutes.
    """
    free = SPLITS[name][split]
    cluster = fabric({f"m{k:02}": count for k, count in enumerate(free) if count})
    modelled = ALPHAS[SETTINGS.index((name, split)) % len(ALPHAS)]
    for alpha, solver in [*((alpha, "exact") for alpha in ALPHAS), (modelled, "highs")]:
        formulation = formulated(cluster, TABLE_1[name], ArnoldParameters(alpha=alpha, strengthen=name == "iii"))
        result, _, placement = planned(formulation, solver)
        assert result.termination is TerminationReason.OPTIMAL
        groups, size = formulation.instance.num_groups, formulation.instance.group_size
        assert result.objective == pytest.approx(proved_optimum(free, groups, size, alpha), abs=1e-6)
        assert result.bound == pytest.approx(result.objective, abs=1e-6)
        assert placement.objective_eq4 == pytest.approx(result.objective)


@pytest.mark.parametrize(
    ("name", "split", "alpha"), [("i", "scarce", 0.5), ("ii", "half busy", 0.1), ("iii", "scarce", 0.1)]
)
def test_table_1_with_scip(name: str, split: str, alpha: float) -> None:
    free = SPLITS[name][split]
    cluster = fabric({f"m{k:02}": count for k, count in enumerate(free)})
    formulation = formulated(cluster, TABLE_1[name], ArnoldParameters(alpha=alpha, strengthen=name == "iii"))
    result, _, _ = planned(formulation, "scip")
    assert result.termination is TerminationReason.OPTIMAL
    groups, size = formulation.instance.num_groups, formulation.instance.group_size
    assert result.objective == pytest.approx(proved_optimum(free, groups, size, alpha), abs=1e-6)


@pytest.fixture(scope="module")
def lingjun() -> Cluster:
    if not LINGJUN.exists():
        pytest.skip("the published fabric lingjun_topo.csv is not beside the checkout")
    return read_csv(LINGJUN, NodeDefaults(gpu_type=H800, num_gpus=8), minipod_tier="PSW")


@pytest.mark.parametrize(("rows", "columns"), [(64, 8), (32, 16)])
def test_512_nodes_on_a_real_fabric_with_pods_as_minipods(lingjun: Cluster, rows: int, columns: int) -> None:
    """362, 306 and 179 hosts: two pods are needed (Y = 2), the two large ones hold every row whole (T = 1)."""
    for alpha, solver in [*((alpha, "exact") for alpha in ALPHAS), (0.3, "highs")]:
        formulation = formulated(lingjun, pretraining(rows, columns), ArnoldParameters(alpha=alpha))
        assert sorted(formulation.instance.free_nodes.tolist()) == [179, 306, 362]
        result, _, placement = planned(formulation, solver)
        assert result.termination is TerminationReason.OPTIMAL
        assert result.objective == pytest.approx(2 * alpha + (1 - alpha))
        assert (placement.num_minipods_used, placement.max_unit_spread) == (2, 1)
        assert len(set(placement.hosts)) == 512


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "columns", "spread", "modelled"), [(64, 8, 1, ()), (32, 16, 2, (0.3,))])
def test_512_nodes_on_a_real_fabric_with_leaf_groups_as_minipods(
    lingjun: Cluster, rows: int, columns: int, spread: int, modelled: tuple[float, ...]
) -> None:
    """119 leaf groups of at most 8 hosts, 68 of them with 8: 512 nodes need 64 of them (Y = 64).

    A row of 8 fills one (T = 1), a row of 16 needs two (T = 2). The MIP is solved for one of these settings; for the
    others `python -m benchmarks run --cases arnold/lingjun/asw-64x8 --solvers highs` does.
    """
    for alpha, solver in [*((alpha, "exact") for alpha in ALPHAS), *((alpha, "highs") for alpha in modelled)]:
        job, parameters = pretraining(rows, columns), ArnoldParameters(alpha=alpha, minipod_tier="ASW")
        formulation = formulated(lingjun, job, parameters)
        assert formulation.instance.num_minipods == 119
        result, _, placement = planned(formulation, solver)
        assert result.termination is TerminationReason.OPTIMAL
        assert result.objective == pytest.approx(64 * alpha + spread * (1 - alpha))
        assert (placement.num_minipods_used, placement.max_unit_spread) == (64, spread)
        assert len(set(placement.hosts)) == 512

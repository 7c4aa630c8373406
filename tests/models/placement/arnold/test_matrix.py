import pytest

from models.placement.arnold.matrix import communication_matrix, stage_major
from models.placement.arnold.parameters import SchedulingUnit
from models.workload import Parallelism
from stowplan.errors import InputError


@pytest.mark.parametrize(
    ("dp", "tp", "pp", "rows", "columns"),
    [
        (6, 8, 2, 6, 2),  # Fig. 12: 96 GPUs on 12 nodes
        (12, 4, 2, 6, 2),  # Table 1 (i): two data-parallel ranks share a node
        (24, 4, 8, 12, 8),  # Table 1 (ii): 96 nodes
        (46, 8, 8, 46, 8),  # Table 1 (iii): 368 nodes
    ],
)
def test_eq_1_on_the_papers_jobs(dp: int, tp: int, pp: int, rows: int, columns: int) -> None:
    matrix = communication_matrix(Parallelism(dp=dp, tp=tp, pp=pp), 8)
    assert (matrix.num_rows, matrix.num_columns) == (rows, columns)
    assert matrix.num_nodes * 8 == dp * tp * pp
    assert matrix.groups(SchedulingUnit.PP) == (rows, columns)
    assert matrix.groups(SchedulingUnit.DP) == (columns, rows)


@pytest.mark.parametrize(("tp", "gpus_per_node"), [(3, 8), (16, 8), (4, 6)])
def test_tp_must_divide_the_gpus_of_a_node(tp: int, gpus_per_node: int) -> None:
    with pytest.raises(InputError) as raised:
        communication_matrix(Parallelism(dp=8, tp=tp, pp=2), gpus_per_node)
    (issue,) = raised.value.issues
    assert (issue.code, issue.pointer) == ("tp_does_not_divide_node", "/parallelism/tp")


def test_a_pp_group_fills_whole_nodes() -> None:
    with pytest.raises(InputError) as raised:
        communication_matrix(Parallelism(dp=5, tp=4, pp=2), 8)
    (issue,) = raised.value.issues
    assert (issue.code, issue.pointer) == ("dp_not_divisible", "/parallelism/dp")
    assert "such as 6" in issue.detail


def test_ranks_run_down_the_stages() -> None:
    #        stage 0  stage 1
    # row 0     a        b
    # row 1     c        d
    # row 2     e        f
    assert stage_major((("a", "b"), ("c", "d"), ("e", "f"))) == ("a", "c", "e", "b", "d", "f")


def test_stage_major_hosts_are_deepspeeds_default_ranks() -> None:
    """rank = (stage * DP + data) * TP + tensor, and GPU rank % 8 of host rank // 8 holds it."""
    dp, tp, pp = 12, 4, 3
    matrix = communication_matrix(Parallelism(dp=dp, tp=tp, pp=pp), 8)
    cells = tuple(tuple(f"{r},{c}" for c in range(matrix.num_columns)) for r in range(matrix.num_rows))
    hosts = stage_major(cells)
    for stage in range(pp):
        for data in range(dp):
            for tensor in range(tp):
                rank = (stage * dp + data) * tp + tensor
                assert hosts[rank // 8] == f"{data * tp // 8},{stage}"

import pytest

from executor.connected.slurm.terms import Mark, Stage, Terms, admin_comment, parallelism_of, read_mark
from models.workload import Parallelism
from stowplan.errors import InputError


@pytest.mark.parametrize(
    "mark",
    [
        Mark(stage=Stage.KEPT, least_nodes=2, most_nodes=4, misses=1),
        Mark(stage=Stage.SENT, least_nodes=1, at_s=1_795_626_018),
        Mark(stage=Stage.LEFT),
    ],
)
@pytest.mark.parametrize("others", ["", "ticket 17", "[other] notes"])
def test_marks_are_read_as_they_were_written_beside_what_others_wrote(mark: Mark, others: str) -> None:
    assert read_mark(admin_comment(mark, others)) == (mark, others)
    assert admin_comment(None, read_mark(admin_comment(mark, others))[1]) == others


@pytest.mark.parametrize("text", ["", "stowplan kept", "[stowplan]", "[stowplan gone]"])
def test_what_is_no_mark_is_left_alone(text: str) -> None:
    assert read_mark(text) == (None, text)


@pytest.mark.parametrize(
    ("comment", "governs"),
    [
        ("stowplan", True),
        ("Stowplan: tp=8", True),
        ("run 7, stowplan", True),
        ("", False),
        ("nostowplan", False),
        ("stowplan: off", False),
        ("stowplans", False),
    ],
)
def test_comments_opt_in(comment: str, governs: bool) -> None:
    assert Terms().govern("gpu", "normal", comment) is governs
    assert not Terms(comments=False, qos=("plan",)).govern("gpu", "normal", comment)


def test_partitions_and_qos_opt_in_and_comments_out() -> None:
    terms = Terms(partitions=("gpu", "big"), qos=("plan",), comments=False)
    assert terms.govern("gpu", "normal", "")
    assert terms.govern("gpu,big", "normal", "")
    assert terms.govern("cpu", "plan", "")
    assert not terms.govern("gpu,cpu", "normal", "")
    assert not terms.govern("gpu", "plan", "stowplan: off")


@pytest.mark.parametrize(
    ("comment", "degrees"),
    [
        ("stowplan: tp=8 pp=4 dp=16", Parallelism(tp=8, pp=4, dp=16)),
        ("stowplan: TP=8", Parallelism(tp=8, pp=1, dp=1)),
        ("stowplan", None),
        ("tp=8", None),
        ("stowplan: tp=0", None),
    ],
)
def test_degrees_are_read(comment: str, degrees: Parallelism | None) -> None:
    assert parallelism_of(comment) == degrees


@pytest.mark.parametrize("fields", [{"comments": False}, {"lease_s": 1}, {"lease_s": float("nan")}, {"patience_s": 0}])
def test_terms_that_cannot_be_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(InputError):
        Terms(**fields)  # type: ignore[arg-type]

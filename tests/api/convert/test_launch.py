"""The launch document of an answer and the bundle of a run say the same about every rank."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from api.convert.launch import launch_document
from api.convert.parallel_plan import plan_from_document, plan_to_document
from executor.bundle import write_bundle
from executor.deployment import Deployment, LaunchOptions
from models.parallel_plan import symmetric_plan
from models.transformer import Checkpointing, Transformer
from tests.executor.test_rank_table import FIG_3

MODEL = Transformer(num_layers=5, hidden_size=64, num_heads=4, vocabulary_size=100, sequence_length=32, global_batch=8)


@pytest.mark.parametrize(
    ("pp", "dp", "tp", "gpus"),
    [
        (2, 2, 1, (("b", 3), ("b", 0), ("a", 1), ("b", 2))),
        (1, 2, 2, (("b", 1), ("b", 0), ("a", 0), ("a", 1))),
        (2, 1, 2, (("n1", 6), ("n1", 2), ("n1", 0), ("n1", 1))),
    ],
)
def test_answers_and_bundles_agree_on_every_rank(
    tmp_path: Path, pp: int, dp: int, tp: int, gpus: tuple[tuple[str, int], ...]
) -> None:
    plan = symmetric_plan(
        num_layers=5, pp=pp, dp=dp, tp=tp, global_batch=8, num_micro_batches=2, gpu_type="h100", gpus=gpus
    )
    deployment = Deployment(name="gpt", model=MODEL, plan=plan, launch=LaunchOptions(backend="ssh"))
    write_bundle(deployment, tmp_path / "run", tmp_path / "checkpoints")
    document = launch_document(plan)
    assert document.stage_checkpointing == ("",) * pp
    names = {"rank": "rank", "host": "node", "gpu": "gpu", "local_rank": "local_rank"}
    axes = {"pipe": "pp", "data": "dp", "tensor": "tp"}
    with (tmp_path / "run" / "ranks.csv").open() as file:
        rows = list(csv.DictReader(file))
    told = [{column: str(getattr(rank, field)) for column, field in (names | axes).items()} for rank in document.ranks]
    assert rows == told
    assert (tmp_path / "run" / "hostfile").read_text() == document.hostfile


def test_ranks_of_an_asymmetric_plan_follow_its_stages() -> None:
    document = launch_document(FIG_3)
    assert not document.symmetric
    assert [(r.rank, r.node, r.gpu, r.pp, r.dp, r.tp) for r in document.ranks] == [
        (0, "a", 0, 0, 0, 0),
        (1, "a", 1, 0, 0, 1),
        (2, "a", 2, 0, 1, 0),
        (3, "a", 3, 0, 1, 1),
        (4, "b", 0, 1, 0, 0),
        (5, "b", 1, 1, 0, 1),
        (6, "b", 2, 1, 1, 0),
        (7, "b", 3, 1, 1, 1),
        (8, "b", 4, 1, 2, 0),
        (9, "b", 5, 1, 2, 1),
    ]
    assert document.hostfile == "a slots=4\nb slots=6\n"


def test_what_stages_recompute_is_told() -> None:
    plan = symmetric_plan(
        num_layers=5, pp=2, dp=1, tp=1, global_batch=8, num_micro_batches=2, gpu_type="h100", gpus=(("a", 0), ("a", 1))
    )
    first = replace(plan.stages[0], checkpointing=Checkpointing.FULL, recomputed_layers=2)
    own = replace(plan, stages=(first, replace(plan.stages[1], checkpointing=Checkpointing.NONE)))
    assert launch_document(own).stage_checkpointing == ("full 2", "none")
    assert plan_from_document(plan_to_document(own)) == own

"""Pictures of 3D-parallel plans: valid, the same bytes for the same answer, every pass and every plan on them."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from api.convert.parallel_answer import answer_document
from api.figures.parallel import render
from api.figures.pipeline import pipeline_panel
from api.figures.request import ParallelFigure
from api.figures.throughput import plan_words
from api.schemas.parallel_answer import ParallelPlanAnswer
from models.parallelism.planner import answer
from models.parallelism.request import Degrees, Offer, ParallelRequest, Planner
from models.pipeline_schedule import PipelineSchedule
from models.software import Software
from models.transformer import Transformer
from models.wording import size_of
from topology.gpu_catalogue import find_product, gpu_type_of

SVG = "{http://www.w3.org/2000/svg}"
GPT = Transformer(
    num_layers=24, hidden_size=1024, num_heads=16, vocabulary_size=32000, sequence_length=512, global_batch=64
)
KINDS = tuple(gpu_type_of(find_product(name), "bf16") for name in ("h100", "a100", "v100"))
MAX_WIDTH = 930.0


def answered(planner: Planner, counts: tuple[int, ...], degrees: Degrees | None = None) -> ParallelPlanAnswer:
    kinds = KINDS if planner is Planner.GRID else KINDS[:1]
    offers = tuple(Offer(gpu_type=kind, gpus_per_node=8, counts=counts) for kind in kinds)
    plain = degrees is None or degrees.virtual_stages == degrees.context_parallel == 1
    model = GPT if plain else replace(GPT, software=Software.TORCH_EAGER)
    request = ParallelRequest(model=model, planner=planner, offers=offers, degrees=degrees)
    return answer_document(request, answer(request))


def given(**degrees: Any) -> ParallelPlanAnswer:
    wanted = Degrees(**degrees)
    return answered(Planner.GIVEN, (wanted.num_gpus,), wanted)


def parsed(picture: bytes) -> ET.Element:
    return ET.fromstring(picture)  # noqa: S314 - a picture of ours


def texts(picture: bytes) -> list[str]:
    return ["".join(element.itertext()).strip() for element in parsed(picture).iter(f"{SVG}text")]


def polygons(picture: bytes, gid: str) -> int:
    """Boxes of the path `gid`."""
    (group,) = (group for group in parsed(picture).iter(f"{SVG}g") if group.get("id") == gid)
    (path,) = group.iter(f"{SVG}path")
    return len(re.findall("M", path.get("d") or ""))


def test_every_pass_is_drawn_with_its_number() -> None:
    found = given(pp=4, dp=2, tp=1, num_micro_batches=8)
    picture = render(ParallelFigure(answer=found, format="svg"))
    assert polygons(picture, "forward") == polygons(picture, "backward") == 4 * 8
    assert polygons(picture, "reduction") == polygons(picture, "optimizer") == 4
    words = texts(picture)
    assert words.count("7") == 2 * 4
    assert "0: 6 layers, DP2 TP1" in words
    (point,) = found.points
    assert {f"{size_of(stage.total_bytes)} of {size_of(stage.usable_bytes)}" for stage in point.stages} <= set(words)
    assert any(word.startswith("compute ") for word in words)
    assert not any(word.startswith("left out") for word in words)


def test_every_part_of_an_interleaved_stage_is_drawn() -> None:
    found = given(pp=4, dp=2, tp=1, num_micro_batches=8, virtual_stages=3)
    picture = render(ParallelFigure(answer=found, format="svg"))
    assert polygons(picture, "forward") == polygons(picture, "backward") == 4 * 3 * 8
    assert "stages and micro-batches (interleaved 1F1B, 3 parts a stage)" in texts(picture)
    assert plan_words(found.best) == "PP4x3 DP2 TP1"
    panel = pipeline_panel(found.best)
    best = found.best
    for i, stage in enumerate(best.stages):
        seconds = sum(one.end_s - one.start_s for one in panel.passes if one.stage == i)
        assert seconds == pytest.approx(8 * (stage.forward_s + stage.backward_s))
        ordered = [one for one in panel.passes if one.stage == i]
        assert all(one.end_s <= other.start_s + 1e-12 for one, other in pairwise(ordered))


def test_gradients_of_weights_are_boxes_of_their_own() -> None:
    found = given(pp=4, dp=2, tp=1, num_micro_batches=8, virtual_stages=2, schedule=PipelineSchedule.ZBV)
    picture = render(ParallelFigure(answer=found, format="svg"))
    assert polygons(picture, "forward") == polygons(picture, "backward") == polygons(picture, "weight") == 4 * 2 * 8
    assert {"stages and micro-batches (ZB-V, 2 parts a stage)", "gradients of weights"} <= set(texts(picture))
    assert plan_words(found.best) == "PP4ZBV DP2 TP1"
    panel, best = pipeline_panel(found.best), found.best
    for i, stage in enumerate(best.stages):
        of_weights = sum(one.end_s - one.start_s for one in panel.passes if one.stage == i and one.weight)
        assert of_weights == pytest.approx(8 * stage.weight_s)
        assert 0 < stage.weight_s < stage.backward_s


def test_a_plan_whose_replicas_share_says_so() -> None:
    found = given(pp=2, dp=2, tp=1, context_parallel=2, num_micro_batches=8)
    words = texts(render(ParallelFigure(answer=found, format="svg")))
    assert "0: 12 layers, DP2 TP1" in words
    assert "stages and micro-batches (1F1B; every replica has 1/2 of its sequences)" in words
    assert plan_words(found.best) == "PP2 DP2 TP1 CP2"


def test_of_many_micro_batches_the_first_and_the_last_are_shown() -> None:
    found = given(pp=2, dp=1, tp=1, num_micro_batches=64)
    panel = pipeline_panel(found.best)
    assert panel.shown == 8
    words = texts(render(ParallelFigure(answer=found, format="svg")))
    assert any(word.startswith("left out: micro-batches 4 to 59 of 64") for word in words)
    assert {"0", "3", "60", "63"} <= set(words)
    assert "4" not in words


@pytest.mark.parametrize("format_", ["svg", "png"])
def test_equal_answers_have_equal_bytes(format_: str) -> None:
    request = ParallelFigure(answer=given(pp=2, dp=1, tp=1, num_micro_batches=4), format=format_)  # type: ignore[arg-type]
    assert render(request) == render(replace(request))


@pytest.mark.slow
def test_throughput_has_a_line_per_type_and_the_plan_at_each_point() -> None:
    found = answered(Planner.GRID, (2, 8, 32))
    picture = render(ParallelFigure(answer=found, format="svg"))
    words = texts(picture)
    assert {"h100", "a100-40gb", "v100"} <= set(words)
    shown = [word for word in words if word.startswith("PP")]
    assert set(shown) <= {plan_words(point) for point in found.points}
    # Labels of different types may cover each other where they are close; those of the fastest type are all there.
    fastest = [plan_words(point) for point in found.points if point.gpu_type == "h100"]
    assert all(word in shown for word in fastest)
    size = parsed(picture).get("viewBox")
    assert size is not None
    assert float(size.split()[2]) <= MAX_WIDTH


def test_deep_pipelines_stay_on_a_page() -> None:
    panel = pipeline_panel(given(pp=24, dp=1, tp=1, num_micro_batches=64).best)
    assert panel.height < 600


def test_degrees_that_differ() -> None:
    best = given(pp=2, dp=1, tp=1, num_micro_batches=4).best
    assert plan_words(best) == "PP2 DP1 TP1"
    uneven = best.model_copy(update={"stages": (best.stages[0], best.stages[1].model_copy(update={"dp": 2}))})
    assert plan_words(uneven) == "PP2, mixed"

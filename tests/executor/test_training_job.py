"""Jobs: written and read, refused where the trainer cannot run them, learning rates, coordinates."""

import json
import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.learning_rate import learning_rate_at
from executor.progress import Progress
from executor.routing import Routing
from executor.trainable import model_faults, run_by
from executor.training_job import TrainingJob, read_training_job, write_training_job
from executor.training_layout import StageLayout
from executor.training_options import Compiler, Decay, Device, EngineName, Schedule
from models.pipeline_schedule import PipelineSchedule
from models.software import FEATURES, Software
from models.transformer import Biases, Checkpointing, Optimizer, Positions, Precision, Transformer
from stowplan.errors import InputError
from stowplan.records import from_document, to_json
from tests.executor.jobs import GPT, LLAMA, tiny_job


@pytest.mark.parametrize("model", [GPT, LLAMA])
def test_file_holds_the_whole_job(tmp_path: Path, model: Transformer) -> None:
    job = tiny_job(model, stage_layers=(3, 1), dp=2, tp=2, keep_checkpoints=5, layers_hook="mine:layers")
    write_training_job(job, tmp_path / "job.json")
    assert read_training_job(tmp_path / "job.json") == job


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"job\.json cannot be read"):
        read_training_job(tmp_path / "job.json")


def test_every_wrong_field_is_reported_where_it_is() -> None:
    document = json.loads(to_json(tiny_job()))
    document["seed"] = "two"
    document["model"]["precision"] = "int3"
    document["stages"][0]["batches"] = [4, None]
    document["colour"] = "red"
    del document["num_steps"]
    with pytest.raises(InputError) as refused:
        from_document(TrainingJob, document, "training job")
    assert {issue.pointer for issue in refused.value.issues} == {
        *("/seed", "/model/precision", "/stages/0/batches/1", "/colour", "/num_steps")
    }


@pytest.mark.parametrize("value", [True, math.inf, "1"])
def test_number_must_be_a_finite_number(value: object) -> None:
    document = json.loads(to_json(tiny_job()))
    document["schedule"]["learning_rate"] = value
    with pytest.raises(InputError, match=r"must be a (finite )?number"):
        from_document(TrainingJob, document, "training job")


def _stage(num_layers: int, *batches: int, tp: int = 1) -> StageLayout:
    return StageLayout(num_layers=num_layers, tp=tp, batches=batches)


_MIXTURE = replace(LLAMA, num_experts=4, experts_per_token=2, expert_feed_forward_size=25)


def _mixture(**changes: Any) -> dict[str, Any]:
    return {"model": _MIXTURE, "engine": EngineName.NATIVE} | changes


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"stages": ()}, "at least 1 stage"),
        ({"stages": (_stage(3, 2), _stage(2, 2))}, "has 5 layers; the model has 4"),
        ({"stages": (_stage(4, 2), _stage(0, 2))}, "every stage has at least 1 layer"),
        ({"stages": (_stage(4),)}, "at least 1 replica"),
        ({"stages": (_stage(4, 2, 0),)}, "each with at least 1 sequence"),
        ({"stages": (_stage(4, 2, 2),)}, "are 16; the model's global batch is 8"),
        (
            {"stages": (_stage(2, 2), _stage(2, 3, 1))},
            r"\[3, 1\] are 4 sequences, those of stage 0 2; every stage works",
        ),
        ({"stages": (_stage(4, 2, tp=3),)}, "3 does not divide the model's num_heads of 4"),
        ({"stages": (_stage(4, 2, tp=0),)}, "is 0; at least 1"),
        (
            {"stages": (_stage(4, 3, 1),), "num_micro_batches": 2},
            "DeepSpeed needs the same, the native engine does not",
        ),
        ({"virtual_stages": 0}, "is 0; at least 1"),
        ({"virtual_stages": 2, "stages": (_stage(2, 2), _stage(2, 2))}, "DeepSpeed has no interleaved pipelines"),
        ({"virtual_stages": 2, "engine": EngineName.NATIVE}, "needs several stages"),
        ({"pipeline_schedule": PipelineSchedule.ZBV}, "DeepSpeed has 1F1B alone"),
        ({"pipeline_schedule": PipelineSchedule.ZBV, "engine": EngineName.NATIVE}, "is zbv with 1 parts a stage"),
        ({"pipeline_schedule": PipelineSchedule.ZBV, "engine": EngineName.NATIVE}, "ties those of two stages"),
        (
            {
                "pipeline_schedule": PipelineSchedule.ZERO_BUBBLE,
                "engine": EngineName.NATIVE,
                "model": replace(GPT, checkpointing=Checkpointing.FULL),
            },
            "which the passes for weights repeat once more",
        ),
        (
            {
                "pipeline_schedule": PipelineSchedule.ZERO_BUBBLE,
                "engine": EngineName.NATIVE,
                "model": replace(GPT, zero_stage=2),
            },
            "with ZeRO stage 2; under it torch gives the gradients of weights of all layers of a part at once",
        ),
        ({"num_steps": 0}, "at least 1"),
        ({"resume": "last"}, "resume needs it"),
        ({"checkpoint_interval": 5}, "checkpoint_interval needs it"),
        ({"layers_hook": "mine"}, "must read module:function"),
        ({"schedule": Schedule(learning_rate=-1.0)}, "at least 0"),
        ({"model": replace(GPT, precision=Precision.FP16)}, "knows bf16 and fp32"),
        ({"model": replace(GPT, optimizer=Optimizer.SGD)}, "the trainer knows adam, the native engine sgd, too"),
        ({"model": replace(GPT, num_experts=4)}, "is 4; under DeepSpeed the trainer knows dense models only"),
        (_mixture(model=replace(_MIXTURE, biases=Biases.ALL)), "/model/biases: is all; the trainer's experts have no"),
        (_mixture(model=replace(_MIXTURE, experts_per_token=5)), "is 5; from 1 to the model's num_experts of 4"),
        (_mixture(model=replace(_MIXTURE, expert_interval=0)), "/model/expert_interval: is 0; at least 1"),
        (_mixture(expert_parallel=0), "/expert_parallel: is 0; at least 1"),
        (_mixture(expert_parallel=2), "is 2, which does not divide the 1 replica of stage 0"),
        (_mixture(expert_parallel=3), "is 3, which does not divide the model's num_experts of 4"),
        (_mixture(expert_parallel=2, layers_hook="a:b"), "is 2 beside layers_hook"),
        (_mixture(engine=EngineName.DEEPSPEED, expert_parallel=2), "/expert_parallel: is 2; DeepSpeed has none"),
        (_mixture(pipeline_schedule=PipelineSchedule.ZERO_BUBBLE), "tokens would go to their experts twice"),
        (
            _mixture(stages=(_stage(4, 2, tp=2),)),
            "/stages/0/tp: 2 does not divide the model's expert_feed_forward_size",
        ),
        (_mixture(routing=Routing(balance_loss=-1.0)), "/routing/balance_loss: is -1.0; from 0, for none, to 100"),
        (_mixture(routing=Routing(capacity=0.0)), "/routing/capacity: is 0.0; above 0"),
        ({"model": replace(GPT, kv_rank=8)}, "the trainer has no latent attention"),
        ({"schedule": Schedule(warmup_steps=4, warmup_samples=32)}, "is given beside warmup_steps; say it in one"),
        ({"schedule": Schedule(cooldown_samples=8)}, "cosine has none, wsd has"),
        ({"schedule": Schedule(warmup_samples=-1)}, "at least 0"),
        ({"final_weights": "w", "model": LLAMA, "layers_hook": "mine:layers"}, "nobody else knows the weights"),
        ({"initial_weights": "w", "model": replace(GPT, gated=True)}, "needs a model that transformers has as gpt2"),
        ({"model": replace(GPT, attention_window=8)}, "is 8; the trainer has no attention within a window"),
        ({"model": replace(GPT, post_norms=True)}, "the trainer has no norms behind attention"),
        ({"model": replace(GPT, positions=Positions.ALIBI)}, "is alibi; the trainer knows learned and rotary"),
        ({"model": replace(GPT, zero_stage=3)}, "runs stage 1 only under DeepSpeed"),
        ({"model": replace(GPT, zero_stage=0), "engine": EngineName.NATIVE}, "runs stages 1, 2 and 3 under the engine"),
        ({"model": replace(GPT, num_kv_heads=3)}, "do not divide into 3 key-value heads"),
        ({"model": replace(LLAMA, head_size=15)}, "need an even size"),
    ],
)
def test_job_that_cannot_run_is_refused(changes: dict[str, Any], detail: str) -> None:
    with pytest.raises(InputError, match=detail):
        replace(tiny_job(), **changes)


@given(pp=st.integers(1, 4), dp=st.integers(1, 4), tp=st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_ranks_go_pipe_slowest_and_tensor_fastest(pp: int, dp: int, tp: int) -> None:
    model = replace(GPT, num_layers=pp, global_batch=2 * dp, num_heads=12, hidden_size=144, feed_forward_size=144)
    stages = (StageLayout(num_layers=1, tp=tp, batches=(2,) * dp),) * pp
    job = TrainingJob(model=model, stages=stages, num_micro_batches=1, num_steps=1)
    places = [job.coordinates(rank) for rank in range(job.num_ranks)]
    assert places == list(product(range(pp), range(dp), range(tp)))


def test_parts_of_stages_follow_each_other_round_the_pipeline() -> None:
    stages = (_stage(5, 2), _stage(3, 2))
    model = replace(GPT, num_layers=8)
    job = tiny_job(model, stages=stages, virtual_stages=2, engine=EngineName.NATIVE)
    assert job.part_layers == (3, 2, 2, 1)
    assert [job.parts_of(pipe) for pipe in range(2)] == [(0, 2), (1, 3)]
    assert job.last_stage == 1
    untied = replace(model, tied_embeddings=False)
    folded = replace(job, model=untied, pipeline_schedule=PipelineSchedule.ZBV)
    assert folded.part_layers == (3, 2, 1, 2)
    assert [folded.parts_of(pipe) for pipe in range(2)] == [(0, 3), (1, 2)]
    assert [folded.stage_of(part) for part in range(4)] == [0, 1, 1, 0]
    assert folded.last_stage == 0


@given(stages=st.lists(st.tuples(st.integers(1, 4), st.sampled_from([1, 2, 4])), min_size=1, max_size=4))
@settings(max_examples=20, deadline=None)
def test_every_rank_of_an_uneven_layout_has_a_place_of_its_own(stages: list[tuple[int, int]]) -> None:
    layouts = tuple(_stage(1, 12 - (dp - 1), *(1,) * (dp - 1), tp=tp) for dp, tp in stages)
    model = replace(GPT, num_layers=len(stages), global_batch=12)
    job = TrainingJob(
        model=model, stages=layouts, num_micro_batches=1, num_steps=1, engine=EngineName.NATIVE, device=Device.CPU
    )
    places = [job.coordinates(rank) for rank in range(job.num_ranks)]
    assert places == [(i, j, k) for i, (dp, tp) in enumerate(stages) for j, k in product(range(dp), range(tp))]
    assert [job.rank_of(place) for place in places] == list(range(job.num_ranks))


def test_engines_run_what_is_planned_for_them() -> None:
    eager = replace(LLAMA, software=Software.TORCH_EAGER, sequence_parallel=False)
    assert not list(model_faults(replace(eager, sequence_parallel=True), EngineName.NATIVE))
    assert not list(model_faults(eager, EngineName.NATIVE))
    assert [fault.pointer for fault in model_faults(eager, EngineName.DEEPSPEED)] == ["/model/software"]
    compiled = replace(eager, software=Software.TORCH)
    assert [fault.pointer for fault in model_faults(compiled, EngineName.NATIVE)] == ["/model/software"]


def test_the_native_engine_is_predicted_by_itself_whatever_a_plan_was_made_for() -> None:
    """Sequences stay whole, or split, as they were planned."""
    assert LLAMA.software is Software.DEEPSPEED
    for model, splits in ((LLAMA, False), (replace(LLAMA, software=Software.TORCH_EAGER), True)):
        found = run_by(model, EngineName.NATIVE)
        assert found == replace(model, software=Software.NATIVE, sequence_parallel=splits)
        assert run_by(found, EngineName.NATIVE) == found
        assert run_by(model, EngineName.DEEPSPEED) == run_by(model, None) == model
    # What it does not run is left to be refused.
    compiled = replace(LLAMA, software=Software.TORCH)
    assert run_by(compiled, EngineName.NATIVE) == compiled


def test_native_is_a_software_without_what_the_engine_refuses() -> None:
    native, eager = FEATURES[Software.NATIVE], FEATURES[Software.TORCH_EAGER]
    assert native == replace(eager, context_parallel=False, fp8=False)
    model = replace(LLAMA, software=Software.NATIVE)
    assert not list(model_faults(model, EngineName.NATIVE))
    for precision in (Precision.FP8, Precision.MXFP8):
        (fault,) = model_faults(replace(model, precision=precision), EngineName.NATIVE)
        assert fault.pointer == "/model/precision"


def test_stages_may_recompute_on_their_own_under_the_native_engine() -> None:
    """Layers 0-1, 2, 3-4, 5 are the parts of stages 0, 1, 0, 1; of stage 0 one layer of each is recomputed."""
    none, full, selective = Checkpointing.NONE, Checkpointing.FULL, Checkpointing.SELECTIVE
    first = replace(_stage(4, 2), checkpointing=full, recomputed_layers=2)
    more: dict[str, Any] = {"virtual_stages": 2, "engine": EngineName.NATIVE, "num_micro_batches": 4}
    model = replace(GPT, num_layers=6, checkpointing=selective)
    job = tiny_job(model, stages=(first, _stage(2, 2)), **more)
    assert job.layer_checkpointing == (full, none, selective, full, none, selective)
    for fault, wrong, changed in (
        ("recomputed_layers", {"recomputed_layers": 3}, {}),
        ("recomputed_layers", {"recomputed_layers": 6}, {}),
        ("recomputed_layers", {"checkpointing": none}, {}),
        ("hook", {}, {"layers_hook": "a:b"}),
        ("checkpointing", {}, {"engine": EngineName.DEEPSPEED}),
    ):
        stages = (replace(first, **wrong), _stage(2, 2))
        with pytest.raises(InputError) as caught:
            tiny_job(model, stages=stages, **more | changed)
        field = "recomputed_layers" if fault == "recomputed_layers" else "checkpointing"
        assert (fault, f"/stages/0/{field}") in {(issue.code, issue.pointer) for issue in caught.value.issues}


def test_experts_are_shared_by_replicas_under_the_native_engine() -> None:
    stages = (_stage(2, 1, 3, 2, 2), _stage(2, 4, 4))
    job = tiny_job(_MIXTURE, stages=stages, num_micro_batches=1, engine=EngineName.NATIVE, expert_parallel=2)
    assert from_document(TrainingJob, json.loads(to_json(job)), "training job") == job
    dense = replace(_MIXTURE, num_experts=1, experts_per_token=1)
    with pytest.raises(InputError, match="does not divide the model's num_experts of 1"):
        replace(job, model=dense)


def test_layers_are_compiled_under_the_native_engine() -> None:
    assert tiny_job(compiler=Compiler.INDUCTOR, engine=EngineName.NATIVE).compiler is Compiler.INDUCTOR
    with pytest.raises(InputError, match="/compiler: is inductor; under DeepSpeed layers are not compiled"):
        tiny_job(compiler=Compiler.INDUCTOR)


def test_sequences_are_split_where_they_divide_and_layers_know_it() -> None:
    model = replace(LLAMA, software=Software.TORCH_EAGER)
    more: dict[str, Any] = {"engine": EngineName.NATIVE, "tp": 2}
    assert model.splits_sequences
    assert tiny_job(model, **more).model == model
    with pytest.raises(InputError, match="2 does not divide the model's sequence_length of 33"):
        tiny_job(replace(model, sequence_length=33), **more)
    with pytest.raises(InputError, match="layers of a hook have whole sequences"):
        tiny_job(model, layers_hook="a:b", **more)
    assert tiny_job(model, layers_hook="a:b", engine=EngineName.NATIVE).layers_hook == "a:b"


def test_learning_rate_warms_up_and_falls_along_a_cosine() -> None:
    schedule = Schedule(learning_rate=1.0, warmup_steps=4, decay_steps=12, final_ratio=0.2)
    job = tiny_job(schedule=schedule)
    rates = [learning_rate_at(job, Progress.plain(8 * step)) for step in range(20)]
    assert rates[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    # Half-way down the cosine stands in the middle of 1 and 0.2.
    assert rates[8] == pytest.approx(0.6)
    assert rates[12:] == [pytest.approx(0.2)] * 8


def _rates(**schedule: Any) -> list[float]:
    job = tiny_job(schedule=Schedule(learning_rate=1.0, final_ratio=0.2, **schedule), num_steps=20)
    return [learning_rate_at(job, Progress.plain(8 * step)) for step in range(22)]


def test_learning_rate_falls_along_a_line() -> None:
    rates = _rates(decay=Decay.LINEAR, warmup_steps=4, decay_steps=12)
    assert rates[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    # 0.8 in 8 steps.
    assert rates[4:13] == pytest.approx([1.0 - 0.1 * k for k in range(9)])
    assert rates[12:] == [pytest.approx(0.2)] * 10


def test_learning_rate_stays_and_falls_at_the_end() -> None:
    rates = _rates(decay=Decay.WSD, warmup_steps=2, cooldown_steps=4)
    assert rates[:3] == [0.5, 1.0, 1.0]
    assert rates[2:17] == [1.0] * 15
    assert rates[16:21] == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])
    # The last tenth of 20 steps are two.
    assert _rates(decay=Decay.WSD)[17:21] == pytest.approx([1.0, 1.0, 0.6, 0.2])


@pytest.mark.parametrize("decay", Decay)
def test_samples_say_the_same_as_steps(decay: Decay) -> None:
    """A step has 8 samples."""
    steps: dict[str, Any] = {"warmup_steps": 3, "decay_steps": 16}
    samples: dict[str, Any] = {"warmup_samples": 24, "decay_samples": 128}
    if decay is Decay.WSD:
        steps["cooldown_steps"], samples["cooldown_samples"] = 5, 40
    assert _rates(decay=decay, **samples) == _rates(decay=decay, **steps)

"""TOML of torchtitan, and files that are wrong."""

from pathlib import Path
from typing import Any

import pytest

from models.catalogue import find_model
from models.performance.iteration.architecture import profile_of
from models.pipeline_schedule import PipelineSchedule
from models.readers import FilePlan, read_model_file
from models.readers.torchtitan import read_torchtitan
from models.software import Software
from models.transformer import Checkpointing, Precision
from stowplan.errors import FileFormatError, InputError

# As its llama3_405b.toml and deepseek_v3_671b.toml are written, with what is asked about below.
_LLAMA = """
[job]
description = "Llama 3 405B training"
[model]
name = "llama3"
flavor = "405B"
[optimizer]
name = "AdamW"
lr = 8e-5
[training]
local_batch_size = 2
seq_len = 8192
steps = 3000
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
pipeline_parallel_degree = 1
context_parallel_degree = 1
[activation_checkpoint]
mode = "full"
"""
_OLDER = """
[model]
name = "llama3"
flavor = "8B"
[training]
batch_size = 4
seq_len = 4096
data_parallel_shard_degree = 4
data_parallel_replicate_degree = 2
tensor_parallel_degree = 2
[experimental]
pipeline_parallel_degree = 2
context_parallel_degree = 2
"""


def test_a_configuration(tmp_path: Path) -> None:
    file = tmp_path / "llama3_405b.toml"
    file.write_text(_LLAMA, encoding="utf-8")
    read = read_model_file(file)
    assert read.plan == FilePlan(tp=8)
    model = read.transformer()
    assert profile_of(model).prefix.parameters[-1] == 405_853_388_800
    assert (model.sequence_length, model.micro_batch, model.zero_stage) == (8192, 2, 3)
    assert (model.checkpointing, model.precision) == (Checkpointing.FULL, Precision.BF16)
    compiled = read_torchtitan(_LLAMA + "\n[compile]\nenable = true\n").transformer()
    assert (model.software, compiled.software) == (Software.TORCH_EAGER, Software.TORCH)
    # As many GPUs as there are decide the batch.
    assert "global_batch" not in read.fields
    assert any("give --global-batch" in note.text for note in read.notes)


def test_an_older_one_in_a_pipeline() -> None:
    read = read_torchtitan(_OLDER)
    assert read.plan == FilePlan(pp=2, tp=2, cp=2, dp=8)
    model = read.transformer()
    assert (model.global_batch, model.micro_batch, model.zero_stage) == (32, None, 1)
    assert model.checkpointing is Checkpointing.SELECTIVE
    assert "expert_feed_forward_size" not in read.fields


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("1F1B", {}),
        ("interleaved1f1b", {"virtual_stages": 2}),
        ("InterleavedZeroBubble", {"virtual_stages": 2, "schedule": PipelineSchedule.ZERO_BUBBLE}),
        ("ZBVZeroBubble", {"virtual_stages": 2, "schedule": PipelineSchedule.ZBV}),
        ("DualPipeV", {}),
    ],
)
def test_schedules(name: str, expected: dict[str, Any]) -> None:
    """Stages are in two parts where nothing lists them."""
    text = _LLAMA.replace(
        "pipeline_parallel_degree = 1", f'pipeline_parallel_degree = 4\npipeline_parallel_schedule = "{name}"'
    )
    read = read_torchtitan(text)
    assert read.plan == FilePlan(pp=4, tp=8, **expected)
    told = [note.text for note in read.notes if "schedule" in note.text]
    assert told == (["the pipeline schedule DualPipeV is planned as 1f1b"] if name == "DualPipeV" else [])


def test_a_long_sequence_on_gpus_that_share_it() -> None:
    """FSDP shards over them, with one replica otherwise."""
    text = _LLAMA.replace("shard_degree = -1", "shard_degree = 1")
    read = read_torchtitan(text.replace("context_parallel_degree = 1", "context_parallel_degree = 8"))
    assert read.plan == FilePlan(tp=8, cp=8, dp=1)
    assert read.fields["zero_stage"] == 3


def test_replicas_only() -> None:
    text = _LLAMA.replace("replicate_degree = 1", "replicate_degree = 16").replace(
        "shard_degree = -1", "shard_degree = 1"
    )
    read = read_torchtitan(text.replace("[training]", "[training]\nglobal_batch_size = 64"))
    assert read.plan == FilePlan(tp=8, dp=16)
    assert (read.fields["zero_stage"], read.fields["global_batch"]) == (0, 64)


@pytest.mark.parametrize(("policy", "alone", "in_a_pipeline"), [("default", 3, 1), ("always", 3, 3), ("never", 2, 1)])
def test_when_weights_are_gathered(policy: str, alone: int, in_a_pipeline: int) -> None:
    text = _LLAMA.replace("[parallelism]", f'[parallelism]\nfsdp_reshard_after_forward = "{policy}"')
    assert read_torchtitan(text).fields["zero_stage"] == alone
    stages = text.replace("pipeline_parallel_degree = 1", "pipeline_parallel_degree = 4")
    model = read_torchtitan(stages).transformer(global_batch=32)
    assert model.zero_stage == in_a_pipeline
    assert profile_of(model).has_pipelines


@pytest.mark.parametrize(
    ("name", "flavor", "known"),
    [
        ("deepseek_v3", "671B", "deepseek-v3"),
        ("deepseek_v3", "16B", "deepseek-v2-lite"),
        ("llama4", "17bx128e", "llama4-maverick"),
        ("qwen3", "0.6B", "qwen3-0.6b"),
    ],
)
def test_models(name: str, flavor: str, known: str) -> None:
    text = _LLAMA.replace('"llama3"', f'"{name}"').replace('"405B"', f'"{flavor}"')
    model = read_torchtitan(text.replace("seq_len = 8192", "seq_len = 4096")).transformer()
    found = find_model(known, global_batch=1, sequence_length=4096, checkpointing=Checkpointing.FULL)
    assert profile_of(model).layers == profile_of(found).layers


@pytest.mark.parametrize(
    ("old", "new", "pointer", "detail"),
    [
        ('"llama3"', '"flux"', "/model/name", "is 'flux'; known: llama3, llama4, deepseek_v3, qwen3"),
        ('name = "llama3"', "", "/model/name", "is missing; known: llama3"),
        ('"405B"', '"debugmodel"', "/model/flavor", "is 'debugmodel'; known of llama3: 8B, 70B, 405B"),
        ("seq_len = 8192", 'seq_len = "8k"', "/training/seq_len", "is '8k'; must be a whole number"),
        ("shard_degree = -1", "shard_degree = 0", "/parallelism/data_parallel_shard_degree", "-1 for all GPUs"),
        ("shard_degree = -1", "shard_degree = -2", "/parallelism/data_parallel_shard_degree", "from -1 to"),
        ('mode = "full"', 'mode = "memory_budget"', "/activation_checkpoint/mode", "none, selective, full"),
        (
            "tensor_parallel_degree = 8",
            "fsdp_reshard_after_forward = 8",
            "/parallelism/fsdp_reshard_after_forward",
            "is 8",
        ),
        ('"AdamW"', '"Muon"', "/optimizer/name", "known here: adamw, adam"),
        ("[job]", "model = 3\n[job]", "", ""),
    ],
)
def test_what_is_refused(old: str, new: str, pointer: str, detail: str) -> None:
    with pytest.raises(InputError) as raised:
        read_torchtitan(_LLAMA.replace(old, new))
    found = {issue.pointer: issue.detail for issue in raised.value.issues} or {"": raised.value.detail}
    assert pointer in found, found
    assert detail in found[pointer]


def test_what_is_no_configuration() -> None:
    with pytest.raises(FileFormatError, match="is not TOML"):
        read_torchtitan(_LLAMA[:60] + "\n[[[")
    with pytest.raises(InputError) as raised:
        read_torchtitan("model = 3")
    assert raised.value.issues[0].pointer == "/model"

"""Whatever stands in a file, there is a model or an InputError with pointers, and never anything else."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from models.performance.iteration.architecture import profile_of
from models.readers.base import ForeignModel
from models.readers.hugging_face import describe
from models.readers.megatron import read_megatron
from models.readers.nemo import read_nemo
from models.readers.torchtitan import read_torchtitan
from stowplan.errors import InputError

_SAMPLES: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("hugging_face_samples.json").read_text(encoding="utf-8")
)
_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 10),
    st.sampled_from(
        [0, 2**31, 2**63, 10**300, 1.5, float("nan"), float("inf"), "", "1", "None", "$X", "([0]*1+[1]*2)"]
    ),
    st.text(max_size=5),
)
_values = st.one_of(
    _scalars, st.lists(_scalars, max_size=4), st.dictionaries(st.text(max_size=3), _scalars, max_size=3)
)
_CONFIGS = [
    *(sample["config"] for sample in _SAMPLES.values()),
    *(sample["config"]["text_config"] for sample in _SAMPLES.values() if "text_config" in sample["config"]),
]
_TITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
global_batch_size = 64
seq_len = 8192
mixed_precision_param = "bfloat16"
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
pipeline_parallel_degree = 1
[activation_checkpoint]
mode = "full"
"""
_NEMO = {
    "trainer": {"devices": 8, "num_nodes": 2, "precision": "bf16"},
    "model": {
        "micro_batch_size": 1,
        "global_batch_size": 64,
        "tensor_model_parallel_size": 2,
        "encoder_seq_length": 512,
        "num_layers": 4,
        "hidden_size": 64,
        "ffn_hidden_size": 256,
        "num_attention_heads": 4,
        "num_query_groups": 2,
        "vocab_size": 1000,
        "num_moe_experts": 4,
        "moe_layer_freq": 1,
        "activation": "swiglu",
        "normalization": "rmsnorm",
        "optim": {"name": "adam"},
    },
}

_WORDS = [
    *("--num-layers", "--hidden-size", "--num-attention-heads", "--seq-length", "--vocab-size", "--swiglu"),
    *("--num-experts", "--moe-layer-freq", "--multi-latent-attention", "--kv-channels", "--nnodes"),
    *("2", "0", "64", "=", "A=2", "$A", "${A:-4}", "(", ")", "([0]*1+[1]*1)", "9" * 400, "True", "\n"),
    *("  hidden_size ..... 64\n", "  seq_length ..... None\n", "\\\n", "#", "$(", "--"),
]


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_configurations_of_hugging_face(data: st.DataObject) -> None:
    config = dict(data.draw(st.sampled_from(_CONFIGS)))
    for _ in range(data.draw(st.integers(1, 3))):
        config[data.draw(st.sampled_from(sorted(config)))] = data.draw(_values)
    _described(lambda: describe(config))


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_configurations_of_nemo(data: st.DataObject) -> None:
    document = {name: dict(part) for name, part in _NEMO.items()}
    for _ in range(data.draw(st.integers(1, 3))):
        part = document[data.draw(st.sampled_from(sorted(document)))]
        part[data.draw(st.sampled_from(sorted(part)))] = data.draw(_values)
    _described(lambda: read_nemo(yaml.dump(document, Dumper=_Plain)))


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_configurations_of_torchtitan(data: st.DataObject) -> None:
    lines = _TITAN.splitlines()
    for _ in range(data.draw(st.integers(1, 3))):
        k = data.draw(st.integers(0, len(lines) - 1))
        value = data.draw(st.sampled_from(["0", "-1", "3", "9" * 400, "true", '""', '"x"', "[]", "{}", "nan", "1.5"]))
        lines[k] = f"{lines[k].partition('=')[0]}= {value}" if "=" in lines[k] else data.draw(st.sampled_from(lines))
    _described(lambda: read_torchtitan("\n".join(lines)))


@given(
    words=st.lists(
        st.one_of(
            st.sampled_from(_WORDS),
            st.text(max_size=4),
        ),
        max_size=30,
    )
)
@settings(max_examples=300, deadline=None)
def test_arguments_of_megatron(words: list[str]) -> None:
    _described(lambda: read_megatron(" ".join(words)))


class _Plain(yaml.SafeDumper):
    """Writes everything out."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - as the base has it
        """No aliases."""
        return True


def _described(read: Callable[[], ForeignModel]) -> None:
    try:
        model = read().transformer()
    except InputError as error:
        _points(error)
        return
    # What is read can be planned.
    assert profile_of(model).num_layers == model.num_layers


def _points(error: InputError) -> None:
    assert error.detail
    assert all(issue.pointer.startswith("/") or not issue.pointer for issue in error.issues)

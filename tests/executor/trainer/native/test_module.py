"""Layers of a stage, compiled and not."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch._dynamo import reset
from torch._dynamo.utils import counters

from executor.token_stream import open_stream
from executor.trainer.context import LayerContext
from executor.trainer.layers import layers_of
from executor.trainer.native.engine import refuse_without_tools
from executor.trainer.native.module import StageModule
from executor.training_options import Compiler, EngineName
from models.transformer import Checkpointing
from stowplan.errors import InputError
from tests.executor.jobs import LLAMA, tiny_job
from tests.executor.trainer.packed import packed
from tests.executor.trainer.reference import stream_documents

# Dynamo looks at gradients that are not there.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.training,
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    counters.clear()
    yield
    reset()


def test_compiled_layers_are_one_graph_and_compute_the_same() -> None:
    """All blocks share what was compiled for the first one; a second graph is for those that recompute."""
    kinds = (Checkpointing.NONE, Checkpointing.NONE, Checkpointing.FULL, Checkpointing.SELECTIVE)
    job = tiny_job(LLAMA, engine=EngineName.NATIVE)
    layers = layers_of(job, LayerContext(seed=job.seed))
    specs = cast("Sequence[Any]", layers.layers)
    blocks = tuple(
        type(spec)(spec.kind, spec.arguments[0], replace(LLAMA, checkpointing=kind), spec.arguments[2])
        for spec, kind in zip(specs, kinds, strict=True)
    )
    layers = replace(layers, layers=blocks)
    modules = [
        StageModule(layers, layers.bounds(job.part_layers), 0, 1, compiler) for compiler in (None, Compiler.AOT_EAGER)
    ]
    tokens = torch.arange(64).view(2, 32)
    for module in modules:
        module(tokens).square().mean().backward()
    plain, compiled = ([parameter.grad for parameter in module.parameters()] for module in modules)
    torch.testing.assert_close(compiled, plain)
    assert counters["stats"]["unique_graphs"] == len(set(kinds))
    assert not counters["graph_break"]


@pytest.mark.parametrize("kind", Checkpointing)
def test_layers_are_compiled_once_for_documents_of_all_lengths(kind: Checkpointing, tmp_path: Path) -> None:
    """Attention is computed between two graphs; where a layer recomputes all of itself there are none."""
    job = tiny_job(replace(LLAMA, checkpointing=kind), data=packed(tmp_path), engine=EngineName.NATIVE)
    layers, stream, num_graphs = layers_of(job, LayerContext(seed=job.seed)), open_stream(job), []
    modules = [
        StageModule(layers, layers.bounds(job.part_layers), 0, 1, compiler) for compiler in (None, Compiler.AOT_EAGER)
    ]
    for step in range(3):
        tokens = torch.from_numpy(stream.batch(2 * step, 2)[:, :-1])
        for module in modules:
            module(tokens, stream_documents(job, stream, 2 * step, 2)).square().mean().backward()
        num_graphs.append(counters["stats"]["unique_graphs"])
    plain, compiled = ([parameter.grad for parameter in module.parameters()] for module in modules)
    torch.testing.assert_close(compiled, plain)
    assert len(set(num_graphs)) == 1
    assert (num_graphs[0] > 0) == (kind is not Checkpointing.FULL)


def test_inductor_without_a_compiler_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"needs a C\+\+ compiler on every host; g\+\+ and clang\+\+ cannot be found"):
        refuse_without_tools({"PATH": str(tmp_path)})
    with pytest.raises(InputError, match="icpx cannot be found: install one, name it in CXX, or take aot_eager"):
        refuse_without_tools({"PATH": str(tmp_path), "CXX": "icpx"})
    tool = tmp_path / "clang++"
    tool.touch(mode=0o755)
    refuse_without_tools({"PATH": str(tmp_path)})

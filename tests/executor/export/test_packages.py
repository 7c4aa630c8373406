"""Exports are read by the packages themselves, where they are installed: none of them is a dependency."""

import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from executor.export import export
from executor.export.job import job_of_plan
from models.catalogue import find_model
from models.transformer import Transformer
from tests.executor.export.jobs import job, megatron_groups, plan_of

pytestmark = pytest.mark.slow


def test_the_groups_of_megatron() -> None:
    state = pytest.importorskip("megatron.core.parallel_state", reason="not installed: pip install megatron-core")
    generator = state.RankGenerator(tp=2, ep=1, dp=3, pp=2, cp=1, order="tp-cp-ep-dp-pp")
    sizes = {"tp": 2, "dp": 3, "pp": 2, "cp": 1, "ep": 1}
    for axis in ("tp", "dp", "pp"):
        assert sorted(generator.get_ranks(axis)) == megatron_groups("tp-cp-ep-dp-pp", sizes, axis)


def test_the_layers_of_megatron() -> None:
    name = "megatron.core.transformer.pipeline_parallel_layer_layout"
    module = pytest.importorskip(name, reason="not installed: pip install megatron-core")
    (text,) = export(job(plan_of(layers=(5, 3), virtual_stages=2)), ["megatron"]).values()
    words = shlex.split(text, comments=True)
    value = next(after for word, after in pairwise(words) if word == "--pipeline-model-parallel-layout")
    layout = module.PipelineParallelLayerLayout(value, 2)
    layout.validate_layer_layout(8, None)
    layers = [[sum(kind.name == "decoder" for kind in part) for part in stage] for stage in layout.layout]
    assert layers == [[3, 2], [2, 1]]


def test_the_configuration_of_torchtitan(tmp_path: Path) -> None:
    module = pytest.importorskip(
        "torchtitan.config", reason="not installed: pip install torchtitan==0.2.2 (needs triton)"
    )
    if not hasattr(module, "JobConfig"):
        pytest.skip("this torchtitan reads no TOML any more; 0.2.2 does")
    model = find_model("llama3.1-8b", global_batch=64)
    assert isinstance(model, Transformer)
    plan = plan_of(pp=2, dp=2, tp=4, num_micro_batches=16, layers=(18, 14), virtual_stages=2, global_batch=64)
    file = tmp_path / "torchtitan.toml"
    file.write_text(export(job_of_plan("job", plan, model), ["torchtitan"])["torchtitan.toml"])
    read = module.ConfigManager().parse_args(["--job.config_file", str(file)])
    assert (read.model.name, read.model.flavor, read.training.global_batch_size) == ("llama3", "8B", 64)
    degrees = read.parallelism
    assert (degrees.pipeline_parallel_degree, degrees.data_parallel_shard_degree) == (2, 2)
    assert degrees.tensor_parallel_degree == 4
    assert [len(part) for part in degrees.module_fqns_per_model_part] == [1 + 9, 7, 9, 7 + 2]

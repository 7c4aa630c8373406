import json
import tomllib
from dataclasses import replace

import pytest
import yaml

from executor.export import FORMATS, ExportedJob, export
from executor.export.job import Layout, job_of_plan
from executor.export.options import read_options
from models.catalogue import find_model
from models.parallel_plan import ParallelPlan, Replica, Stage, symmetric_plan
from models.parallelism.training import Training
from models.pipeline_schedule import PipelineSchedule
from models.software import Software
from models.transformer import Checkpointing, Positions, Precision, Transformer
from stowplan.errors import InputError
from tests.executor.export.jobs import LLAMA, job, plan_of, recomputing_first


def refusal(exported: ExportedJob, to: str) -> str:
    with pytest.raises(InputError) as refused:
        export(exported, [to])
    return " ".join([str(refused.value), *(issue.detail for issue in refused.value.issues)])


# Stage 0 has two replicas on host a, stage 1 one of two GPUs on host b.
ASYMMETRIC = ParallelPlan(
    stages=(
        Stage(
            num_layers=3,
            replicas=tuple(Replica(node="a", gpu_type="h100", gpus=(k,), local_batch=1) for k in range(2)),
        ),
        Stage(num_layers=5, replicas=(Replica(node="b", gpu_type="a100", gpus=(1, 0), local_batch=2),)),
    ),
    num_micro_batches=8,
)
# Host a has ranks 0, 1 and 4, 5.
IN_PIECES = symmetric_plan(
    num_layers=8,
    pp=3,
    dp=1,
    tp=2,
    global_batch=4,
    num_micro_batches=4,
    gpu_type="h100",
    gpus=(("a", 0), ("a", 1), ("b", 0), ("b", 1), ("a", 2), ("a", 3)),
)


def test_megatron() -> None:
    (text,) = export(job(), ["megatron"]).values()
    assert [line.strip() for line in text.splitlines()][3:-1] == [
        "--tensor-model-parallel-size 2",
        "--pipeline-model-parallel-size 2",
        "--micro-batch-size 4",
        "--global-batch-size 16",
        "--num-layers 8",
        "--hidden-size 64",
        "--num-attention-heads 8",
        "--ffn-hidden-size 192",
        "--kv-channels 8",
        "--group-query-attention",
        "--num-query-groups 4",
        "--swiglu",
        "--normalization RMSNorm",
        "--disable-bias-linear",
        "--position-embedding-type rope",
        "--untie-embeddings-and-output-weights",
        "--seq-length 128",
        "--max-position-embeddings 128",
        "--vocab-size 512",
        "--make-vocab-size-divisible-by 1",
        "--bf16",
        "--optimizer adam",
        "--use-distributed-optimizer",
        "--sequence-parallel",
    ]


def test_megatron_without_a_model_says_what_the_plan_decides() -> None:
    (text,) = export(job(plan_of(pp=4, dp=1, virtual_stages=2, num_micro_batches=4), None), ["megatron"]).values()
    assert "--num-virtual-stages-per-pipeline-rank 2" in text
    assert "--num-layers" not in text


def test_nemo() -> None:
    model = replace(LLAMA, precision=Precision.FP8, checkpointing=Checkpointing.FULL)
    (text,) = export(job(plan_of(layers=(5, 3)), model), ["nemo"]).values()
    assert yaml.safe_load(text) == {
        "model": {
            "tensor_model_parallel_size": 2,
            "pipeline_model_parallel_size": 2,
            "virtual_pipeline_model_parallel_size": None,
            "pipeline_model_parallel_layout": "Et*5|t*3L",
            "context_parallel_size": 1,
            "expert_model_parallel_size": 1,
            "seq_length": 128,
            "sequence_parallel": True,
            "recompute_granularity": "full",
            "recompute_method": "uniform",
            "recompute_num_layers": 1,
        },
        "train": {"micro_batch_size": 4, "global_batch_size": 16},
        "mixed_precision": "bf16_with_fp8_current_scaling_mixed",
        "optimizer": {"use_distributed_optimizer": True},
        "ddp": {"use_distributed_optimizer": True},
    }


def test_deepspeed() -> None:
    files = export(job(plan_of(pp=2, dp=3, tp=1, num_micro_batches=2, global_batch=12)), ["deepspeed"])
    assert files["hostfile"] == "a0 slots=4\na1 slots=2\n"
    assert "--include=a0:0,1,2,3@a1:0,1 --master_addr=a0" in files["deepspeed.sh"]
    assert json.loads(files["ds_config.json"]) == {
        "train_batch_size": 12,
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 2,
        "zero_optimization": {"stage": 1},
        "bf16": {"enabled": True},
    }


@pytest.mark.parametrize("to", ["megatron", "nemo", "torchtitan", "deepspeed"])
def test_frameworks_refuse_stages_that_differ(to: str) -> None:
    assert "the same degrees in all stages, and the plan has DP1 TP2 and DP2 TP1" in refusal(job(ASYMMETRIC), to)


def test_launchers_take_any_plan() -> None:
    files = export(job_of_plan("j", ASYMMETRIC), ["torchrun", "slurm", "mpi"])
    assert files["slurm_hosts"] == "a\na\nb\nb\n"
    assert files["rankfile"].splitlines()[2] == "rank 2=b slot=0:*"
    # Tensor rank 0 of stage 1 is on GPU 1.
    assert "b|b.*) node=1 ranks=2 gpus=1,0 ;;" in files["torchrun.sh"]
    assert "2|3) LOCAL_WORLD_SIZE=2 CUDA_VISIBLE_DEVICES=1,0 ;;" in files["rank.sh"]


@pytest.mark.parametrize("to", ["torchrun", "deepspeed"])
def test_ranks_of_a_host_in_pieces(to: str) -> None:
    plan = replace(IN_PIECES, stages=tuple(replace(stage, num_layers=2) for stage in IN_PIECES.stages))
    assert "host a has ranks 0-1 and 4-5" in refusal(job(plan), to)
    assert export(job(plan), ["slurm"])["slurm_hosts"].split() == ["a", "a", "b", "b", "a", "a"]
    # Local ranks count as srun and mpirun count them.
    assert "0|1|4|5) LOCAL_WORLD_SIZE=4 CUDA_VISIBLE_DEVICES=0,1,2,3 ;;" in export(job(plan), ["mpi"])["rank.sh"]


def test_who_runs_zero_bubble_schedules() -> None:
    """Stage 0 of zbv has the first and the last part; of four layers a stage the parts have two."""
    plan = plan_of(schedule=PipelineSchedule.ZBV, virtual_stages=2)
    for to in ("deepspeed", "megatron", "nemo"):
        assert "runs no schedule zbv: PP2ZBV DP2 TP2" in refusal(job(plan), to)
    assert export(job(plan), ["slurm"])
    llama = find_model("llama3.1-8b", global_batch=16)
    assert isinstance(llama, Transformer)
    plan = plan_of(schedule=PipelineSchedule.ZBV, virtual_stages=2, layers=(20, 12))
    (text,) = export(job(plan, replace(llama, software=Software.TORCH_EAGER)), ["torchtitan"]).values()
    document = tomllib.loads(text)
    parts = document["parallelism"]["module_fqns_per_model_part"]
    assert document["parallelism"]["pipeline_parallel_schedule"] == "ZBVZeroBubble"
    assert [len(part) for part in parts] == [11, 6, 6, 12]
    assert document["activation_checkpoint"]["mode"] == "none"
    assert not document["compile"]["enable"]
    for wrong in ({"software": Software.TORCH}, {"checkpointing": Checkpointing.FULL}):
        model = replace(llama, software=Software.TORCH_EAGER)
        assert "plan with software torch-eager" in refusal(job(plan, replace(model, **wrong)), "torchtitan")


def test_what_deepspeed_lacks() -> None:
    assert "cannot be told [5, 3]" in refusal(job(plan_of(layers=(5, 3))), "deepspeed")
    assert "no interleaved pipelines" in refusal(job(plan_of(virtual_stages=2)), "deepspeed")
    assert "no pipelines with ZeRO 2" in refusal(job(model=replace(LLAMA, zero_stage=2)), "deepspeed")
    assert "8 bits" in refusal(job(model=replace(LLAMA, precision=Precision.FP8)), "deepspeed")
    backwards = plan_of(pp=1, dp=1, tp=2, layers=(8,))
    (stage,) = backwards.stages
    turned = replace(stage, replicas=(replace(stage.replicas[0], gpus=(1, 0)),))
    assert "in the order 1, 0" in refusal(job(replace(backwards, stages=(turned,))), "deepspeed")


def test_context_and_expert_parallelism() -> None:
    shared = job(plan_of(dp=2, cp=2, ep=4))
    text = export(shared, ["megatron"])["megatron.sh"]
    assert "--context-parallel-size 2" in text
    assert "--expert-model-parallel-size 4" in text
    assert "shares neither sequences nor experts: PP2 DP2 TP2 CP2 EP4" in refusal(shared, "deepspeed")


def test_stages_with_a_checkpointing_of_their_own() -> None:
    plan = plan_of()
    first, second = plan.stages
    full = replace(plan, stages=tuple(replace(s, checkpointing=Checkpointing.FULL) for s in plan.stages))
    assert "--recompute-granularity full" in export(job(full), ["megatron"])["megatron.sh"]
    mixed = replace(plan, stages=(replace(first, checkpointing=Checkpointing.FULL), second))
    assert "is told once for all stages what they recompute" in refusal(job(mixed), "nemo")
    counted = job(recomputing_first(plan, 2))
    assert "--recompute-method block" in export(counted, ["megatron"])["megatron.sh"]
    assert "torchtitan recomputes all layers alike" in refusal(counted, "torchtitan")


def test_how_a_plan_trains_is_its_own() -> None:
    chosen = replace(plan_of(), training=Training(checkpointing=Checkpointing.SELECTIVE, zero_stage=0))
    text = export(job(chosen), ["megatron"])["megatron.sh"]
    assert "--recompute-granularity selective" in text
    assert "--use-distributed-optimizer" not in text


def test_what_the_others_lack() -> None:
    assert "no ALiBi positions" in refusal(job(model=replace(LLAMA, positions=Positions.ALIBI)), "megatron")
    assert "ZeRO 2 and 3" in refusal(job(model=replace(LLAMA, zero_stage=3)), "nemo")
    assert "no model of this shape; known of it: llama3 8B" in refusal(job(), "torchtitan")
    assert "give the request" in refusal(job(model=None), "torchtitan")


def test_a_job_of_which_only_gpus_are_known() -> None:
    gpus = (("a", 0), ("b", 3))
    exported = ExportedJob(name="j", gpus=gpus)
    assert "says nothing of degrees" in refusal(exported, "megatron")
    assert export(exported, ["slurm"])["slurm_hosts"] == "a\nb\n"
    told = replace(exported, degrees=Layout(pp=1, dp=2, tp=1, micro_batch=3, num_micro_batches=5))
    assert json.loads(export(told, ["deepspeed"])["ds_config.json"])["train_batch_size"] == 30


def test_an_unknown_format_names_all() -> None:
    with pytest.raises(InputError, match="no export to 'jax'") as refused:
        export(job(), ["torchrun", "jax"])
    assert all(name in str(refused.value) for name in FORMATS)


@pytest.mark.parametrize("host", ["a;reboot", "$(id)", "-x", "a b", ""])
def test_a_host_is_no_word_of_a_shell(host: str) -> None:
    with pytest.raises(InputError, match="cannot be exported") as refused:
        ExportedJob(name="j", gpus=((host, 0),))
    assert refused.value.issues[0].code == "bad_node_name"


def test_wrong_jobs() -> None:
    with pytest.raises(InputError) as refused:
        ExportedJob(name="j", gpus=(("a", 0), ("a", 0)), degrees=Layout(pp=1, dp=1, tp=1))
    assert [issue.code for issue in refused.value.issues] == ["gpu_taken_twice", "degrees"]
    with pytest.raises(InputError):
        ExportedJob(name="j", gpus=())


def test_what_slurm_is_asked_for() -> None:
    options = {
        "partition": "gpu",
        "account": "llm team",
        "qos": "high",
        "reservation": "r",
        "constraint": "a&b",
        "time": "2-12",
        "gpus": "gpus-per-node",
        "gpu-type": "h100",
        "command": "python train.py --name 'a b; $(id)'",
    }
    script = export(ExportedJob(name="j", gpus=(("n9", 0), ("n10", 0))), ["slurm", "mpi"], options)["job.sbatch"]
    for line in (
        "#SBATCH --nodelist=n[9-10]",
        "#SBATCH --partition=gpu",
        "#SBATCH --account='llm team'",
        "#SBATCH --qos=high",
        "#SBATCH --reservation=r",
        "#SBATCH --constraint='a&b'",
        "#SBATCH --gpus-per-node=h100:1",
        "#SBATCH --time=2-12",
    ):
        assert line in script.splitlines()
    assert script.endswith("""rank.sh" python train.py --name 'a b; $(id)' "$@"\n""")
    assert "--signal" not in script


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"time": "1h"}, "/time: is '1h'; must be minutes"),
        ({"time": "1\n#SBATCH --uid=0"}, "/time: is '1"),
        ({"partition": "a\n#SBATCH --uid=0"}, "/partition: is 'a"),
        ({"command": "sh -c 'x"}, "/command: is no command: No closing quotation"),
        ({"gpus": "all"}, "/gpus: is 'all'; must be one of none, gres, gpus-per-node"),
        ({"nodes": "2"}, "/nodes: there is no such option of slurm and mpi; there are command, partition"),
        ({"gpus": "gres"}, "the plan has 1 and 2 of them"),
    ],
)
def test_wrong_options_of_slurm(options: dict[str, str], said: str) -> None:
    with pytest.raises(InputError) as refused:
        export(ExportedJob(name="j", gpus=(("a", 0), ("b", 0), ("b", 1))), ["slurm", "mpi"], options)
    assert said in str(refused.value)


def test_formats_without_options_say_so() -> None:
    with pytest.raises(InputError, match="there is no such option of mpi; there are none"):
        export(job(), ["mpi"], {"time": "3"})


@pytest.mark.parametrize("pairs", [["partition"], ["Partition=x"], ["=x"], ["a b=x"], ["a=1", "a=2"], ["a=1"] * 65])
def test_options_in_words(pairs: list[str]) -> None:
    with pytest.raises(InputError, match="option"):
        read_options(pairs)
    assert read_options(["command=a=b c", "users="]) == {"command": "a=b c", "users": ""}

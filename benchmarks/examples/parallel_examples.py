"""The packaged examples of the policies that choose 3D plans."""

from typing import Any

from topology.gpu_catalogue import find_product, gpu_type_of

Document = dict[str, Any]


def arena_example() -> Document:
    """Five jobs on two GPU types, one of which runs."""
    table = [{"gpu_type": "h100", "num_gpus": n, "value": value} for n, value in ((1, 3.1), (2, 5.9), (4, 10.8))]
    nodes = [_node(f"h100-{k}", "h100", 8) for k in (1, 2)] + [_node(f"a100-{k}", "a100-40gb", 4) for k in range(1, 5)]
    return {
        "title": "Arena: five jobs on two GPU types, each with its 3D plan",
        "description": "Two nodes with eight H100 and four with four A100. Four jobs name what they train, by a model "
        "of the catalogue; the grid planner finds the best plan for every buddy block, and Algorithm 1 gives blocks to "
        "jobs by priority. One job runs with PP1 DP4 TP1 and may be moved or resized at the price of a restart. The "
        "fifth brings a throughput table. The answer carries the bound of the integer program; post it as `arena-ilp` "
        "to close the gap.",
        "policy": "arena",
        "snapshot": {
            "cluster": {"gpu_types": [_gpu_type("h100"), _gpu_type("a100-40gb")], "nodes": nodes},
            "jobs": [
                _job("llama2-7b", 256),
                {
                    **_job("gpt2-1.3b", 128),
                    "current": {"h100-1": [0, 1, 2, 3]},
                    "parallel_plan": {"pp": 1, "dp": 4, "tp": 1, "num_micro_batches": 8},
                    "age_s": 5400.0,
                    "restart_cost_s": 90.0,
                },
                {**_job("bert-1.3b", 128), "priority": 2, "max_gpus": 8},
                {
                    "id": "wide-resnet-1b",
                    "priority": 2,
                    "max_gpus": 4,
                    "operators": {"model": "wide-resnet-1b", "global_batch": 256},
                },
                {"id": "measured", "priority": 3, "performance": {"kind": "throughput_table", "entries": table}},
            ],
        },
    }


def suika_example() -> Document:
    """Two running jobs that may grow, and two that wait."""
    return {
        "title": "Suika: running jobs grow onto GPUs that became free",
        "description": "Four nodes with eight H100. Two jobs run with plans of their own, two wait for their basic "
        "demand. Algorithm 2 starts those, then gives the GPUs that are left to whom they help most: LLaMA2-13B gets a "
        "third stage, and its layers are spread anew. Post it as `suika-ilp` for the integer program.",
        "policy": "suika",
        "snapshot": {
            "cluster": {
                "gpu_types": [_gpu_type("h100")],
                "nodes": [_node(f"node-{k}", "h100", 8) for k in range(1, 5)],
            },
            "jobs": [
                {
                    **_job("llama2-13b", 256),
                    "min_gpus": 8,
                    "current": {"node-1": list(range(8))},
                    "parallel_plan": {"pp": 2, "dp": 2, "tp": 2, "num_micro_batches": 128},
                },
                {
                    **_job("gpt2-2.6b", 128),
                    "min_gpus": 4,
                    "current": {"node-2": [0, 1, 2, 3]},
                    "parallel_plan": {"pp": 1, "dp": 4, "tp": 1, "num_micro_batches": 16},
                },
                {**_job("qwen2-1.5b", 64), "min_gpus": 2, "max_gpus": 2, "age_s": 60.0},
                {**_job("llama2-7b", 256), "min_gpus": 8, "age_s": 30.0},
            ],
        },
    }


def _job(model: str, global_batch: int) -> Document:
    return {"id": model, "transformer": {"model": model, "global_batch": global_batch}}


def _node(name: str, gpu_type: str, num_gpus: int) -> Document:
    return {"id": name, "gpu_type": gpu_type, "num_gpus": num_gpus}


def _gpu_type(name: str) -> Document:
    kind = gpu_type_of(find_product(name), "bf16")
    return {field: getattr(kind, field) for field in kind.__slots__}

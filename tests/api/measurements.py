"""Measurements of small jobs, as ranks post them."""

import time
from typing import Any

from tests.api.requests import Json

# Started ten minutes ago, as far as clocks go.
LAUNCH = int((time.time() - 600) * 1e3)
SEQUENCE_LENGTH, BATCH = 64, 8
TRANSFORMER: Json = {
    "num_layers": 4,
    "hidden_size": 128,
    "vocabulary_size": 1000,
    "sequence_length": SEQUENCE_LENGTH,
    "global_batch": BATCH,
    "precision": "fp32",
}
CPU: Json = {
    "name": "cpu",
    "memory_bytes": 16 * 2**30,
    "peak_flops_per_s": 1e12,
    "intra_node_bandwidth_bytes_per_s": 4e9,
    "inter_node_bandwidth_bytes_per_s": 1e9,
}
CLUSTER: Json = {"gpu_types": [CPU], "nodes": [{"id": f"n{k}", "gpu_type": "cpu", "num_gpus": 2} for k in range(2)]}


def run_of(pp: int = 2, dp: int = 1, launch: int = LAUNCH, **fields: Any) -> Json:
    """What a launch runs: pp stages of dp replicas, two micro-batches."""
    places = [(f"n{k // 2}", k % 2) for k in range(pp * dp)]
    stages = [
        {
            "num_layers": 4 // pp,
            "replicas": [
                {"node": node, "gpu_type": "cpu", "gpus": [gpu], "local_batch": BATCH // 2 // dp}
                for node, gpu in places[i * dp : (i + 1) * dp]
            ],
        }
        for i in range(pp)
    ]
    plan = {"stages": stages, "num_micro_batches": 2}
    return {
        "launch": launch,
        "device": "cpu",
        "transformer": TRANSFORMER,
        "plan": plan,
        "cluster": CLUSTER,
        **fields,
    }


def record_of(rank: int, step: int, dp: int = 1, launch: int = LAUNCH, **fields: Any) -> Json:
    """One step of one rank: 0.3 s, of which the forward passes take 0.08 s and the backward passes 0.16 s."""
    return {
        "launch": launch,
        "rank": rank,
        "step": step,
        "pipe": rank // dp,
        "data": rank % dp,
        "tensor": 0,
        "host": f"n{rank // 2}",
        "started_at_s": launch / 1e3 + step,
        "step_s": 0.3,
        "forward_s": 0.08,
        "backward_s": 0.16,
        "send_s": 0.001,
        "receive_s": 0.02,
        "load_s": 0.002,
        "reduction_s": 0.01 if dp > 1 else 0.0,
        "optimizer_s": 0.02,
        "num_micro_batches": 2,
        "tokens": BATCH * SEQUENCE_LENGTH,
        "tokens_per_s": BATCH * SEQUENCE_LENGTH / 0.3,
        "peak_memory_bytes": 700_000_000 + rank,
        "loss": 7.0 - 0.1 * step,
        "learning_rate": 3e-4,
        "small_batch": BATCH // dp,
        "small_gradient_square": 3.0,
        "large_batch": BATCH,
        "large_gradient_square": 2.0 if dp > 1 else 3.0,
        **fields,
    }


def batch_of(num_steps: int = 10, pp: int = 2, dp: int = 1, launch: int = LAUNCH, first: int = 1) -> Json:
    """All steps of all ranks, with what ran."""
    records = [record_of(rank, step, dp, launch) for step in range(first, first + num_steps) for rank in range(pp * dp)]
    return {"run": run_of(pp, dp, launch), "records": records}

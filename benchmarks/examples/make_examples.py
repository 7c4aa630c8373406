"""Write the packaged examples (`api/examples/*.json`): `python -m benchmarks make-examples`.

The documents are made up, apart from what their descriptions say. Everything random is seeded; the same program
writes the same files.
"""

import random
from typing import Any

from api.cli.pretty import pretty_json
from benchmarks.examples.ahead_example import ahead_example
from benchmarks.examples.gang_example import gang_example
from benchmarks.examples.parallel_examples import arena_example, suika_example
from benchmarks.paths import ROOT

Document = dict[str, Any]

FOLDER = ROOT / "api" / "examples"

# Nominal values of the data sheets: dense tensor throughput at 16 bit, links in one direction.
_GPU_TYPES: dict[str, Document] = {
    "t4": {
        "name": "t4",
        "memory_bytes": 16_000_000_000,
        "peak_flops_per_s": 65e12,
        "intra_node_bandwidth_bytes_per_s": 15.75e9,
        "inter_node_bandwidth_bytes_per_s": 6.25e9,
    },
    "rtx": {
        "name": "rtx",
        "memory_bytes": 11_000_000_000,
        "peak_flops_per_s": 53.8e12,
        "intra_node_bandwidth_bytes_per_s": 15.75e9,
        "inter_node_bandwidth_bytes_per_s": 6.25e9,
    },
    "a100": {
        "name": "a100",
        "memory_bytes": 40_000_000_000,
        "peak_flops_per_s": 312e12,
        "intra_node_bandwidth_bytes_per_s": 300e9,
        "inter_node_bandwidth_bytes_per_s": 200e9,
    },
    "H800": {
        "name": "H800",
        "memory_bytes": 80_000_000_000,
        "peak_flops_per_s": 989e12,
        "intra_node_bandwidth_bytes_per_s": 200e9,
        "inter_node_bandwidth_bytes_per_s": 400e9,
    },
}


def examples() -> dict[str, Document]:
    """All examples by id."""
    return {
        "quickstart": _quickstart(),
        "sia-paper-table1": _sia_table1(),
        "sia-heterogeneous-64": _heterogeneous(),
        "arnold-fig12": _fig12(),
        "arnold-368-of-1019-nodes": _large_pretraining(),
        "ahead-two-weeks": ahead_example(),
        "infeasible-reservations": _infeasible(),
        "arena-two-types": arena_example(),
        "suika-growing": suika_example(),
        "gang-queue": gang_example(),
        "gavel-paper": _gavel_paper(),
        "elasticflow-deadlines": _elasticflow_deadlines(),
        "horizon-short-first": _horizon_short_first(),
        "horizon-in-time": _horizon_in_time(),
    }


def main() -> None:
    """Write the packaged examples, `api/examples/*.json`, anew."""
    FOLDER.mkdir(exist_ok=True)
    for name, document in examples().items():
        (FOLDER / f"{name}.json").write_text(pretty_json(document) + "\n", encoding="utf-8")


def _quickstart() -> Document:
    return {
        "title": "Three jobs on two nodes",
        "description": "The smallest sensible request. Throughput tables say how fast every job is on every GPU type; "
        "Sia chooses type and count for each.",
        "policy": "sia",
        "snapshot": {
            "cluster": {
                "gpu_types": [_GPU_TYPES["t4"], _GPU_TYPES["a100"]],
                "nodes": [_node("t4-1", "t4", 4), _node("a100-1", "a100", 4)],
            },
            "jobs": [
                {"id": "resnet", "performance": _scaling_table({"t4": 250, "a100": 1400}, 4, 0.06)},
                {"id": "bert", "performance": _scaling_table({"t4": 9, "a100": 95}, 4, 0.03)},
                {
                    "id": "recommender",
                    "max_gpus": 2,
                    "performance": _scaling_table({"t4": 30000, "a100": 42000}, 2, 0.5),
                },
            ],
        },
    }


def _sia_table1() -> Document:
    columns = [("A", 1), ("A", 2), ("B", 1), ("B", 2), ("B", 4)]
    goodput = {"J1": (1, 1, 2, 3, 4), "J2": (2, 4, 1, 2, 3)}
    return {
        "title": "Table 1 of the Sia paper",
        "description": "The running example of the Sia paper (section 3.4): one node with two GPUs of type A, one with "
        "four of type B, and the goodput matrix of Table 1. The paper's answer is (1,4,B) for J1 and (1,2,A) for J2, "
        "8 in total. The hardware figures of A and B stand in for what the paper leaves open; they have no influence.",
        "policy": "sia",
        "snapshot": {
            "cluster": {
                "gpu_types": [{**_GPU_TYPES["t4"], "name": "A"}, {**_GPU_TYPES["rtx"], "name": "B"}],
                "nodes": [_node("node-A", "A", 2), _node("node-B", "B", 4)],
            },
            "jobs": [
                {"id": job, "performance": _table("goodput_table", zip(columns, row, strict=True))}
                for job, row in goodput.items()
            ],
        },
        "parameters": {"fairness_power": 1.0},
        "options": {"relative_gap": 0.0},
    }


def _gavel_paper() -> Document:
    speeds = {"j0": (4, 1), "j1": (3, 1), "j2": (2, 1)}
    had = {"j0": {"V100": 360.0}, "j2": {"K80": 360.0}}
    return {
        "title": "The example of the Gavel paper, after its first round",
        "description": "Three jobs share one V100 and one K80 in time; steps/s are those of section 4.1 of the Gavel "
        "paper, whose shares of V100 and K80 are (0.45, 0), (0.45, 0.09) and (0.09, 0.91). In a first round of 360 s "
        "j0 had the V100 and j2 the K80: now j1 comes before j0, and j2 stays. The hardware figures stand in for what "
        "the paper leaves open; they have no influence.",
        "policy": "gavel",
        "snapshot": {
            "cluster": {
                "gpu_types": [{**_GPU_TYPES["rtx"], "name": "V100"}, {**_GPU_TYPES["t4"], "name": "K80"}],
                "nodes": [_node("node-V100", "V100", 1), _node("node-K80", "K80", 1)],
            },
            "jobs": [
                {
                    "id": job,
                    "performance": _table("throughput_table", zip([("V100", 1), ("K80", 1)], row, strict=True)),
                    "age_s": 360.0,
                }
                | ({"attained_s": had[job], "current": {f"node-{next(iter(had[job]))}": [0]}} if job in had else {})
                for job, row in speeds.items()
            ],
        },
        "options": {"relative_gap": 0.0},
    }


def _on_a100(name: str, **also: object) -> Document:
    """A job that does 10, 18, 30 and 45 samples/s on 1, 2, 4 and 8 A100."""
    columns, speeds = [("a100", n) for n in (1, 2, 4, 8)], [10, 18, 30, 45]
    table = {**_table("throughput_table", zip(columns, speeds, strict=True)), "batch_size": 1}
    return {"id": name, "performance": table, **also}


def _elasticflow_deadlines() -> Document:
    def job(name: str, samples: float, deadline_s: float | None, **also: object) -> Document:
        due = {} if deadline_s is None else {"deadline_s": deadline_s, "remaining_iterations": samples}
        return _on_a100(name, **due, **also)

    running: Document = {"current": {"a100-1": [0, 1, 2, 3]}, "attained_gpu_s": 4000.0, "restart_cost_s": 30.0}
    return {
        "title": "Deadlines: who is admitted",
        "description": "Jobs on one node of eight A100 that do 10, 18, 30 and 45 samples/s on 1, 2, 4 and 8 GPUs. One "
        "runs and was promised its deadline; a second can be admitted beside it, a third cannot, and waits; the "
        "fourth has no deadline, and gets what is left.",
        "policy": "elasticflow",
        "snapshot": {
            "cluster": {"gpu_types": [_GPU_TYPES["a100"]], "nodes": [_node("a100-1", "a100", 8)]},
            "jobs": [
                job("promised", 100_000, 3600.0, **running),
                job("admitted", 50_000, 3600.0),
                job("too-much", 140_000, 3600.0),
                job("no-deadline", 0, None),
            ],
        },
        "options": {"relative_gap": 0.0},
    }


def _horizon_short_first() -> Document:
    running: Document = {"current": {"a100-1": [0, 1, 2, 3]}, "restart_cost_s": 300.0}
    return {
        "title": "What is short goes first, what costs a restart stays",
        "description": "Jobs on one node of eight A100 that do 10, 18, 30 and 45 samples/s on 1, 2, 4 and 8 GPUs. One "
        "runs on four GPUs, and loses five minutes with a change; two are short and start beside it; one is long, and "
        "waits: what its start now would cost the others is said, and when it is planned.",
        "policy": "horizon",
        "snapshot": {
            "cluster": {"gpu_types": [_GPU_TYPES["a100"]], "nodes": [_node("a100-1", "a100", 8)]},
            "jobs": [
                _on_a100("runs", remaining_iterations=20_000, **running),
                _on_a100("short", remaining_iterations=3_000, min_gpus=2),
                _on_a100("shorter", remaining_iterations=1_500, min_gpus=2),
                _on_a100("long", remaining_iterations=90_000, min_gpus=4),
            ],
        },
        "options": {"relative_gap": 0.0},
    }


def _horizon_in_time() -> Document:
    return {
        "title": "What is due goes before what is short",
        "description": "Jobs on one node of eight A100 that do 10, 18, 30 and 45 samples/s on 1, 2, 4 and 8 GPUs. All "
        "want all GPUs at once: the long one is due as soon as it can end, a second after which counts as fifty "
        "others, and a tenth of the objective is the time of the longest job.",
        "policy": "horizon",
        "parameters": {"lateness": 50.0, "tail": 0.1},
        "snapshot": {
            "cluster": {"gpu_types": [_GPU_TYPES["a100"]], "nodes": [_node("a100-1", "a100", 8)]},
            "jobs": [
                _on_a100("due", remaining_iterations=130_000, min_gpus=8, deadline_s=2_900.0),
                _on_a100("short", remaining_iterations=3_000, min_gpus=8),
                _on_a100("waited", remaining_iterations=9_000, min_gpus=8, age_s=7_200.0),
            ],
        },
        "options": {"relative_gap": 0.0},
    }


def _infeasible() -> Document:
    def reserved(name: str, num_gpus: int) -> Document:
        table = _scaling_table({"a100": 100}, 16, 0.05)
        return {"id": name, "reservation": {"gpu_type": "a100", "num_gpus": num_gpus}, "performance": table}

    keeps = {
        "id": "keeps-its-node",
        "min_gpus": 8,
        "preemptible": False,
        "current": {"a100-1": list(range(8))},
        "performance": _scaling_table({"a100": 100}, 16, 0.05),
    }
    return {
        "title": "More reserved than there is",
        "description": "Two nodes with eight A100 each. A job that must not be preempted keeps one of them, and two "
        "reservations ask for twelve GPUs of the eight that are left. The answer is a proof that no plan exists, with "
        "the names of the constraints that exclude each other.",
        "policy": "sia",
        "snapshot": {
            "cluster": {
                "gpu_types": [_GPU_TYPES["a100"]],
                "nodes": [_node("a100-1", "a100", 8), _node("a100-2", "a100", 8)],
            },
            "jobs": [keeps, reserved("reserved-8", 8), reserved("reserved-4", 4)],
        },
    }


def _fig12() -> Document:
    busy = {"minipod-1": 1, "minipod-2": 2, "minipod-3": 1}
    nodes = [
        _node(f"{minipod}-n{k}", "H800", 8, path=[minipod], **({"gpus_in_use": 8} if k > 8 - num_busy else {}))
        for minipod, num_busy in busy.items()
        for k in range(1, 9)
    ]
    return {
        "title": "Twelve nodes of a pre-training job over three minipods",
        "description": "A job of the size of Fig. 12 of the Arnold paper: 96 GPUs, six pipelines of two stages, one "
        "node per cell of the communication matrix. Three minipods have 7, 6 and 7 free nodes. The affinity is looked "
        "up in the published characterisation records: alpha is 0.3 for this mixture of experts.",
        "policy": "arnold",
        "snapshot": {
            "cluster": {
                "gpu_types": [_GPU_TYPES["H800"]],
                "tiers": [{"name": "minipod"}],
                "minipod_tier": "minipod",
                "nodes": nodes,
            },
            "jobs": [
                {
                    "id": "moe-24b",
                    "parallelism": {"tp": 8, "pp": 2, "dp": 6},
                    "transformer": {
                        "num_layers": 32,
                        "hidden_size": 3328,
                        "num_heads": 104,
                        "vocabulary_size": 50257,
                        "sequence_length": 4096,
                        "global_batch": 384,
                        "micro_batch": 1,
                        "num_experts": 8,
                    },
                }
            ],
        },
    }


def _large_pretraining() -> Document:
    random_ = random.Random(46)  # noqa: S311 - seeded, not secret
    sizes = [93] * 7 + [92] * 4
    nodes = []
    for k, size in enumerate(sizes, start=1):
        num_busy = random_.randint(size // 4, 3 * size // 4)
        busy = set(random_.sample(range(size), num_busy))
        nodes += [
            _node(f"m{k:02}n{n + 1:02}", "H800", 8, path=[f"minipod-{k}"], **({"gpus_in_use": 8} if n in busy else {}))
            for n in range(size)
        ]
    return {
        "title": "A pre-training job on 368 of 1019 nodes",
        "description": "Cluster and job of setting (iii) in Table 1 of the Arnold paper: 11 minipods with 1019 nodes, "
        "TP 8, PP 8, DP 46. The paper does not say how many nodes are free in each minipod; here they are drawn at "
        "random.",
        "policy": "arnold",
        "snapshot": {
            "cluster": {
                "gpu_types": [_GPU_TYPES["H800"]],
                "tiers": [{"name": "minipod"}],
                "minipod_tier": "minipod",
                "nodes": nodes,
            },
            "jobs": [{"id": "llm", "parallelism": {"tp": 8, "pp": 8, "dp": 46}}],
        },
        "parameters": {"alpha": 0.3},
    }


def _heterogeneous() -> Document:
    return {
        "title": "Twenty jobs of many kinds on 64 GPUs of three types",
        "description": "The heterogeneous cluster of the Sia paper: six nodes with four T4, three with eight RTX 2080 "
        "Ti, two with eight A100; one of them is drained and one GPU is taken by other work. Elastic jobs with fitted "
        "goodput models, one with raw measurements, strong-scaling jobs with throughput tables, rigid jobs, a "
        "hybrid-parallel job, a running job that must not be preempted, and a reservation. The performance figures "
        "are made up but plausible.",
        "policy": "sia",
        "snapshot": {
            "cluster": {
                "gpu_types": [_GPU_TYPES["t4"], _GPU_TYPES["rtx"], _GPU_TYPES["a100"]],
                "nodes": [
                    *(_node(f"t4-{k}", "t4", 4, **({"gpus_in_use": [0]} if k == 1 else {})) for k in range(1, 7)),
                    *(_node(f"rtx-{k}", "rtx", 8, **({"state": "drained"} if k == 3 else {})) for k in range(1, 4)),
                    *(_node(f"a100-{k}", "a100", 8) for k in range(1, 3)),
                ],
            },
            "jobs": _mixed_jobs(random.Random(64)),  # noqa: S311 - seeded, not secret
        },
        "parameters": {"fairness_power": -0.5, "queue_penalty": 1.1},
        "options": {"time_limit_s": 30.0, "relative_gap": 0.0},
    }


# Per kind of job: range of the batch, gradient variance over squared norm, and per GPU type the seconds per sample,
# the seconds of synchronisation inside and across nodes, and the largest local batch.
_KINDS: dict[str, Document] = {
    "vision": {
        "batch": (128, 4096),
        "variance": 900.0,
        "types": {
            "t4": (0.0045, 0.02, 0.07, 96),
            "rtx": (0.0021, 0.018, 0.06, 64),
            "a100": (0.0007, 0.005, 0.012, 256),
        },
    },
    "language": {
        "batch": (12, 384),
        "variance": 60.0,
        "types": {"t4": (0.11, 0.13, 0.55, 8), "rtx": (0.06, 0.11, 0.5, 6), "a100": (0.011, 0.02, 0.05, 32)},
    },
    "detection": {
        "batch": (8, 512),
        "variance": 120.0,
        "types": {"t4": (0.06, 0.06, 0.2, 16), "rtx": (0.032, 0.05, 0.18, 8), "a100": (0.012, 0.012, 0.03, 48)},
    },
    "speech": {
        "batch": (20, 640),
        "variance": 250.0,
        "types": {"t4": (0.03, 0.05, 0.18, 32), "rtx": (0.015, 0.045, 0.16, 20), "a100": (0.006, 0.01, 0.02, 96)},
    },
    "recommendation": {
        "batch": (256, 32768),
        "variance": 6000.0,
        "types": {
            "t4": (4e-5, 0.02, 0.09, 8192),
            "rtx": (3e-5, 0.02, 0.08, 8192),
            "a100": (2.5e-5, 0.006, 0.01, 32768),
        },
    },
}


def _mixed_jobs(random_: random.Random) -> list[Document]:
    def elastic(name: str, kind: str, **fields: Any) -> Document:
        return {"id": name, "max_gpus": 16, **fields, "performance": _profiled(kind, random_)}

    def running(node: str, gpus: list[int], age_s: float, restarts: int, cost_s: float) -> Document:
        return {"current": {node: gpus}, "age_s": age_s, "num_restarts": restarts, "restart_cost_s": cost_s}

    return [
        elastic("vision-1", "vision", **running("t4-2", [0, 1, 2, 3], 5400.0, 2, 60.0)),
        elastic("vision-2", "vision", **running("rtx-1", [0, 1, 2, 3], 2700.0, 1, 60.0)),
        elastic("vision-3", "vision"),
        elastic("language-1", "language", **running("a100-1", [0, 1, 2, 3], 9000.0, 3, 120.0)),
        elastic("language-2", "language"),
        elastic("detection-1", "detection", **running("rtx-3", [0, 1], 1800.0, 0, 80.0)),
        elastic("detection-2", "detection"),
        elastic("speech-1", "speech", **running("t4-3", [0, 1], 7200.0, 1, 25.0)),
        elastic("speech-2", "speech"),
        elastic("recommendation-1", "recommendation", **running("t4-3", [2], 600.0, 0, 15.0)),
        elastic("urgent-vision", "vision", weight=4.0),
        {"id": "measured-speech", "max_gpus": 8, "performance": _observed("speech", random_)},
        {"id": "rigid-vision", "min_gpus": 4, "adaptivity": "rigid", "performance": _profiled("vision", random_)}
        | running("t4-4", [0, 1, 2, 3], 3600.0, 0, 60.0),
        {"id": "rigid-language", "min_gpus": 8, "adaptivity": "rigid", "performance": _profiled("language", random_)},
        {
            "id": "fixed-batch-1",
            "adaptivity": "strong_scaling",
            "max_gpus": 8,
            "performance": {**_scaling_table({"t4": 210, "rtx": 420, "a100": 1300}, 8, 0.08), "batch_size": 512},
        },
        {
            "id": "fixed-batch-2",
            "adaptivity": "strong_scaling",
            "max_gpus": 4,
            "gpu_types": ["t4", "rtx"],
            "performance": {**_scaling_table({"t4": 90, "rtx": 160}, 4, 0.12), "batch_size": 64},
        },
        {
            "id": "table-1",
            "max_gpus": 4,
            "performance": {**_scaling_table({"t4": 1, "rtx": 2.2, "a100": 3.1}, 4, 0.2), "kind": "goodput_table"},
        },
        {"id": "hybrid-2.8b", "min_gpus": 2, "max_gpus": 16, "performance": _hybrid()}
        | running("a100-1", [4, 5, 6, 7], 14400.0, 1, 250.0),
        {"id": "evaluation", "min_gpus": 4, "max_gpus": 4, "preemptible": False}
        | running("rtx-1", [4, 5, 6, 7], 900.0, 0, 30.0),
        {
            "id": "release-candidate",
            "max_gpus": 16,
            "reservation": {"gpu_type": "a100", "num_gpus": 8},
            "performance": _profiled("language", random_),
        },
    ]


def _profiled(kind: str, random_: random.Random) -> Document:
    """A goodput model of the kind; speed and noise differ a little from job to job."""
    facts = _KINDS[kind]
    initial, maximum = facts["batch"]
    speed = random_.uniform(0.85, 1.15)
    return {
        "kind": "goodput",
        "batch": {"initial": initial, "maximum": maximum},
        "gradient": {"squared_norm": 1.0, "variance": _rounded(facts["variance"] * random_.uniform(0.5, 2.0))},
        "profiles": {
            gpu_type: {
                "parameters": {name: _rounded(value * speed) for name, value in _times(*figures[:3]).items()}
                | {"gamma": 2.5},
                "max_local_batch": figures[3],
            }
            for gpu_type, figures in facts["types"].items()
        },
    }


def _times(per_sample_s: float, within_s: float, across_s: float) -> dict[str, float]:
    """Parameters in seconds from three round figures."""
    return {
        "alpha_c": 6 * per_sample_s,
        "beta_c": per_sample_s,
        "alpha_r": within_s,
        "beta_r": 0.05 * within_s,
        "alpha_n": across_s,
        "beta_n": 0.08 * across_s,
    }


def _observed(kind: str, random_: random.Random) -> Document:
    """Raw measurements of the kind on two of the GPU types, with two per cent of noise."""
    facts = _KINDS[kind]
    initial, maximum = facts["batch"]
    observations = []
    for gpu_type in ("t4", "rtx"):
        per_sample_s, within_s, across_s, max_local = facts["types"][gpu_type]
        times = _times(per_sample_s, within_s, across_s)
        for num_nodes, num_replicas in ((1, 1), (1, 2), (1, 4), (2, 8)):
            for local_batch in (max_local // 4, max_local // 2, max_local):
                where = "n" if num_nodes > 1 else "r"
                grad_s = (times["alpha_c"] + times["beta_c"] * local_batch) * random_.uniform(0.98, 1.02)
                more = times[f"beta_{where}"] * max(num_replicas - 2, 0)
                sync_s = times[f"alpha_{where}"] + more if num_replicas > 1 else 0.0
                step_s = (grad_s**2.5 + sync_s**2.5) ** 0.4 if sync_s else grad_s
                observations.append(
                    {
                        "gpu_type": gpu_type,
                        "num_nodes": num_nodes,
                        "num_replicas": num_replicas,
                        "local_batch": local_batch,
                        "step_time_s": _rounded(step_s),
                        "sync_time_s": _rounded(step_s - grad_s),
                    }
                )
    return {
        "kind": "goodput",
        "batch": {"initial": initial, "maximum": maximum},
        "gradient": {"squared_norm": 1.0, "variance": facts["variance"]},
        "observations": observations,
    }


def _hybrid() -> Document:
    """A pipeline-parallel model that scales in replicas of two A100 or eight RTX."""

    def profile(per_sample_s: float, across_s: float, local_batch: int, gpus: int) -> Document:
        times = _times(per_sample_s, across_s, across_s)
        return {"parameters": times | {"gamma": 1.5}, "max_local_batch": local_batch, "gpus_per_replica": gpus}

    return {
        "kind": "goodput",
        "batch": {"initial": 48, "maximum": 384},
        "gradient": {"squared_norm": 1.0, "variance": 300.0},
        "profiles": {"rtx": profile(0.5, 2.0, 48, 8), "a100": profile(0.25, 0.5, 48, 2)},
    }


def _scaling_table(single: dict[str, float], max_gpus: int, loss: float) -> Document:
    """Throughput that starts at `single` per GPU type and loses the share `loss` of a GPU with every doubling."""
    counts = [2**k for k in range(max_gpus.bit_length())]
    rows = (
        ((gpu_type, count), _rounded(value * count / (1 + loss * k)))
        for gpu_type, value in single.items()
        for k, count in enumerate(counts)
    )
    return _table("throughput_table", rows)


def _table(kind: str, rows: Any) -> Document:
    entries = [{"gpu_type": gpu_type, "num_gpus": num_gpus, "value": value} for (gpu_type, num_gpus), value in rows]
    return {"kind": kind, "entries": entries}


def _node(name: str, gpu_type: str, num_gpus: int, **more: Any) -> Document:
    return {"id": name, "gpu_type": gpu_type, "num_gpus": num_gpus, **more}


def _rounded(value: float) -> float:
    """Three significant digits: readable, and the same on every machine."""
    return float(f"{value:.3g}")

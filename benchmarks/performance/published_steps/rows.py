"""Rows of published measurements as models, plans and GPUs (`../shared/data/steps`).

What the table does not say follows from these rules:

    software    the project that a row is from; else Megatron-Core from the H100 on, before it Megatron-LM
    attention   fused where the notes say so and from the H100 on, else plain
    links       a server with V100s has no switch: two GPUs share a third of a GPU's links, four two thirds
    memory      the printed number of GiB, less 1 %: what drivers report
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.paths import PUBLISHED
from models.parallel_plan import ParallelPlan, symmetric_plan
from models.performance.iteration.coefficients import Calibration
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import virtual_model
from models.performance.iteration.priors import Priors
from models.software import Software
from models.transformer import (
    Attention,
    Biases,
    Checkpointing,
    Normalisation,
    Positions,
    Precision,
    Transformer,
)
from stowplan.errors import InputError
from topology.cluster import GpuType
from topology.gpu_catalogue import find_product, gpu_type_of

TABLE = PUBLISHED / "steps" / "published.csv"

_SOFTWARE = (
    ("bigscience", Software.DEEPSPEED),
    ("mt-nlg", Software.DEEPSPEED),
    ("eager", Software.TORCH_EAGER),
    ("amp_fp8", Software.TORCH_EAGER),
    ("torchtitan", Software.TORCH),
    ("llm-foundry", Software.TORCH),
    ("opt", Software.TORCH),
    ("nemo", Software.MEGATRON_CORE),
)
_NEW = ("h100", "h200", "b200", "gb200")
_GIGA = 1e9
_REPORTED = 0.99 * 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One published measurement.

    `scale`: sequences of the published iteration over those of the plan, 1 but where micro-batches do not divide.
    `memory_bytes`: used by a GPU; None where it was not published. `ran`: it did not run out of memory.
    """

    id: str
    set: str
    source: str
    family: str
    model: Transformer
    gpu: GpuType
    gpus_per_node: int
    plan: ParallelPlan
    scale: float
    measured_s: float | None
    memory_bytes: float | None
    ran: bool

    @property
    def known_s(self) -> float:
        """The time of a row that has one."""
        if self.measured_s is None:
            raise ValueError(f"row {self.id} has no time")
        return self.measured_s

    @property
    def group(self) -> tuple[object, ...]:
        """What rows share that compare plans of one model on as many GPUs."""
        return self.set, self.family, self.model.num_layers, self.model.hidden_size, self.plan.num_gpus, self.gpu.name

    def performance(self, known: Priors | None = None, calibration: Calibration | None = None) -> PerformanceModel:
        """The performance model of the row; `known`: other priors than the shipped ones."""
        num_nodes = -(-self.plan.num_gpus // self.gpus_per_node)
        return virtual_model(self.model, self.gpu, self.gpus_per_node, num_nodes, calibration, known)


def cases(file: Path = TABLE) -> tuple[list[Case], list[tuple[str, str]]]:
    """All rows that can be expressed, and the others with why they cannot.

    Raises
    ------
    InputError
        When the file is not there.
    """
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from error
    found, left = [], []
    for row in rows:
        try:
            found.append(_case(row))
        except InputError as error:
            left.append((row["id"], str(error)))
    return found, left


def _case(row: Mapping[str, str]) -> Case:
    degrees = {name: _whole(row, name, 1) for name in ("dp", "tp", "pp", "cp", "ep", "vpp", "mbs")}
    gpus_per_node = min(_whole(row, "gpus_per_node", 8), _whole(row, "gpus", 8))
    if degrees["tp"] > gpus_per_node:
        raise InputError(f"tensor parallelism over nodes: {degrees['tp']} GPUs, {gpus_per_node} on a node")
    model, gpu = _model(row, degrees), _gpu(row, degrees["tp"])
    count = degrees["dp"] * degrees["cp"] * degrees["tp"] * degrees["pp"]
    published = _whole(row, "gbs", 1)
    num_micro_batches = max(1, round(published / (degrees["dp"] * degrees["mbs"])))
    batch = num_micro_batches * degrees["dp"] * degrees["mbs"]
    plan = symmetric_plan(
        num_layers=model.num_layers,
        pp=degrees["pp"],
        dp=degrees["dp"],
        tp=degrees["tp"],
        global_batch=batch,
        num_micro_batches=num_micro_batches,
        gpu_type=gpu.name,
        gpus=tuple((str(k // gpus_per_node), k % gpus_per_node) for k in range(count)),
        virtual_stages=degrees["vpp"] if num_micro_batches % degrees["pp"] == 0 else 1,
        cp=degrees["cp"],
        ep=degrees["ep"],
    )
    return Case(
        id=row["id"],
        set=row["set"],
        source=_source(row),
        family=row["model"].split("-")[0],
        model=replace(model, global_batch=batch),
        gpu=gpu,
        gpus_per_node=gpus_per_node,
        plan=plan,
        scale=published / batch,
        measured_s=float(row["iter_s"]) if row["iter_s"] else None,
        memory_bytes=float(row["mem_GB"]) * _GIGA if row["mem_GB"] else None,
        ran=row["oom"] != "1",
    )


def _source(row: Mapping[str, str]) -> str:
    """The project or paper: what is left out together when predictions are validated."""
    first = row["source"].split()[0]
    return row["set"] if first == "from" else first


def _model(row: Mapping[str, str], degrees: Mapping[str, int]) -> Transformer:
    text = f"{row['source']} {row['set']} {row['precision']} {row['notes']}".lower()
    new = row["gpu"].startswith(_NEW)
    usual = Software.MEGATRON_CORE if new else Software.MEGATRON_LM
    software = next((software for word, software in _SOFTWARE if word in text), usual)
    fused = new or "flash" in text
    gated = row["gated"] == "1"
    return Transformer(
        num_layers=_whole(row, "layers"),
        hidden_size=_whole(row, "hidden"),
        num_heads=_whole(row, "heads"),
        num_kv_heads=_whole(row, "kv_heads", 0) or None,
        feed_forward_size=_whole(row, "ffn", 0) or None,
        gated=gated,
        normalisation=Normalisation.RMSNORM if gated else Normalisation.LAYERNORM,
        biases=Biases.NONE if gated else Biases.ALL,
        vocabulary_size=_whole(row, "vocab"),
        tied_embeddings=row["tied"] == "1",
        positions=Positions.LEARNED if row["positions"] == "learned" else Positions.ROTARY,
        sequence_length=_whole(row, "seq"),
        global_batch=_whole(row, "gbs"),
        micro_batch=degrees["mbs"],
        precision=Precision.FP8 if "fp8" in row["precision"] else Precision(row["precision"]),
        checkpointing=Checkpointing(row["ckpt"]),
        zero_stage=_whole(row, "zero"),
        attention=Attention.FUSED if fused else Attention.PLAIN,
        sequence_parallel=new or "sequence parallel +" in text,
        software=software,
        name=row["model"],
    )


def _gpu(row: Mapping[str, str], tp: int) -> GpuType:
    product = find_product(row["gpu"])
    kind = gpu_type_of(product, "fp16")
    if row["gpu_memory_gb"]:
        kind = replace(kind, memory_bytes=int(float(row["gpu_memory_gb"]) * _REPORTED))
    if row["inter_node_GBps"]:
        kind = replace(kind, inter_node_bandwidth_bytes_per_s=float(row["inter_node_GBps"]) * _GIGA)
    if product.name == "v100" and tp in (2, 4):
        share = {2: 1 / 3, 4: 2 / 3}[tp]
        kind = replace(kind, intra_node_bandwidth_bytes_per_s=share * kind.intra_node_bandwidth_bytes_per_s)
    return kind


def _whole(row: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = row[name]
    if not text and default is not None:
        return default
    if not text:
        raise InputError(f"{name} is missing")
    return int(float(text))


def predicted_s(case: Case, known: Priors | None = None) -> float:
    """Iteration time of a row by the model."""
    return case.scale * case.performance(known).iteration(case.plan).total_s

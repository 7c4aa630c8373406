"""`python -m benchmarks blackwell-steps`: step times that NVIDIA publishes of Blackwell (`blackwell.csv`), and the
model's.

No prior and no form of the model was fitted to them. Calibrations of these systems are (`systems.py`).

Source: NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary-archive.md at 0a25f911, sections 25.09, 25.11 and 26.02.
Numbers in parentheses there are MXFP8. Rows with dropped tokens, of other GPUs and in 4 bits are left out. What the
tables do not say follows from these rules:

    sharding     FSDP is ZeRO-3; else the distributed optimizer, ZeRO-1
    recomputing  none: recipes recompute parts of layers in some rows, and the tables do not say which
    links        a rack of GB200 is a node of 64 of its 72 GPUs, as recipes use it; a B200 is one of 8
"""

import csv
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.performance.published_steps.rows import Case, predicted_s
from benchmarks.rows import Row, show, write
from models.catalogue import find_model
from models.parallel_plan import symmetric_plan
from models.software import Software
from models.transformer import Attention, Precision, Transformer
from topology.gpu_catalogue import find_product, gpu_type_of

TABLE = Path(__file__).with_name("blackwell.csv")
SOURCE = "NVIDIA-NeMo/Megatron-Bridge"
PROTOCOL = "Predicted by the shipped priors, of which none was fitted to these rows. off: predicted / measured - 1."
DENSE, EXPERTS = "dense", "experts"
_RACK = 64
_SHARDED, _OPTIMIZER_ONLY = 3, 1


def main() -> None:
    """Hold predictions against published step times of Blackwell, experts among them."""
    rows: list[Row] = []
    off: dict[tuple[str, str], list[float]] = {}
    for case in blackwell_cases():
        predicted = predicted_s(case)
        error = 100 * (predicted / case.known_s - 1.0)
        off.setdefault((case.gpu.name, case.family), []).append(error)
        rows.append(
            {
                "container": case.set,
                "GPUs": f"{case.plan.num_gpus} {case.gpu.name}",
                "model": f"{case.model.name} {case.model.precision.value}",
                "plan": case.plan.notation().split(" (")[0],
                "measured s": case.known_s,
                "predicted s": predicted,
                "off %": error,
            }
        )
    show("Blackwell", rows)
    summary = [
        {
            "GPU": gpu,
            "models": family,
            "rows": len(errors),
            "median off %": float(np.median(errors)),
            "median |off| %": float(np.median(np.abs(errors))),
            "worst |off| %": float(np.max(np.abs(errors))),
        }
        for (gpu, family), errors in sorted(off.items())
    ]
    show("by system", summary)
    print(write("blackwell_steps", PROTOCOL, [*rows, *summary]))


def blackwell_cases() -> list[Case]:
    """All rows."""
    with TABLE.open(encoding="utf-8", newline="") as stream:
        return [_case(f"blackwell-{k}", row) for k, row in enumerate(csv.DictReader(stream), start=1)]


def _case(name: str, row: Mapping[str, str]) -> Case:
    gpus, tp, pp, cp, ep = (int(row[key]) for key in ("gpus", "tp", "pp", "cp", "ep"))
    batch, micro_batch = int(row["global_batch"]), int(row["micro_batch"])
    product = find_product(row["gpu"])
    gpus_per_node = min(gpus, _RACK, product.gpus_per_node)
    dp = gpus // (tp * pp * cp)
    model = _model(row)
    plan = symmetric_plan(
        num_layers=model.num_layers,
        pp=pp,
        dp=dp,
        tp=tp,
        global_batch=batch,
        num_micro_batches=batch // (dp * micro_batch),
        gpu_type=product.name,
        gpus=tuple((str(k // gpus_per_node), k % gpus_per_node) for k in range(gpus)),
        virtual_stages=int(row["virtual_stages"]),
        cp=cp,
        ep=ep,
    )
    return Case(
        id=name,
        set=f"nemo-{row['container']}",
        source=SOURCE,
        family=EXPERTS if model.num_experts > 1 else DENSE,
        model=model,
        gpu=gpu_type_of(product, "bf16"),
        gpus_per_node=gpus_per_node,
        plan=plan,
        scale=1.0,
        measured_s=batch * model.sequence_length / (float(row["tokens_per_s_per_gpu"]) * gpus),
        memory_bytes=None,
        ran=True,
    )


def _model(row: Mapping[str, str]) -> Transformer:
    model = find_model(
        row["model"],
        global_batch=int(row["global_batch"]),
        micro_batch=int(row["micro_batch"]),
        sequence_length=int(row["sequence_length"]),
        precision=Precision(row["precision"]),
        zero_stage=_SHARDED if int(row["fsdp"]) else _OPTIMIZER_ONLY,
    )
    if not isinstance(model, Transformer):
        raise TypeError(f"{row['model']} is no transformer")
    return replace(model, attention=Attention.FUSED, sequence_parallel=True, software=Software.MEGATRON_CORE)

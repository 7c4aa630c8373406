"""Layers and recomputation of stages one after the other against both together: `python -m benchmarks
joint-recomputation [--time-limit 60]`.

Pipelines of given degrees whose memory is short. **Apart**: layers spread evenly by load, then every stage recomputes
what is cheapest of what fits. **Joint**: the best of both together by the exact algorithm of the search, with its CPU.
**Together**: the best of the integer program, and what it proves that no other layers and recomputations are below;
**gap** is that of *apart* to this bound. Sends between stages are left out of all. CPU is that of the program with
everything around it.
"""

import time
from dataclasses import replace
from typing import Annotated

import numpy as np
import typer

from benchmarks.rows import Row, show, write
from models.catalogue import find_model
from models.parallel_plan import symmetric_plan
from models.parallelism.grid.degrees import compact_degrees
from models.parallelism.grid.operators import cluster
from models.parallelism.joint import LayerChoices
from models.parallelism.recomputation import with_cheapest
from models.parallelism.recomputation_mip import JointRows, joint_optimum
from models.performance.iteration.modelling import virtual_model
from models.performance.iteration.whitebox import roofline_s
from models.software import Software
from solver.options import SolveOptions
from topology.gpu_catalogue import find_product, gpu_type_of

_PER_NODE = 8
# Model, GPU, stages, replicas, shards, micro-batches of 1 sequence a replica.
_CASES = (
    ("llama3.2-1b", "a10", 4, 1, 1, 8),
    ("llama2-13b", "a100-40gb", 4, 2, 2, 32),
    ("llama2-13b", "a100-40gb", 8, 2, 1, 32),
    ("llama2-70b", "a100-40gb", 8, 2, 4, 32),
)


def main(
    time_limit: Annotated[float, typer.Option(min=1, help="Seconds for the program of a case.")] = 60.0,
) -> None:
    """Measure what stages lose whose layers and recomputation are chosen one after the other."""
    rows = [row for case in _CASES if (row := case_row(*case, time_limit_s=time_limit)) is not None]
    show("layers and recomputation apart and together", rows)
    write("joint_recomputation", __doc__ or "", rows)


def case_row(
    name: str, gpu: str, pp: int, dp: int, tp: int, num_micro_batches: int, *, time_limit_s: float
) -> Row | None:
    """One case; None where nothing fits, or everything without recomputation."""
    batch, kind = dp * num_micro_batches, gpu_type_of(find_product(gpu), "bf16")
    job = replace(find_model(name, global_batch=batch), software=Software.MEGATRON_CORE)
    num_gpus = pp * dp * tp
    model = replace(virtual_model(job, kind, _PER_NODE, -(-num_gpus // _PER_NODE)), send_receive=False)
    plan = symmetric_plan(
        num_layers=tuple(np.diff(cluster(roofline_s(model.profile, kind), pp)).tolist()),
        pp=pp,
        dp=dp,
        tp=tp,
        global_batch=batch,
        num_micro_batches=num_micro_batches,
        gpu_type=kind.name,
        gpus=tuple((str(k // _PER_NODE), k % _PER_NODE) for k in range(num_gpus)),
    )
    apart = with_cheapest(plan, model, _PER_NODE)
    if apart is None:
        return None
    # Half as many layers more than others are more than any stage wants.
    most_layers = -(-3 * model.profile.num_layers // (2 * pp))
    begun_s, degrees = time.process_time(), compact_degrees(model.profile, (dp * tp,), _PER_NODE)
    choices = LayerChoices.of(model, kind.name, degrees, pp, most_layers, by_stage=True)
    joint = choices.optimum(num_micro_batches, degrees.tp.tolist().index(tp))
    joint_cpu_s = time.process_time() - begun_s
    begun_s, seconds = time.process_time(), model.iteration(apart).total_s
    rows = JointRows.of(plan, model, _PER_NODE, most_layers)
    found = joint_optimum(rows, SolveOptions(time_limit_s=time_limit_s))
    gap = found.gap(seconds)
    return {
        "case": f"{name} {gpu}",
        "apart": apart.notation(),
        "apart_s": round(seconds, 4),
        "joint_s": None if joint is None else round(joint.seconds, 4),
        "joint_cpu_s": round(joint_cpu_s, 3),
        "together_s": None if found.seconds is None else round(found.seconds, 4),
        "gap %": None if gap is None else round(100 * gap, 3),
        "ended": found.termination.value,
        "cpu_s": round(time.process_time() - begun_s, 2),
    }

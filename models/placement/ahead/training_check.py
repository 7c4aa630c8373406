"""Independent check of how a job planned ahead trains, and of how long it holds its nodes."""

import math
from collections.abc import Iterator

from models.forecast.training import Reliability, TrainingForecast, forecast_training
from models.parallel_plan import symmetric_plan
from models.performance.iteration.modelling import virtual_model
from models.performance.iteration.whitebox import peak_flops_per_s
from models.placement.ahead.move_check import TOLERANCE, Scene, violation
from models.plan import AheadPlacement, TrainingEstimate
from models.transformer import Transformer
from models.workload import Job
from stowplan.errors import Issue

_HOUR_S = 3600.0


def degree_violations(scene: Scene, k: int, job: Job, placed: AheadPlacement) -> Iterator[Issue]:
    """Those of the job, or some on as many GPUs as it asks for, that train its model as fast as is said."""
    degrees, said = placed.parallelism, placed.training
    if job.parallelism is not None and degrees != job.parallelism:
        yield violation(k, "wrong_parallelism", "parallelism", f"is {degrees}; job {job.id!r} has {job.parallelism}")
    if job.parallelism is None and degrees.num_gpus != job.min_gpus:
        detail = f"is {degrees}, {degrees.num_gpus} GPUs; job {job.id!r} asks for {job.min_gpus}"
        yield violation(k, "wrong_parallelism", "parallelism", detail)
    if said is None or job.transformer is None:
        if job.parallelism is None:
            yield violation(k, "wrong_parallelism", "training", "is missing for a plan that was chosen")
        return
    forecast, fits = _trained(scene, job.transformer, job, placed, said)
    if not fits:
        yield violation(k, "out_of_memory", "parallelism", f"{degrees} does not fit into the memory of its GPUs")
    for field in ("step_s", "mfu", "goodput"):
        value, real = getattr(said, field), getattr(forecast, field)
        if not abs(value - real) <= TOLERANCE * max(1.0, real):
            yield violation(k, "wrong_training", f"training/{field}", f"is {value}, recomputed {real}")


def _trained(
    scene: Scene, transformer: Transformer, job: Job, placed: AheadPlacement, said: TrainingEstimate
) -> tuple[TrainingForecast, bool]:
    """What the performance model says of the plan, and whether it fits into memory."""
    degrees, parameters = placed.parallelism, scene.parameters
    kind = next(kind for kind in scene.snapshot.cluster.gpu_types if kind.name == placed.gpu_type)
    size = scene.nodes[placed.placement.hosts[0]].num_gpus
    model = virtual_model(transformer, kind, size, degrees.num_gpus // size, job.calibration)
    plan = symmetric_plan(
        num_layers=model.profile.num_layers,
        pp=degrees.pp,
        dp=degrees.dp,
        tp=degrees.tp,
        global_batch=model.profile.global_batch,
        num_micro_batches=said.num_micro_batches,
        gpu_type=kind.name,
        gpus=tuple((str(n), gpu) for n in range(degrees.num_gpus // size) for gpu in range(size)),
    )
    reliability = None
    if parameters.node_mtbf_hours is not None:
        reliability = Reliability(
            mtbf_s=parameters.node_mtbf_hours * _HOUR_S,
            restart_s=parameters.failure_restart_s,
            checkpoint_s=parameters.checkpoint_s,
        )
    peak = peak_flops_per_s(kind.name, model.profile.flops_precision, kind.peak_flops_per_s)
    iterations = job.remaining_iterations or 1.0
    peaks = {kind.name: peak or kind.peak_flops_per_s}
    return forecast_training(model, plan, iterations, peaks, reliability), model.fits(plan)


def held_s(scene: Scene, job: Job, placed: AheadPlacement) -> float:
    """For how long the job holds its nodes: as it says, else by the performance model."""
    probability = scene.parameters.end_probability
    if job.lasting is not None:
        return job.lasting.quantile(probability)
    if job.remaining_s:
        return job.remaining_s
    if job.remaining_iterations is None or placed.training is None or job.transformer is None:
        return math.inf
    return _trained(scene, job.transformer, job, placed, placed.training)[0].lasting.quantile(probability)

r"""Coefficients from what one running configuration shows (Suika appendix A.4.2, full-spectrum profiling).

Of a GPU of stage i, replica j, measured times t, with the shares c (computation) and p (parameters) of the stage:

    k_comp      (t_fwd - t_comm) TP / (b c f)                  f, g: slowdowns of both passes at (b, TP)
    k_backward  (t_bwd - r t_comm) f / (t_fwd - t_comm) / g    r: all-reduces of the backward over the forward pass
    k_optim     t_optim TP Z1 / p
    k_overlap   solves exposed(backward of the stage, reduction by the formula, k) = measured, by bracketing: the
                exposed part falls with k. Above `LARGEST_OVERLAP` it hardly does, and k stays there.
    k_activ     from the activation behind the stage; k_param, k_param-optim from the sizes of parameters, gradients and
                optimiser states, which also give the reduction its volume
    k_activ-p,  from peak memory less these states: a linear system where tensor degrees differ, else k_activ-np =
    k_activ-np  C_np k_activ, C_np that of the model

Several GPUs of one type give the median of what each says.

Reading: the paper prints k_backward with t_comm in the denominator. By A.2 it is the ratio of backward to forward
*computation*; as printed it would be infinite without tensor parallelism.

Where nothing was measured: without replicas, or without a measured exposed part, a type takes the least overlap of the
other types, and 1 (none) if there is no other; in a stage of several types the exposed part tells their common overlap
only, which counts where a type has no stage of its own. Sizes that were not measured stay white-box.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
from scipy.optimize import brentq, nnls

from models.parallel_plan import ParallelPlan, Replica, Stage
from models.performance.iteration.coefficients import Calibration, GpuCoefficients, JobCoefficients, SizeCoefficients
from models.performance.iteration.fabric import Fabric
from models.performance.iteration.formulas import exposed_reduction_s, hiding_s
from models.performance.iteration.kernels import KernelCurve
from models.performance.iteration.measurement import Measurement, measurement_issues
from models.performance.iteration.memory import in_full, shard, working_bytes
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.profile import ModelProfile
from models.performance.iteration.shares import StageShares
from models.performance.iteration.sizes import boundary_bytes, size_coefficients
from stowplan.errors import raise_for_errors

# There two equally long times overlap to 1.1 % more than one of them: full overlap for all that measurements can tell.
LARGEST_OVERLAP = 64.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where in the plan a GPU was measured, and what it holds in mean layers; `passing`: gradients that are in full for
    a while."""

    stage: Stage
    replica: Replica
    shares: StageShares
    in_flight: float
    waiting: float
    parameters: float
    gradients: float
    optimizer: float
    passing: float

    @classmethod
    def of(cls, model: PerformanceModel, plan: ParallelPlan, stage_index: int, replica_index: int) -> "_Place":
        stage, shares = plan.stages[stage_index], model.shares(plan)[stage_index]
        zero = model.profile.zero_stage
        held = [float(shard(shares.parameters, stage.tp, stage.dp, zero >= least)) for least in (3, 2, 1)]
        elsewhere = model.elsewhere(shares.parameters, shares.experts)
        return cls(
            stage=stage,
            replica=stage.replicas[replica_index],
            shares=shares,
            in_flight=plan.in_flight(stage_index),
            waiting=plan.waiting(stage_index),
            parameters=held[0],
            gradients=held[1],
            optimizer=held[2],
            passing=float(in_full(stage.tp, stage.dp, zero >= 2, elsewhere)),
        )


_Measured = Sequence[tuple[Measurement, _Place]]


def observe(model: PerformanceModel, plan: ParallelPlan) -> tuple[Measurement, ...]:
    """What the model expects to be measured: one GPU of every replica, stage by stage."""
    where = [(i, j) for i, stage in enumerate(plan.stages) for j in range(stage.dp)]
    places = [_Place.of(model, plan, i, j) for i, j in where]
    times = model.group_times(
        plan, [_group(i, p.replica, model.fabric) for (i, _), p in zip(where, places, strict=True)]
    )
    stages = model.iteration(plan).stages
    sizes = model.coefficients.sizes
    outputs = _outputs_bytes(model.profile, plan, sizes)
    peaks = model.memory_of(plan, [(i, place.replica.local_batch) for (i, _), place in zip(where, places, strict=True)])
    return tuple(
        Measurement(
            stage=i,
            replica=j,
            forward_s=float(times.forward_s[k]),
            forward_communication_s=float(times.communication_s[k]),
            backward_s=float(times.backward_s[k]),
            optimizer_s=float(times.optimizer_s[k]),
            exposed_reduction_s=stages[i].exposed_reduction_s,
            output_bytes=outputs[i] * place.replica.local_batch,
            parameter_bytes=sizes.parameter_bytes * place.parameters,
            gradient_bytes=sizes.gradient_bytes * place.gradients,
            optimizer_bytes=sizes.optimizer_bytes * place.optimizer,
            peak_bytes=peaks[k].total_bytes,
        )
        for k, ((i, j), place) in enumerate(zip(where, places, strict=True))
    )


def invert(
    profile: ModelProfile,
    plan: ParallelPlan,
    measurements: Sequence[Measurement],
    fabric: Fabric,
    measured_at_s: float | None = None,
    curves: Mapping[str, KernelCurve] | None = None,
) -> Calibration:
    """Coefficients with which the model shows these measurements.

    Parameters
    ----------
    fabric
        Of the nodes on which the plan ran.
    measured_at_s
        Unix time of the last measurement.
    curves
        How kernels slow down where a plan cuts them small, by GPU type.

    Raises
    ------
    InputError
        When a value is negative or not finite, a time is not above the communication in it, or the plan has no such
        GPU (or a node or type that is unknown): pointers are `/measurements/<index>/<field>`.
    """
    raise_for_errors(list(measurement_issues(profile, plan, measurements)), "set of measurements")
    white = size_coefficients(profile)
    coefficients = JobCoefficients(sizes=white, curves=curves or {})
    model = PerformanceModel(profile=profile, coefficients=coefficients, fabric=fabric, memory_bytes={})
    measured = [(m, _Place.of(model, plan, m.stage, m.replica)) for m in measurements]
    sizes = _sizes(model, plan, measured)
    by_type: dict[str, list[tuple[Measurement, _Place]]] = defaultdict(list)
    for measurement, place in measured:
        by_type[place.replica.gpu_type].append((measurement, place))
    gpus = {name: _times(model, found) for name, found in sorted(by_type.items())}
    model = replace(model, coefficients=replace(coefficients, gpus=gpus, sizes=sizes))
    overlaps = _overlaps(model, plan, measurements)
    return Calibration(
        gpus={name: replace(found, overlap=overlaps[name]) for name, found in gpus.items()},
        sizes=None if sizes == white else sizes,
        measured_at_s=measured_at_s,
    )


def _times(model: PerformanceModel, measured: _Measured) -> GpuCoefficients:
    """Linear coefficients of one GPU type; the overlap is found later."""
    profile = model.profile
    compute, ratio, optimizer = [], [], []
    for m, place in measured:
        slower = model.slowdowns(place.replica.gpu_type, place.replica.local_batch, place.stage.tp)
        forward, backward = (float(factor) for factor in slower)
        computation = m.forward_s - m.forward_communication_s
        again = profile.backward_all_reduces * m.forward_communication_s
        if place.shares.compute > 0:
            compute.append(computation * place.stage.tp / (place.replica.local_batch * place.shares.compute * forward))
        ratio.append((m.backward_s - again) * forward / computation / backward)
        if place.optimizer > 0:
            optimizer.append(m.optimizer_s / place.optimizer)
    return GpuCoefficients(
        compute_s=_median(compute, 0.0),
        backward_ratio=_median(ratio, profile.backward_ratio),
        optimizer_s=_median(optimizer, 0.0),
        overlap=1.0,
    )


def _overlaps(model: PerformanceModel, plan: ParallelPlan, measurements: Sequence[Measurement]) -> dict[str, float]:
    """Overlap of every type that has coefficients."""
    own: dict[str, list[float]] = defaultdict(list)
    common: dict[str, list[float]] = defaultdict(list)
    reductions = model.reductions_s(plan)
    for i, stage in enumerate(plan.stages):
        of_stage = [m for m in measurements if m.stage == i]
        exposed = [m.exposed_reduction_s for m in of_stage if m.exposed_reduction_s is not None]
        if stage.dp == 1 or not exposed or reductions[i] <= 0:
            continue
        forward, backward = (_pass_s(model, plan, i, of_stage, name) for name in ("forward_s", "backward_s"))
        hiding = hiding_s(forward, backward, model.profile.zero_stage, plan.num_micro_batches)
        found = overlap_of(float(hiding), float(reductions[i]), _median(exposed, 0.0))
        types = {replica.gpu_type for replica in stage.replicas}
        for name in types:
            (own if len(types) == 1 else common)[name].append(found)
    known = {name: _median(own[name] or common[name], 1.0) for name in own.keys() | common.keys()}
    least = min(known.values(), default=1.0)
    return {name: known.get(name, least) for name in model.coefficients.gpus}


def overlap_of(hiding_s: float, reduction_s: float, exposed_s: float) -> float:
    """The overlap that leaves `exposed_s` of a reduction exposed, within 1 and `LARGEST_OVERLAP`."""

    def excess(inverse: float) -> float:
        return float(exposed_reduction_s(hiding_s, reduction_s, 1.0 / inverse)) - exposed_s

    if excess(1.0) <= 0:
        return 1.0
    if excess(1.0 / LARGEST_OVERLAP) >= 0:
        return LARGEST_OVERLAP
    return 1.0 / float(brentq(excess, 1.0 / LARGEST_OVERLAP, 1.0, xtol=1e-15))


def _pass_s(model: PerformanceModel, plan: ParallelPlan, i: int, of_stage: Sequence[Measurement], name: str) -> float:
    """`forward_s` or `backward_s` of the slowest replica: measured, by the coefficients where one did not report."""
    reported: dict[int, list[float]] = defaultdict(list)
    for m in of_stage:
        reported[m.replica].append(getattr(m, name))
    silent = [
        _group(i, replica, model.fabric)
        for j, replica in enumerate(plan.stages[i].replicas)
        if j not in reported and replica.gpu_type in model.coefficients.gpus
    ]
    expected = getattr(model.group_times(plan, silent), name).tolist() if silent else []
    return float(max([*(_median(times, 0.0) for times in reported.values()), *expected]))


def _sizes(model: PerformanceModel, plan: ParallelPlan, measured: _Measured) -> SizeCoefficients:
    """Sizes of the mean layer, white-box ones where nothing was measured."""
    white = model.coefficients.sizes
    outputs = _outputs_bytes(model.profile, plan, white)
    sizes = replace(
        white,
        parameter_bytes=_ratio([(m.parameter_bytes, p.parameters) for m, p in measured], white.parameter_bytes),
        gradient_bytes=_ratio([(m.gradient_bytes, p.gradients) for m, p in measured], white.gradient_bytes),
        optimizer_bytes=_ratio([(m.optimizer_bytes, p.optimizer) for m, p in measured], white.optimizer_bytes),
        activation_bytes=white.activation_bytes
        * _ratio([(m.output_bytes, outputs[m.stage] * p.replica.local_batch) for m, p in measured], 1.0),
    )
    model = replace(model, coefficients=replace(model.coefficients, sizes=sizes))
    partitioned, replicated = _activations(model, plan, measured)
    return replace(sizes, partitioned_activation_bytes=partitioned, replicated_activation_bytes=replicated)


def _activations(model: PerformanceModel, plan: ParallelPlan, measured: _Measured) -> tuple[float, float]:
    """k_activ-p and k_activ-np."""
    white = size_coefficients(model.profile)
    rows, kept, degrees = [], [], set()
    for m, place in measured:
        activation = _activation_bytes(model, plan, m, place)
        if activation is not None:
            samples = place.replica.local_batch * (min(place.in_flight, plan.num_micro_batches) + place.waiting)
            split = place.stage.tp if model.profile.sequence_parallel else 1
            rows.append((place.shares.partitioned / place.stage.tp, place.shares.replicated / split))
            working = place.replica.local_batch * float(working_bytes(model.profile, place.stage.tp))
            kept.append(max(activation - working, 0.0) / samples)
            degrees.add(place.stage.tp)
    matrix, kept_bytes = np.array(rows).reshape(-1, 2), np.array(kept)
    if len(degrees) > 1 and np.linalg.matrix_rank(matrix) == 2:
        (partitioned, replicated), _ = nnls(matrix, kept_bytes)
        return float(partitioned), float(replicated)
    known = white.replicated_activation_bytes
    if white.activation_bytes > 0:
        known *= model.coefficients.sizes.activation_bytes / white.activation_bytes
    partitioned = _ratio(list(zip(kept_bytes - known * matrix[:, 1], matrix[:, 0], strict=True)), -1.0)
    if partitioned >= 0:
        return partitioned, known
    # More than the replicated part alone cannot be less than what was measured: both are off by the same factor.
    expected = matrix @ (white.partitioned_activation_bytes, white.replicated_activation_bytes)
    factor = _ratio(list(zip(kept_bytes, expected, strict=True)), 1.0)
    return factor * white.partitioned_activation_bytes, factor * white.replicated_activation_bytes


def _activation_bytes(model: PerformanceModel, plan: ParallelPlan, m: Measurement, place: _Place) -> float | None:
    """Activations at the peak; None where they cannot be told from the gradients, or peak memory is not measured."""
    if m.peak_bytes is None:
        return None
    (states,) = model.memory_of(plan, [(m.stage, place.replica.local_batch)])
    gradient_bytes = model.coefficients.sizes.gradient_bytes
    rest = m.peak_bytes - states.parameter_bytes - states.optimizer_bytes - gradient_bytes * place.passing
    gradients = gradient_bytes * place.gradients
    if plan.num_micro_batches > place.in_flight:
        return rest - gradients
    return rest if rest > gradients else None


def _outputs_bytes(profile: ModelProfile, plan: ParallelPlan, sizes: SizeCoefficients) -> list[float]:
    """Activation of one sample behind the last layer of every stage."""
    lasts = accumulate(stage.num_layers for stage in plan.stages)
    boundaries = boundary_bytes(profile, sizes)
    return [float(boundaries[last - 1]) for last in lasts]


def _group(i: int, replica: Replica, fabric: Fabric) -> tuple[int, str, float, int]:
    """A replica of stage i as `PerformanceModel.group_times` wants it."""
    return i, replica.gpu_type, fabric.intra_bytes_per_s(replica.node), replica.local_batch


def _ratio(pairs: Iterable[tuple[float | None, float]], default: float) -> float:
    """Median of measured over expected, where there is something of both."""
    return _median([value / unit for value, unit in pairs if value is not None and unit > 0], default)


def _median(values: Sequence[float], default: float) -> float:
    return float(np.median(values)) if values else default

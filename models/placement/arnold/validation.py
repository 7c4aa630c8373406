"""What can be said about a snapshot under Arnold without building a model. Light: imports no modelling layer."""

from collections.abc import Iterator

from models.dimensions import Dimensions
from models.placement.arnold.parameters import ArnoldParameters
from models.placement.arnold.selection import Selection, select
from models.placement.arnold.volumes import num_microbatches
from models.plan import UnplacedJob
from models.wording import counted
from models.workload import Snapshot
from stowplan.errors import InputError, Issue, Severity

# A message that lists hundreds of minipods helps nobody.
_MAX_LISTED = 12


def policy_issues(snapshot: Snapshot, parameters: ArnoldParameters) -> list[Issue]:
    """Errors and warnings of this snapshot under Arnold; a snapshot without any job has none.

    Pointers are relative to the snapshot, or start with `/parameters`.
    """
    if not snapshot.jobs:
        return []
    try:
        selection = select(snapshot, parameters)
    except InputError as error:
        return list(error.issues)
    return selection_issues(selection, parameters)


def selection_issues(selection: Selection, parameters: ArnoldParameters) -> list[Issue]:
    """Errors and warnings about the job and hardware that were selected."""
    return [*_size_faults(selection), *_affinity_issues(selection, parameters), *_warnings(selection)]


def _size_faults(selection: Selection) -> Iterator[Issue]:
    """GPU bounds and reservation that contradict tp * pp * dp."""
    job, degrees = selection.job, selection.parallelism
    product = f"tp {degrees.tp} x pp {degrees.pp} x dp {degrees.dp} = {counted(degrees.num_gpus, 'GPU')}"
    at = f"/jobs/{selection.position}"
    if degrees.num_gpus < job.min_gpus:
        detail = f"is {job.min_gpus}, but {product}; lower it or raise a degree"
        yield Issue(code="parallelism_below_min_gpus", pointer=f"{at}/min_gpus", detail=detail)
    if job.max_gpus is not None and degrees.num_gpus > job.max_gpus:
        detail = f"is {job.max_gpus}, but {product}; raise it or lower a degree"
        yield Issue(code="parallelism_above_max_gpus", pointer=f"{at}/max_gpus", detail=detail)
    if job.reservation is not None and job.reservation.num_gpus != degrees.num_gpus:
        detail = f"reserves {counted(job.reservation.num_gpus, 'GPU')}, but {product}; both must agree"
        yield Issue(code="reservation_mismatch", pointer=f"{at}/reservation/num_gpus", detail=detail)


def _affinity_issues(selection: Selection, parameters: ArnoldParameters) -> Iterator[Issue]:
    if parameters.alpha is not None:
        return
    match = selection.match(parameters)
    if match is None:
        yield Issue(
            code="transformer_required",
            pointer=f"/jobs/{selection.position}/transformer",
            detail=f"job {selection.job.id!r} has no transformer to look its affinity up by; "
            "give it, or the parameter alpha",
        )
    elif not match.same_type:
        yield Issue(
            code="no_record_for_gpu_type",
            pointer="/parameters/alpha",
            detail=f"no characterisation record is of GPU type {selection.pool.gpu_type!r}; alpha "
            f"{match.record.alpha:.3g} is that of {match.describe()}; give alpha or own records",
            severity=Severity.WARNING,
        )


def _warnings(selection: Selection) -> Iterator[Issue]:
    job, pool, at = selection.job, selection.pool, f"/jobs/{selection.position}"
    if selection.num_free < selection.matrix.num_nodes:
        short = crowded_out(selection)
        yield _warning("not_enough_nodes", at, f"{short.detail}; {short.remedy}")
    if selection.other_types:
        detail = f"planned on GPU type {pool.gpu_type!r}; {list(selection.other_types)} would suit too"
        yield _warning("gpu_type_chosen", f"{at}/gpu_types", detail)
    if pool.num_other_size:
        others, size = counted(pool.num_other_size, "node"), counted(pool.gpus_per_node, "GPU")
        detail = f"{others} of GPU type {pool.gpu_type!r} left out: only those with {size} are used"
        yield _warning("mixed_node_sizes", "/cluster/nodes", detail)
    if job.transformer is not None:
        heads, tp = Dimensions.of(job.transformer).heads, selection.parallelism.tp
        if heads % tp:
            whose = "num_heads is" if job.transformer.num_heads else "num_heads, which is not given, is taken as"
            detail = f"{whose} {heads}, which tp {tp} does not divide: no trainer shares such heads"
            yield _warning("heads_not_divisible", f"{at}/transformer/num_heads", detail)
        num = num_microbatches(job.transformer, selection.parallelism)
        if not num.is_integer():
            detail = f"global_batch {job.transformer.global_batch} makes {num:.3g} micro-batches per replica"
            yield _warning("batch_not_divisible", f"{at}/transformer", f"{detail}; choose a multiple of mb x dp")


def crowded_out(selection: Selection) -> UnplacedJob:
    """Counts behind an infeasible model, and what would make it feasible."""
    pool, needed = selection.pool, selection.matrix.num_nodes
    free = sorted(zip(selection.room.tolist(), pool.minipods, strict=True), key=lambda item: (-item[0], item[1]))
    listed = ", ".join(f"{label}: {count}" for count, label in free[:_MAX_LISTED] if count)
    verb = "is" if selection.num_free == 1 else "are"
    kept = f" beyond {selection.num_spares} spare ones per minipod" if selection.num_spares else ""
    return UnplacedJob(
        job_id=selection.job.id,
        reason="capacity",
        detail=f"job {selection.job.id!r} needs {counted(needed, 'wholly free node')} of "
        f"{counted(pool.gpus_per_node, f'{pool.gpu_type!r} GPU')}, {selection.num_free} {verb} free{kept}"
        + (f" ({listed})" if listed else ""),
        counts={"needed_nodes": needed, "free_nodes": selection.num_free},
        remedy=f"free {needed - selection.num_free} more, or lower dp or pp to at most "
        f"{counted(selection.num_free, 'node')}",
        preempted=False,
    )


def _warning(code: str, pointer: str, detail: str) -> Issue:
    return Issue(code=code, pointer=pointer, detail=detail, severity=Severity.WARNING)

"""Calibrations of systems: from documents to what is fitted, and back."""

from collections.abc import Iterator

from api.convert.job_model import calibration_from_document, calibration_to_document, model_from_document
from api.convert.located import located
from api.schemas.calibration import CalibrationBody, FactorDoc, SiteMeasurementDoc
from api.schemas.model import CalibrationDoc
from models.measured import Bandwidth, Finding, Training, read_measured
from models.parallelism.measured_site import CalibratedSite, MeasuredSite, SiteMeasurement
from models.parallelism.request import Degrees
from models.parallelism.wanted import NamedTypes
from models.performance.iteration.adjustment import NAMES, Adjustment
from models.performance.iteration.coefficients import Calibration
from models.performance.iteration.model_issues import model_issues
from stowplan.errors import Issue, StowplanError, pointer_of, raise_for_errors
from topology.cluster import GpuType

_MAX_SOURCE = 4000


def site_from_body(body: CalibrationBody, start: CalibrationDoc | str | None) -> MeasuredSite:
    """Read what was measured. `start`: the calibration that the body brings, or its name where it comes along.

    Raises
    ------
    InputError
        With one issue per fault; pointers are relative to the body.
    """
    model = None if body.job is None else model_from_document(body.job)
    issues = [] if model is None else list(model_issues(model, "/job"))
    own = {kind.name: GpuType(**vars(kind)) for kind in body.gpu_types}
    types = NamedTypes(own=own, precision="bf16" if model is None else model.precision.value, is_cluster=False)
    kind = types.named(body.gpu_type, "/gpu_type", issues)
    measurements = [_measurement(k, one, issues) for k, one in enumerate(body.measurements)]
    if model is None:
        issues += [
            Issue(code="missing_field", pointer="/job", detail="is missing; say which model was trained")
            for one in measurements
            if one is not None and isinstance(one.found, Training)
        ][:1]
    raise_for_errors(issues, "request")
    assert kind is not None  # noqa: S101 - it would be an issue
    with located("/calibration"):
        before = Calibration() if start is None else calibration_from_document(start)
    return MeasuredSite(
        gpu_type=kind[0],
        gpus_per_node=body.gpus_per_node or kind[1],
        measurements=tuple(one for one in measurements if one is not None),
        model=model,
        start=before,
    )


def calibration_document(found: CalibratedSite, at_s: float) -> CalibrationDoc:
    """What requests take, with what was measured as its source. at_s: Unix time."""
    source = "\n".join(found.told)[:_MAX_SOURCE]
    values = {"source": source, "measured_at_s": float(round(at_s))}
    return calibration_to_document(found.calibration).model_copy(update=values)


def factor_documents(adjustment: Adjustment) -> tuple[FactorDoc, ...]:
    """Factors and how certain they are."""
    deviations = adjustment.spread().diagonal() ** 0.5
    return tuple(
        FactorDoc(name=name, factor=getattr(adjustment, name), deviation=deviation)
        for name, deviation in zip(NAMES, deviations.tolist(), strict=True)
    )


def _measurement(k: int, document: SiteMeasurementDoc, issues: list[Issue]) -> SiteMeasurement | None:
    """A measurement; None where it is wrong, which goes to `issues`."""
    pointer = pointer_of("measurements", k)
    try:
        found = _finding(document)
    except StowplanError as error:
        issues.append(Issue(code=error.code, pointer=f"{pointer}/text", detail=error.detail))
        return None
    wrong = list(_misplaced(document, found, pointer))
    issues += wrong
    if wrong:
        return None
    return SiteMeasurement(
        name=document.name or f"measurement {k + 1}",
        found=found,
        degrees=None if document.degrees is None else Degrees(**vars(document.degrees)),
        stage_s=document.stage_s,
        num_nodes=document.num_nodes,
        num_ports=document.num_ports,
    )


def _finding(document: SiteMeasurementDoc) -> Finding:
    if document.text is None:
        return Training(num_iterations=1, iteration_s=document.iteration_s)
    return read_measured(document.text)


def _misplaced(document: SiteMeasurementDoc, found: Finding, pointer: str) -> Iterator[Issue]:
    """What is missing beside a measurement, or has no meaning there."""
    if isinstance(found, Training) and document.degrees is None:
        yield Issue(
            code="missing_field",
            pointer=f"{pointer}/degrees",
            detail="is missing; this is of a training: with which plan (pp, dp, tp, num_micro_batches)?",
        )
    kind, names = "a training", ("num_nodes", "num_ports")
    if isinstance(found, Bandwidth):
        kind, names = "a bandwidth test", ("degrees", "stage_s")
    for name in names:
        if getattr(document, name) is not None:
            yield Issue(code="one_of", pointer=f"{pointer}/{name}", detail=f"has no meaning: this is of {kind}")

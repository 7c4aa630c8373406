"""The model of a job and its measured coefficients: from documents to the planner's types, and back."""

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from api.schemas.model import CalibrationDoc, OperatorModelDoc, TransformerDoc
from api.schemas.open_model import AUTO, OpenOperatorModelDoc, OpenTransformerDoc
from models.catalogue import find_model
from models.parallelism.training import ALL_CHECKPOINTING, ALL_ZERO_STAGES, Choices
from models.performance.iteration.adjustment import Adjustment
from models.performance.iteration.coefficients import Calibration, GpuCoefficients, SizeCoefficients
from models.readers.hugging_face import describe
from models.transformer import JobModel, Operator, OperatorModel, Transformer
from stowplan.errors import InputError, Issue


def model_from_document(document: TransformerDoc | OperatorModelDoc) -> JobModel:
    """Build the model of either kind."""
    if isinstance(document, TransformerDoc):
        return transformer_from_document(document)
    return operators_from_document(document)


def open_model_from_document(document: TransformerDoc | OperatorModelDoc) -> tuple[JobModel, Choices]:
    """Build the model, and what of its training is left open, of which the model has the default."""
    is_open = [name for name in ("checkpointing", "zero_stage") if getattr(document, name, None) == AUTO]
    choices = Choices(
        checkpointing=ALL_CHECKPOINTING if "checkpointing" in is_open else (),
        zero_stages=ALL_ZERO_STAGES if "zero_stage" in is_open else (),
    )
    return model_from_document(document.model_copy(update=dict.fromkeys(is_open))), choices


def transformer_from_document(document: TransformerDoc) -> Transformer:
    """Build the model; what the document leaves out is that of the catalogue's model or of a `config.json`, if it names
    or holds one."""
    given = {name: value for name, value in document if value is not None and name not in ("model", "config")}
    if document.config is not None:
        return describe(document.config).transformer(**given)
    if document.model is None:
        return Transformer(**given)
    known = find_model(document.model, global_batch=document.global_batch)
    assert isinstance(known, Transformer)  # noqa: S101 - the document names no other model
    return replace(known, **given)


def transformer_to_document(model: Transformer) -> TransformerDoc:
    """Give the document that `transformer_from_document` turns into an equal model."""
    values = asdict(model)
    return TransformerDoc(model=values.pop("name"), **values)


def open_model_to_document(model: JobModel, choices: Choices) -> OpenTransformerDoc | OpenOperatorModelDoc:
    """Give the document that `open_model_from_document` turns into an equal model and equal choices."""
    opened = {"checkpointing": choices.checkpointing, "zero_stage": choices.zero_stages}
    values = {**asdict(model), **{name: AUTO for name, kinds in opened.items() if kinds}}
    if isinstance(model, Transformer):
        return OpenTransformerDoc(model=values.pop("name"), **values)
    return OpenOperatorModelDoc(**values)


def operators_from_document(document: OperatorModelDoc) -> OperatorModel:
    """Build the model, from its operators or from the catalogue."""
    names = ("global_batch", "micro_batch", "precision", "optimizer", "zero_stage", "software")
    given = {name: value for name in names if (value := getattr(document, name)) is not None}
    if document.operators is not None:
        operators = tuple(Operator(**vars(operator)) for operator in document.operators)
        return OperatorModel(operators=operators, name=document.name, **given)
    known = find_model(document.model or "", **given)
    assert isinstance(known, OperatorModel)  # noqa: S101 - the document names no other model
    return replace(known, name=document.name or known.name)


@cache
def shipped_calibrations() -> Mapping[str, CalibrationDoc]:
    """Those of common systems that come along, by name."""
    files = sorted((Path(__file__).parents[1] / "calibrations").glob("*.json"))
    return {file.stem: CalibrationDoc.model_validate_json(file.read_text(encoding="utf-8")) for file in files}


def calibration_from_document(document: CalibrationDoc | str) -> Calibration:
    """Build the coefficients.

    Raises
    ------
    InputError
        When it is a name, and none that comes along.
    """
    if isinstance(document, str):
        if document not in shipped_calibrations():
            detail = f"is {document!r}; known here: {', '.join(shipped_calibrations())}; a service that is asked has "
            detail += "those, too, that were posted to its /v1/calibrations"
            raise InputError(detail, [Issue(code="unknown_calibration", pointer="", detail=detail)])
        document = shipped_calibrations()[document]
    gpus = {
        name: GpuCoefficients(**{**vars(found), "overlap": math.inf if found.overlap is None else found.overlap})
        for name, found in sorted(document.gpus.items())
    }
    sizes = None if document.sizes is None else SizeCoefficients(**vars(document.sizes))
    adjustment = None if document.adjustment is None else Adjustment(**vars(document.adjustment))
    return Calibration(gpus=gpus, sizes=sizes, measured_at_s=document.measured_at_s, adjustment=adjustment)


def calibration_to_document(calibration: Calibration) -> CalibrationDoc:
    """Give the document that `calibration_from_document` turns into equal coefficients."""
    values: dict[str, Any] = asdict(calibration)
    for found in values["gpus"].values():
        found["overlap"] = None if math.isinf(found["overlap"]) else found["overlap"]
    return CalibrationDoc.model_validate(values)

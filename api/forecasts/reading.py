"""Task of readers: requests for forecasters, from bytes to what is learned from."""

import pickle
from dataclasses import dataclass

from api.convert.forecast import trace_of
from api.convert.hashing import hash_of
from api.convert.located import located
from api.convert.reading import read_document
from api.reading.texts import RequestText, reading_task
from api.schemas.forecast import FORECASTER_BODY
from models.forecast.history import history_of
from stowplan.errors import InputError, Issue

READ_FORECASTER = f"{__name__}:read_forecaster"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadForecaster:
    """A sound request for a forecaster. `trace`: pickled, for the worker only."""

    name: str
    history: str
    num_jobs: int
    trace: bytes
    time_limit_s: float
    input_hash: str


@reading_task
def read_forecaster(text: RequestText) -> ReadForecaster:
    """Read and check a request for a forecaster.

    Raises
    ------
    MalformedJsonError
        When the text is not JSON.
    InputError
        When the request is wrong, or its history says too little to learn from.
    """
    body, settings = read_document(FORECASTER_BODY, text.body), text.settings
    limit_s = settings.training_time_limit_s if body.time_limit_s is None else body.time_limit_s
    if limit_s > settings.max_training_time_limit_s:
        detail = f"is {limit_s}; this service allows at most {settings.max_training_time_limit_s}"
        issue = Issue(code="out_of_range", pointer="/time_limit_s", detail=detail)
        raise InputError("the request has 1 error", [issue])
    with located("/history"):
        trace = trace_of(body.history)
        history = history_of(trace)
    return ReadForecaster(
        name=body.name,
        history=trace.name,
        num_jobs=len(history.jobs),
        trace=pickle.dumps(trace, pickle.HIGHEST_PROTOCOL),
        time_limit_s=limit_s,
        input_hash=hash_of(body.model_dump_json()),
    )

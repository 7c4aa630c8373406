"""Task of readers: requests for calibrations, from bytes to what is fitted."""

from dataclasses import dataclass

from api.convert.calibration import site_from_body
from api.convert.hashing import hash_of
from api.convert.reading import read_document
from api.reading.texts import RequestText, calibration_of, reading_task
from api.schemas.calibration import CALIBRATION_BODY
from models.parallelism.measured_site import MeasuredSite

READ_CALIBRATION = f"{__name__}:read_calibration"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCalibration:
    """A sound request for a calibration."""

    name: str
    site: MeasuredSite
    input_hash: str


@reading_task
def read_calibration(text: RequestText) -> ReadCalibration:
    """Read a request for a calibration.

    Raises
    ------
    MalformedJsonError
        When the text is not JSON.
    InputError
        When the request is wrong.
    """
    body = read_document(CALIBRATION_BODY, text.body)
    start = body.calibration
    if isinstance(start, str):
        start = calibration_of(start, text) or start
    return ReadCalibration(name=body.name, site=site_from_body(body, start), input_hash=hash_of(body.model_dump_json()))

"""Task of readers: requests for comparisons, from bytes to what runs and what is shown."""

from dataclasses import dataclass

from api.convert.comparison import result_document
from api.convert.comparison_request import comparison_request, plan_body
from api.convert.hashing import input_hash
from api.convert.reading import read_document
from api.reading.packed import PackedRequest
from api.reading.texts import RequestText, reading_task, snapshot_of
from api.schemas.comparison import COMPARISON_BODY, ComparisonResultDoc
from api.schemas.plan import UsedOptionsDoc
from api.store.texts import Body

READ_COMPARISON = f"{__name__}:read_comparison"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadComparison:
    """A sound request for a comparison; `document` as long as no solver has had its turn."""

    request: PackedRequest
    document: ComparisonResultDoc
    input_hash: str


@reading_task
def read_comparison(text: RequestText) -> ReadComparison:
    """Read and check a request for a comparison.

    Raises
    ------
    MalformedJsonError
        When the text is not JSON.
    InputError
        When the request is wrong.
    """
    body = read_document(COMPARISON_BODY, text.body)
    source = snapshot_of(body.snapshot, text)
    plan = plan_body(body)
    request = comparison_request(plan, body.solvers, source.snapshot, text.settings)
    options = UsedOptionsDoc.model_validate(request.options, from_attributes=True)
    hashed = options.model_copy(update={"solver": ",".join(body.solvers)})
    return ReadComparison(
        request=PackedRequest.of(request, Body.of(source.text)),
        document=result_document(request, body.solvers),
        input_hash=input_hash(body.policy, source.id, plan.parameters, hashed),
    )

"""What routers share: the services, headers, streams of events, documentation of bodies and errors."""

import json
import re
import time
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

from fastapi import Depends, Header, Path, Request
from pydantic import BaseModel, WithJsonSchema
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.responses import Response, StreamingResponse

from api import services as rooms
from api.common.errors import HeaderError
from api.common.events import EventLog
from api.http.running import services_of

SCHEMA_PATH = "#/components/schemas/"
PLAN_BODY_NAME = "PlanBody"
SNAPSHOT_BODY_NAME = "SnapshotBody"


class _IdConvertor(StringConvertor):
    """A segment of a path without a colon: `/{plan_id:id}:cancel` is no plan, and has methods of its own."""

    regex = "[^/:]+"


register_url_convertor("id", _IdConvertor())
PlanId = Annotated[str, Path(examples=["plan-0190f3a2"])]
ClusterName = Annotated[
    str, Path(min_length=1, max_length=256, pattern=r"^[^/\x00-\x1f\x7f-\x9f\u2028\u2029]+$", examples=["main"])
]
ETAG: dict[str, Any] = {"ETag": {"schema": {"type": "string"}, "description": "The version, in quotation marks."}}
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="The same key with the same body gives the same resource, however often it is sent; comparisons "
        "and replays that a stop of the service interrupted begin anew.",
        json_schema_extra={"minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
    ),
]


IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description="The ETag of the version that is changed. Without it: of a cluster whichever there is, while a "
        "calendar that is there is not written (428).",
        json_schema_extra={"pattern": '^"[0-9]{1,15}"$'},
    ),
]


async def arrival_s() -> float:
    """Give the time of a monotonic clock. Parameters are resolved in order: ask for it before the body."""
    return time.perf_counter()


def version_of(if_match: str | None) -> int | None:
    """The version that a client changes; HeaderError when `If-Match` is no ETag of ours."""
    found = None if if_match is None else re.fullmatch('"([0-9]{1,15})"', if_match)
    if if_match is not None and found is None:
        raise HeaderError(f'If-Match is {if_match!r}; must be an ETag of what is changed, such as "3"')
    return None if found is None else int(found[1])


async def _services(request: Request) -> rooms.Services:
    return services_of(request)


# Dependencies that are no coroutines would take a thread each.
Services = Annotated[rooms.Services, Depends(_services)]
Arrival = Annotated[float, Depends(arrival_s)]


async def preferred_wait_s(
    services: Services,
    prefer: Annotated[
        list[str] | None,
        # For the reader of the document it is one header, whose lines HTTP joins with commas.
        WithJsonSchema({"type": "string"}),
        Header(
            alias="Prefer", description="`wait=N`: answer with the plan if it is final within N seconds (RFC 7240)."
        ),
    ] = None,
) -> float | None:
    """Seconds to wait for, capped; None when the client does not ask to wait.

    Raises
    ------
    HeaderError
        When `wait` is no number of seconds.
    """
    for preference in re.split("[,;]", ",".join(prefer or ())):
        name, _, value = (part.strip() for part in preference.partition("="))
        if name.lower() == "wait":
            if not value.strip('"').isdecimal():
                raise HeaderError(f"Prefer: wait is {value!r}; must be a whole number of seconds")
            return min(float(value.strip('"')), services.settings.max_wait_s)
    return None


WaitS = Annotated[float | None, Depends(preferred_wait_s)]


def checked_key(key: str | None) -> str | None:
    """Give the key back.

    Raises
    ------
    HeaderError
        When it is empty, too long, or not printable.
    """
    if key is not None and not (0 < len(key) <= 255 and key.isascii() and key.isprintable()):
        raise HeaderError("Idempotency-Key must be 1 to 255 printable ASCII characters")
    return key


def json_response(document: BaseModel, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Give a document as it is: it has been validated when it was built."""
    return Response(document.model_dump_json(), status_code=status, media_type="application/json", headers=headers)


def documented_body(schema: str, examples: dict[str, Any]) -> dict[str, Any]:
    """OpenAPI of a body that `api.http.body` reads; `examples` by title."""
    named = {title: {"value": value} for title, value in examples.items()}
    content = {"schema": {"$ref": SCHEMA_PATH + schema}, "examples": named}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def documented_events(names: Sequence[str], data: Sequence[type[BaseModel]], final: str) -> dict[int | str, Any]:
    """OpenAPI of a stream of events; `final`: of whom, and that they are, as in `The plan is`."""
    # OpenAPI 3.1 describes each event of a stream, as its fields are named on the wire.
    event = {
        "type": "object",
        "required": ["id", "event", "data"],
        "properties": {
            "id": {"type": "string", "description": "For `Last-Event-ID`."},
            "event": {"enum": list(names)},
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": {"anyOf": [{"$ref": SCHEMA_PATH + kind.__name__} for kind in data]},
            },
        },
    }
    return {
        200: {"content": {"text/event-stream": {"schema": event}}, "description": "Events."},
        204: {"description": f"{final} final and nothing came after `Last-Event-ID`: do not connect again."},
    }


def event_response(log: EventLog, last_id: int, heartbeat_s: float) -> Response:
    """Stream what came after an event; 204 when nothing did, and nothing will."""
    if log.closed and not log.after(last_id):
        return Response(status_code=204)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_event_stream(log, last_id, heartbeat_s), media_type="text/event-stream", headers=headers)


async def _event_stream(log: EventLog, last_id: int, heartbeat_s: float) -> AsyncIterator[bytes]:
    yield b"retry: 2000\n\n"
    while True:
        # Closed is read first: what is published before the log closes is then never missed.
        closed = log.closed
        events = log.after(last_id)
        for event in events:
            last_id = event.id
            yield f"id: {event.id}\nevent: {event.name}\ndata: {json.dumps(dict(event.data))}\n\n".encode()
        if closed:
            return
        if not events:
            yield b": still here\n\n"
        await log.wait(last_id, heartbeat_s)

"""OpenTelemetry traces of requests and plans: in memory, and as a collector gets them."""

import builtins
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import api.plans.run
from api.app import create_app, load_tracing
from api.common.settings import Settings
from api.http.tracing import Tracing
from api.server import serve
from solver.pool import WorkerPool
from stowplan.errors import ExtraMissingError, InputError
from tests.api import tasks
from tests.api.asking import planned, post, waited
from tests.api.conftest import SETTINGS
from tests.api.requests import sia_request
from tests.api.serving import serving
from tests.waiting import eventually

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN_ID = "00f067aa0ba902b7"
WHAT_IF = "POST /v1/plans/{plan_id:id}:what-if"


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture(scope="module")
def traced(exporter: InMemorySpanExporter, pool: WorkerPool) -> Iterator[httpx.Client]:
    """A service that is traced in memory."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        patched.setattr(Tracing, "to", lambda _: Tracing(exporter))
        app = create_app(SETTINGS.model_copy(update={"otlp_endpoint": "http://here"}), pool=pool)
    with serving(app) as client:
        yield client


def spans_of(exporter: InMemorySpanExporter, trace_id: str, last: str = "POST /v1/plans") -> dict[str, ReadableSpan]:
    """The spans of a trace by name, once the one that ends last is there."""

    def look() -> dict[str, ReadableSpan]:
        spans = exporter.get_finished_spans()
        return {span.name: span for span in spans if f"{span.context.trace_id:032x}" == trace_id}

    return eventually(look, lambda found: last in found and "plan" in found)


def asked(client: httpx.Client, trace_id: str, **headers: str) -> httpx.Response:
    return post(client, "/v1/plans", sia_request(), traceparent=f"00-{trace_id}-{SPAN_ID}-01", **headers)


def test_a_plan_is_traced_below_its_request(traced: httpx.Client, exporter: InMemorySpanExporter) -> None:
    answer = asked(traced, TRACE_ID, X_Request_Id="r-17", Prefer="wait=50")
    plan = waited(traced, answer).json()
    spans = spans_of(exporter, TRACE_ID)
    request, whole = spans["POST /v1/plans"], spans["plan"]
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == SPAN_ID
    assert whole.parent == request.context
    assert {span.attributes["stowplan.request_id"] for span in (request, whole) if span.attributes} == {"r-17"}
    assert whole.attributes is not None
    assert whole.attributes["stowplan.plan_id"] == plan["id"]
    assert (whole.attributes["stowplan.policy"], whole.attributes["stowplan.status"]) == ("sia", "succeeded")
    phases = [f"plan {name}" for name in ("queued", *plan["timings"]["phases_ms"])]
    assert {"plan validate", "plan build", "plan solve", "plan verify"} < set(phases)
    assert set(spans) == {"POST /v1/plans", "plan", *phases}
    assert whole.start_time is not None
    ended_ns = whole.start_time
    for name in phases:
        part = spans[name]
        assert part.parent == whole.context
        assert part.start_time is not None
        assert part.end_time is not None
        # One after another.
        assert part.start_time >= ended_ns - 1000
        ended_ns = part.end_time
        if name != "plan queued":
            assert (ended_ns - part.start_time) / 1e6 == pytest.approx(
                plan["timings"]["phases_ms"][name.removeprefix("plan ")], abs=2e-3
            )
    assert whole.end_time is not None
    assert ended_ns <= whole.end_time + 1000


def test_a_plan_that_fails_is_an_error_and_its_variants_belong_to_who_asked_for_them(
    traced: httpx.Client, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(traced, sia_request())
    trace_id = TRACE_ID[::-1]
    monkeypatch.setattr(api.plans.run, "PLAN_TASK", f"{tasks.__name__}:{tasks.broken_task.__name__}")
    path = f"{plan['links']['self']}:what-if"
    variants = {"variants": [{"name": "drained", "drain": ["n0"]}]}
    post(traced, path, variants, traceparent=f"00-{trace_id}-{SPAN_ID}-01", Prefer="wait=50")
    spans = spans_of(exporter, trace_id, WHAT_IF)
    assert spans["plan"].parent == spans[WHAT_IF].context
    assert spans["plan"].status.status_code is StatusCode.ERROR
    # Nothing is known of its phases.
    assert {name for name in spans if name.startswith("plan ")} == {"plan queued"}


def test_health_and_bodies_are_not_traced(traced: httpx.Client, exporter: InMemorySpanExporter) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/v1/jobs/j/metrics"):
        traced.get(path)
    answer = asked(traced, "1" * 32, Authorization="Bearer secret-token")
    spans_of(exporter, "1" * 32)
    waited(traced, answer)
    seen = exporter.get_finished_spans()
    assert any(span.name.startswith("GET /v1/jobs/") for span in seen)
    assert not any(span.name.endswith((" /healthz", " /readyz")) or span.name == "GET /metrics" for span in seen)
    assert "secret-token" not in str([dict(span.attributes or {}) for span in seen])


class Collector(ThreadingHTTPServer):
    """Takes traces by OTLP over HTTP."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[tuple[str, ExportTraceServiceRequest]] = []

    def spans(self) -> Mapping[str, Any]:
        """Spans by name."""
        resources = [resource for _, request in self.got for resource in request.resource_spans]
        return {span.name: span for each in resources for scope in each.scope_spans for span in scope.spans}


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, ExportTraceServiceRequest.FromString(body)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def collecting() -> Iterator[Collector]:
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield collector
        finally:
            collector.shutdown()
            thread.join()


def test_a_collector_gets_them_before_the_service_has_ended(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=ours,deployment.environment.name=test")
    with collecting() as collector:
        url = f"http://127.0.0.1:{collector.server_port}/"
        with serving(create_app(SETTINGS.model_copy(update={"otlp_endpoint": url}), pool=pool)) as client:
            waited(client, asked(client, TRACE_ID, Prefer="wait=50"))
        assert {path for path, _ in collector.got} == {"/v1/traces"}
        request, plan = (collector.spans()[name] for name in ("POST /v1/plans", "plan"))
        attributes = collector.got[0][1].resource_spans[0].resource.attributes
    assert plan.trace_id.hex() == request.trace_id.hex() == TRACE_ID
    assert plan.parent_span_id == request.span_id
    said = {each.key: each.value.string_value for each in attributes}
    assert (said["service.name"], said["deployment.environment.name"]) == ("ours", "test")


def test_plans_do_not_wait_for_a_collector_that_is_not_there(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.http.tracing._EXPORT_LIMIT_S", 0.2)
    settings = SETTINGS.model_copy(update={"otlp_endpoint": "http://127.0.0.1:1"})
    with serving(create_app(settings, pool=pool)) as client:
        assert planned(client, sia_request())["status"] == "succeeded"


def test_who_cannot_have_them_is_told_first_and_who_wants_none_loads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("localhost:4318", "grpc://collector:4317", "http://"):
        with pytest.raises(InputError, match=r"otlp_endpoint is .*; must be the URL of a collector, as in http://"):
            Settings(otlp_endpoint=wrong)
    monkeypatch.delitem(__import__("sys").modules, "api.http.tracing")
    load = builtins.__import__

    def without(name: str, *arguments: Any) -> Any:
        if name.startswith("opentelemetry.instrumentation"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return load(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    said = r"traces need opentelemetry\.instrumentation\.fastapi; install the extra: pip install -e '\.\[otel\]'"
    with pytest.raises(ExtraMissingError, match=said):
        load_tracing()
    with pytest.raises(ExtraMissingError, match=said):
        serve(SETTINGS.model_copy(update={"otlp_endpoint": "http://127.0.0.1:4318", "port": 0}))
    create_app(SETTINGS)

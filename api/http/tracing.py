"""OpenTelemetry traces: of requests by its instrumentation of FastAPI, and of the plans that they ask for.

The only place that needs the extra `otel`; it is loaded where traces are wanted.
"""

from dataclasses import dataclass

from fastapi import FastAPI
from opentelemetry.context import Context, get_current
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode, get_current_span, set_span_in_context
from starlette.types import ASGIApp, Receive, Scope, Send

from api.common.asking import request_id_now
from api.plans.traces import spans_of
from api.schemas.plan import PlanStatus
from api.store.records import PlanRecord
from stowplan import __version__

_PATH = "/v1/traces"
# What is asked every few seconds, and tells nobody anything.
_UNTRACED = "^https?://[^/]+/(healthz|readyz|metrics)$"
_REQUEST_ID, _PLAN_ID = "stowplan.request_id", "stowplan.plan_id"
# A collector that does not answer must not hold up the end of the service.
_EXPORT_LIMIT_S = 5.0
_NS_PER_S = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """Where in which trace a plan was asked for, by which request."""

    context: Context
    request_id: str | None


class Tracing:
    """Traces of one application, which go to an exporter from a thread of their own."""

    def __init__(self, exporter: SpanExporter) -> None:
        ours = Resource({"service.name": "stowplan", "service.version": __version__})
        # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say more, or better.
        self._provider = TracerProvider(resource=ours.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("stowplan", __version__)

    @classmethod
    def to(cls, endpoint: str) -> "Tracing":
        """Send by OTLP over HTTP to a collector."""
        return cls(OTLPSpanExporter(endpoint=endpoint.rstrip("/") + _PATH, timeout=_EXPORT_LIMIT_S))

    def install(self, app: FastAPI) -> None:
        """Have all requests of an application traced, before it has answered the first."""
        app.add_middleware(_NamedRequests)
        FastAPIInstrumentor.instrument_app(
            app,
            tracer_provider=self._provider,
            # Metrics are Prometheus' here.
            meter_provider=NoOpMeterProvider(),
            excluded_urls=_UNTRACED,
            exclude_spans=["receive", "send"],
        )

    def here(self) -> object:
        """The span of the request that leads here."""
        return _Asked(context=get_current(), request_id=request_id_now())

    def ended(self, asked: object, record: PlanRecord) -> None:
        """Make spans of a plan below that of its request; one without has a trace of its own."""
        place = asked if isinstance(asked, _Asked) else _Asked(context=Context(), request_id=None)
        known = {_PLAN_ID: record.id, "stowplan.policy": record.policy, "stowplan.status": record.status.value}
        if place.request_id is not None:
            known[_REQUEST_ID] = place.request_id
        parts = spans_of(record)
        whole = self._tracer.start_span(
            "plan", place.context, SpanKind.INTERNAL, known, start_time=_ns(record.queued_at_s)
        )
        if record.status is PlanStatus.FAILED:
            whole.set_status(Status(StatusCode.ERROR))
        below = set_span_in_context(whole, place.context)
        for part in parts:
            span = self._tracer.start_span(f"plan {part.name}", below, start_time=_ns(part.from_s))
            span.end(_ns(part.until_s))
        whole.end(_ns(record.finished_at_s or parts[-1].until_s))

    def close(self) -> None:
        """Send what has not been sent, within some seconds."""
        self._provider.shutdown()


class _NamedRequests:
    """Gives the span of a request the id of the request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        id_ = request_id_now()
        if id_ is not None:
            get_current_span().set_attribute(_REQUEST_ID, id_)
        await self._app(scope, receive, send)


def _ns(seconds: float) -> int:
    return round(seconds * _NS_PER_S)

"""Prometheus metrics of the service."""

import time
from collections.abc import Iterable
from dataclasses import fields
from http import HTTPMethod

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from executor.lifecycle import Run
from executor.stall import Stall
from solver.pool import WorkerPool

_METHODS = frozenset(HTTPMethod)
_BUCKETS_S = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1800, 3600)


class Metrics:
    """One registry per application, so that several can live in one process."""

    def __init__(self, pool: WorkerPool) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "stowplan_http_requests", "Requests", ["method", "route", "status"], registry=self._registry
        )
        self.request_seconds = Histogram(
            "stowplan_http_request_seconds", "Time to the end of the answer", ["route"], registry=self._registry
        )
        self.plans = Counter("stowplan_plans", "Plans that became final", ["policy", "status"], registry=self._registry)
        self.solve_seconds = Histogram(
            "stowplan_solve_seconds",
            "Time in the solver",
            ["policy", "solver"],
            buckets=_BUCKETS_S,
            registry=self._registry,
        )
        self._changes = Counter(
            "stowplan_deployment_changes",
            "Runs that began to train",
            ["change"],
            registry=self._registry,
        )
        self._stall_seconds = Counter(
            "stowplan_deployment_stall_seconds",
            "Time without training before the first step of a run",
            ["change", "part"],
            registry=self._registry,
        )
        self._registry.register(_PoolCollector(pool))

    def note_run(self, run: Run) -> None:
        """Count a run whose cost has become known, and its stall by part: `other` where no parts are told."""
        change = run.change or ""
        stall = run.stall or Stall(other_s=run.cost_s or 0.0)
        self._changes.labels(change).inc()
        for field in fields(stall):
            self._stall_seconds.labels(change, field.name.removesuffix("_s")).inc(getattr(stall, field.name))

    def text(self) -> bytes:
        """Text exposition of all metrics."""
        return generate_latest(self._registry)


class _PoolCollector(Collector):
    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool

    def collect(self) -> Iterable[Metric]:
        pool = self._pool
        yield GaugeMetricFamily("stowplan_queue_length", "Tasks that wait for a worker", pool.queue_length)
        yield GaugeMetricFamily("stowplan_busy_workers", "Workers that run a task", pool.num_busy)
        yield CounterMetricFamily("stowplan_worker_restarts", "Workers that were replaced", pool.num_restarts)


class MetricsMiddleware:
    """Counts requests by the template of their route and by known methods: what clients make up would grow without end.

    The metrics are those of `scope["app"].state.services`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500
        start_s = time.perf_counter()

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        finally:
            route = getattr(scope.get("route"), "path_format", "unknown")
            metrics: Metrics = scope["app"].state.services.metrics
            method = scope["method"] if scope["method"] in _METHODS else "other"
            metrics.requests.labels(method, route, status).inc()
            metrics.request_seconds.labels(route).observe(time.perf_counter() - start_s)

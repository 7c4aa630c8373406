"""The services of one application, put together: each knows its own room, and only here do they meet."""

import time
from collections.abc import Collection, Mapping, Sequence

from api.calendars.drawings import CalendarDrawings
from api.calendars.planned_nodes import PlannedNodes, planned_nodes
from api.calendars.reservations import Reservations
from api.calendars.service import Calendars
from api.calibrations.service import Calibrations
from api.clusters.service import Clusters
from api.common.metrics import Metrics
from api.common.settings import Settings
from api.comparisons.drawings import ComparisonDrawings
from api.comparisons.service import Comparisons
from api.deployments.choice import PlannedJob
from api.deployments.planned_jobs import planned_job
from api.deployments.service import Deployments
from api.deployments.sharing import DeploymentSharing
from api.forecasts.service import Forecasters
from api.jobs.calibrated_snapshots import MeasuredJobs
from api.jobs.feedback import JobFeedback
from api.jobs.service import Jobs
from api.parallel.service import ParallelPlans
from api.plans.drawings import PlanDrawings
from api.plans.exports import export_job, export_whole
from api.plans.service import Plans
from api.plans.traces import PlanTraces
from api.plans.what_if import WhatIfs
from api.reading.readers import Readers
from api.reading.requests import RequestReader
from api.replays.drawings import ReplayDrawings
from api.replays.service import Replays
from api.schemas.export import ExportDoc, PlanExportDoc
from api.store.audit import AuditLog
from api.store.calendars import CalendarStore
from api.store.calibrations import CalibrationStore
from api.store.clusters import ClusterStore
from api.store.database import Store
from api.store.purge import Purging, Retention
from api.store.rates import SharedRates
from api.store.snapshots import Snapshots
from api.tokens.service import Tokens
from solver.pool import WorkerPool


class Services:
    """What routers ask: one attribute for each room, and what concerns all of them."""

    def __init__(
        self, settings: Settings, store: Store, pool: WorkerPool, readers: Readers, traces: PlanTraces | None = None
    ) -> None:
        self.settings = settings
        self.metrics = Metrics(pool)
        self.tokens = Tokens(store, settings.token)
        self.audit = AuditLog(store)
        self.rates = _shared_rates(settings, store)
        self.snapshots = Snapshots(store)
        self.jobs = Jobs(store)
        feedback = JobFeedback(self.jobs, store.identity)
        shared = DeploymentSharing(store, settings.deployments_folder) if store.is_shared else None
        self.deployments = Deployments(settings, self._planned_job, feedback, self.metrics.note_run, shared)
        measured = MeasuredJobs(self.jobs, self.deployments.restart_cost_s)
        self.readers = readers
        self.forecasters = Forecasters(settings, store, pool)
        self.reader = RequestReader(
            readers,
            self.snapshots,
            ClusterStore(store),
            CalendarStore(store),
            CalibrationStore(store),
            measured,
            self.forecasters.of_snapshot,
            settings,
        )
        self.comparisons = Comparisons(settings, store, pool.engine)
        self.replays = Replays(settings, store, pool.engine)
        self.plans = Plans(settings, store, pool, self.reader, self.metrics, traces, self._look)
        self.plan_drawings = PlanDrawings(pool, self.plans)
        self.what_ifs = WhatIfs(settings, self.plans, readers, pool)
        self.calibrations = Calibrations(settings, store, pool)
        self.parallel = ParallelPlans(settings, pool, self.calibrations.find)
        self.comparison_drawings = ComparisonDrawings(self.comparisons, pool)
        self.replay_drawings = ReplayDrawings(self.replays, pool)
        self.clusters = Clusters(store)
        self.calendars = Calendars(store, self.snapshots, self.clusters)
        self.calendar_drawings = CalendarDrawings(self.calendars, pool)
        self.reservations = Reservations(store, self._planned_nodes)
        self._store = store
        self._pool = pool
        self._purging = Purging(store, Retention.of(settings), self.deployments.purge)
        self._purging.start()

    def not_ready(self) -> str | None:
        """Say why no plan can be made now; None when it can."""
        if self.plans.stopping:
            return "shutting down"
        self._store.ping()
        return None if self._pool.num_ready else self._pool.trouble or "no worker is ready yet"

    def unhealthy(self) -> str | None:
        """Say what needs somebody's hand, or a restart; None when nothing is wrong."""
        return self._store.trouble or self._pool.trouble

    def begin_shutdown(self) -> None:
        """Take nothing new and ask what runs to come back with what it has."""
        self.plans.begin_shutdown()
        self.comparisons.begin_shutdown()
        self.replays.begin_shutdown()
        self.forecasters.begin_shutdown()

    def close(self, close_pool: bool) -> None:
        """Stop, and the pool too if it is ours; what does not come back in time is left to the next process."""
        self.begin_shutdown()
        self._purging.close()
        end_s = time.monotonic() + self.settings.shutdown_s
        self.plans.drain(end_s)
        self.comparisons.close(end_s)
        self.replays.close(end_s)
        self.forecasters.close(end_s)
        self.deployments.close()
        if close_pool:
            self._pool.close()
        # What is being read for a plan that is taken up is read again by the next process.
        self.readers.close()
        # After the pool: the plans that its end stops are still written.
        self.plans.close()

    def export(self, plan_id: str, job_id: str, formats: Sequence[str], options: Sequence[str]) -> ExportDoc:
        """Write a job of a plan as other launchers and frameworks read it; raises what `export_job` does."""
        return export_job(self.plans, self.snapshots, plan_id, job_id, formats, options)

    def export_plan(self, plan_id: str, format_: str, options: Mapping[str, str]) -> PlanExportDoc:
        """Write a plan as a scheduler takes it over; raises what `export_whole` does."""
        return export_whole(self.plans, self.snapshots, plan_id, format_, options)

    def _look(self, wanted: Collection[str]) -> None:
        for room in (self.comparisons, self.replays, self.forecasters, self.deployments):
            room.look(wanted)

    def _planned_job(self, plan_id: str, job_id: str) -> PlannedJob:
        return planned_job(self.plans.plan(plan_id), self.plans.input_text(plan_id), job_id, self.snapshots)

    def _planned_nodes(self, plan_id: str, job_id: str | None) -> PlannedNodes:
        plan = self.plans.plan(plan_id)
        taken_at = self.plans.taken_at(plan_id) if plan.ahead else None
        return planned_nodes(plan, job_id, taken_at or plan.times.queued)


def _shared_rates(settings: Settings, store: Store) -> SharedRates | None:
    """How often clients ask; None where this service alone knows that, or nobody wants to."""
    if not (store.is_shared and settings.client_requests_per_s):
        return None
    return SharedRates(store, settings.client_requests_per_s, settings.client_burst)

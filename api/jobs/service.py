"""Measurements of running jobs, and what they say about the jobs' performance, without HTTP."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import numpy as np

from api.common.errors import NotFoundError
from api.common.times import time_of
from api.convert.job_model import calibration_to_document
from api.convert.located import located
from api.convert.performance import performance_to_document
from api.jobs.checks import Run, record_issues, run_from_document, step_issues
from api.schemas.metrics import (
    JobPerformanceDoc,
    MeasuredRunDoc,
    MetricsBody,
    MetricsReceiptDoc,
    RunPerformanceDoc,
    StepPageDoc,
    StepPageQuery,
    StepSummaryDoc,
)
from api.schemas.performance import GoodputDoc
from api.store.database import Store
from api.store.measurements import JobStore, StoredRun
from executor.training_options import Device
from models.performance.goodput.observed_goodput import goodput_observations
from models.performance.goodput.spec import GoodputObservations
from models.performance.iteration.calibration import JobCalibration, RunReport, calibrate
from models.performance.iteration.step_table import MeasuredRun, StepTable
from models.transformer import Transformer
from stowplan.errors import InputError, Issue, raise_for_errors

JOBS_PATH = "/v1/jobs"
# Launches that are looked at, and records of each: enough for medians, and quick to read.
MAX_RUNS = 16
_MAX_RECORDS, _MIN_STEPS, _MAX_STEPS = 50_000, 20, 500
# Column of the database -> field of a table of steps, where the names differ.
_COLUMNS = {"small_square": "small_gradient_square", "large_square": "large_gradient_square"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPerformance:
    """What the newest launches of a job say, newest first; `job` is what the newest of them trains."""

    runs: tuple[StoredRun, ...]
    devices: tuple[Device, ...]
    job: Transformer
    calibrated: JobCalibration
    observations: GoodputObservations | None


class Jobs:
    """Measured jobs of a service."""

    def __init__(self, store: Store) -> None:
        self._store = JobStore(store)
        self._known = self._store.job_ids()
        self._lock = threading.Lock()
        # Job -> number of posts that have brought news, and the performance as it was after one of them.
        self._news: dict[str, int] = {}
        self._performances: dict[str, tuple[int, JobPerformance]] = {}

    def post(self, job_id: str, body: MetricsBody) -> MetricsReceiptDoc:
        """Keep measurements, all or nothing.

        Raises
        ------
        InputError
            When anything in the body is wrong.
        """
        runs: dict[int, Run] = {}
        new: tuple[int, str] | None = None
        if body.run is not None:
            runs[body.run.launch] = self._announced(job_id, body.run)
            new = (body.run.launch, body.run.model_dump_json())
        launches = {record.launch for record in body.records} | {step.launch for step in body.steps}
        for launch in launches - runs.keys():
            known = self._store.run(job_id, launch)
            if known is not None:
                runs[launch] = _parsed(known.document)
        now_s = time.time()
        issues = [*record_issues(body.records, runs, now_s), *step_issues(body.steps, runs, now_s)]
        raise_for_errors(issues, "request")
        accepted = self._store.add(job_id, new, body.records, body.steps)
        with self._lock:
            self._known.add(job_id)
            self._news[job_id] = self._news.get(job_id, 0) + (accepted > 0)
        return MetricsReceiptDoc(accepted=accepted, duplicates=len(body.records) + len(body.steps) - accepted)

    def steps(self, job_id: str, query: StepPageQuery) -> StepPageDoc:
        """List steps of a job; NotFoundError when nothing was measured of it."""
        launch, step = (None, None) if query.before is None else map(int, query.before.split("."))
        # One more than asked for tells whether there is a next page.
        wanted = query.limit + 1
        found: list[StepSummaryDoc] = []
        for run in self._runs(job_id):
            if len(found) < wanted and (launch is None or run.launch <= launch):
                own = _parsed(run.document).own_program
                rows = (self._store.whole_summaries if own else self._store.summaries)(
                    run.id, wanted - len(found), step if run.launch == launch else None
                )
                found += [_summary(run.launch, row) for row in rows]
        page, more = tuple(found[: query.limit]), None
        if len(found) > query.limit:
            more = f"{job_path(job_id)}/metrics?limit={query.limit}&before={page[-1].launch}.{page[-1].step}"
        return StepPageDoc(steps=page, next=more)

    def performance(self, job_id: str) -> JobPerformanceDoc:
        """What the measurements of a job say; NotFoundError when there are none."""
        runs, found = self._runs(job_id), self.measured(job_id)
        reports = found.calibrated.runs
        used = [report for report in reports if report.used]
        calibration, observations = found.calibrated.calibration, found.observations
        document = None if observations is None else performance_to_document(observations)
        return JobPerformanceDoc(
            job_id=job_id,
            calibration=None if calibration is None else calibration_to_document(calibration),
            measured_since=time_of(min(run.since_s or 0.0 for run in runs)),
            measured_until=time_of(max(run.until_s or 0.0 for run in runs)),
            num_records=sum(run.num_records for run in runs),
            num_steps=sum(report.num_steps for report in used),
            white_box_error=_error(used, "white_box_s"),
            calibrated_error=_error(used, "calibrated_s"),
            runs=tuple(map(_run_document, reports, found.runs, found.devices)),
            performance=document if isinstance(document, GoodputDoc) else None,
        )

    def ids(self) -> frozenset[str]:
        """Ids of the jobs of which anything was measured; quick."""
        with self._lock:
            return frozenset(self._known)

    def measured(self, job_id: str) -> JobPerformance:
        """What the measurements of a job say, computed anew when there are new ones.

        Raises
        ------
        NotFoundError
            When there are none.
        """
        with self._lock:
            news = self._news.get(job_id, 0)
            known = self._performances.get(job_id)
        if known is not None and known[0] == news:
            return known[1]
        found = self._computed(job_id)
        with self._lock:
            self._performances[job_id] = (news, found)
        return found

    def _announced(self, job_id: str, document: MeasuredRunDoc) -> Run:
        """What a body says that a launch runs; it cannot change once the launch is known."""
        with located("/run"):
            run = run_from_document(document)
        known = self._store.run(job_id, run.launch)
        if known is not None and _parsed(known.document) != run:
            detail = (
                f"launch {run.launch} is known with another model, plan or cluster; every launch has its own number"
            )
            raise InputError(detail, [Issue(code="other_run", pointer="/run", detail=detail)])
        return run

    def _runs(self, job_id: str) -> list[StoredRun]:
        runs = self._store.runs(job_id)
        if not runs:
            raise NotFoundError(f"nothing was measured of job {job_id!r}; post to {job_path(job_id)}/metrics")
        return runs

    def _computed(self, job_id: str) -> JobPerformance:
        stored = self._runs(job_id)[:MAX_RUNS]
        parsed = [_parsed(run.document) for run in stored]
        measured = [self._measured_run(run, what) for run, what in zip(stored, parsed, strict=True)]
        return JobPerformance(
            runs=tuple(stored),
            devices=tuple(run.device for run in parsed),
            job=parsed[0].job,
            calibrated=calibrate(measured),
            observations=goodput_observations(measured),
        )

    def _measured_run(self, stored: StoredRun, run: Run) -> MeasuredRun:
        if run.own_program:
            told = self._store.newest_whole_steps(stored.id, _MAX_STEPS)
            table = StepTable.of_whole_steps(*map(np.array, zip(*told, strict=True)))
        else:
            table = self._records(stored, run)
        return MeasuredRun(
            launch=run.launch,
            job=run.job,
            plan=run.plan,
            cluster=run.cluster,
            records=table,
            first_step=stored.first_step or 0,
            tensor_memory=run.device is Device.CUDA,
            whole_steps=run.own_program,
        )

    def _records(self, stored: StoredRun, run: Run) -> StepTable:
        """The newest records of a launch."""
        num_steps = min(max(_MAX_RECORDS // len(run.places), _MIN_STEPS), _MAX_STEPS)
        names = [field.name for field in fields(StepTable)]
        rows = self._store.newest_steps(stored.id, num_steps, [_COLUMNS.get(name, name) for name in names])
        columns = dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))
        return StepTable(**columns)


def job_path(job_id: str) -> str:
    """Path of a job."""
    return f"{JOBS_PATH}/{quote(job_id, safe='')}"


# Every post of a launch is checked against its plan, which may be large.
@lru_cache(maxsize=64)
def _parsed(text: str) -> Run:
    return run_from_document(MeasuredRunDoc.model_validate_json(text))


def _summary(launch: int, row: Mapping[str, Any]) -> StepSummaryDoc:
    known: dict[str, Any] = {
        name: row.get(name) for name in StepSummaryDoc.model_fields if name not in ("launch", "started_at")
    }
    return StepSummaryDoc(launch=launch, started_at=time_of(row["started_at_s"]), **known)


def _run_document(report: RunReport, run: StoredRun, device: Device) -> RunPerformanceDoc:
    return RunPerformanceDoc(
        launch=report.launch,
        started_at=time_of(run.since_s or 0.0),
        notation=report.plan.notation(),
        device=device,
        num_steps=report.num_steps,
        measured_s=report.measured_s,
        white_box_s=report.white_box_s,
        calibrated_s=report.calibrated_s,
        used=report.used,
        detail=report.detail,
    )


def _error(reports: list[RunReport], predicted: str) -> float | None:
    """Median relative error of a prediction."""
    errors = [abs(getattr(report, predicted) / report.measured_s - 1.0) for report in reports if report.measured_s]
    return float(np.median(errors)) if errors else None

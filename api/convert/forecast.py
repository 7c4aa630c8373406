"""Documents of histories and of jobs that are asked about, to the types of forecasts, and back."""

from collections.abc import Sequence
from dataclasses import replace

from api.convert.located import located
from api.schemas.forecast import AskedJobDoc, ForecastBody, ForecastDoc, HistoryDoc, LastingDoc
from models.forecast.forecaster import Forecaster, Question
from models.forecast.lasting import Lasting
from stowplan.errors import InputError, Issue, pointer_of, raise_for_errors
from workloads.trace import Trace, TraceJob


def trace_of(document: HistoryDoc) -> Trace:
    """The history; InputError with pointers relative to its document."""
    issues: list[Issue] = []
    jobs: list[TraceJob] = []
    for k, job in enumerate(document.jobs):
        try:
            jobs.append(TraceJob(**vars(job)))
        except InputError as error:
            issues += [replace(issue, pointer=pointer_of("jobs", k) + issue.pointer) for issue in error.issues]
    raise_for_errors(issues, "history")
    return Trace(name=document.name, jobs=tuple(jobs), origin_s=document.origin_s)


def forecasts(forecaster: Forecaster, asked: ForecastBody) -> tuple[ForecastDoc, ...]:
    """Say how long jobs last; InputError with pointers relative to the document."""
    shift_s = 0.0
    if asked.origin_s is not None:
        if forecaster.origin_s is None:
            detail = "is given; the forecaster's history does not say when its time zero was: leave it out"
            raise InputError(detail, [Issue(code="other_clock", pointer="/origin_s", detail=detail)])
        shift_s = asked.origin_s - forecaster.origin_s
    with located("/since"):
        since = None if asked.since is None else trace_of(asked.since)
    repeated = {job.id for job in asked.jobs}
    if len(repeated) < len(asked.jobs):
        raise_for_errors(list(_repeated(asked.jobs)), "request")
    questions = [_question(job, forecaster, shift_s) for job in asked.jobs]
    found = forecaster.forecast(questions, since)
    return tuple(
        ForecastDoc(id=job.id, lasting=_document(lasting)) for job, lasting in zip(asked.jobs, found, strict=True)
    )


def _question(asked: AskedJobDoc, forecaster: Forecaster, shift_s: float) -> Question:
    known = asked.model_dump(exclude={"submit_s", "age_s"})
    now_s = forecaster.trained_until_s
    submit_s = max(0.0, now_s - asked.age_s if asked.submit_s is None else asked.submit_s + shift_s)
    return Question(job=TraceJob(submit_s=submit_s, **known), age_s=asked.age_s)


def _repeated(jobs: Sequence[AskedJobDoc]) -> list[Issue]:
    seen: dict[str, int] = {}
    issues = []
    for k, job in enumerate(jobs):
        first = seen.setdefault(job.id, k)
        if first != k:
            detail = f"{job.id!r} is that of /jobs/{first}; give each job an id of its own"
            issues.append(Issue(code="listed_twice", pointer=pointer_of("jobs", k, "id"), detail=detail))
    return issues


def _document(lasting: Lasting | None) -> LastingDoc | None:
    return None if lasting is None else LastingDoc(probabilities=lasting.probabilities, seconds=lasting.seconds)

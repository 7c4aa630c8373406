"""Snapshots with what a forecaster said of their jobs."""

from datetime import UTC, datetime

import pytest

from api.convert.snapshot import snapshot_from_document
from api.jobs.forecast_snapshots import ForecastSnapshot, with_forecasts
from api.schemas.snapshot import SNAPSHOT
from models.forecast.known import JobForecast, SnapshotForecasts
from models.forecast.lasting import Lasting
from stowplan.errors import InputError
from tests.api.requests import changed, json_text, sia_request
from tests.growth import work

QUANTILES = Lasting(probabilities=(0.5, 0.9), seconds=(60.0, 120.0))
AT_S = 1_728_018_000.0


def filled(
    forecasts: dict[str, JobForecast], num_jobs: int = 2, trained_until_s: float | None = AT_S - 60, **fields: object
) -> ForecastSnapshot:
    jobs = [{"id": f"j{k}"} for k in range(num_jobs)]
    document = SNAPSHOT.validate_json(json_text({**sia_request(jobs)["snapshot"], **fields}))
    said = SnapshotForecasts(history="march", trained_until_s=trained_until_s, at_s=AT_S, jobs=forecasts)
    return with_forecasts(document, snapshot_from_document(document), said, "site")


def test_the_document_says_what_is_planned() -> None:
    found = filled({"j1": JobForecast(lasting=QUANTILES)})
    assert [job.lasting for job in found.snapshot.jobs] == [None, QUANTILES]
    again = SNAPSHOT.validate_json(found.document.model_dump_json())
    assert snapshot_from_document(again) == found.snapshot
    assert again.taken_at == datetime.fromtimestamp(AT_S, UTC)
    (note,) = found.notes
    assert (note.code, note.pointer, note.severity) == ("forecast", "/snapshot/jobs/1/lasting", "warning")
    assert "'site', which was trained on 'march' until 2024-10-04T04:59:00+00:00, for 1 job ('j1')" in note.detail


@pytest.mark.parametrize(
    ("trained_until_s", "words"),
    [
        (None, "trained on 'march', for 1 job"),
        (AT_S - 86_400.0, "until 2024-10-03T05:00:00+00:00, 1 day before the snapshot, for"),
        (AT_S - 30 * 86_400.0, "30 days before the snapshot"),
        (AT_S + 2 * 86_400.0, "2 days after the snapshot"),
    ],
)
def test_how_old_the_forecaster_is_stands_in_the_note(trained_until_s: float | None, words: str) -> None:
    (note,) = filled({"j1": JobForecast(lasting=QUANTILES)}, trained_until_s=trained_until_s).notes
    assert words in note.detail


def test_its_own_moment_stays() -> None:
    found = filled({"j1": JobForecast(lasting=QUANTILES)}, taken_at="2024-10-04T06:00:00Z")
    assert found.document.taken_at == datetime(2024, 10, 4, 6, tzinfo=UTC)


def test_jobs_without_a_forecast_are_named_by_reason() -> None:
    lacking = {
        **{f"j{k}": JobForecast(lasting=None, lacks="user") for k in range(120)},
        "j120": JobForecast(lasting=None, lacks="running_s"),
        "j121": JobForecast(lasting=None),
    }
    found = filled(lacking, 122)
    assert [(note.code, note.pointer) for note in found.notes] == [
        ("not_forecast", "/snapshot/jobs/0/user"),
        ("not_forecast", "/snapshot/jobs/120/running_s"),
        ("not_forecast", "/snapshot/jobs/121/lasting"),
    ]
    assert "120 jobs ('j0', 'j1'," in found.notes[0].detail
    assert "'j99' and 20 more): no user is given" in found.notes[0].detail
    assert found.snapshot == snapshot_from_document(found.document)


def test_a_stored_snapshot_names_no_forecaster() -> None:
    document = SNAPSHOT.validate_json(json_text(changed(sia_request(), "/snapshot/forecaster", "site")["snapshot"]))
    with pytest.raises(InputError) as refused:
        snapshot_from_document(document)
    assert [(issue.code, issue.pointer) for issue in refused.value.issues] == [("stored_forecaster", "/forecaster")]


def test_cost_grows_with_the_jobs() -> None:
    def cost(count: int) -> int:
        forecasts = {f"j{k}": JobForecast(lasting=QUANTILES if k % 2 else None) for k in range(count)}
        return work(lambda: filled(forecasts, count))

    assert cost(800) < 2.3 * cost(400)

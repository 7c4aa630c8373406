"""Plans that use what was measured of their jobs."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from api.app import create_app
from api.jobs.calibrated_snapshots import MeasuredJobs, MeasuredSnapshot, filled_in
from api.jobs.service import Jobs
from api.schemas.metrics import MetricsBody
from api.schemas.snapshot import SNAPSHOT, SnapshotDoc, SnapshotReference
from api.store.database import Store
from api.store.resolved import legal_snapshot, source_document
from api.store.snapshots import Snapshots
from models.software import Software
from solver.pool import WorkerPool
from tests.api.asking import planned, post
from tests.api.conftest import SETTINGS
from tests.api.measurements import CLUSTER, TRANSFORMER, batch_of
from tests.api.requests import Json, changed, json_text
from tests.api.serving import serving

JOB: Json = {"id": "llm", "transformer": TRANSFORMER}
SNAPSHOT_JSON: Json = {"cluster": CLUSTER, "jobs": [{"id": "new", "transformer": TRANSFORMER}, JOB]}
SIA: Json = {"policy": "sia", "snapshot": {"cluster": CLUSTER, "jobs": [{"id": "llm", "max_gpus": 2}]}}

TABLE: Json = {"kind": "throughput_table", "entries": [{"gpu_type": "cpu", "num_gpus": 1, "value": 1.0}]}


class Scene:
    """A store with a measured job, without HTTP."""

    def __init__(self, cost_s: float | None = None) -> None:
        self.store = Store(None)
        self.snapshots = Snapshots(self.store)
        self.jobs = Jobs(self.store)
        self.measured = MeasuredJobs(self.jobs, lambda _: cost_s)

    def post(self, body: Json, job: str = "llm") -> None:
        self.jobs.post(job, MetricsBody.model_validate_json(json_text(body)))

    def resolve(self, snapshot: Json, policy: str = "arena") -> MeasuredSnapshot:
        return self.filled_in(SNAPSHOT.validate_json(json_text(snapshot)), policy)

    def filled_in(self, source: SnapshotDoc | SnapshotReference, policy: str) -> MeasuredSnapshot:
        document = source_document(source, self.snapshots.find)
        measured = {job: self.measured.of(job) for job in self.measured.ids()}
        return filled_in(self.snapshots.resolve(source), document, policy, measured)


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.store.close()


@pytest.fixture
def service(pool: WorkerPool, tmp_path: Path) -> Iterator[httpx.Client]:
    with serving(
        create_app(SETTINGS.model_copy(update={"database": str(tmp_path / "plans.sqlite")}), pool=pool)
    ) as client:
        yield client


@pytest.mark.parametrize("policy", ["arena", "arena-ilp", "suika", "suika-ilp", "sia"])
def test_plans_in_three_dimensions_get_coefficients(scene: Scene, policy: str) -> None:
    scene.post(batch_of(10))
    found = scene.resolve(SNAPSHOT_JSON, policy)
    calibration = scene.jobs.measured("llm").calibrated.calibration
    assert calibration is not None
    assert [job.calibration for job in found.used.snapshot.jobs] == [None, calibration]
    (note,) = found.notes
    assert (note.code, note.pointer, note.severity) == ("measured", "/snapshot/jobs/1/calibration", "warning")
    # The input that is kept holds them: it gives the same snapshot when it is posted again, whatever comes later.
    assert found.used.id != found.posted.id
    scene.post(changed(batch_of(30), "/records/40/forward_s", 0.09))
    again = scene.filled_in(SNAPSHOT.validate_json(found.used.text), policy)
    assert again.used == again.posted == found.used
    assert again.notes == ()


def test_a_reference_is_filled_in_too(scene: Scene) -> None:
    scene.post(batch_of(10))
    receipt, _ = scene.snapshots.add(legal_snapshot(SNAPSHOT.validate_json(json_text(SNAPSHOT_JSON))))
    found = scene.filled_in(SnapshotReference(snapshot_id=receipt.id), "suika")
    assert found.posted.id == receipt.id
    assert found.used == scene.resolve(SNAPSHOT_JSON, "suika").used
    assert SnapshotDoc.model_validate_json(found.used.text).jobs[1].calibration is not None


def test_what_the_request_says_itself_wins(scene: Scene) -> None:
    scene.post(batch_of(10))
    own = {"gpus": {"cpu": {"compute_s": 1.0, "backward_ratio": 2.0, "optimizer_s": 0.0, "overlap": None}}}
    found = scene.resolve(changed(SNAPSHOT_JSON, "/jobs/1/calibration", own))
    assert (found.used, found.notes) == (found.posted, ())


def test_other_policies_know_no_coefficients(scene: Scene) -> None:
    scene.post(batch_of(10))
    found = scene.resolve(SNAPSHOT_JSON, "arnold")
    assert (found.used, found.notes) == (found.posted, ())


def test_sia_fits_goodput_only_to_jobs_without_a_model(scene: Scene) -> None:
    # Data-parallel launches, of which goodput can be fitted.
    scene.post(batch_of(10, pp=1, dp=2))
    found = scene.resolve(SNAPSHOT_JSON, "sia").used.snapshot.jobs[1]
    assert (found.performance, found.calibration is None) == (None, False)
    own = scene.resolve(changed(SNAPSHOT_JSON, "/jobs/1/performance", TABLE), "sia")
    assert (own.used, own.notes) == (own.posted, ())
    other = scene.resolve(changed(SNAPSHOT_JSON, "/jobs/1/transformer/hidden_size", 256), "sia")
    assert [note.code for note in other.notes] == ["measured_other_model"]


def test_what_the_native_engine_trained_is_planned_for_it(scene: Scene) -> None:
    run: Json = {**TRANSFORMER, "software": "native", "sequence_parallel": False}
    scene.post(changed(batch_of(10), "/run/transformer", run))
    found = scene.resolve(SNAPSHOT_JSON)
    other, measured = found.used.snapshot.jobs
    assert (other.calibration, measured.calibration is None) == (None, False)
    assert measured.transformer is not None
    assert other.transformer is not None
    assert (other.transformer.software, measured.transformer.software) == (Software.DEEPSPEED, Software.NATIVE)
    assert not measured.transformer.splits_sequences
    assert [note.pointer for note in found.notes] == ["/snapshot/jobs/1/calibration"]
    # Of another software that the engine does not run, nothing is known.
    compiled = scene.resolve(changed(SNAPSHOT_JSON, "/jobs/1/transformer/software", "torch"))
    assert [note.code for note in compiled.notes] == ["measured_other_model"]


def test_coefficients_of_another_model_do_not_count(scene: Scene) -> None:
    scene.post(batch_of(10))
    found = scene.resolve(changed(SNAPSHOT_JSON, "/jobs/1/transformer/hidden_size", 256))
    assert found.used == found.posted
    assert [note.code for note in found.notes] == ["measured_other_model"]
    # Another batch is the same model.
    batch = scene.resolve(changed(SNAPSHOT_JSON, "/jobs/1/transformer/global_batch", 64))
    assert batch.used.snapshot.jobs[1].calibration is not None


def test_too_few_measurements_change_nothing(scene: Scene) -> None:
    scene.post(batch_of(3))
    found = scene.resolve(SNAPSHOT_JSON)
    assert (found.used, found.notes) == (found.posted, ())


def test_the_measured_cost_of_a_change_is_the_restart_cost() -> None:
    scene = Scene(cost_s=12.5)
    scene.post(batch_of(3))
    found = scene.resolve(SNAPSHOT_JSON, "suika")
    assert [job.restart_cost_s for job in found.used.snapshot.jobs] == [0.0, 12.5]
    assert [note.pointer for note in found.notes] == ["/snapshot/jobs/1/restart_cost_s"]
    own = scene.resolve(changed(SNAPSHOT_JSON, "/jobs/1/restart_cost_s", 3.0), "suika")
    assert own.used.snapshot.jobs[1].restart_cost_s == 3.0
    assert scene.resolve(SNAPSHOT_JSON, "arnold").notes == ()
    scene.store.close()


def test_observations_are_those_of_types_that_the_cluster_has(scene: Scene) -> None:
    scene.post(batch_of(10, pp=1, dp=2))
    assert scene.resolve(SIA["snapshot"], "sia").used.snapshot.jobs[0].performance is not None
    renamed = changed(changed(SIA["snapshot"], "/cluster/gpu_types/0/name", "a"), "/cluster/nodes/0/gpu_type", "a")
    elsewhere = scene.resolve(changed(renamed, "/cluster/nodes/1/gpu_type", "a"), "sia")
    assert (elsewhere.used, elsewhere.notes) == (elsewhere.posted, ())


def test_sia_plans_a_measured_job_that_says_nothing_itself(service: httpx.Client) -> None:
    refused = post(service, "/v1/plans", SIA)
    assert [issue["code"] for issue in refused.json()["errors"]] == ["missing_performance"]
    post(service, "/v1/jobs/llm/metrics", batch_of(10, pp=1, dp=2))
    valid = post(service, "/v1/plans:validate", SIA).json()
    assert valid["valid"]
    assert [(issue["code"], issue["pointer"]) for issue in valid["issues"]] == [
        ("measured", "/snapshot/jobs/0/performance")
    ]
    plan = planned(service, SIA)
    assert plan["status"] == "succeeded"
    assert plan["allocations"][0]["job_id"] == "llm"
    assert valid["issues"][0] in plan["warnings"]
    # The same input, with what was filled in: the same plan, without the note.
    kept = service.get(plan["links"]["input"]).json()
    assert kept["snapshot"]["jobs"][0]["performance"]["observations"][0]["num_replicas"] == 2
    again = planned(service, kept)
    assert (again["input_hash"], again["allocations"]) == (plan["input_hash"], plan["allocations"])
    assert valid["issues"][0] not in again["warnings"]


def test_arena_plans_with_the_measured_coefficients(service: httpx.Client) -> None:
    request = {"policy": "arena", "snapshot": {"cluster": CLUSTER, "jobs": [{**JOB, "max_gpus": 2}]}}
    white = planned(service, request)
    post(service, "/v1/jobs/llm/metrics", batch_of(10))
    plan = planned(service, request)
    assert [(note["code"], note["pointer"]) for note in plan["warnings"]] == [
        ("measured", "/snapshot/jobs/0/calibration")
    ]
    # 0.12 s per micro-batch of four sequences is far from what the data sheet promises.
    assert plan["allocations"][0]["expected_goodput"] < 0.2 * white["allocations"][0]["expected_goodput"]
    assert plan["input_hash"] != white["input_hash"]
    kept = service.get(plan["links"]["input"]).json()["snapshot"]["jobs"][0]["calibration"]
    assert kept == service.get("/v1/jobs/llm/performance").json()["calibration"]
    # What was planned before stays what it was.
    assert service.get(white["links"]["input"]).json()["snapshot"]["jobs"][0]["calibration"] is None


@pytest.mark.parametrize("dp", [1, 2])
def test_sia_and_arena_plan_a_measured_job_alike(service: httpx.Client, dp: int) -> None:
    # One GPU or two replicas: what Sia could fit goodput to, too.
    snapshot = {"cluster": CLUSTER, "jobs": [{**JOB, "min_gpus": 2, "max_gpus": 2}]}
    post(service, "/v1/jobs/llm/metrics", batch_of(10, pp=1, dp=dp))
    plans = [planned(service, {"policy": policy, "snapshot": snapshot}) for policy in ("sia", "arena")]
    for plan in plans:
        assert [note["pointer"] for note in plan["warnings"]] == ["/snapshot/jobs/0/calibration"]
    sia, arena = (plan["allocations"][0] for plan in plans)
    assert sia["parallel_plan"] is not None
    assert sia["parallel_plan"] == arena["parallel_plan"]
    assert sia["expected_goodput"] == pytest.approx(arena["expected_goodput"])


def test_a_key_belongs_to_what_was_posted(service: httpx.Client) -> None:
    post(service, "/v1/jobs/llm/metrics", batch_of(10, pp=1, dp=2))
    first = post(service, "/v1/plans", SIA, Idempotency_Key="k").headers["location"]
    slower = batch_of(30, pp=1, dp=2)
    for record in slower["records"]:
        record["step_s"] = 0.5
    later = {**slower, "records": slower["records"][20:]}
    assert post(service, "/v1/jobs/llm/metrics", later).json()["accepted"] == 40
    # New measurements between a request and its repetition do not make it another request.
    assert post(service, "/v1/plans", SIA, Idempotency_Key="k").headers["location"] == first
    other = changed(SIA, "/snapshot/jobs/0/max_gpus", 1)
    assert post(service, "/v1/plans", other, Idempotency_Key="k").status_code == 409
    fresh = service.get(post(service, "/v1/plans", SIA).headers["location"]).json()
    assert fresh["input_hash"] != service.get(first).json()["input_hash"]
    # Posting the kept input under another key is a request without anything to fill in.
    kept = service.get(first + "/input").json()
    assert post(service, "/v1/plans", kept, Idempotency_Key="kept").status_code in (200, 202)


def test_a_thousand_jobs_without_measurements_cost_nothing(scene: Scene) -> None:
    scene.post(batch_of(3), job="elsewhere")
    snapshot = {**SNAPSHOT_JSON, "jobs": [{"id": f"j{k}"} for k in range(1000)]}
    found = scene.resolve(snapshot)
    assert found.used is found.posted

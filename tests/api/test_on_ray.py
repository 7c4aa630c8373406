"""A service whose workers are on a Ray cluster: plans, comparisons, replays and 3D plans."""

from collections.abc import Iterator

import httpx
import pytest

import api.plans.run
from api import workers
from api.app import create_app
from api.common.setting_kinds import IN_MEMORY
from api.common.settings import Settings
from api.workers import worker_engine
from stowplan.errors import ExtraMissingError, InputError
from tests.api import tasks
from tests.api.asking import planned, post, until, waited
from tests.api.http.test_parallel_plans import REQUEST as PARALLEL
from tests.api.replay_requests import replay_request
from tests.api.requests import sia_request
from tests.api.serving import serving
from tests.ray_cluster import RayTestCluster, ray_test_cluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayTestCluster]:
    with ray_test_cluster(2, 2) as running:
        yield running


@pytest.fixture(scope="module")
def on_ray(cluster: RayTestCluster) -> Iterator[httpx.Client]:
    settings = Settings(database=IN_MEMORY, engine="ray", ray_address=cluster.address, workers=1, shutdown_s=1.0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(workers, "IDLE_LOAD", ())
        with serving(create_app(settings)) as client:
            yield client


def test_plans_comparisons_replays_and_3d_plans_run_there(on_ray: httpx.Client) -> None:
    until(on_ray, "/readyz", lambda health: health["status"] == "ok")
    assert planned(on_ray, sia_request())["status"] == "succeeded"
    compared = post(on_ray, "/v1/solver-comparisons", {**sia_request(), "solvers": ["highs", "scip"]})
    assert waited(on_ray, compared).json()["agreement"]["agree"]
    replayed = post(on_ray, "/v1/replays", replay_request())
    assert waited(on_ray, replayed).json()["status"] == "succeeded"
    assert post(on_ray, "/v1/parallel-plans", PARALLEL).status_code == 200


def test_a_plan_whose_node_is_killed_is_finished_from_its_last_incumbent(
    on_ray: httpx.Client, cluster: RayTestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.plans.run, "PLAN_TASK", f"{tasks.__name__}:{tasks.stuck_task.__name__}")
    path = post(on_ray, "/v1/plans", sia_request()).headers["location"]
    with on_ray.stream("GET", f"{path}/events") as events:
        assert any(line == "event: incumbent" for line in events.iter_lines())
    cluster.kill_node_with_a_worker()
    final = until(on_ray, path, lambda plan: plan["status"] not in {"queued", "building", "solving"})
    assert final["status"] == "succeeded"
    assert final["verified"]
    assert len(final["allocations"]) == 2


def test_who_cannot_have_the_engine_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="engine is 'Ray'; must be local or ray"):
        Settings(engine="Ray")
    wrong = Settings(engine="ray", ray_address="127.0.0.1:1")
    with pytest.raises(InputError, match="no connection to the Ray cluster"), worker_engine(wrong):
        pass
    monkeypatch.setattr(workers, "missing_extra", lambda *_, extra: f"install {extra}")
    with pytest.raises(ExtraMissingError, match="install ray"), worker_engine(wrong):
        pass

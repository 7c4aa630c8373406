"""Deployments of services on one PostgreSQL: seen and stopped from any of them, whatever becomes of their own."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import Mock, create_autospec

import pytest
from sqlalchemy import text

from api.app import create_app
from api.common.errors import DeploymentConflictError, StoreError
from api.deployments import sharing
from api.deployments.conflicts import refuse_conflicts
from api.deployments.folder import DeploymentFolder
from api.deployments.present import told_document
from api.deployments.service import Deployments
from api.deployments.sharing import DeploymentSharing
from api.jobs.feedback import JobFeedback
from api.schemas.deployment import DeploymentBody, ReconfigureBody
from api.schemas.deployment_answer import DeploymentDoc, RunDoc
from api.store.database import Store
from api.store.deployments import DeploymentStore, KnownDeployment, ToldDeployment
from api.store.leases import Leases, live
from executor.deployment import Deployment
from executor.gpu_holders import Holder
from executor.launch.base import LaunchError, RunState, RunStatus
from executor.launch.local import LocalBackend
from executor.lifecycle import Cause, DeploymentState, Phase, Run
from executor.records import write_record
from executor.supervision import Supervisor
from solver.pool import WorkerPool
from tests.api.deployments.test_deployments import body, plan, settings, wait
from tests.api.postgresql import Server
from tests.api.serving import serving
from tests.growth import work
from tests.waiting import eventually

LONG = {"device": "cpu", "num_steps": 100_000, "checkpoint_interval": 5}
# What of a document changes while nobody looks.
_MOVES = ("step", "loss", "step_s", "runs")


@pytest.fixture
def url(postgresql: Server) -> str:
    return postgresql.database()


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Of two services."""
    yield tmp_path / "one", tmp_path / "other"
    for run in tmp_path.glob("*/deployment-*/runs/*"):
        LocalBackend().stop(run, grace_s=1.0)


def service(url: str, folder: Path | None, pool: WorkerPool) -> Any:
    return serving(create_app(settings(folder).model_copy(update={"database": url}), pool=pool))


def told(id_: str, job_id: str = "job", place: str = "p", document: str = "{}") -> ToldDeployment:
    return ToldDeployment(
        id=id_, place=place, host="h", job_id=job_id, started_at_s=1.0, holders="[]", document=document
    )


def refuses(job_id: str) -> Any:
    def refuse(others: Any) -> None:
        if any(other.told.job_id == job_id for other in others):
            raise DeploymentConflictError(job_id)

    return refuse


@pytest.mark.slow
@pytest.mark.usefixtures("pretending")
def test_any_service_shows_and_stops_what_another_one_runs(
    url: str, folders: tuple[Path, Path], pool: WorkerPool
) -> None:
    with service(url, folders[0], pool) as one, service(url, None, pool) as other:
        created = one.post("/v1/deployments", json=body(training=LONG))
        path = created.headers["location"]
        seen = wait(other, path, lambda document: document["step"] >= 2 and document["phase"] == "running")
        own = one.get(path).json()
        assert {name: seen[name] for name in seen if name not in _MOVES} == {
            name: own[name] for name in own if name not in _MOVES
        }
        assert (seen["host"], seen["run_state"]) == (socket.gethostname(), "running")
        for client in (one, other):
            assert [known["id"] for known in client.get("/v1/deployments").json()["deployments"]] == [seen["id"]]
        # On this machine, the files can be read.
        assert other.get(f"{path}/logs").text == one.get(f"{path}/logs").text
        assert other.get(f"{path}/logs", params={"rank": 9}).status_code == 404
        refused = other.post(f"{path}:reconfigure", json={"plan": plan([(4, 2)], local=2)})
        assert (refused.status_code, refused.json()["code"]) == (409, "deployment_elsewhere"), refused.text
        assert f"is on {socket.gethostname()}" in refused.json()["detail"]
        assert other.post("/v1/deployments", json=body()).json()["code"] == "nothing_deployed"
        assert other.get("/v1/deployments/deployment-7").status_code == 404
        assert other.post(f"{path}:stop").status_code == 202
        for client in (one, other):
            assert wait(client, path, lambda document: document["phase"] == "stopped")["run_state"] == "succeeded"
        # Its end is over: what is asked again changes nothing.
        assert other.post(f"{path}:stop").json()["phase"] == "stopped"


@pytest.mark.slow
@pytest.mark.usefixtures("pretending")
def test_what_a_service_had_that_is_gone_is_lost_until_it_is_back(
    url: str, folders: tuple[Path, Path], pool: WorkerPool
) -> None:
    with service(url, folders[1], pool) as other:
        with service(url, folders[0], pool) as one:
            path = one.post("/v1/deployments", json=body(training=LONG)).headers["location"]
            wait(other, path, lambda document: document["step"] >= 1)
        lost = other.get(path).json()
        assert (lost["phase"], lost["run_state"]) == ("running", "lost"), lost["run_detail"]
        assert lost["run_detail"].endswith("started with the same --deployments goes on with it")
        # Its ranks may train: nobody begins the job anew unless somebody says that this one is to end.
        refused = other.post("/v1/deployments", json=body(training=LONG))
        assert (refused.status_code, refused.json()["code"]) == (409, "deployment_conflict")
        assert "whose service is gone; stop that one first" in refused.json()["detail"]
        asked = other.post(f"{path}:stop")
        assert (asked.status_code, asked.json()["run_detail"].endswith("stops it")) == (202, True)
        anew = other.post("/v1/deployments", json=body(training=LONG))
        assert anew.status_code == 201, anew.text
        with service(url, folders[0], pool) as back:
            for client in (back, other):
                assert wait(client, path, lambda document: document["phase"] == "stopped")["step"] >= 1
            assert len(back.get("/v1/deployments").json()["deployments"]) == 2
        other.post(f"{anew.headers['location']}:stop")
        wait(other, anew.headers["location"], lambda document: document["phase"] == "stopped")


def test_of_two_services_that_deploy_a_job_at_once_one_does(url: str, tmp_path: Path) -> None:
    with closing(Store(url)) as one, closing(Store(url)) as other:
        for store in (one, other):
            with store.writing() as connection:
                live(connection, store, 1)

        def deploy(number: int) -> bool:
            shared = DeploymentSharing((one, other)[number % 2], tmp_path / str(number % 2))
            try:
                shared.claim(f"deployment-{number}", "job", (), refuses("job"))
            except DeploymentConflictError:
                return False
            return True

        with ThreadPoolExecutor(4) as threads:
            assert sum(threads.map(deploy, range(4))) == 1


def test_gpus_of_this_machine_are_in_use_whatever_folder_they_are_of(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "n1")
    mine = Holder(gpus=frozenset({("localhost", 0), ("n2", 3)}), what="is used by job 'a'")
    with closing(Store(url)) as one, closing(Store(url)) as other:
        with one.writing() as connection:
            live(connection, one, 1)
        DeploymentSharing(one, tmp_path / "one").claim("deployment-a", "a", [mine], lambda _: None)
        found: list[Holder] = []

        def look(others: Iterator[KnownDeployment]) -> None:
            for each in others:
                found.extend(shared.gpus_elsewhere(each))

        shared = DeploymentSharing(other, tmp_path / "other")
        shared.claim("deployment-b", "b", (), look)
        monkeypatch.setattr(socket, "gethostname", lambda: "n2")
        shared = DeploymentSharing(other, tmp_path / "other")
        shared.claim("deployment-c", "c", (), look)
        # A plan reaches those of its own machine as "localhost" or by name, those of others by name alone.
        assert [sorted(holder.gpus) for holder in found] == [
            [("localhost", 0), ("n1", 0), ("n2", 3)],
            [("localhost", 3), ("n1", 0), ("n2", 3)],
        ]


def test_one_service_at_a_time_tells_of_a_folder_that_several_have(url: str) -> None:
    with closing(Store(url)) as one, closing(Store(url)) as other:
        stores = [DeploymentStore(store) for store in (one, other)]
        with one.writing() as connection:
            live(connection, one, 1)
        assert stores[0].tell(told("deployment-1"), is_over=False)
        assert not stores[1].tell(told("deployment-1", document='{"late":1}'), is_over=False)
        with other.writing() as connection:
            connection.execute(text("UPDATE instances SET seen_at_s = seen_at_s - 11"))
        # What was asked of the one before, the next one is asked.
        assert Leases(other).ask_end("deployment-1")
        assert stores[1].tell(told("deployment-1", document='{"late":1}'), is_over=False)
        assert Leases(other).held()["deployment-1"].wants_end
        known = stores[0].known("deployment-1")
        assert known is not None
        assert known.told.document == '{"late":1}'
        assert stores[1].tell(told("deployment-1"), is_over=True)
        assert Leases(other).held() == {}


def test_a_database_that_is_away_does_not_hold_up_who_looks_after_deployments(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(number=1, plan="", cause=Cause.DEPLOYED, started_at_s=1.0)
    state = DeploymentState(name="a", phase=Phase.RUNNING, runs=(run,), phase_since_s=1.0)
    document = Mock(job_id="a", model_dump_json=lambda: "{}")
    told = Mock(side_effect=StoreError("away"))
    with closing(Store(url)) as store:
        shared = DeploymentSharing(store, tmp_path)
        monkeypatch.setattr(DeploymentStore, "tell", told)
        # To learn that it is away takes seconds: for a while it is not tried, of whichever deployment.
        assert all(shared.tell(f"deployment-{k}", state, lambda: (document, ())) for k in (1, 1, 2))
        assert told.call_count == 1
        monkeypatch.setattr(sharing, "_AGAIN_S", -1.0)
        monkeypatch.setattr(shared, "_again_s", 0.0)
        told.side_effect = [StoreError("away"), True]
        assert all(shared.tell("deployment-1", state, lambda: (document, ())) for _ in range(3))
        # Told, it is not told again before there is news.
        assert told.call_count == 3


def test_what_was_never_started_is_in_nobodys_way_once_its_service_is_gone(url: str) -> None:
    with closing(Store(url)) as one, closing(Store(url)) as other:
        stores = [DeploymentStore(store) for store in (one, other)]
        with one.writing() as connection:
            live(connection, one, 1)
        stores[0].claim(told("deployment-1", document=""), refuses("job"))
        assert (stores[1].known("deployment-1"), stores[1].elsewhere(None)) == (None, [])
        with pytest.raises(DeploymentConflictError):
            stores[1].claim(told("deployment-2", document=""), refuses("job"))
        with other.writing() as connection:
            connection.execute(text("UPDATE instances SET seen_at_s = seen_at_s - 11"))
        stores[1].claim(told("deployment-2", document=""), refuses("job"))


def test_what_a_folder_has_no_more_is_forgotten(url: str, tmp_path: Path) -> None:
    with closing(Store(url)) as store:
        shared, known = DeploymentSharing(store, tmp_path), DeploymentStore(store)
        shared.claim("deployment-1", "a", (), lambda _: None)
        place = (tmp_path / "place").read_text()
        for k in range(1, 4):
            known.tell(told(f"deployment-{k}", place=place), is_over=k == 3)
        known.tell(told("deployment-4"), is_over=True)

        # The folder keeps its name.
        def ids() -> list[str]:
            # Started while the folder is looked at.
            known.tell(told("deployment-5", place=place), is_over=False)
            return ["deployment-2"]

        DeploymentSharing(store, tmp_path).forget_all_but(ids)
        left = ["deployment-2", "deployment-4", "deployment-5"]
        assert sorted(each.told.id for each in known.elsewhere(None)) == left
        assert sorted(Leases(store).held()) == ["deployment-2", "deployment-5"]


def test_what_another_version_has_told_hides_nothing_else(url: str, caplog: pytest.LogCaptureFixture) -> None:
    links = {"self": "/", "logs": "/", "job_performance": "/"}
    run = {"number": 1, "plan": "", "cause": "deployed", "started": "2026-01-01T00:00:00Z", "from_step": 0}
    nothing = dict.fromkeys(DeploymentDoc.model_fields) | {"id": "deployment-2", "job_id": "job", "host": "h"}
    texts = {"detail": "", "run_detail": "", "notation": "", "backend": "local", "folder": "/"}
    states = {"phase": "running", "run_state": "running", "synthetic_data": True, "step": 1, "num_steps": 2}
    lists = {"unavailable_nodes": [], "dead": [], "change_costs_s": {}, "plan": plan([(4, 1)], local=8)}
    runs = [dict.fromkeys(RunDoc.model_fields) | run | {"detail": ""}]
    document = json.dumps(nothing | texts | states | lists | {"runs": runs, "links": links})
    with closing(Store(url)) as store:
        known, shared = DeploymentStore(store), DeploymentSharing(store, None)
        for k, each in enumerate(('{"id":"deployment-0"}', '{"later":1}', document)):
            known.tell(told(f"deployment-{k}", document=each), is_over=True)
        assert [each.id for each in shared.elsewhere()] == ["deployment-2"]
        said = [record.getMessage().split(" ", 1) for record in caplog.records]
        assert [name for name, rest in said if rest.startswith("is not shown")] == ["deployment-0", "deployment-1"]
        other = known.known("deployment-1")
        assert other is not None
        with pytest.raises(StoreError, match="has told of deployment-1 cannot be read here; let all services"):
            told_document(other)


@pytest.fixture
def deploying(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Deployments]]:
    """Two services of one folder; what they deploy is written down, and nothing runs."""

    def deploy(supervisor: Supervisor, deployment: Deployment) -> None:
        run = Run(number=1, plan="", cause=Cause.DEPLOYED, started_at_s=1.0)
        state = DeploymentState(name=deployment.name, phase=Phase.RUNNING, runs=(run,), phase_since_s=1.0)
        supervisor.folder(1).mkdir(parents=True)
        write_record(deployment, supervisor.folder(1) / "deployment.json")
        write_record(state, supervisor.root / "state.json")

    monkeypatch.setattr(Supervisor, "deploy", deploy)
    monkeypatch.setattr(Supervisor, "advance", Supervisor.state)
    monkeypatch.setattr(LocalBackend, "status", Mock(return_value=RunStatus(state=RunState.RUNNING)))
    with closing(Store(url)) as one, closing(Store(url)) as other:
        made = []
        for store in (one, other):
            with store.writing() as connection:
                live(connection, store, 1)
                # Neither is taken to be gone, however long a test takes.
                connection.execute(text("UPDATE instances SET seen_at_s = seen_at_s + 1000"))
            shared = DeploymentSharing(store, tmp_path)
            feedback = create_autospec(JobFeedback, instance=True)
            made.append(Deployments(settings(tmp_path), Mock(), feedback, Mock(), shared))
        yield made
        for each in made:
            each.close()


def asked(**changes: Any) -> DeploymentBody:
    return DeploymentBody.model_validate_json(json.dumps(body(**changes)))


def test_a_claim_of_what_was_not_started_is_given_back_whatever_was_wrong(
    deploying: list[Deployments], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = deploying
    whole, forget = Supervisor.deploy, DeploymentStore.forget
    monkeypatch.setattr(sharing, "_AGAIN_S", 0.0)
    for error in (KeyError("deployment"), LaunchError("no port")):
        monkeypatch.setattr(Supervisor, "deploy", Mock(side_effect=error))
        failing = [StoreError("away")] if isinstance(error, LaunchError) else []

        def forgetting(store: DeploymentStore, ids: Any, failing: list[StoreError] = failing) -> None:
            if failing:
                raise failing.pop()
            forget(store, ids)

        monkeypatch.setattr(DeploymentStore, "forget", forgetting)
        with pytest.raises(type(error)):
            one.create(asked(job_id=type(error).__name__))
    monkeypatch.setattr(Supervisor, "deploy", whole)
    assert created(other, "KeyError")
    # Given back by who looks after deployments.
    assert eventually(lambda: created(other, "LaunchError"), limit_s=20.0)


def created(deployments: Deployments, job_id: str) -> bool:
    try:
        deployments.create(asked(job_id=job_id))
    except DeploymentConflictError:
        return False
    return True


def test_of_services_of_one_folder_one_deploys_a_job(
    deploying: list[Deployments], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, is_done = Event(), Event()

    def look(own: DeploymentFolder, *given: Any, **options: Any) -> None:
        refuse_conflicts(own, *given, **options)
        if own is deploying[0]._folder:
            # Between its look at the folder and its claim, the other one begins and is done if it can.
            looks.set()
            is_done.wait(0.5)

    def deploy_meanwhile() -> bool:
        looks.wait(10.0)
        is_created = created(deploying[1], "tiny")
        is_done.set()
        return is_created

    monkeypatch.setattr("api.deployments.service.refuse_conflicts", look)
    with ThreadPoolExecutor(1) as thread:
        meanwhile = thread.submit(deploy_meanwhile)
        assert [created(deploying[0], "tiny"), meanwhile.result()] == [True, False]


def test_who_looks_after_a_deployment_tells_nothing_while_it_is_changed(
    deploying: list[Deployments], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = deploying
    id_ = one.create(asked()).id
    own, tell = DeploymentFolder(tmp_path, Mock()), Mock(return_value=True)
    monkeypatch.setattr(DeploymentSharing, "tell", tell)
    told_while_changing: list[Any] = []

    def change(supervisor: Supervisor, following: Deployment) -> None:
        tell.reset_mock()
        one._advance(own, id_)
        told_while_changing.extend(tell.call_args_list)
        write_record(replace(supervisor.state(), detail=following.plan.notation()), supervisor.root / "state.json")

    monkeypatch.setattr(Supervisor, "reconfigure", change)
    # What is done is long past when it is told.
    late = Supervisor(tmp_path / id_, LocalBackend()).state()
    monkeypatch.setattr(Supervisor, "advance", lambda _: late)
    one.reconfigure(id_, ReconfigureBody.model_validate_json(json.dumps({"plan": plan([(4, 2)], local=2)})))
    assert told_while_changing == []
    # By this service or the other one, whichever looks first.
    eventually(lambda: tell.called)
    assert tell.call_args.args[1].detail == "PP1 DP2 TP1 (4 layers, 2 x 4)"


def test_to_deploy_is_no_more_work_the_more_deployments_are_over(url: str) -> None:
    counted = []
    with closing(Store(url)) as store:
        known = DeploymentStore(store)
        for num_over in (1, 30):
            for k in range(num_over):
                known.tell(told(f"deployment-{num_over}-{k}"), is_over=True)
            known.claim(told(f"deployment-{num_over}"), refuses("other"))
            counted.append(work(lambda: known.claim(told("deployment-new"), refuses("other"))))
            known.forget(["deployment-new"])
    assert counted[1] < 1.2 * counted[0]


def test_a_cost_that_any_service_has_measured_is_known_to_all(url: str) -> None:
    with closing(Store(url)) as store:
        known = DeploymentStore(store)
        for k, cost in enumerate(("7.5", "null")):
            known.tell(told(f"deployment-{k}", document=f'{{"restart_cost_s":{cost}}}'), is_over=True)
        assert DeploymentSharing(store, None).restart_cost_s("job") == 7.5
        assert DeploymentSharing(store, None).restart_cost_s("other") is None

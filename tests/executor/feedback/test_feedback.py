"""Metrics on their way to a service that comes and goes: nothing lost, nothing twice."""

import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.deployment import Deployment, LaunchOptions, TrainingOptions
from executor.feedback.command import HttpTransport, main
from executor.feedback.poster import Answer, MetricsPoster, UnreachableError
from executor.feedback.run import run_document, write_cluster
from executor.feedback.spool import Spool
from executor.metrics import MetricsWriter, StepMetrics, metrics_path
from executor.own_steps import own_steps_path
from executor.records import write_record
from executor.training_options import Device
from models.parallel_plan import Replica, symmetric_plan
from models.transformer import Transformer
from stowplan.errors import InputError
from tests.paths import ROOT
from tests.waiting import eventually
from topology.cluster import Cluster, GpuType, Node

CPU = GpuType(
    name="cpu",
    memory_bytes=2**34,
    peak_flops_per_s=1e11,
    intra_node_bandwidth_bytes_per_s=4e9,
    inter_node_bandwidth_bytes_per_s=1e9,
)
CLUSTER = Cluster(gpu_types=(CPU,), nodes=tuple(Node(id=name, gpu_type="cpu", num_gpus=2) for name in "abc"))
MODEL = Transformer(num_layers=4, hidden_size=128, vocabulary_size=100, sequence_length=32, global_batch=8)
PLAN = symmetric_plan(
    num_layers=4,
    pp=2,
    dp=1,
    tp=1,
    global_batch=8,
    num_micro_batches=2,
    gpu_type="cpu",
    gpus=(("a", 0), ("b", 0)),
)
STEP = StepMetrics(
    launch=1000,
    rank=0,
    step=1,
    pipe=0,
    data=0,
    tensor=0,
    host="a",
    started_at_s=1.0,
    step_s=0.3,
    forward_s=0.08,
    backward_s=0.16,
    send_s=0.0,
    receive_s=0.0,
    load_s=0.0,
    reduction_s=0.0,
    optimizer_s=0.02,
    num_micro_batches=2,
    tokens=256,
    tokens_per_s=853.0,
    peak_memory_bytes=1,
    loss=1.0,
    learning_rate=1e-3,
    small_batch=8,
    small_gradient_square=1.0,
    large_batch=8,
    large_gradient_square=1.0,
)
OK = 200
Behaviour = Callable[[list[dict[str, Any]]], Answer | None]


class FakeService:
    """Keeps records as the service does; `behave` may answer in its place."""

    target = "http://planner/v1/jobs/llm/metrics"

    def __init__(self, behave: Behaviour = lambda _: None) -> None:
        self.records: dict[tuple[int, int, int], dict[str, Any]] = {}
        self.launches: dict[int, dict[str, Any]] = {}
        self.sizes: list[int] = []
        self.behave = behave

    def post(self, body: str) -> Answer:
        document = json.loads(body)
        records = document.get("records") or document["steps"]
        self.sizes.append(len(records))
        answer = self.behave(records)
        if answer is not None:
            return answer
        if "run" in document:
            self.launches[document["run"]["launch"]] = document["run"]
        unknown = [k for k, record in enumerate(records) if record["launch"] not in self.launches]
        if unknown:
            return refusal(*unknown, code="unknown_launch", name="launch")
        new = {(record["launch"], record.get("rank", 0), record["step"]): record for record in records}
        accepted = len(new.keys() - self.records.keys())
        self.records = new | self.records
        return Answer(status=OK, document={"accepted": accepted, "duplicates": len(records) - accepted})


def refusal(*records: int, code: str = "negative", name: str = "forward_s") -> Answer:
    errors = [{"code": code, "pointer": f"/records/{k}/{name}", "detail": "is wrong"} for k in records]
    return Answer(status=422, document={"detail": "the request has errors", "errors": errors})


def write_steps(folder: Path, steps: range, ranks: range = range(2), launch: int = 1000, **changes: Any) -> None:
    for rank in ranks:
        with MetricsWriter(metrics_path(folder / "metrics", rank)) as writer:
            for step in steps:
                writer.write(replace(STEP, launch=launch, rank=rank, pipe=rank, step=step, **changes))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run that has done five steps."""
    return run_folder(tmp_path / "run")


def run_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    training = TrainingOptions(device=Device.CPU)
    write_record(Deployment(name="llm", model=MODEL, plan=PLAN, training=training), folder / "deployment.json")
    write_cluster(CLUSTER, folder)
    write_steps(folder, range(1, 6))
    return folder


def identities(steps: range, ranks: range = range(2), launch: int = 1000) -> set[tuple[int, int, int]]:
    return {(launch, rank, step) for rank in ranks for step in steps}


def test_everything_arrives_once_and_later_steps_too(run: Path) -> None:
    service = FakeService()
    poster = MetricsPoster(run, service)
    first = poster.flush()
    assert (first.accepted, first.duplicates, first.refused, first.kept) == (10, 0, 0, None)
    write_steps(run, range(6, 8))
    assert poster.flush().accepted == 4
    assert service.records.keys() == identities(range(1, 8))
    calls = len(service.sizes)
    # Neither this poster nor the next one has anything to send.
    assert poster.flush().accepted == MetricsPoster(run, service).flush().accepted == 0
    assert len(service.sizes) == calls


def test_a_launch_is_announced_once(run: Path) -> None:
    service = FakeService()
    poster = MetricsPoster(run, service)
    poster.flush()
    write_steps(run, range(4, 7), launch=2000)
    poster.flush()
    assert service.launches.keys() == {1000, 2000}
    assert service.launches[1000] == json.loads(json.dumps(run_document(run, run, 1000)))
    # Refused, announced, and the same for the second launch.
    assert service.sizes == [10, 10, 6, 6]


def test_the_run_is_what_the_service_needs(run: Path) -> None:
    document = run_document(run, run, 7)
    assert document["launch"] == 7
    assert document["plan"]["stages"][1]["replicas"] == (
        {"node": "b", "gpu_type": "cpu", "gpus": (0,), "local_batch": 4},
    )
    assert (document["device"], document["transformer"]["hidden_size"]) == ("cpu", 128)
    assert [node["id"] for node in document["cluster"]["nodes"]] == ["a", "b"]


def test_all_runs_of_a_deployment_are_followed(tmp_path: Path) -> None:
    for number, launch in ((1, 1000), (2, 2000)):
        folder = run_folder(tmp_path / "runs" / f"{number:04d}")
        (folder / "cluster.json").rename(tmp_path / "cluster.json")
        if launch == 2000:
            write_steps(folder, range(6, 9), launch=launch)
    service = FakeService()
    assert MetricsPoster(tmp_path, service).flush().accepted == 10 + 6
    assert service.launches.keys() == {1000, 2000}


def test_steps_of_a_program_of_ones_own_arrive_once(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "0001"
    (folder / "metrics").mkdir(parents=True)
    launch = LaunchOptions(program=("train",))
    write_record(Deployment(name="own", model=MODEL, plan=PLAN, launch=launch), folder / "deployment.json")
    write_cluster(CLUSTER, tmp_path)
    path = own_steps_path(folder, 0)
    line = '{{"step": {}, "started_at_s": {}, "step_s": 0.5, "loss": {}, "lr": 0.1}}\n'
    path.write_text(line.format(3, 1000.25, 2.0) + "no step\n" + line.format(4, 1000.75, "NaN"))
    own_steps_path(folder, 1).write_text(line.format(3, 1000.0, 2.0))
    service = FakeService()
    poster = MetricsPoster(tmp_path, service)
    assert (poster.flush().accepted, poster.flush().accepted) == (2, 0)
    with path.open("a") as file:
        file.write(line.format(5, 1001.25, 1.5))
    assert poster.flush().accepted == 1
    # The launch is the start of the first step; of the lines what we know is sent, and rank 0 speaks for all.
    assert service.launches[1_000_250]["own_program"]
    assert service.records.keys() == {(1_000_250, 0, step) for step in (3, 4, 5)}
    first = {"launch": 1_000_250, "step": 4, "started_at_s": 1000.75, "step_s": 0.5, "loss": None}
    assert service.records[1_000_250, 0, 4] == first
    assert "no step" in poster.refused.read_text()


@pytest.mark.slow
@given(st.randoms(use_true_random=False), st.integers(1, 5))
@settings(max_examples=5, deadline=None)
def test_a_flapping_service_and_dying_posters(
    tmp_path_factory: pytest.TempPathFactory, chance: random.Random, batch: int
) -> None:
    """At any call the service may be away, fail before or after it has kept the batch, or the poster may die."""
    folder = run_folder(tmp_path_factory.mktemp("runs") / "run")
    service = Flapping(chance)
    step, poster = 5, MetricsPoster(folder, service)
    for _ in range(20):
        poster._max_records = batch
        try:
            poster.flush()
        except KeyboardInterrupt:
            poster = MetricsPoster(folder, service)
        if chance.random() < 0.3:
            step += 1
            write_steps(folder, range(step, step + 1), launch=1000 + step // 8)
    service.calm = True
    assert MetricsPoster(folder, service).flush().kept is None
    assert {(rank, step) for _, rank, step in service.records} == {(r, s) for r in range(2) for s in range(1, step + 1)}
    assert service.kept_twice == 0


class Flapping(FakeService):
    """A service with every fault that a network has; `kept_twice` counts what deduplication would have missed."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance = chance
        self.calm = False
        self.kept_twice = 0

    def post(self, body: str) -> Answer:
        fault = None if self.calm else self.chance.choice([None, None, "away", "503", "lost", "dies"])
        if fault == "away":
            raise UnreachableError("connection refused")
        if fault == "503":
            return Answer(status=503, document=None, retry_after_s=1.0)
        before = len(self.records)
        answer = super().post(body)
        if answer.status == OK:
            self.kept_twice += len(self.records) - before - answer.document["accepted"]
        if fault == "lost":
            raise UnreachableError("the answer was lost")
        if fault == "dies":
            raise KeyboardInterrupt
        return answer


def test_a_batch_that_arrived_without_its_cursor_is_known(run: Path) -> None:
    service = FakeService()
    MetricsPoster(run, service).flush()
    (cursor,) = run.glob("feedback-*.json")
    cursor.unlink()
    again = MetricsPoster(run, service).flush()
    assert (again.accepted, again.duplicates) == (0, 10)
    assert len(service.records) == 10


def test_refused_records_are_set_aside_and_the_others_arrive(run: Path) -> None:
    def behave(records: list[dict[str, Any]]) -> Answer | None:
        wrong = [k for k, record in enumerate(records) if record["step"] == 3]
        return refusal(*wrong) if wrong else None

    service = FakeService(behave)
    poster = MetricsPoster(run, service)
    done = poster.flush()
    assert (done.accepted, done.refused, done.kept) == (8, 2, None)
    assert service.records.keys() == identities(range(1, 6)) - {(1000, 0, 3), (1000, 1, 3)}
    refused = [json.loads(line) for line in poster.refused.read_text().splitlines()]
    assert [json.loads(entry["line"]["text"])["rank"] for entry in refused] == [0, 1]
    assert refused[0]["errors"][0]["pointer"] == "/records/2/forward_s"
    assert (refused[0]["status"], refused[0]["detail"]) == (422, "422: the request has errors")
    calls = len(service.sizes)
    assert poster.flush().refused == 0
    assert len(service.sizes) == calls


def test_a_batch_refused_without_a_pointer_is_set_aside_as_a_whole(run: Path) -> None:
    poster = MetricsPoster(run, FakeService(lambda _: Answer(status=400, document=None)))
    assert poster.flush().refused == 10
    assert len(poster.refused.read_text().splitlines()) == 10


def test_batches_that_are_too_large_shrink(run: Path) -> None:
    def behave(records: list[dict[str, Any]]) -> Answer | None:
        return Answer(status=413, document=None) if len(records) > 3 else None

    service = FakeService(behave)
    assert MetricsPoster(run, service).flush().accepted == 10
    assert service.sizes[:3] == [10, 4, 2]
    alone = MetricsPoster(run, replaced_target(FakeService(lambda _: Answer(status=413, document=None))))
    assert alone.flush().refused == 10


def replaced_target(service: FakeService) -> FakeService:
    service.target = "http://elsewhere/v1/jobs/llm/metrics"
    return service


@pytest.mark.parametrize("status", [301, 401, 403, 404, 429, 500, 502, 503])
def test_what_is_no_refusal_is_kept(run: Path, status: int) -> None:
    service = FakeService(lambda _: Answer(status=status, document={"detail": "no"}, retry_after_s=7.0))
    poster = MetricsPoster(run, service)
    done = poster.flush()
    assert (done.accepted, done.refused, done.kept, done.retry_after_s) == (0, 0, f"{status}: no", 7.0)
    service.behave = lambda _: None
    assert poster.flush().accepted == 10


@pytest.mark.parametrize("document", [None, "welcome", {"accepted": "all"}, {"status": "ok"}])
def test_an_answer_that_is_no_receipt_acknowledges_nothing(run: Path, document: Any) -> None:
    service = FakeService(lambda _: Answer(status=OK, document=document))
    poster = MetricsPoster(run, service)
    assert "no receipt" in (poster.flush().kept or "")
    service.behave = lambda _: None
    assert poster.flush().accepted == 10


def test_half_a_line_waits_and_what_is_no_record_is_passed_over(run: Path) -> None:
    path = metrics_path(run / "metrics", 0)
    with path.open("a") as file:
        file.write('not JSON\n{"launch": NaN}\n[1]\n{"launch": 1000, "rank": 0, "st')
    service = FakeService()
    poster = MetricsPoster(run, service)
    assert poster.flush().accepted == 10
    entries = [json.loads(line) for line in poster.refused.read_text().splitlines()]
    assert [(entry["line"]["text"], entry["detail"]) for entry in entries] == [
        ("not JSON", "is no record"),
        ('{"launch": NaN}', "is no record"),
        ("[1]", "is no record"),
    ]
    # The rank starts again: its writer removes the half line.
    write_steps(run, range(6, 7), ranks=range(1))
    assert poster.flush().accepted == 1


def test_a_file_that_was_replaced_is_sent_anew(run: Path) -> None:
    service = FakeService()
    poster = MetricsPoster(run, service)
    poster.flush()
    metrics_path(run / "metrics", 0).unlink()
    write_steps(run, range(1, 3), ranks=range(1), launch=2000)
    assert poster.flush().accepted == 2


def test_without_run_files_the_service_is_asked_and_the_user_told(run: Path) -> None:
    (run / "cluster.json").unlink()
    with pytest.raises(InputError, match=r"has a cluster.json, which tells the service the GPU types"):
        MetricsPoster(run, FakeService()).flush()
    known = FakeService()
    known.launches[1000] = {}
    assert MetricsPoster(run, known).flush().accepted == 10


def test_runs_with_a_plan_have_its_nodes(tmp_path: Path) -> None:
    """Run 2 moved to other nodes, run 3 is a restart of it, run 4 has gone back."""
    moved = replace(PLAN, stages=tuple(replace(stage, replicas=_on_host_z(stage.replicas)) for stage in PLAN.stages))
    for number, plan in enumerate((PLAN, moved, moved, PLAN), start=1):
        folder = run_folder(tmp_path / "runs" / f"{number:04d}")
        (folder / "cluster.json").unlink()
        deployment = Deployment(name="llm", model=MODEL, plan=plan, training=TrainingOptions(device=Device.CPU))
        write_record(deployment, folder / "deployment.json")
    write_cluster(CLUSTER, tmp_path)
    write_cluster(replace(CLUSTER, nodes=(Node(id="z", gpu_type="cpu", num_gpus=2),)), tmp_path, moved)
    documents = [run_document(tmp_path / "runs" / f"{k:04d}", tmp_path, k) for k in range(1, 5)]
    nodes = [[node["id"] for node in document["cluster"]["nodes"]] for document in documents]
    assert nodes == [["a", "b"], ["z"], ["z"], ["a", "b"]]


def _on_host_z(replicas: tuple[Replica, ...]) -> tuple[Replica, ...]:
    return tuple(replace(replica, node="z", gpus=(int(replica.node == "b"),)) for replica in replicas)


def test_a_run_on_unknown_nodes_keeps_no_later_one_waiting(tmp_path: Path) -> None:
    for number, launch in ((1, 1000), (2, 2000)):
        folder = run_folder(tmp_path / "runs" / f"{number:04d}")
        if launch == 2000:
            metrics_path(folder / "metrics", 0).unlink()
            metrics_path(folder / "metrics", 1).unlink()
            write_steps(folder, range(6, 9), launch=launch)
        else:
            write_cluster(replace(CLUSTER, nodes=CLUSTER.nodes[2:]), folder)
    service = FakeService()
    with pytest.raises(InputError, match=r"lacks the nodes \['a', 'b'\]"):
        MetricsPoster(tmp_path, service).flush()
    done = MetricsPoster(tmp_path, service, skips_unknown=True).flush()
    assert (done.accepted, done.refused) == (6, 10)
    assert service.launches.keys() == {2000}


def test_folders_and_cursors_that_are_none(tmp_path: Path, run: Path) -> None:
    with pytest.raises(InputError, match="is no folder"):
        MetricsPoster(tmp_path / "nothing", FakeService())
    MetricsPoster(run, FakeService()).flush()
    (cursor,) = run.glob("feedback-*.json")
    cursor.write_text("[]")
    with pytest.raises(InputError, match="remove it to send everything again"):
        Spool(run, FakeService.target)


class Handler(BaseHTTPRequestHandler):
    """Speaks for the fake service of its server."""

    def do_POST(self) -> None:
        server: Any = self.server
        server.heard.append((self.path, self.headers.get("Authorization")))
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        answer: Answer = server.service.post(body)
        text = json.dumps(answer.document).encode()
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(text)))
        if answer.retry_after_s is not None:
            self.send_header("Retry-After", f"{answer.retry_after_s:.0f}")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def listening(service: FakeService, port: int = 0) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """The fake service on a port; gives its URL and the paths and tokens that it hears."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.service, server.heard = service, []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.heard
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_once_over_http(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = run / "token"
    token.write_text("s3cret\n")
    service = FakeService()
    with listening(service) as (url, heard):
        arguments = [str(run), "--service", url + "/", "--job", "team/llm", "--token-file", str(token), "--once"]
        assert main(arguments) == 0
        write_steps(run, range(6, 7))
        service.behave = lambda _: Answer(status=429, document={"detail": "busy"}, retry_after_s=2.0)
        assert main(arguments) == 1
        service.behave = lambda records: refusal(0) if len(records) == 2 else None
        assert main(arguments) == 3
    assert set(heard) == {("/v1/jobs/team%2Fllm/metrics", "Bearer s3cret")}
    assert len(service.records) == 11
    assert main(arguments) == 0
    errors = capsys.readouterr().err
    assert "429: busy" in errors
    assert "refused: 1 record;" in errors


def test_a_service_that_is_away_is_said(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with listening(FakeService()) as (url, _):
        pass
    assert main([str(run), "--service", url, "--job", "llm", "--once"]) == 1
    assert "does not answer" in capsys.readouterr().err
    assert main([str(run), "--service", "planner:8080", "--job", "llm", "--once"]) == 2
    assert main([str(run), "--service", url, "--job", "llm", "--token-file", "/nowhere", "--once"]) == 2


def test_a_poster_follows_a_run_until_it_is_told_to_stop(run: Path) -> None:
    service = FakeService()
    with listening(service) as (url, _):
        command = [sys.executable, "-P", "-m", "executor.feedback", str(run), "--service", url, "--job", "llm"]
        process = subprocess.Popen(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE)
        try:
            await_records(service, 10)
            write_steps(run, range(6, 8))
            await_records(service, 14)
            write_steps(run, range(8, 9))
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 0, errors
    # What was written last went out at the end.
    assert service.records.keys() == identities(range(1, 9))


def await_records(service: FakeService, count: int) -> None:
    eventually(lambda: len(service.records), lambda kept: kept == count)


def test_pauses_grow_and_end(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    service = FakeService(lambda _: Answer(status=503, document=None))
    stop = threading.Event()

    def wait(timeout: float | None = None) -> bool:
        pauses.append(timeout or 0.0)
        if len(pauses) == 3:
            service.behave = lambda _: Answer(status=503, document=None, retry_after_s=9.0)
        elif len(pauses) == 4:
            service.behave = lambda _: None
        elif len(pauses) == 6:
            stop.set()
        return False

    monkeypatch.setattr(stop, "wait", wait)
    done = MetricsPoster(run, service).run(stop, interval_s=0.5)
    assert pauses == [1.0, 2.0, 4.0, 9.0, 0.5, 0.5]
    assert (done.accepted, done.kept) == (10, None)


def test_a_url_is_asked_for() -> None:
    with pytest.raises(InputError, match="give one such as http://planner:8080"):
        HttpTransport("ftp://planner", "llm")

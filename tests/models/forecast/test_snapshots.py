"""What of a snapshot a forecaster is asked, and what it says."""

from dataclasses import replace

import pytest

from models.forecast.forecaster import Forecaster, Question
from models.forecast.known import KnownJob, unforeseen_jobs
from models.forecast.lasting import Lasting
from models.forecast.learning import train
from models.forecast.snapshots import forecast_jobs
from models.workload import Job, NodeGpus, Parallelism, Snapshot
from tests.growth import work
from tests.models.allocation.gang.scenes import cluster
from tests.models.forecast.histories import job, made_history
from tests.models.test_workload import GPT
from topology.cluster import NodeState

HISTORY = made_history(600)
AT_S = (HISTORY.origin_s or 0.0) + 36_000.0
HOUR_S = 3600.0


@pytest.fixture(scope="module")
def trained() -> Forecaster:
    return train(HISTORY, threads=1)


def asked(*jobs: Job) -> dict[str, KnownJob]:
    return {known.id: known for known in unforeseen_jobs(Snapshot(cluster=cluster(8, 8), jobs=jobs))}


def known(id_: str, **fields: object) -> KnownJob:
    return KnownJob(**{"id": id_, "num_gpus": 1, "age_s": 0.0, "running_s": 0.0, **fields})  # type: ignore[arg-type]


def test_it_is_asked_of_those_that_do_not_say_it_themselves() -> None:
    point = Lasting(probabilities=(1.0,), seconds=(60.0,))
    ahead = Job(id="ahead", parallelism=Parallelism(tp=2, pp=2, dp=2), transformer=GPT, min_gpus=8)
    found = asked(
        Job(id="says", lasting=point),
        Job(id="limited", remaining_s=60.0),
        Job(id="waits", min_gpus=4, age_s=9.0, user=" ann ", queue="q", application="llm", time_limit_s=50.0),
        replace(ahead, remaining_iterations=10.0),
        replace(ahead, id="open"),
    )
    assert list(found) == ["waits", "open"], "what is left of a transformer says how long it lasts"
    assert found["waits"] == known(
        "waits", num_gpus=4, age_s=9.0, user="ann", queue="q", application="llm", time_limit_s=50.0
    )
    assert found["open"].num_gpus == 8


def test_what_runs_says_for_how_long_it_has() -> None:
    gpus = (NodeGpus(node="a0", gpus=(0, 1)),)
    scene = (
        Job(id="said", current=gpus, age_s=100.0, running_s=60.0, attained_gpu_s=2.0),
        Job(id="counted", current=(NodeGpus(node="a0", gpus=(2, 3)),), attained_gpu_s=100.0),
        Job(id="silent", current=(NodeGpus(node="a1", gpus=(0,)),), age_s=100.0),
    )
    found = asked(*scene)
    assert {id_: (one.num_gpus, one.running_s) for id_, one in found.items()} == {
        "said": (2, 60.0),
        "counted": (2, 50.0),
        "silent": (1, None),
    }
    # What is said to run on a node that is down waits.
    whole = cluster(8, 8)
    down = replace(whole, nodes=(replace(whole.nodes[0], state=NodeState.DOWN), whole.nodes[1]))
    (said, *_) = unforeseen_jobs(Snapshot(cluster=down, jobs=scene))
    assert (said.num_gpus, said.running_s) == (1, 0.0)


def test_it_says_what_the_forecaster_says_of_the_same_jobs(trained: Forecaster) -> None:
    jobs = [known("short", user="anna"), known("runs", user="bert", age_s=2 * HOUR_S, running_s=HOUR_S)]
    found = forecast_jobs(trained, jobs, AT_S)
    assert (found.history, found.at_s) == ("made", AT_S)
    questions = [
        Question(job=job("short", 36_000.0, None, user="anna")),
        Question(job=job("runs", 28_800.0, None, user="bert"), age_s=HOUR_S),
    ]
    expected = trained.forecast(questions, at_s=36_000.0)
    assert [found.jobs[id_].lasting for id_ in ("short", "runs")] == list(expected)
    short, runs = expected
    assert short is not None
    assert runs is not None
    assert short.quantile(0.5) < 300.0 < runs.quantile(0.5)


def test_what_cannot_be_said_is_told_with_what_lacks(trained: Forecaster) -> None:
    jobs = [
        known("nobody's"),
        known("silent", user="anna", running_s=None),
        known("endless", user="bert", running_s=1e9),
        known(" ", user="anna"),
    ]
    found = forecast_jobs(trained, jobs, AT_S).jobs
    assert {id_: (one.lasting is None, one.lacks) for id_, one in found.items()} == {
        "nobody's": (True, "user"),
        "silent": (True, "running_s"),
        "endless": (True, None),
        " ": (False, None),
    }
    by_queue = replace(trained, names=replace(trained.names, user=(), queue=("q",)))
    assert forecast_jobs(by_queue, [known("a", user="anna")], AT_S).jobs["a"].lacks == "queue"
    without = replace(trained, names=replace(trained.names, user=(), queue=()))
    assert forecast_jobs(without, [known("a")], AT_S).jobs["a"].lasting is not None
    assert forecast_jobs(trained, jobs[:1], AT_S).jobs.keys() == {"nobody's"}


def test_a_history_without_a_time_of_day_is_asked_at_its_end(trained: Forecaster) -> None:
    timeless = replace(trained, origin_s=None)
    found = forecast_jobs(timeless, [known("short", user="anna")], AT_S)
    assert found.trained_until_s is None
    # At another time of day nothing changes.
    assert forecast_jobs(timeless, [known("short", user="anna")], AT_S + 7e4).jobs == found.jobs


def test_what_ran_when_it_was_trained_is_over_unless_it_is_asked_about(trained: Forecaster) -> None:
    question = Question(job=job("q", 40_000.0, None, user="bert"))
    ended = "id,submit_s,num_gpus,duration_s,user,state\na,0,1,100,bert,completed\n"
    crowded = replace(trained, memory=ended + "".join(f"o{k},{k},1,{30_000 - k},bert,running\n" for k in range(50)))
    at_once, later = (crowded.forecast([question], threads=1, at_s=at_s) for at_s in (None, 40_000.0))
    assert at_once != later
    assert later == replace(trained, memory=ended).forecast([question], threads=1, at_s=40_000.0)


@pytest.mark.slow
def test_cost_grows_with_the_jobs(trained: Forecaster) -> None:
    def cost(count: int) -> int:
        jobs = tuple(Job(id=f"j{k}", user="anna") for k in range(count))
        snapshot = Snapshot(cluster=cluster(8, 8), jobs=jobs)
        return work(lambda: forecast_jobs(trained, tuple(unforeseen_jobs(snapshot)), AT_S))

    assert trained.remembered.jobs
    assert cost(1000) < 2.3 * cost(500)

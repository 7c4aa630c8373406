"""Jobs that train as fast as a table says: what policies are told, what is true, replays by hand."""

from typing import Any

import pytest

from executor.control.options import ControlOptions
from executor.simulation.replay import Replay
from executor.simulation.setup import ReplaySetup
from executor.simulation.tabled import TabledThroughputs
from executor.simulation.truth import Estimates, TruthParameters
from models.allocation.arena.parameters import ArenaParameters
from models.allocation.gang.parameters import GangParameters
from models.allocation.sia.parameters import SiaParameters
from models.performance.goodput.spec import ThroughputTable
from models.plan import Change, JobAllocation
from models.policy import Parameters
from models.workload import NodeGpus
from stowplan.errors import InputError
from tests.growth import work
from tests.models.allocation.gang.scenes import cluster
from workloads.throughputs import Throughput
from workloads.trace import TraceJob, sorted_trace

# Samples/s of application m at a batch of 10, by GPUs and nodes.
SPEEDS = {(1, 1): 10.0, (2, 1): 18.0, (4, 1): 30.0, (4, 2): 24.0, (8, 2): 40.0}
THROUGHPUTS = tuple(
    Throughput(application="m", global_batch=10, gpu_type="a", num_gpus=n, num_nodes=nodes, samples_per_s=speed)
    for (n, nodes), speed in SPEEDS.items()
)


def job(name: str, submit_s: float, num_gpus: int, iterations: float, **rest: Any) -> TraceJob:
    return TraceJob(
        **{"application": "m", "global_batch": 10, "gpu_type": "a", **rest},
        id=name,
        submit_s=submit_s,
        num_gpus=num_gpus,
        iterations=iterations,
    )


def truth_of(*jobs: TraceJob, elastic: bool = True, seed: int = 0, **parameters: Any) -> TabledThroughputs:
    trace = sorted_trace("made", jobs)
    return TabledThroughputs(
        trace, THROUGHPUTS, cluster(4, 4), TruthParameters(**{"elasticity": 2, **parameters}), seed, elastic=elastic
    )


def setup_of(parameters: Parameters, *jobs: TraceJob, **rest: Any) -> ReplaySetup:
    return ReplaySetup(
        **{"truth": TruthParameters(elasticity=2), **rest},
        cluster=cluster(4, 4),
        trace=sorted_trace("made", jobs),
        control=ControlOptions(parameters=parameters),
        throughputs=THROUGHPUTS,
    )


def on(name: str, **gpus: int) -> JobAllocation:
    parts = tuple(NodeGpus(node=node, gpus=tuple(range(count))) for node, count in gpus.items())
    return JobAllocation(job_id=name, gpu_type="a", num_gpus=sum(gpus.values()), gpus=parts, change=Change.STARTED)


@pytest.mark.parametrize("parameters", [ArenaParameters(), SiaParameters()], ids=["arena", "sia"])
def test_a_job_alone_gets_its_fastest_gpus(parameters: Parameters) -> None:
    """Asks for 2, may have 4, which do 3 iterations a second; 8 would be more than twice as many."""
    result = Replay(setup_of(parameters, job("x", 5, 2, 300))).run()
    assert result.jobs[0].ended_s == pytest.approx(105)
    assert result.floor_completion_s == pytest.approx(100)
    assert (result.jobs[0].met_deadline, result.num_deadlines) == (None, 0)
    assert result.jobs[0].unfairness == pytest.approx(1)


def test_policies_of_sizes_give_what_was_asked_for() -> None:
    result = Replay(setup_of(GangParameters(), job("x", 5, 2, 180, deadline_s=90), job("y", 5, 2, 180))).run()
    assert [record.ended_s for record in result.jobs] == pytest.approx([105, 105])
    # Against 60 s on 4 GPUs, of which each has its share.
    assert [record.unfairness for record in result.jobs] == pytest.approx([100 / 60] * 2)
    assert (result.num_deadlines, result.num_deadlines_met, result.unfair_share) == (1, 0, 1)


def test_work_is_credited_at_the_speed_at_which_it_was_done() -> None:
    """x has all 8 GPUs for 10 s; then both have 4, and x is rescaled for 5 s first."""
    jobs = (job("x", 0, 4, 100), job("y", 10, 2, 300))
    result = Replay(setup_of(ArenaParameters(), *jobs, truth=TruthParameters(elasticity=2, restart_s=5))).run()
    x, y = result.jobs
    assert x.restarts == {"rescaled": 1}
    assert x.ended_s == pytest.approx(15 + (100 - 10 * 4) / 3)
    assert y.ended_s == pytest.approx(10 + 100)
    assert result.restarts == {"rescaled": 0.5}


def test_what_is_told_of_elastic_jobs() -> None:
    told = truth_of(job("x", 0, 2, 100, deadline_s=50, priority=2), restart_s=7, start_s=1).told("x")
    assert (told.min_gpus, told.max_gpus, told.priority, told.restart_cost_s) == (1, 4, 2, 7)
    assert (told.remaining_iterations, told.deadline_s, told.remaining_s) == (100, 50, None)
    assert isinstance(told.performance, ThroughputTable)
    entries = {(entry.num_gpus, entry.num_nodes): entry.value for entry in told.performance.entries}
    assert entries == {(1, None): 10, (2, None): 18, (4, None): 30, (4, 2): 24, (8, None): 40}


def test_what_is_told_of_sizes() -> None:
    truth = truth_of(job("x", 0, 3, 90), job("y", 0, 2, 1, time_limit_s=60), elastic=False)
    told = truth.told("x")
    assert (told.min_gpus, told.gpu_types, told.performance) == (2, ("a",), None)
    assert told.remaining_s == pytest.approx(50)
    assert truth.measured("x", 40, None).iterations_left is None
    limits = truth_of(job("y", 0, 2, 1, time_limit_s=60), elastic=False, estimates=Estimates.LIMIT)
    assert limits.told("y").remaining_s == 60


def test_noise_is_in_what_is_told_and_the_same_for_an_application() -> None:
    jobs = (job("x", 0, 2, 100), job("y", 0, 2, 100))
    one, other = truth_of(*jobs, noise=0.2), truth_of(*jobs, noise=0.2, seed=1)
    assert one.told("x").performance == one.told("y").performance == truth_of(*jobs, noise=0.2).told("x").performance
    assert one.told("x").performance != other.told("x").performance
    assert one.segment(on("x", a0=2), 0.0, None).speed == other.segment(on("x", a0=2), 0.0, None).speed == 1.8


def test_speed_by_nodes() -> None:
    truth = truth_of(job("x", 0, 4, 100))
    assert truth.segment(on("x", a0=4), 0.0, None).speed == 3.0
    assert truth.segment(on("x", a0=2, a1=2), 0.0, None).speed == 2.4
    # Of more nodes than are known nothing slower is known.
    assert truth.segment(on("x", a0=2, a1=1, a2=1), 0.0, None).speed == 2.4
    with pytest.raises(InputError, match="job 'x' gets 3 GPUs of type 'a', and the table of throughputs says nothing"):
        truth.segment(on("x", a0=3), 0.0, None)


def test_checkpoints_and_starts_of_few_gpus() -> None:
    truth = truth_of(job("x", 0, 2, 100), checkpoint_s=10, restart_s=40, delay_per_gpu_s=10)
    assert (truth.kept("x", 40.0), truth.kept("x", 17.9)) == (36.0, 0.0)
    assert [truth.delay_s(on("x", a0=n), is_first=False) for n in (1, 2, 4)] == [10, 20, 40]
    assert truth.delay_s(on("x", a0=4), is_first=True) == 0


def test_what_the_table_does_not_know_is_left_out() -> None:
    known, other, vague = (
        job("x", 0, 2, 1),
        job("y", 0, 2, 1, application="n"),
        TraceJob(id="z", submit_s=0, num_gpus=1),
    )
    result = Replay(setup_of(ArenaParameters(), known, other, vague)).run()
    assert ([record.id for record in result.jobs], result.num_left_out) == (["x"], 2)


def test_what_is_told_and_true_of_twice_as_many_jobs_costs_twice_as_much() -> None:
    def cost(num_jobs: int) -> int:
        jobs = [job(f"j{k}", float(k), 2, 300) for k in range(num_jobs)]

        def ask() -> None:
            truth = truth_of(*jobs, noise=0.1)
            for one in jobs:
                truth.told(one.id)
                truth.alone(one.id)
                truth.segment(on(one.id, a0=2), 0.0, None)

        return work(ask)

    cost(2)
    assert cost(200) <= 2.3 * cost(100)


def test_records_of_twice_as_many_jobs_cost_twice_as_much() -> None:
    def cost(num_jobs: int) -> int:
        replay = Replay(setup_of(GangParameters(), *(job(f"j{k}", 400.0 * k, 2, 300) for k in range(num_jobs))))
        while replay.step() is not None:
            pass
        return work(replay.result)

    cost(2)
    assert cost(40) <= 2.3 * cost(20)


@pytest.mark.parametrize("elastic", [True, False])
def test_misjudged_work_is_told_and_not_done(elastic: bool) -> None:
    """Of many jobs about half are told twice, half half as much; they take as long as they do."""
    jobs = [job(f"j{k}", 0, 2, 180) for k in range(40)]
    truth = truth_of(*jobs, elastic=elastic, misjudged=2.0)
    ratios = [(truth.told(item.id).remaining_iterations or 180) / 180 for item in jobs]
    assert set(ratios) == ({2.0, 0.5} if elastic else {1.0})
    if elastic:
        assert 8 < ratios.count(2.0) < 32
        assert [(truth.measured(item.id, 90, None).iterations_left or 0) / 90 for item in jobs] == ratios
        again = truth_of(*jobs, misjudged=2.0, seed=1)
        assert [(again.told(item.id).remaining_iterations or 0) / 180 for item in jobs] != ratios
    assert truth.work("j0") == 180
    assert truth.alone("j0") == truth_of(*jobs, elastic=elastic).alone("j0")


def test_work_is_misjudged_by_a_factor_of_at_least_one() -> None:
    with pytest.raises(InputError, match=r"misjudged is 0\.5"):
        TruthParameters(misjudged=0.5)

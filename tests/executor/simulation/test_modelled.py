"""Jobs that train models of the catalogue: what policies are told, what is true, replays by hand."""

from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest

from executor.control.options import ControlOptions
from executor.simulation.modelled import ModelledTrainings
from executor.simulation.replay import Replay, ReplayState
from executor.simulation.setup import ReplaySetup
from executor.simulation.truth import TruthParameters
from models.allocation.arena.parameters import ArenaParameters
from models.allocation.gang.parameters import GangParameters
from models.allocation.gavel.parameters import GavelParameters
from models.allocation.sia.parameters import SiaParameters
from models.allocation.suika.parameters import SuikaParameters
from models.catalogue import find_model
from models.parallel_plan import symmetric_plan
from models.performance.goodput.spec import ThroughputTable
from models.performance.iteration.modelling import performance_model
from models.plan import Change, JobAllocation
from models.policies import policy_of
from models.policy import Parameters
from models.transformer import Checkpointing, Transformer
from models.workload import Job, NodeGpus, Parallelism
from stowplan.errors import InputError
from stowplan.records import from_document, to_document
from tests.growth import work
from topology.cluster import Cluster, Node, Tier
from topology.gpu_catalogue import find_product, gpu_type_of
from workloads.trace import TraceJob, sorted_trace

_H100 = gpu_type_of(find_product("h100"), "bf16")
TWO_NODES = Cluster(
    gpu_types=(_H100,), nodes=tuple(Node(id=f"n{k}", gpu_type=_H100.name, num_gpus=4) for k in range(2))
)


def job(name: str, submit_s: float, num_gpus: int, iterations: float = 100, **rest: Any) -> TraceJob:
    return TraceJob(
        **{"application": "gpt2-350m", "global_batch": 64, **rest},
        id=name,
        submit_s=submit_s,
        num_gpus=num_gpus,
        iterations=iterations,
    )


def truth_of(policy: Parameters, *jobs: TraceJob, seed: int = 0, **parameters: Any) -> ModelledTrainings:
    by = TruthParameters(**parameters)
    return ModelledTrainings(sorted_trace("made", jobs), TWO_NODES, by, seed, policy_of(policy))


def setup_of(policy: Parameters, *jobs: TraceJob, **rest: Any) -> ReplaySetup:
    return ReplaySetup(
        cluster=TWO_NODES,
        trace=sorted_trace("made", jobs),
        control=ControlOptions(parameters=policy),
        modelled=True,
        **rest,
    )


def test_a_job_is_slower_where_the_core_is() -> None:
    """Two racks of a node each: eight replicas run slower, and the policy is told of 8 GPUs what the core leaves."""
    speeds, tables = [], []
    for core in (1.0, 0.1, 0.01):
        nodes = tuple(replace(node, path=(node.id,)) for node in TWO_NODES.nodes)
        racks = replace(TWO_NODES, nodes=nodes, tiers=(Tier(name="rack"),), core_bandwidth_fraction=core)
        trace = sorted_trace("made", [job("x", 0, 8)])
        truth = ModelledTrainings(trace, racks, TruthParameters(), 0, policy_of(SiaParameters()))
        table = truth.told("x").performance
        assert isinstance(table, ThroughputTable)
        tables.append({entry.num_gpus: entry.value for entry in table.entries})
        plan = symmetric_plan(
            num_layers=24,
            pp=1,
            dp=8,
            tp=1,
            global_batch=64,
            num_micro_batches=8,
            gpu_type=_H100.name,
            gpus=tuple((f"n{k // 4}", k % 4) for k in range(8)),
        )
        speeds.append(truth.segment(replace(on("x", n0=4, n1=4), parallel_plan=plan), 0.0, None).speed)
    assert speeds[0] > speeds[1] > speeds[2]
    assert tables[0][8] > tables[1][8] >= tables[2][8]


def on(name: str, **gpus: int) -> JobAllocation:
    parts = tuple(NodeGpus(node=node, gpus=tuple(range(count))) for node, count in gpus.items())
    return JobAllocation(
        job_id=name, gpu_type=_H100.name, num_gpus=sum(gpus.values()), gpus=parts, change=Change.STARTED
    )


def iteration_s(name: str, pp: int, dp: int, tp: int, num_micro_batches: int, batch: int = 64) -> float:
    """By the performance model itself, on the GPUs of the first nodes."""
    model = find_model(name, global_batch=batch)
    assert isinstance(model, Transformer)
    gpus = tuple((f"n{k // 4}", k % 4) for k in range(pp * dp * tp))
    plan = symmetric_plan(
        num_layers=model.num_layers,
        pp=pp,
        dp=dp,
        tp=tp,
        global_batch=batch,
        num_micro_batches=num_micro_batches,
        gpu_type=_H100.name,
        gpus=gpus,
    )
    return performance_model(model, TWO_NODES).iteration(plan).total_s


def fastest_of_data_parallelism(num_gpus: int) -> float:
    return min(iteration_s("gpt2-350m", 1, num_gpus, 1, count) for count in (1, 2, 4, 8, 16) if 64 // count >= num_gpus)


def test_a_job_of_a_size_runs_its_fastest_symmetric_plan() -> None:
    """One GPU has one plan but for the micro-batches; twice the job waits for nobody."""
    result = Replay(setup_of(GangParameters(), job("x", 5, 1), job("y", 5, 1))).run()
    best_s = min(iteration_s("gpt2-350m", 1, 1, 1, count) for count in (1, 2, 4, 8, 16, 32, 64))
    fitting_s = truth_of(GangParameters(), job("x", 0, 1)).segment(on("x", n0=1), 0.0, None).speed ** -1
    # Large micro-batches of it do not fit the memory of a GPU.
    assert fitting_s >= best_s
    assert [record.ended_s for record in result.jobs] == pytest.approx([5 + 100 * fitting_s] * 2)


def test_what_is_told() -> None:
    x = job("x", 0, 2, deadline_s=60, priority=2)

    def told(policy: Parameters, **parameters: Any) -> Job:
        return truth_of(policy, x, **parameters).told("x")

    size = told(GangParameters())
    assert (size.min_gpus, size.priority, size.performance, size.model) == (2, 2, None, None)
    assert size.remaining_s == pytest.approx(100 * fastest_of_data_parallelism(2))
    model = told(SuikaParameters(), elasticity=3, restart_s=9)
    assert (model.min_gpus, model.max_gpus, model.restart_cost_s, model.remaining_iterations) == (2, 6, 9, 100)
    assert (model.performance, model.remaining_s, model.deadline_s) == (None, None, 60)
    assert model.transformer == find_model("gpt2-350m", global_batch=64)
    assert model.parallelism == Parallelism(tp=1, pp=1, dp=2)
    speeds = told(SiaParameters(), elasticity=2)
    assert (speeds.min_gpus, speeds.max_gpus, speeds.model) == (1, 4, None)
    assert isinstance(speeds.performance, ThroughputTable)
    values = {entry.num_gpus: entry.value for entry in speeds.performance.entries}
    assert values.keys() == {1, 2, 4}
    assert values[4] == pytest.approx(64 / fastest_of_data_parallelism(4))


@pytest.mark.parametrize(
    "parameters", [SuikaParameters(), ArenaParameters(), SiaParameters()], ids=lambda it: policy_of(it).name
)
def test_work_done_is_that_of_the_plans_that_ran(parameters: Parameters) -> None:
    """x has GPUs to itself, then shares them with y; the backend refuses work that speeds do not add up to."""
    result = Replay(setup_of(parameters, job("x", 0, 4, 400), job("y", 10, 4, 400))).run()
    x, y = result.jobs
    assert x.ended_s is not None
    assert y.ended_s is not None
    alone_s = 400 * fastest_of_data_parallelism(4)
    assert x.ended_s <= alone_s + 1e-6
    # y grows when x has ended, or had its GPUs from the start.
    assert y.ended_s < 10 + alone_s + 1e-6
    assert all(record.unfairness <= 2 for record in result.jobs)


def test_a_plan_is_slower_across_nodes() -> None:
    # With one adapter: eight of a node carry more than its links, which all replicas of a node share here.
    kind = replace(_H100, inter_node_bandwidth_bytes_per_s=5e10)
    trace = sorted_trace("made", [job("x", 0, 4, application="gpt2-2.6b")])
    cluster = replace(TWO_NODES, gpu_types=(kind,))
    truth = ModelledTrainings(trace, cluster, TruthParameters(), 0, policy_of(GangParameters()))
    near, far = (truth.segment(on("x", **gpus), 0.0, None).speed for gpus in ({"n0": 4}, {"n0": 2, "n1": 2}))
    assert far < near


def test_the_error_is_of_a_plan_and_no_policy_knows_it() -> None:
    jobs = job("x", 0, 2), job("y", 0, 2)
    exact, wrong, other = (
        truth_of(SuikaParameters(), *jobs, noise=noise, seed=seed) for noise, seed in ((0.0, 0), (0.2, 0), (0.2, 1))
    )
    assert exact.told("x") == wrong.told("x") == other.told("x")
    speeds = [truth.segment(on("x", n0=2), 0.0, None).speed for truth in (exact, wrong, other)]
    assert len(set(speeds)) == 3
    assert wrong.segment(on("y", n1=2), 0.0, None).speed == speeds[1]


def test_on_average_the_model_is_right_about_times() -> None:
    speeds = [
        truth_of(GangParameters(), job("x", 0, 2), noise=0.2, seed=seed).segment(on("x", n0=2), 0.0, None).speed
        for seed in range(400)
    ]
    assert fmean(1 / speed for speed in speeds) == pytest.approx(fastest_of_data_parallelism(2), rel=0.03)


def test_checkpoints_and_what_is_left() -> None:
    truth = truth_of(GangParameters(), job("x", 0, 2, 50), checkpoint_s=10)
    every = 10 / fastest_of_data_parallelism(2)
    assert truth.kept("x", 2.5 * every) == pytest.approx(2 * every)
    assert truth.measured("x", 20, None).iterations_left == 30
    assert truth.measured("x", 50, None).iterations_left == pytest.approx(0, abs=1e-6)
    assert truth_of(GangParameters(), job("x", 0, 2, 50)).kept("x", 40) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"application": "resnet-9"},
        {"application": None},
        {"global_batch": None},
        {"iterations": None},
        {"gpu_type": "a100"},
        {"num_gpus": 16},
        {"num_gpus": 1, "application": "gpt2-175b"},
    ],
    ids=str,
)
def test_what_cannot_be_trained_here_is_left_out(wrong: dict[str, Any]) -> None:
    odd = replace(job("odd", 0, 2), **wrong)
    result = Replay(setup_of(GangParameters(), job("x", 0, 2), odd)).run()
    assert ([record.id for record in result.jobs], result.num_left_out) == (["x"], 1)
    with pytest.raises(
        InputError, match="none of the 1 jobs of 'made' has GPUs, a batch, iterations or a duration, and as app"
    ):
        Replay(setup_of(GangParameters(), odd))


def test_activations_are_recomputed_where_that_is_what_it_takes() -> None:
    told = truth_of(SuikaParameters(), job("x", 0, 2, application="llama2-7b")).told("x")
    assert told.transformer is not None
    assert told.transformer.checkpointing is Checkpointing.SELECTIVE
    told = truth_of(SuikaParameters(), job("x", 0, 4, application="llama2-7b")).told("x")
    assert told.transformer is not None
    assert told.transformer.checkpointing is Checkpointing.NONE


def test_a_replay_goes_on_with_the_plans_that_ran() -> None:
    setup = setup_of(SuikaParameters(), job("x", 0, 2, 400), job("y", 3, 2, 400), job("z", 6, 2, 100))
    whole = Replay(setup).run()
    first = Replay(setup)
    for _ in range(3):
        first.step()
    state = from_document(ReplayState, to_document(first.state()), "state")
    assert Replay(setup, state=state).run().jobs == whole.jobs
    assert any(record.restarts for record in whole.jobs)


def test_durations_are_those_on_the_gpus_that_were_asked_for() -> None:
    x = replace(job("x", 5, 2), iterations=None, duration_s=50.0)
    assert Replay(setup_of(GangParameters(), x)).run().jobs[0].ended_s == pytest.approx(55)
    assert truth_of(SuikaParameters(), x).told("x").remaining_iterations == pytest.approx(
        50 / fastest_of_data_parallelism(2)
    )


def test_one_source_of_speeds() -> None:
    with pytest.raises(InputError, match="give one of them"):
        setup_of(GangParameters(), job("x", 0, 1), throughputs=())


def test_twice_as_many_jobs_cost_twice_as_much() -> None:
    def cost(num_jobs: int) -> int:
        jobs = [job(f"j{k}", float(k), 2) for k in range(num_jobs)]

        def ask() -> None:
            truth = truth_of(SiaParameters(), *jobs, noise=0.1)
            for one in jobs:
                truth.told(one.id)
                truth.alone(one.id)
                truth.segment(on(one.id, n0=2), 0.0, None)

        return work(ask)

    cost(2)
    assert cost(80) - cost(40) <= 1.3 * (cost(120) - cost(80))


def test_models_are_told_where_asked_for_to_policies_that_go_by_throughputs() -> None:
    """`sia` makes the plans of such jobs then, and jobs run these; `gavel` keeps sizes, and is told a table."""
    tells: dict[str, Any] = {"tells_models": True, "elasticity": 4.0, "misjudged": 2.0}
    told = truth_of(SiaParameters(), job("x", 0, 2), **tells).told("x")
    assert (told.performance, told.parallelism, told.min_gpus, told.max_gpus) == (None, None, 1, 8)
    assert told.transformer is not None
    work = truth_of(SiaParameters(), job("x", 0, 2)).work("x")
    assert (told.remaining_iterations or 0) / work in (pytest.approx(2.0), pytest.approx(0.5))
    assert isinstance(truth_of(GavelParameters(), job("x", 0, 2), **tells).told("x").performance, ThroughputTable)
    result = Replay(setup_of(SiaParameters(), job("x", 0, 2), truth=TruthParameters(tells_models=True))).run()
    assert result.num_finished == 1
    assert result.jobs[0].completion_s == pytest.approx(result.jobs[0].alone_s, rel=1e-2)

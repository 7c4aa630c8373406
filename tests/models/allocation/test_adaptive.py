"""Jobs that say what they train and not how fast: Sia gives them GPUs by their best 3D plans, with the plans."""

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from models.allocation import adaptive
from models.allocation.adaptive import adaptive_rows
from models.allocation.arena.parameters import ArenaParameters
from models.allocation.buddy_blocks import buddy_blocks
from models.allocation.parallel_plan_check import parallel_plan_violations
from models.allocation.sia.parameters import SiaObjective, SiaParameters
from models.allocation.suika.parameters import SuikaParameters
from models.configurations import enumerate_configurations
from models.parallel_plan import symmetric_plan
from models.parallelism.training import ALL_CHECKPOINTING, ALL_ZERO_STAGES, Choices, Training, trained
from models.performance.goodput.spec import TableEntry, ThroughputTable
from models.performance.iteration.adjustment import Adjustment
from models.performance.iteration.coefficients import Calibration
from models.performance.iteration.modelling import performance_model
from models.plan import Change, JobAllocation, PlanOutcome, PlanRequest
from models.planning import plan
from models.policy import Parameters
from models.software import Software
from models.transformer import Checkpointing, Transformer
from models.validation import request_issues
from models.workload import Job, NodeGpus, Reservation, Snapshot
from stowplan.errors import InputError
from topology.cluster import Cluster, GpuType, Node, Tier

KIND = GpuType(
    name="gpu",
    memory_bytes=24 * 10**9,
    peak_flops_per_s=125e12,
    intra_node_bandwidth_bytes_per_s=100e9,
    inter_node_bandwidth_bytes_per_s=25e9,
)
CLUSTER = Cluster(gpu_types=(KIND,), nodes=tuple(Node(id=f"n{k}", gpu_type="gpu", num_gpus=4) for k in range(3)))
GPT = Transformer(
    num_layers=12, hidden_size=1024, num_heads=16, vocabulary_size=32000, sequence_length=512, global_batch=32
)
MODELLED = Job(id="model", transformer=GPT)
TABLE = ThroughputTable(entries=tuple(TableEntry(gpu_type="gpu", num_gpus=n, value=n**0.9) for n in (1, 2, 4)))
LISTED = Job(id="table", performance=TABLE)
# The job runs two replicas on n1.
PLAN = symmetric_plan(
    num_layers=12, pp=1, dp=2, tp=1, global_batch=32, num_micro_batches=4, gpu_type="gpu", gpus=(("n1", 0), ("n1", 1))
)
RUNNING = replace(MODELLED, current=(NodeGpus(node="n1", gpus=(0, 1)),), parallel_plan=PLAN)


def planned(*jobs: Job) -> tuple[PlanOutcome, dict[str, JobAllocation]]:
    outcome = plan(PlanRequest(snapshot=Snapshot(cluster=CLUSTER, jobs=jobs), parameters=SiaParameters()))
    assert outcome.plan is not None
    return outcome, {job.job_id: job for job in outcome.plan.allocations}


def test_sia_gives_the_plan_that_its_goodput_is_of() -> None:
    _, given = planned(MODELLED, LISTED)
    got = given["model"]
    assert got.parallel_plan is not None
    assert set(got.parallel_plan.gpus) == {(part.node, gpu) for part in got.gpus for gpu in part.gpus}
    assert got.batch_size == got.parallel_plan.global_batch == 32
    # Nodes are under one switch: on the cluster the plan is as fast as it was on virtual nodes.
    model = performance_model(GPT, CLUSTER)
    assert got.expected_goodput == pytest.approx(model.throughput(got.parallel_plan))
    assert given["table"].parallel_plan is None


def test_a_job_that_stays_keeps_its_plan() -> None:
    _, given = planned(replace(RUNNING, max_gpus=2))
    assert given["model"].change is Change.KEPT
    assert given["model"].parallel_plan == PLAN
    assert given["model"].expected_goodput == pytest.approx(performance_model(GPT, CLUSTER).throughput(PLAN))


def test_a_plan_that_runs_on_is_judged_once_for_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes hold a replica each; on another cluster, with a hundredth of the bandwidth, gradients take longer."""
    gpus = tuple(NodeGpus(node=f"n{k}", gpus=(0, 1, 2, 3)) for k in range(2))
    spread = symmetric_plan(
        num_layers=12,
        pp=1,
        dp=2,
        tp=4,
        global_batch=32,
        num_micro_batches=4,
        gpu_type="gpu",
        gpus=tuple((part.node, gpu) for part in gpus for gpu in part.gpus),
    )
    job = replace(MODELLED, min_gpus=8, current=gpus, parallel_plan=spread)
    slow = replace(CLUSTER, gpu_types=(replace(KIND, inter_node_bandwidth_bytes_per_s=0.25e9),))
    judged = Mock(wraps=performance_model)
    monkeypatch.setattr(adaptive, "performance_model", judged)
    speeds: list[float] = []
    for cluster, num in ((CLUSTER, 2), (CLUSTER, 2), (slow, 4), (slow, 4)):
        configurations = enumerate_configurations(cluster)
        (c,) = np.flatnonzero(configurations.num_gpus == 8)
        snapshot = Snapshot(cluster=cluster, jobs=(replace(job, age_s=float(len(speeds))),))
        speeds.append(adaptive_rows(snapshot, configurations, np.array([c])).samples_per_s[0, c])
        assert judged.call_count == num
    expected = [performance_model(GPT, cluster).throughput(spread) for cluster in (CLUSTER, slow)]
    assert speeds == [expected[0], expected[0], expected[1], expected[1]]
    assert speeds[0] > speeds[2]


def test_a_running_plan_that_its_model_calls_too_large_is_kept_with_a_warning() -> None:
    """36 layers have 486 M parameters. At 2 + 4 bytes for weights and gradients, and 12 / 2 for Adam, a replica
    needs 5.8 GB without any activation, and has 0.9 x 6 GB."""
    small = replace(CLUSTER, gpu_types=(replace(KIND, memory_bytes=6 * 10**9),))
    larger = replace(GPT, num_layers=36)
    stage = replace(PLAN.stages[0], num_layers=36)
    job = replace(RUNNING, transformer=larger, parallel_plan=replace(PLAN, stages=(stage,)), preemptible=False)
    for parameters in (SiaParameters(), ArenaParameters()):
        outcome = plan(PlanRequest(snapshot=Snapshot(cluster=small, jobs=(LISTED, job)), parameters=parameters))
        assert outcome.plan is not None
        assert job.parallel_plan in [allocation.parallel_plan for allocation in outcome.plan.allocations]
        (warning,) = outcome.warnings
        assert (warning.code, warning.pointer) == ("plan_not_understood", "/jobs/1/parallel_plan")
        assert "stages/0/replicas/0 needs" in warning.detail
        fits = plan(PlanRequest(snapshot=Snapshot(cluster=CLUSTER, jobs=(LISTED, RUNNING)), parameters=parameters))
        assert fits.warnings == ()


def test_a_reservation_of_a_job_with_a_model() -> None:
    _, given = planned(replace(MODELLED, reservation=Reservation(gpu_type="gpu", num_gpus=8)), LISTED)
    assert given["model"].num_gpus == 8
    assert given["model"].parallel_plan is not None


def test_a_model_that_fits_nowhere_waits_with_a_reason() -> None:
    large = replace(MODELLED, transformer=replace(GPT, hidden_size=12288, num_layers=96, num_heads=96))
    outcome, given = planned(large, LISTED)
    assert set(given) == {"table"}
    assert outcome.plan is not None
    (waiting,) = outcome.plan.unplaced
    assert (waiting.job_id, waiting.reason) == ("model", "out_of_memory")
    assert waiting.counts["needed_bytes"] > waiting.counts["usable_bytes"] == pytest.approx(0.9 * 24e9)
    assert "needs at least" in waiting.detail


def test_costs_cannot_be_derived_from_a_model() -> None:
    snapshot = Snapshot(cluster=CLUSTER, jobs=(MODELLED,))
    issues = request_issues(snapshot, SiaParameters(objective=SiaObjective.GIVEN_COSTS))
    assert [(issue.code, issue.pointer) for issue in issues] == [("missing_performance", "/jobs/0/performance")]


def test_rows_of_arena_and_sia_agree() -> None:
    """Sia also has three whole nodes; across nodes plans are made for powers of two only."""
    snapshot = Snapshot(cluster=CLUSTER, jobs=(MODELLED, LISTED, replace(RUNNING, id="runs")))
    nowhere = np.full(3, -1, dtype=np.int64)
    by_count = []
    for configurations in (buddy_blocks(CLUSTER), enumerate_configurations(CLUSTER)):
        found = adaptive_rows(snapshot, configurations, nowhere)
        assert not found.samples_per_s[1].any()
        by_count.append(dict(zip(configurations.num_gpus.tolist(), found.samples_per_s[0].tolist(), strict=True)))
    blocks, all_of_them = by_count
    assert set(blocks) == {1, 2, 4, 8}
    assert all_of_them == blocks | {12: 0.0}


def three_pods(core: float) -> Cluster:
    """Pods of two, one and one nodes: 16 GPUs span all three, 8 fit into the first."""
    nodes = tuple(Node(id=f"n{k}", gpu_type="gpu", num_gpus=4, path=(f"p{max(0, k - 1)}",)) for k in range(4))
    return Cluster(gpu_types=(KIND,), nodes=nodes, tiers=(Tier(name="pod"),), core_bandwidth_fraction=core)


def answered(core: float, parameters: Parameters, job: Job) -> tuple[PlanOutcome, JobAllocation]:
    outcome = plan(PlanRequest(snapshot=Snapshot(cluster=three_pods(core), jobs=(job,)), parameters=parameters))
    assert outcome.plan is not None
    return outcome, outcome.plan.allocations[0]


# Of two layers no pipeline over four nodes can be made: gradients have to cross the core.
SHALLOW = replace(GPT, num_layers=2, global_batch=64)
# Of short sequences stages send little, and replicas reduce as much as of long ones.
SHORT = replace(SHALLOW, sequence_length=256)


@pytest.mark.parametrize("parameters", [SiaParameters(), ArenaParameters(), SuikaParameters()])
def test_a_job_over_three_pods_is_slower_where_the_core_is(parameters: Parameters) -> None:
    """What is answered is what the model says of exactly these GPUs."""
    job = Job(id="x", transformer=SHALLOW, min_gpus=16, max_gpus=16)
    speeds = []
    for core in (1.0, 0.1, 0.01):
        outcome, got = answered(core, parameters, job)
        assert got.parallel_plan is not None
        model = performance_model(SHALLOW, three_pods(core))
        assert got.expected_goodput == pytest.approx(model.throughput(got.parallel_plan))
        assert outcome.warnings == ()
        speeds.append(got.expected_goodput or 0.0)
    assert speeds[0] > 2 * speeds[1] > 4 * speeds[2]


@pytest.mark.parametrize("parameters", [SiaParameters(), ArenaParameters()])
def test_plans_are_made_for_the_bandwidth_that_there_is_at_best(parameters: Parameters) -> None:
    """With a tenth of it a pipeline of two stages, within pods as far as may be, beats replicas of all layers."""
    job = Job(id="x", transformer=SHORT, min_gpus=16, max_gpus=16)
    degrees = []
    for core in (1.0, 0.1):
        plan_ = answered(core, parameters, job)[1].parallel_plan
        assert plan_ is not None
        degrees.append(plan_.pp)
    assert degrees == [1, 2]


def test_stages_are_put_inside_pods_whatever_nodes_are_called() -> None:
    """Two stages of two replicas, each on a pod of two nodes: no gradient crosses the core, but what stages send."""
    speeds = []
    for core in (0.1, 0.01):
        made = three_pods(core)
        nodes = tuple(replace(node, path=(f"p{k % 2}",)) for k, node in enumerate(made.nodes))
        job = Job(id="x", transformer=SHORT, min_gpus=16, max_gpus=16)
        snapshot = Snapshot(cluster=replace(made, nodes=nodes), jobs=(job,))
        outcome = plan(PlanRequest(snapshot=snapshot, parameters=SiaParameters()))
        assert outcome.plan is not None
        (got,) = outcome.plan.allocations
        assert got.parallel_plan is not None
        for stage in got.parallel_plan.stages:
            assert len({int(replica.node[1:]) % 2 for replica in stage.replicas}) == 1
        speeds.append(got.expected_goodput or 0.0)
    assert speeds[0] > speeds[1]


@pytest.mark.parametrize("parameters", [SiaParameters(), ArenaParameters()])
def test_a_plan_that_is_placed_apart_is_slower_and_warned_of(parameters: Parameters) -> None:
    """A node of the only pod of two is in use: two nodes of different pods are left."""
    made = three_pods(0.01)
    taken = replace(made.nodes[0], gpus_in_use=(0, 1, 2, 3))
    job = Job(id="x", transformer=replace(SHALLOW, num_layers=1), min_gpus=8, max_gpus=8)
    found = []
    for nodes in (made.nodes, (taken, *made.nodes[1:])):
        snapshot = Snapshot(cluster=replace(made, nodes=nodes), jobs=(job,))
        outcome = plan(PlanRequest(snapshot=snapshot, parameters=parameters))
        assert outcome.plan is not None
        found.append((outcome.plan.allocations[0].expected_goodput or 0.0, outcome.warnings))
    (together, none), (apart, (warning,)) = found
    assert none == ()
    assert apart < together / 10
    assert (warning.code, warning.pointer) == ("slower_where_it_is", "/jobs/0")
    assert f"{together / apart:.3g} times slower" in warning.detail


def test_the_check_computes_the_throughput_of_a_plan_again() -> None:
    job = Job(id="x", transformer=SHALLOW, min_gpus=16, max_gpus=16)
    outcome, got = answered(0.1, SiaParameters(), job)
    assert outcome.plan is not None
    snapshot = Snapshot(cluster=three_pods(0.1), jobs=(job,))
    assert parallel_plan_violations(snapshot, outcome.plan) == []
    faster = replace(outcome.plan, allocations=(replace(got, expected_goodput=1.01 * (got.expected_goodput or 0)),))
    (issue,) = parallel_plan_violations(snapshot, faster)
    assert (issue.code, issue.pointer) == ("wrong_goodput", "/allocations/0/expected_goodput")


def test_tiers_that_cost_nothing_leave_plans_as_they_are() -> None:
    job = Job(id="x", transformer=SHALLOW, min_gpus=16, max_gpus=16)
    made = three_pods(1.0)
    flat = replace(made, tiers=(), nodes=tuple(replace(node, path=()) for node in made.nodes))
    outcome = plan(PlanRequest(snapshot=Snapshot(cluster=flat, jobs=(job,)), parameters=SiaParameters()))
    assert outcome.plan is not None
    assert outcome.plan.allocations == (answered(1.0, SiaParameters(), job)[1],)


OPEN = Choices(checkpointing=ALL_CHECKPOINTING, zero_stages=ALL_ZERO_STAGES)
# Activations of a sequence of 8,192 tokens do not fit beside its states, however these are spread over four GPUs.
LONG = replace(GPT, sequence_length=8192, hidden_size=2048)
SMALL = replace(CLUSTER, gpu_types=(replace(KIND, memory_bytes=6 * 10**9),))


@pytest.mark.parametrize("parameters", [SiaParameters(), ArenaParameters(), SuikaParameters()])
def test_plans_say_how_they_train_what_leaves_that_open(parameters: Parameters) -> None:
    """Without checkpointing the job fits nowhere. What is answered can be posted back, and is kept."""
    job = Job(id="j", transformer=LONG, choices=OPEN, min_gpus=4, max_gpus=4, restart_cost_s=1e5)
    closed = plan(
        PlanRequest(snapshot=Snapshot(cluster=SMALL, jobs=(replace(job, choices=Choices()),)), parameters=parameters)
    )
    assert closed.plan is not None
    assert closed.plan.unplaced[0].reason == "out_of_memory"
    snapshot = Snapshot(cluster=SMALL, jobs=(job,))
    outcome = plan(PlanRequest(snapshot=snapshot, parameters=parameters))
    assert outcome.plan is not None
    (given,) = outcome.plan.allocations
    chosen = given.parallel_plan
    assert chosen is not None
    assert chosen.training is not None
    assert chosen.training.checkpointing is not Checkpointing.NONE
    model = trained(LONG, chosen.training)
    assert given.expected_goodput == pytest.approx(performance_model(model, SMALL).throughput(chosen))
    running = replace(job, current=given.gpus, parallel_plan=chosen, expansions=given.expansions)
    again = plan(PlanRequest(snapshot=Snapshot(cluster=SMALL, jobs=(running,)), parameters=parameters))
    assert again.plan is not None
    assert again.plan.allocations[0].parallel_plan == chosen
    assert again.plan.allocations[0].change is Change.KEPT


def test_a_plan_that_trains_in_no_way_that_is_allowed_is_found() -> None:
    snapshot = Snapshot(cluster=CLUSTER, jobs=(replace(MODELLED, choices=Choices(checkpointing=ALL_CHECKPOINTING)),))
    outcome = plan(PlanRequest(snapshot=snapshot, parameters=SiaParameters()))
    assert outcome.plan is not None
    assert parallel_plan_violations(snapshot, outcome.plan) == []
    (given,) = outcome.plan.allocations
    assert given.parallel_plan is not None
    for training in (None, Training(checkpointing=Checkpointing.NONE, zero_stage=3)):
        other = replace(given, parallel_plan=replace(given.parallel_plan, training=training))
        issues = parallel_plan_violations(snapshot, replace(outcome.plan, allocations=(other,)))
        assert ("training", "/allocations/0/parallel_plan/training") in [(i.code, i.pointer) for i in issues]
    # Full checkpointing is allowed, and slower than what the plan says.
    full = Training(checkpointing=Checkpointing.FULL, zero_stage=1)
    other = replace(given, parallel_plan=replace(given.parallel_plan, training=full))
    issues = parallel_plan_violations(snapshot, replace(outcome.plan, allocations=(other,)))
    assert [issue.code for issue in issues] == ["wrong_goodput"]


def test_what_is_wrong_with_an_open_job() -> None:
    calibration = Calibration(adjustment=Adjustment(computation=2.0))
    job = replace(RUNNING, choices=OPEN, calibration=calibration)
    with pytest.raises(InputError) as raised:
        Snapshot(cluster=CLUSTER, jobs=(job,))
    assert [(issue.code, issue.pointer) for issue in raised.value.issues] == [
        ("one_of", "/jobs/0/calibration"),
        ("training", "/jobs/0/parallel_plan/training"),
    ]
    training = Training(checkpointing=Checkpointing.FULL, zero_stage=1)
    with pytest.raises(InputError, match="1 error"):
        Snapshot(cluster=CLUSTER, jobs=(replace(RUNNING, parallel_plan=replace(PLAN, training=training)),))


def test_calibrated_jobs_pass_the_check() -> None:
    calibration = Calibration(adjustment=Adjustment(computation=2.0))
    outcome, given = planned(replace(MODELLED, calibration=calibration))
    before = planned(MODELLED)[1]["model"].expected_goodput
    assert outcome.plan is not None
    assert before is not None
    assert given["model"].expected_goodput is not None
    assert given["model"].expected_goodput < before


def test_interleaved_plans_run_on_under_sia_and_are_refused_by_suika() -> None:
    torch = replace(MODELLED, transformer=replace(GPT, software=Software.TORCH))
    cut = symmetric_plan(
        num_layers=12,
        pp=2,
        dp=1,
        tp=1,
        global_batch=32,
        num_micro_batches=4,
        gpu_type="gpu",
        gpus=(("n1", 0), ("n1", 1)),
        virtual_stages=2,
    )
    job = replace(torch, current=RUNNING.current, parallel_plan=cut, min_gpus=2, max_gpus=2)
    _, given = planned(job)
    assert given["model"].parallel_plan == cut
    issues = request_issues(Snapshot(cluster=CLUSTER, jobs=(job,)), SuikaParameters())
    assert [issue.pointer for issue in issues] == ["/jobs/0/parallel_plan/virtual_stages"]

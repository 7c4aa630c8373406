"""Documents and domain types turn into each other without loss."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.cli.files import load_request
from api.common.examples import examples
from api.convert.outcome import outcome_from_document, outcome_to_document
from api.convert.snapshot import snapshot_from_document, snapshot_to_document
from api.schemas.limits import MAX_NAME_LENGTH
from api.schemas.plan import OutcomeDoc, TimingsDoc
from api.schemas.policies.horizon import HorizonParametersDoc
from api.schemas.request import PLAN_BODY
from api.schemas.snapshot import SNAPSHOT
from models.allocation.sia.parameters import SiaParameters
from models.forecast.lasting import Lasting
from models.parallel_plan import ParallelPlan, Replica, Stage, symmetric_plan
from models.parallelism.training import ALL_CHECKPOINTING, ALL_ZERO_STAGES, Choices, Training, trained
from models.performance.goodput.spec import (
    BatchRange,
    GoodputModel,
    GoodputObservations,
    GoodputTable,
    GradientStatistics,
    Observation,
    Performance,
    TableEntry,
    ThroughputParameters,
    ThroughputTable,
    TypeProfile,
)
from models.performance.iteration.coefficients import Calibration, GpuCoefficients, SizeCoefficients
from models.plan import (
    Change,
    ChangeReason,
    JobAllocation,
    PhaseTimes,
    Plan,
    PlanOutcome,
    PretrainingPlacement,
    ScoreTerm,
    SpreadPair,
    UnplacedJob,
)
from models.transformer import (
    Biases,
    Checkpointing,
    JobModel,
    Normalisation,
    Operator,
    OperatorModel,
    Optimizer,
    Positions,
    Precision,
    Transformer,
)
from models.workload import Adaptivity, Expansion, Job, NodeGpus, Parallelism, Reservation, Snapshot
from solver.result import Limit, SolveStatistics, TerminationReason
from stowplan.errors import FileFormatError, InputError, Issue, Severity
from tests.api.requests import json_text, sia_request, table_job
from topology.calendar import CalendarEntry, EntryKind, Shape
from topology.cluster import Cluster, GpuType, Node, NodeState, Tier

TYPES = ("a", "b")
names = st.text("abc/~é ", min_size=1, max_size=5)
positive = st.floats(1e-3, 1e6)
counts = st.integers(1, 10**6)
indices = st.sets(st.integers(0, 7), min_size=1).map(lambda gpus: tuple(sorted(gpus)))


# Those in which every software computes.
_PRECISIONS = st.sampled_from([precision for precision in Precision if not precision.in_8_bits])


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    tiers = tuple(Tier(name=name, bandwidth_fraction=draw(st.floats(0.01, 1))) for name in ("pod", "leaf"))
    nodes = tuple(
        Node(
            id=name,
            gpu_type=draw(st.sampled_from(TYPES)),
            num_gpus=16,
            gpus_in_use=tuple(8 + gpu for gpu in draw(indices)),
            state=draw(st.sampled_from(NodeState)),
            path=(draw(names), draw(names)),
        )
        for name in sorted(draw(st.sets(names, min_size=1, max_size=4)))
    )
    return Cluster(
        gpu_types=tuple(
            GpuType(
                name=name,
                memory_bytes=draw(counts),
                peak_flops_per_s=draw(positive),
                intra_node_bandwidth_bytes_per_s=draw(positive),
                inter_node_bandwidth_bytes_per_s=draw(positive),
            )
            for name in TYPES
        ),
        nodes=nodes,
        tiers=tiers,
        minipod_tier=draw(st.sampled_from([None, "pod", "leaf"])),
        core_bandwidth_fraction=draw(st.floats(0.01, 1)),
    )


types = st.sampled_from(TYPES)
batches = st.builds(BatchRange, initial=counts, maximum=counts)
gradients = st.builds(GradientStatistics, squared_norm=positive, variance=positive)
entries = st.lists(
    st.builds(TableEntry, gpu_type=types, num_gpus=counts, value=st.floats(-1e9, 1e9), num_nodes=st.none() | counts),
    min_size=1,
    max_size=3,
).map(tuple)
parameters = st.builds(
    ThroughputParameters,
    **dict.fromkeys(("alpha_c", "beta_c", "alpha_r", "beta_r", "alpha_n", "beta_n"), positive),
    gamma=st.floats(1, 10),
)
profiles = st.builds(
    TypeProfile,
    parameters=parameters,
    max_local_batch=counts,
    min_local_batch=counts,
    single_gpu_only=st.booleans(),
    gpus_per_replica=counts,
)
observations = st.builds(
    Observation,
    gpu_type=types,
    num_nodes=counts,
    num_replicas=counts,
    local_batch=counts,
    step_time_s=positive,
    sync_time_s=positive,
)
performances: st.SearchStrategy[Performance] = st.one_of(
    st.builds(ThroughputTable, entries=entries, batch_size=st.none() | counts),
    st.builds(GoodputTable, entries=entries),
    st.builds(
        GoodputModel,
        batch=batches,
        gradient=gradients,
        profiles=st.dictionaries(types, profiles, min_size=1),
    ),
    st.builds(
        GoodputObservations,
        batch=batches,
        gradient=gradients,
        observations=st.lists(observations, min_size=1, max_size=2).map(tuple),
        max_local_batch=st.dictionaries(types, counts),
        gpus_per_replica=st.dictionaries(types, counts),
        shared_with=st.none() | types,
    ),
)


batches_of_models = st.builds(
    lambda micro_batch, times, given: {
        "global_batch": micro_batch * times,
        "micro_batch": micro_batch if given else None,
    },
    st.integers(1, 10_000),
    st.integers(1, 100),
    st.booleans(),
)


@st.composite
def transformers(draw: st.DrawFn) -> Transformer:
    kv_heads, group, head_size = draw(st.integers(1, 8)), draw(st.integers(1, 8)), draw(st.integers(1, 128))
    heads = kv_heads * group
    window = draw(st.none() | counts)
    return Transformer(
        num_layers=draw(st.integers(1, 100)),
        vocabulary_size=draw(counts),
        sequence_length=draw(counts),
        hidden_size=heads * head_size,
        **draw(batches_of_models),
        num_heads=heads,
        num_kv_heads=draw(st.sampled_from([None, kv_heads])),
        head_size=draw(st.sampled_from([None, head_size])),
        feed_forward_size=draw(st.none() | counts),
        gated=draw(st.booleans()),
        normalisation=draw(st.sampled_from(Normalisation)),
        biases=draw(st.sampled_from(Biases)),
        positions=draw(st.sampled_from(Positions)),
        tied_embeddings=draw(st.booleans()),
        num_experts=draw(st.integers(4, 64)),
        experts_per_token=draw(st.integers(1, 4)),
        expert_interval=1,
        first_dense_layers=0,
        expert_feed_forward_size=draw(st.none() | counts),
        shared_expert_size=draw(st.none() | counts),
        capacity_factor=draw(st.floats(1.0, 100.0)),
        query_key_norms=draw(st.booleans()),
        post_norms=draw(st.booleans()),
        attention_window=window,
        global_attention_interval=None if window is None else draw(st.none() | st.integers(1, 6)),
        precision=draw(_PRECISIONS),
        optimizer=draw(st.sampled_from(Optimizer)),
        checkpointing=draw(st.sampled_from(Checkpointing)),
        zero_stage=draw(st.integers(0, 3)),
    )


operators = st.builds(
    Operator,
    name=names,
    parameters=st.integers(0, 10**12),
    **dict.fromkeys(
        ("forward_flops", "memory_traffic_bytes", "activation_bytes", "output_bytes", "tensor_parallel_bytes"), positive
    ),
)
operator_models = st.builds(
    OperatorModel,
    operators=st.lists(operators, min_size=1, max_size=3).map(tuple),
    global_batch=st.integers(1, 2**20),
    precision=_PRECISIONS,
    optimizer=st.sampled_from(Optimizer),
    zero_stage=st.integers(0, 3),
    name=st.none() | names,
)
coefficients = st.builds(
    GpuCoefficients,
    **dict.fromkeys(("compute_s", "backward_ratio", "optimizer_s"), positive),
    overlap=st.floats(1, 10) | st.just(math.inf),
)
calibrations = st.builds(
    Calibration,
    gpus=st.dictionaries(types, coefficients, min_size=1),
    sizes=st.none() | st.builds(SizeCoefficients, **dict.fromkeys(SizeCoefficients.__slots__, positive)),
    measured_at_s=st.none() | positive,
)


def running_plan(model: JobModel, node: Node, gpus: tuple[int, ...]) -> ParallelPlan:
    """One stage, one replica on all GPUs of the job."""
    num_layers = model.num_layers if isinstance(model, Transformer) else len(model.operators)
    replica = Replica(node=node.id, gpu_type=node.gpu_type, gpus=gpus, local_batch=model.global_batch)
    return ParallelPlan(stages=(Stage(num_layers=num_layers, replicas=(replica,)),), num_micro_batches=1)


OPEN = tuple(
    Choices(checkpointing=kinds, zero_stages=stages)
    for kinds in ((), ALL_CHECKPOINTING)
    for stages in ((), ALL_ZERO_STAGES)
)


@st.composite
def jobs_on(draw: st.DrawFn, name: str, node: Node) -> Job:
    current = draw(st.none() | st.tuples(st.builds(NodeGpus, node=st.just(node.id), gpus=indices)))
    model = draw(st.none() | transformers() | operator_models)
    choices = draw(st.sampled_from(OPEN[: 4 if isinstance(model, Transformer) else 2])) if model else OPEN[0]
    plan = None if model is None or current is None else running_plan(model, node, current[0].gpus)
    if model is not None and choices.are_open:
        # What is open is in the model what it is where nobody says anything.
        usual = Training(checkpointing=Checkpointing.NONE if choices.checkpointing else None, zero_stage=1)
        model = trained(model, usual if choices.zero_stages else replace(usual, zero_stage=model.zero_stage))
        plan = (
            None if plan is None else replace(plan, training=Training.of(draw(st.sampled_from(choices.models(model)))))
        )
    return Job(
        id=name,
        min_gpus=draw(st.integers(1, 4)),
        max_gpus=draw(st.none() | st.integers(4, 9)),
        adaptivity=draw(st.sampled_from(Adaptivity)),
        gpu_types=draw(st.sampled_from([None, ("a",), TYPES])),
        preemptible=draw(st.booleans()),
        reservation=draw(st.none() | st.builds(Reservation, gpu_type=types, num_gpus=counts)),
        weight=draw(positive),
        current=current,
        age_s=draw(positive),
        num_restarts=draw(counts),
        restart_cost_s=draw(positive),
        performance=draw(st.none() | performances),
        parallelism=draw(st.none() | st.builds(Parallelism, tp=st.integers(1, 8), pp=counts, dp=counts)),
        transformer=model if isinstance(model, Transformer) else None,
        operators=model if isinstance(model, OperatorModel) else None,
        priority=draw(st.integers(1, 9)),
        deadline_s=draw(st.none() | positive),
        remaining_iterations=draw(st.none() | positive),
        parallel_plan=draw(st.sampled_from([None, plan])),
        expansions=() if current is None else draw(st.sampled_from([(), (Expansion(gpus=current, benefit=1.5),)])),
        calibration=None if choices.are_open else draw(st.none() | calibrations),
        choices=choices,
        remaining_s=draw(st.none() | st.just(0.0) | positive),
        queue=draw(st.sampled_from([None, "team"])),
        lasting=draw(st.sampled_from([None, Lasting(probabilities=(0.5, 0.9), seconds=(60.0, 3600.0))])),
        calendar_entry=draw(st.sampled_from([None, "reservation"])),
    )


@st.composite
def entries_on(draw: st.DrawFn, name: str, node: Node) -> CalendarEntry:
    kind = draw(st.sampled_from(EntryKind))
    begin_s = draw(st.integers(-(10**6), 10**7)) / 8
    shape = Shape(num_nodes=1, gpu_type=draw(st.sampled_from([None, node.gpu_type])))
    named = kind is EntryKind.ARRIVAL or draw(st.booleans())
    return CalendarEntry(
        name=name,
        kind=kind,
        from_s=begin_s,
        until_s=None if kind.is_moment else draw(st.none() | st.integers(1, 99).map(lambda more: begin_s + more)),
        nodes=(node.id,) if named else (),
        shape=None if named else shape,
        # Shapes of hard reservations may want the same node.
        hard=kind is EntryKind.ARRIVAL,
        owner=draw(st.sampled_from(["", "team a"])),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    cluster = draw(clusters())
    # Every job runs on nodes of its own, so that no GPU is taken twice.
    jobs = tuple(draw(jobs_on(f"job {k}", node)) for k, node in enumerate(cluster.nodes))
    calendar = tuple(draw(entries_on(f"entry {k}", node)) for k, node in enumerate(cluster.nodes))
    return Snapshot(cluster=cluster, jobs=jobs, calendar=draw(st.sampled_from([(), calendar])))


@pytest.mark.slow
@given(snapshot=snapshots())
@settings(max_examples=20, deadline=None)
def test_a_snapshot_survives_the_round_trip(snapshot: Snapshot) -> None:
    text = snapshot_to_document(snapshot).model_dump_json()
    assert snapshot_from_document(SNAPSHOT.validate_json(text)) == snapshot


def test_every_example_is_a_plan_request() -> None:
    for known in examples():
        body = PLAN_BODY.validate_json(json.dumps(known.request))
        assert PLAN_BODY.validate_json(body.model_dump_json()) == body


def test_gpus_in_use_may_be_a_count() -> None:
    snapshot = sia_request()["snapshot"]
    snapshot["cluster"]["nodes"][0]["gpus_in_use"] = 2
    assert snapshot_from_document(SNAPSHOT.validate_json(json_text(snapshot))).cluster.nodes[0].gpus_in_use == (0, 1)


def outcome_with_everything() -> PlanOutcome:
    spread = SpreadPair(dp=2, pp=1)
    placement = PretrainingPlacement(
        job_id="llm",
        scheduling_unit="pp",
        alpha=0.3,
        beta=0.7,
        affinity_source="parameter",
        cells=(("n1", "n0"),),
        minipods=(("p1", "p0"),),
        hosts=("n1", "n0"),
        minipod_spread=spread,
        distance=spread,
        num_minipods_used=2,
        max_unit_spread=1,
        objective_eq4=1.3,
        objective_eq2=0.6,
    )
    allocation = JobAllocation(
        job_id="llm",
        gpu_type="a",
        num_gpus=4,
        gpus=(NodeGpus(node="n1", gpus=(0, 1)), NodeGpus(node="n0", gpus=(0, 1))),
        change=Change.STARTED,
        batch_size=32,
        local_batch_size=8,
        accumulation_steps=1,
        expected_goodput=3.5,
        why=ChangeReason(detail="ends sooner", counts={"ends_s": 60}),
        parallel_plan=symmetric_plan(
            num_layers=3,
            pp=2,
            dp=1,
            tp=2,
            global_batch=32,
            num_micro_batches=4,
            gpu_type="a",
            gpus=(("n1", 0), ("n1", 1), ("n0", 1), ("n0", 0)),
        ),
        expansions=(Expansion(gpus=(NodeGpus(node="n0", gpus=(0, 1)),), benefit=0.5),),
    )
    unplaced = UnplacedJob(
        job_id="other", reason="capacity", detail="no room", counts={"free": 0}, remedy="wait", preempted=True
    )
    return PlanOutcome(
        termination=TerminationReason.FEASIBLE,
        limit=Limit.TIME,
        sense="minimize",
        objective=1.3,
        bound=1.0,
        relative_gap=0.3 / 1.3,
        plan=Plan(
            allocations=(allocation,),
            unplaced=(unplaced,),
            score=(ScoreTerm(term="spread", job_id=None, value=1.3),),
            pretraining=placement,
        ),
        conflicts=(),
        warnings=(Issue(code="w", pointer="/jobs/0", detail="d", severity=Severity.WARNING),),
        times=PhaseTimes(wall_s={"build": 0.5, "solve": 2.0}, cpu_s=1.5),
        statistics=SolveStatistics(first_incumbent_s=0.25, num_nodes=7, num_columns=3, num_rows=2, num_nonzeros=4),
        solver="highs",
        solver_version="1.15.1",
        certificate="proven optimal by highs",
    )


def test_an_outcome_survives_the_round_trip() -> None:
    outcome = outcome_with_everything()
    nodes = tuple(Node(id=f"n{k}", gpu_type="a", num_gpus=2) for k in range(2))
    kind = GpuType(
        name="a",
        memory_bytes=1,
        peak_flops_per_s=1.0,
        intra_node_bandwidth_bytes_per_s=1.0,
        inter_node_bandwidth_bytes_per_s=1.0,
    )
    snapshot = Snapshot(cluster=Cluster(gpu_types=(kind,), nodes=nodes), jobs=(Job(id="llm"), Job(id="other")))
    document = OutcomeDoc.model_validate_json(outcome_to_document(outcome, snapshot).model_dump_json())
    timings = TimingsDoc(
        accept_ms=1.0,
        queue_ms=1.0,
        phases_ms={"build": 500.0, "solve": 2000.0},
        cpu_ms=1500.0,
        first_incumbent_ms=250.0,
        total_ms=2502.0,
    )
    assert outcome_from_document(document, timings) == outcome
    ranks = document.allocations[0].ranks
    assert ranks is not None
    assert [(host.node, host.first_rank, host.gpus) for host in ranks] == [("n1", 0, (0, 1)), ("n0", 2, (1, 0))]
    launch = document.allocations[0].launch
    assert launch is not None
    assert [(rank.node, rank.gpu, rank.local_rank, rank.pp, rank.dp, rank.tp) for rank in launch.ranks] == [
        ("n1", 0, 0, 0, 0, 0),
        ("n1", 1, 1, 0, 0, 1),
        ("n0", 1, 1, 1, 0, 0),
        ("n0", 0, 0, 1, 0, 1),
    ]
    assert (launch.stage_bounds, launch.hostfile) == ((0, 2, 3), "n1 slots=2\nn0 slots=2\n")
    with pytest.raises(ValueError, match="no outcome"):
        outcome_from_document(OutcomeDoc(), timings)
    assert outcome.plan is not None
    nowhere = replace(outcome, termination=TerminationReason.INFEASIBLE, plan=None, unplaced=outcome.plan.unplaced)
    assert outcome_from_document(outcome_to_document(nowhere, snapshot), timings) == nowhere


def _file(folder: Path, document: Any) -> Path:
    path = folder / "request.json"
    path.write_bytes(json_text(document))
    return path


def test_a_file_may_be_a_request_or_a_snapshot(tmp_path: Path) -> None:
    whole = sia_request(parameters={"fairness_power": -2.0}, options={"seed": 3})
    asked = load_request(_file(tmp_path, whole))
    assert asked.request.parameters == SiaParameters(fairness_power=-2.0)
    assert asked.request.options.seed == 3
    assert asked.warnings == ()
    bare = load_request(_file(tmp_path, whole["snapshot"]), policy="sia")
    assert bare.request.snapshot == asked.request.snapshot
    assert bare.request.parameters == SiaParameters()
    # What planning says points from the snapshot.
    issue = Issue(code="c", pointer="/jobs/0", detail="d")
    assert [file.in_file([issue])[0].pointer for file in (asked, bare)] == ["/snapshot/jobs/0", "/jobs/0"]


@pytest.mark.parametrize(
    ("document", "policy", "message"),
    [
        (sia_request()["snapshot"], None, "names no policy"),
        (sia_request(), "arnold", "for policy 'sia'"),
        ([1], None, "must be an object"),
        ({"policy": "sia", "snapshot": {"snapshot_id": "x"}}, None, "only a service has"),
    ],
)
def test_files_that_do_not_say_enough(tmp_path: Path, document: Any, policy: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_request(_file(tmp_path, document), policy)


def test_pointers_are_relative_to_the_file(tmp_path: Path) -> None:
    wrong = sia_request([table_job("j", min_gpus=3, max_gpus=2)])
    for document, pointer in ((wrong, "/snapshot/jobs/0/max_gpus"), (wrong["snapshot"], "/jobs/0/max_gpus")):
        with pytest.raises(InputError) as caught:
            load_request(_file(tmp_path, document), "sia")
        assert [issue.pointer for issue in caught.value.issues] == [pointer]
        assert "request.json" in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"nothing\.json: cannot be read"):
        load_request(tmp_path / "nothing.json")
    path = tmp_path / "broken.json"
    path.write_text("{\n  nope")
    with pytest.raises(FileFormatError, match=r"broken\.json: is not JSON: .* line 2 column 3"):
        load_request(path)


def test_prices_of_rows_of_the_longest_names_are_taken_back() -> None:
    longest = "n" * MAX_NAME_LENGTH
    names = {f"quota[{longest}]@15": 1.0, f"rooms[{longest},{longest},8]@3": 2.0}
    assert HorizonParametersDoc.model_validate({"prices": names}).prices == names

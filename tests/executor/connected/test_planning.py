from dataclasses import replace

from executor.connected.planning import PlacedByArnold
from models.allocation.gang.check import gang_violations
from models.allocation.gang.parameters import GangParameters
from models.placement.arnold.parameters import ArnoldParameters
from models.plan import PlanRequest
from models.workload import Job, NodeGpus, Parallelism, Snapshot
from tests.models.allocation.gang.scenes import kind
from topology.calendar import CalendarEntry, EntryKind
from topology.cluster import Cluster, Node, Tier

WHOLE = tuple(range(8))


def cluster(num_pods: int = 3, per_pod: int = 2, tiers: tuple[Tier, ...] = (Tier(name="pod"),)) -> Cluster:
    """Nodes n00 n01 | n10 n11 | n20 n21 with 8 GPUs each."""
    nodes = tuple(
        Node(id=f"n{pod}{k}", gpu_type="H100", num_gpus=8, path=(f"pod{pod}",) if tiers else ())
        for pod in range(num_pods)
        for k in range(per_pod)
    )
    return Cluster(
        gpu_types=(kind("H100"),),
        nodes=nodes,
        tiers=tiers,
        minipod_tier="pod" if tiers else None,
    )


def large(job_id: str = "large", pp: int = 2) -> Job:
    return Job(id=job_id, min_gpus=16 * pp, parallelism=Parallelism(tp=8, pp=pp, dp=2))


def request(*jobs: Job, on: Cluster | None = None) -> PlanRequest:
    return PlanRequest(snapshot=Snapshot(cluster=on or cluster(), jobs=jobs), parameters=GangParameters())


def test_arnold_places_what_gang_starts_beside_everybody_else() -> None:
    runs = Job(id="runs", min_gpus=8, current=(NodeGpus(node="n00", gpus=WHOLE),), preemptible=False)
    planner = PlacedByArnold(ArnoldParameters(alpha=0.0))
    outcome = planner(request(runs, large(), Job(id="small", min_gpus=8, age_s=10.0)))
    assert outcome.plan is not None
    found = {item.job_id: [part.node for part in item.gpus] for item in outcome.plan.allocations}
    assert found.keys() == {"runs", "large", "small"}
    assert sorted(node for nodes in found.values() for node in nodes) == ["n00", "n01", "n10", "n11", "n20", "n21"]
    # Hosts are stage-major: a PP group is every other one, and with alpha 0 within one minipod. Gang sorts by name.
    assert [{name[:2] for name in found["large"][k::2]} for k in range(2)] in ([{"n1"}, {"n2"}], [{"n2"}, {"n1"}])
    assert planner.refused == {}


def test_what_arnold_refuses_stays_where_gang_has_put_it() -> None:
    planner = PlacedByArnold(ArnoldParameters(alpha=1.0))
    outcome = planner(request(large(), on=cluster(tiers=())))
    assert outcome.plan is not None
    assert [item.job_id for item in outcome.plan.allocations] == ["large"]
    assert "minipods" in planner.refused["large"]


def test_what_would_delay_the_job_that_is_next_stays_where_gang_has_put_it() -> None:
    """Pod 2 is closed before `next` would end there; pod 1, which Arnold takes as gladly, is kept for it."""
    ends = Job(
        id="ends",
        min_gpus=16,
        current=tuple(NodeGpus(node=node, gpus=WHOLE) for node in ("n00", "n01")),
        remaining_s=100.0,
        preemptible=False,
    )
    first = Job(id="next", min_gpus=32, age_s=10.0, remaining_s=5000.0)
    closed = CalendarEntry(name="fans", kind=EntryKind.MAINTENANCE, from_s=2000.0, nodes=("n20", "n21"))
    asked = request(ends, first, replace(large(pp=1), remaining_s=1000.0, age_s=1.0))
    asked = replace(asked, snapshot=replace(asked.snapshot, calendar=(closed,)))
    said: list[str] = []
    planner = PlacedByArnold(ArnoldParameters(alpha=1.0), said.append)
    outcome = planner(asked)
    assert outcome.plan is not None
    assert outcome.objective is not None
    found = {item.job_id: [part.node for part in item.gpus] for item in outcome.plan.allocations}
    assert found["large"] == ["n20", "n21"]
    assert gang_violations(asked.snapshot, GangParameters(), outcome.plan, outcome.objective) == []
    assert "job 'next' is next and could start in 100 s" in planner.refused["large"]
    planner(asked)
    assert said == [f"large: Arnold does not place it: {planner.refused['large']}"]


def test_jobs_without_degrees_are_not_asked_about() -> None:
    planner = PlacedByArnold(ArnoldParameters())
    outcome = planner(request(Job(id="small", min_gpus=8)))
    assert outcome.plan is not None
    assert len(outcome.plan.allocations) == 1
    assert planner.refused == {}

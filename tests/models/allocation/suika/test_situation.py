"""Situations that differ in names only are one; answers from memory fit the names that are asked about."""

from benchmarks.workloads.suika_events import rack_cluster
from models.allocation.suika.agent import Agents
from models.allocation.suika.situation import situation_of
from models.parallel_plan import ParallelPlan
from models.parallelism.incremental.expand import expand
from models.parallelism.incremental.options import IncrementalOptions
from models.performance.iteration.fabric import fabric_of
from tests.models.allocation.suika.real import cluster_of, job

FABRIC = fabric_of(rack_cluster(40))
WAITING = job("a", dp=2, tp=2)
AGENTS = Agents(cluster_of(WAITING, num_nodes=40), IncrementalOptions())
Gpus = list[tuple[str, int]]


def on(node: str, *indices: int) -> Gpus:
    return [(node, index) for index in indices]


def plan_on(own: Gpus) -> ParallelPlan:
    plan = AGENTS.derived_plan(WAITING, own)
    assert plan is not None
    return plan


def test_names_do_not_matter_but_places_do() -> None:
    def key(own: Gpus, released: Gpus) -> object:
        return situation_of(FABRIC, plan_on(own), released).key

    same_rack = key(on("n0000", 0, 1, 2, 3), on("n0003", 4, 5))
    assert key(on("n0017", 2, 3, 6, 7), on("n0020", 0, 1)) == same_rack
    assert key(on("n0003", 0, 1, 2, 3), on("n0000", 4, 5)) == same_rack
    assert key(on("n0000", 0, 1, 2, 3), on("n0017", 4, 5)) != same_rack
    assert key(on("n0000", 0, 1, 2, 3), on("n0000", 4, 5)) != same_rack
    assert key(on("n0000", 0, 1, 2, 3), [*on("n0003", 4), *on("n0004", 4)]) != same_rack
    assert key([*on("n0000", 0, 1), *on("n0001", 0, 1)], on("n0003", 4, 5)) != same_rack


def test_neutral_names_keep_what_the_model_sees() -> None:
    plan = plan_on([*on("n0017", 2, 3), *on("n0030", 6, 7)])
    situation = situation_of(FABRIC, plan, on("n0018", 5))
    assert situation.neutral_released() == (("0002", 0),)
    assert situation.neutral_plan().gpus == (("0000", 0), ("0000", 1), ("0001", 0), ("0001", 1))
    assert [host.path for host in situation.neutral_fabric().hosts.values()] == [("0000",), ("0000",), ("0000",)]
    model = AGENTS.model(WAITING)
    assert AGENTS.throughput(WAITING, plan) == model.throughput(plan)


def test_answers_are_those_of_the_planner() -> None:
    for own, released in (
        (on("n0001", 0, 1, 2, 3), [*on("n0001", 4, 5), *on("n0002", 0, 1)]),
        (on("n0018", 4, 5, 6, 7), [*on("n0018", 0, 3), *on("n0030", 5, 7)]),
        (on("n0020", 4, 5, 6, 7), [*on("n0020", 0, 3), *on("n0001", 1, 2)]),
    ):
        plan = plan_on(own)
        result = expand(AGENTS.model(WAITING), plan, released)
        offer = AGENTS.expand(WAITING, plan, released)
        assert offer.horizon == set(result.order)
        plans = list(dict.fromkeys(step.plan for step in result.steps if set(step.plan.gpus) > set(own)))
        assert [candidate.build() for candidate in offer.candidates] == plans
        assert [candidate.throughput for candidate in offer.candidates] == list(
            dict.fromkeys(step.throughput for step in result.steps if step.plan in plans)
        )
        for candidate in offer.candidates:
            assert set(candidate.build().gpus) == candidate.added | set(own)


def test_jobs_of_one_kind_share_a_model() -> None:
    assert AGENTS.model(WAITING) is AGENTS.model(job("b", dp=4))

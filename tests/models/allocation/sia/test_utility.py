import numpy as np
import pytest

from models.allocation.sia.instance import SiaInstance, sia_instance
from models.allocation.sia.parameters import SiaObjective, SiaParameters
from models.allocation.sia.utility import restart_factor
from models.clock import PhaseClock
from models.plan import PlanRequest
from models.planning import plan
from models.workload import Adaptivity, Job, Reservation, Snapshot
from stowplan.errors import InputError
from tests.models.allocation.sia.instances import Table, table
from tests.models.placement.scenes import cluster, node, on
from topology.cluster import Cluster, NodeState

GOODPUT = {("a", m): float(m) ** 0.5 for m in (1, 2, 4, 8, 16)} | {("b", m): 3.0 * m for m in (1, 2, 4)}


def machines() -> Cluster:
    return cluster(node("n0"), node("n1"), node("n2", 4, "b"))


def instance(job: Job, parameters: SiaParameters | None = None, on_: Cluster | None = None) -> SiaInstance:
    snapshot = Snapshot(cluster=on_ or machines(), jobs=(job,))
    return sia_instance(snapshot, parameters or SiaParameters(), PhaseClock())


def offered(it: SiaInstance) -> dict[str, list[int]]:
    result: dict[str, list[int]] = {}
    for c in np.flatnonzero(it.utility.offered[0]):
        result.setdefault(it.configurations.gpu_types[it.configurations.type_index[c]], []).append(
            int(it.configurations.num_gpus[c])
        )
    return result


def values(it: SiaInstance) -> Table:
    kinds = [it.configurations.gpu_types[t] for t in it.configurations.type_index]
    return {
        (kind, int(m)): float(value)
        for kind, m, value, can in zip(
            kinds, it.configurations.num_gpus, it.utility.value[0], it.utility.runnable[0], strict=True
        )
        if can
    }


def test_bounds_types_and_rigid_counts() -> None:
    performance = table(GOODPUT)
    assert offered(instance(Job(id="j", performance=performance))) == {"a": [1, 2, 4, 8, 16], "b": [1, 2, 4]}
    assert offered(instance(Job(id="j", performance=performance, min_gpus=3, max_gpus=8))) == {"a": [4, 8], "b": [4]}
    assert offered(instance(Job(id="j", performance=performance, gpu_types=("b",)))) == {"b": [1, 2, 4]}
    rigid = Job(id="j", performance=performance, min_gpus=4, adaptivity=Adaptivity.RIGID)
    assert offered(instance(rigid)) == {"a": [4], "b": [4]}


def test_configurations_that_do_not_fit_what_is_free_are_not_offered() -> None:
    taken = cluster(node("n0", in_use=(3,)), node("n1", state=NodeState.DRAINED), node("n2", 4, "b", in_use=(0, 1)))
    it = instance(Job(id="j", performance=table(GOODPUT)), on_=taken)
    assert offered(it) == {"a": [1, 2, 4], "b": [1, 2]}
    assert len(values(it)) == 8


def test_doubling() -> None:
    """A waiting job starts at its smallest count of each type, a running one at most doubles."""
    parameters = SiaParameters(double_at_most=True)
    waiting = Job(id="j", performance=table(GOODPUT), min_gpus=2)
    assert offered(instance(waiting, parameters)) == {"a": [2], "b": [2]}
    running = Job(id="j", performance=table(GOODPUT), current=on({"n0": (0, 1)}))
    assert offered(instance(running, parameters)) == {"a": [1, 2, 4], "b": [1, 2, 4]}
    below_its_minimum = Job(id="j", performance=table(GOODPUT), current=on({"n0": (0,)}), min_gpus=8)
    assert offered(instance(below_its_minimum, parameters)) == {"a": [8]}


def test_a_reservation_offers_just_itself_even_where_it_does_not_fit() -> None:
    job = Job(id="j", performance=table(GOODPUT), reservation=Reservation(gpu_type="a", num_gpus=16))
    full = cluster(node("n0", in_use=(0,)), node("n1"), node("n2", 4, "b"))
    assert offered(instance(job, SiaParameters(double_at_most=True), full)) == {"a": [16]}


def test_rows_are_normalised_by_their_minimum_times_the_smallest_count() -> None:
    """min_gpus 2: the row starts at sqrt(2) on (1,2,a), so 4 GPUs of b are worth 2 * 12 / sqrt(2)."""
    it = instance(Job(id="j", performance=table(GOODPUT), min_gpus=2, weight=3.0), SiaParameters(fairness_power=1.0))
    assert values(it)["a", 2] == pytest.approx(3 * 2)
    assert values(it)["a", 8] == pytest.approx(3 * 4)
    assert values(it)["b", 4] == pytest.approx(3 * 2 * 12 / 2**0.5)


def test_what_is_free_does_not_change_a_jobs_utilities() -> None:
    job = Job(id="j", performance=table({("a", 1): 5.0, ("b", 1): 1.0, ("b", 2): 2.0}))
    full = cluster(node("n0"), node("n1"), node("n2", 4, "b", in_use=(0, 1, 2, 3)))
    assert values(instance(job)) == values(instance(job, on_=full))


@pytest.mark.parametrize("power", [-0.5, 1.0])
def test_the_restart_factor_spares_the_present_configuration(power: float) -> None:
    """T = 900, N = 1, S = 100: r = 800 / 1000."""
    parameters = SiaParameters(fairness_power=power)
    job = Job(
        id="j",
        performance=table(GOODPUT),
        current=on({"n0": (0, 1)}),
        age_s=900.0,
        num_restarts=1,
        restart_cost_s=100.0,
    )
    it = instance(job, parameters)
    assert values(it)["a", 2] == pytest.approx((2**0.5) ** power)
    assert values(it)["a", 4] == pytest.approx((0.8 * 2) ** power)
    drained = cluster(node("n0", state=NodeState.DRAINED), node("n1"), node("n2", 4, "b"))
    assert values(instance(job, parameters, drained))["a", 2] == pytest.approx((0.8 * 2**0.5) ** power)


def test_a_placement_that_breaks_the_rules_has_to_move() -> None:
    """Eight GPUs over two half nodes are no configuration; neither are two nodes of other sizes with 16."""
    split = Job(id="j", performance=table(GOODPUT), current=on({"n0": (0, 1, 2, 3), "n1": (0, 1, 2, 3)}))
    assert instance(split).utility.current.tolist() == [-1]
    uneven = cluster(node("n0", 12), node("n1", 4), node("n2", 8), node("n3", 8))
    job = Job(id="j", performance=table(GOODPUT), current=on({"n0": tuple(range(12)), "n1": (0, 1, 2, 3)}))
    assert instance(job, on_=uneven).utility.current.tolist() == [-1]


def test_restart_factors_stay_within_their_range() -> None:
    cases = [(0.0, 0, 0.0), (0.0, 2, 30.0), (100.0, 50, 30.0), (1000.0, 0, 0.0)]
    assert [restart_factor(*case) for case in cases] == [1.0, 0.01, 0.01, 1.0]


def test_given_costs_are_taken_as_they_are() -> None:
    job = Job(id="j", performance=table(GOODPUT), weight=2.0, current=on({"n0": (0,)}), age_s=60.0, restart_cost_s=90.0)
    it = instance(job, SiaParameters(objective=SiaObjective.GIVEN_COSTS, fairness_power=1.0))
    assert values(it) == {shape: pytest.approx(2.0 * cost) for shape, cost in GOODPUT.items()}


def test_a_power_that_overflows_is_refused() -> None:
    with pytest.raises(InputError, match="nearer to 0"):
        instance(Job(id="j", performance=table(GOODPUT)), SiaParameters(fairness_power=1000.0))


def test_changes_cost_so_many_times_their_restart() -> None:
    """Eq. 3 with three times the cost: (1000 - 2 * 90) / (1000 + 90)."""
    job = Job(
        id="j",
        performance=table({("a", 1): 1.0, ("a", 2): 2.0}),
        current=on({"n0": (0,)}),
        age_s=1000.0,
        num_restarts=2,
        restart_cost_s=30.0,
    )
    priced = SiaParameters(fairness_power=1.0, restart_price=3.0)
    one, two = instance(job, priced, cluster(node("n0", 2))).utility.value[0]
    assert one == 1
    assert two == pytest.approx(2 * 820 / 1090)


@pytest.mark.parametrize("price_suspension", [False, True])
def test_a_running_job_is_not_suspended_beside_free_gpus_where_that_has_a_price(price_suspension: bool) -> None:
    """Its node is drained, and a restart costs more than the queue: 10 / 130 to the power of -0.5 is above 1.1."""
    job = Job(
        id="j",
        performance=table({("a", 1): 1.0}),
        current=on({"n0": (0,)}),
        age_s=100.0,
        num_restarts=3,
        restart_cost_s=30.0,
    )
    machines = cluster(node("n0", 1, state=NodeState.DRAINED), node("n1", 1))
    parameters = SiaParameters(price_suspension=price_suspension)
    outcome = plan(PlanRequest(snapshot=Snapshot(cluster=machines, jobs=(job,)), parameters=parameters))
    assert outcome.plan is not None
    assert [item.job_id for item in outcome.plan.allocations] == (["j"] if price_suspension else [])
    if not price_suspension:
        assert [left.reason for left in outcome.plan.unplaced] == ["queue_penalty_too_low"]

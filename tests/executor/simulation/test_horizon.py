"""Plans over a horizon begin at the prices of the last one, also in a replay that another process goes on with."""

import json
from dataclasses import replace

import pytest

from executor.control.options import ControlOptions, usual_options
from executor.simulation.replay import Replay, ReplayState
from executor.simulation.setup import ReplaySetup
from models.allocation.horizon.parameters import HorizonParameters
from models.allocation.sia.parameters import SiaParameters
from models.plan import PlanOutcome, PlanRequest
from models.policy import Parameters
from solver.result import TerminationReason
from stowplan.records import from_document, to_json
from tests.executor.simulation.scenes import Watched
from tests.models.placement.scenes import cluster, node
from workloads.throughputs import Throughput
from workloads.trace import TraceJob, sorted_trace

ROWS = tuple(
    Throughput(application="m", global_batch=1, gpu_type="a", num_gpus=n, num_nodes=1, samples_per_s=speed)
    for n, speed in ((1, 1.0), (2, 1.8), (4, 3.0))
)


def setup_of(parameters: Parameters) -> ReplaySetup:
    """Four GPUs, for which six jobs ask that come one after another."""
    jobs = (
        TraceJob(id=f"j{k}", submit_s=40.0 * k, num_gpus=2, iterations=300.0, application="m", global_batch=1)
        for k in range(6)
    )
    control = ControlOptions(parameters=parameters, options=usual_options(parameters))
    return ReplaySetup(
        cluster=cluster(node("n", 4)), trace=sorted_trace("made", jobs), throughputs=ROWS, control=control
    )


@pytest.mark.parametrize("num_steps", [2, 5])
def test_decisions_begin_at_the_prices_of_the_one_before(num_steps: int) -> None:
    watched, setup = Watched(), setup_of(HorizonParameters())
    replay = Replay(setup, planner=watched)
    for _ in range(num_steps):
        assert replay.step() is not None
    state = from_document(ReplayState, json.loads(to_json(replay.state())), "state")
    went_on = Watched()
    Replay(setup, state=state, planner=went_on).run()
    replay.run()

    def prices(watched: Watched) -> list[dict[str, float]]:
        found = []
        for request in watched.requests:
            assert isinstance(request.parameters, HorizonParameters)
            found.append(dict(request.parameters.prices))
        return found

    told = prices(watched)
    assert told[0] == {}
    assert all(told[2:5])
    assert prices(went_on) == told[-len(went_on.requests) :]


def test_prices_that_are_given_are_those_of_the_first_decision() -> None:
    watched, prices = Watched(), {"capacity[a]": 3.0}
    Replay(setup_of(HorizonParameters(prices=prices)), planner=watched).run()
    told = [request.parameters for request in watched.requests]
    assert [parameters.prices for parameters in told if isinstance(parameters, HorizonParameters)][:2] == [prices] * 2


def test_a_decision_without_a_plan_leaves_no_prices() -> None:
    """Those of a program that has no point say so, whatever comes then."""
    watched = Watched()

    def planner(request: PlanRequest) -> PlanOutcome:
        outcome = watched(request)
        if len(watched.requests) != 3:
            return outcome
        none = TerminationReason.INFEASIBLE
        return replace(outcome, plan=None, objective=None, termination=none, prices={"capacity[a]": 1e7})

    Replay(setup_of(HorizonParameters()), planner=planner).run()
    told = [request.parameters for request in watched.requests]
    assert all(max(each.prices.values(), default=0.0) < 1e3 for each in told if isinstance(each, HorizonParameters))


def test_others_begin_anew() -> None:
    watched, setup = Watched(), setup_of(SiaParameters())
    Replay(setup, planner=watched).run()
    assert all(request.parameters == setup.control.parameters for request in watched.requests)

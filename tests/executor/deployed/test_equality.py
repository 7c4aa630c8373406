"""What a policy does in a replay is what it does on deployments: the same events lead to the same decisions."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from executor.control.actions import Action, Stop
from executor.control.controller import Step
from executor.control.events import CalendarChange, Event, Failure, Measurement, NodeChange, Tick
from executor.control.options import ControlOptions
from executor.deployed.submission import Submission
from executor.simulation.backend import SimulatedBackend
from executor.simulation.progress import Submission as Simulated
from models.allocation.gang.parameters import GangParameters, QueueOrder
from models.allocation.gavel.parameters import GavelParameters
from models.allocation.sia.parameters import SiaParameters
from models.allocation.suika.parameters import SuikaParameters
from models.performance.goodput.spec import TableEntry, ThroughputTable
from models.plan import Change
from models.policy import Parameters
from models.workload import Parallelism
from tests.executor.deployed.scenes import Deployed, Linear, Measuring, job_of, steps_of, submitted
from tests.executor.deployed.scripted import ScriptedBackend
from tests.models.allocation.gang.scenes import cluster
from topology.calendar import CalendarEntry, EntryKind
from topology.cluster import NodeState

# Of a batch of 8, at a step per GPU second.
_TABLE = ThroughputTable(entries=tuple(TableEntry(gpu_type="a", num_gpus=n, value=8.0 * n) for n in (1, 2, 4)))


def sized(id_: str, num_gpus: int, steps: int, **more: Any) -> Submission:
    return submitted(job_of(id_, num_gpus, steps, **more), steps)


def scaling(id_: str, steps: int) -> Submission:
    job = job_of(id_, 1, steps, max_gpus=4, performance=_TABLE, restart_cost_s=4.0, remaining_s=None)
    return submitted(job, steps)


def queue() -> tuple[tuple[float, Submission], ...]:
    return (
        (0.0, sized("first", 4, 400, priority=3)),
        (0.0, sized("second", 4, 320, priority=2)),
        (8.0, sized("wide", 8, 160, priority=2)),
        (16.0, sized("small", 2, 16, priority=3)),
        (24.0, sized("urgent", 4, 80, priority=1)),
    )


def elastic() -> tuple[tuple[float, Submission], ...]:
    return tuple((64.0 * k, scaling(f"j{k}", 512 + 128 * (k % 3))) for k in range(4))


def parallel() -> tuple[tuple[float, Submission], ...]:
    jobs = (
        job_of(f"j{k}", 2, max_gpus=4, remaining_s=None, parallelism=Parallelism(tp=1, pp=1, dp=2)) for k in range(4)
    )
    return tuple((64.0 * k, submitted(job, 512)) for k, job in enumerate(jobs))


BREAKDOWN = ((40.0, ("a0", NodeState.DOWN)), (88.0, ("a0", NodeState.UP)))
PREEMPTING = GangParameters(order=QueueOrder.PRIORITY, preemption=True)


def decisions(steps: list[Step]) -> list[tuple[float, tuple[Event, ...], tuple[Action, ...] | None]]:
    return [(step.at_s, step.events, step.decision.actions if step.decision else None) for step in steps]


@pytest.mark.parametrize(
    ("made", "parameters", "round_s", "kinds"),
    [
        (queue, GangParameters(), None, {Failure, NodeChange}),
        (queue, PREEMPTING, None, {Failure, NodeChange, Stop}),
        (queue, replace(PREEMPTING, order=QueueOrder.LAS, service_thresholds=(100.0,)), 20.0, {Tick, Failure, Stop}),
        (parallel, SuikaParameters(), None, {Failure, Change.RESCALED}),
        (elastic, SiaParameters(), 32.0, {Tick, Failure, Change.RESCALED}),
        (queue, GavelParameters(round_s=20.0), 20.0, {Tick, Failure, Stop}),
    ],
    ids=["fifo", "priority", "las", "suika", "sia", "gavel"],
)
def test_simulated_and_deployed_jobs_are_decided_on_alike(
    made: Callable[[], tuple[tuple[float, Submission], ...]],
    parameters: Parameters,
    round_s: float | None,
    kinds: set[object],
    tmp_path: Path,
) -> None:
    jobs, where, options = made(), cluster(4, 4), ControlOptions(parameters=parameters, round_s=round_s)
    simulated = SimulatedBackend(
        where,
        [Simulated(at_s=at_s, job=job.job) for at_s, job in jobs],
        Linear([job for _, job in jobs]),
        changes=[NodeChange(at_s=at_s, node=node, state=state) for at_s, (node, state) in BREAKDOWN],
    )
    deployed = Deployed.of(tmp_path, where, *jobs, *BREAKDOWN)
    expected = decisions(steps_of(simulated, options, len(jobs)))
    found = decisions(steps_of(deployed.backend, options, len(jobs)))
    deployed.backend.close()
    assert found == expected
    # All of what is to be compared does happen.
    seen: set[object] = {type(event) for _, events, _ in found for event in events}
    for action in (action for _, _, actions in found for action in actions or ()):
        seen.add(Stop if isinstance(action, Stop) else action.allocation.change)
    assert kinds <= seen


def reserved() -> tuple[tuple[float, Submission], ...]:
    """The jobs of the queue, and one for which nodes are kept."""
    return (*queue(), (96.0, sized("owner", 8, 80, priority=3, calendar_entry="for owner")))


def entry(name: str, kind: EntryKind, from_s: float, until_s: float | None, *nodes: str, **more: Any) -> CalendarEntry:
    return CalendarEntry(name=name, kind=kind, from_s=from_s, until_s=until_s, nodes=nodes, **more)


# a2 comes at 48 s. Two nodes are kept from 72 s on, which becomes known at 32 s while jobs run there that would not be
# over by then; a0 goes at 224 s.
_ARRIVES = entry("new", EntryKind.ARRIVAL, 48.0, None, "a2")
CALENDARS = (
    (0.0, [_ARRIVES]),
    (
        32.0,
        [
            _ARRIVES,
            entry("for owner", EntryKind.RESERVATION, 72.0, 184.0, "a0", "a1"),
            entry("gone", EntryKind.DEPARTURE, 224.0, None, "a0"),
        ],
    ),
)


@pytest.mark.parametrize(
    ("parameters", "round_s"),
    [
        (GangParameters(), None),
        (PREEMPTING, None),
        (replace(PREEMPTING, order=QueueOrder.LAS, service_thresholds=(100.0,)), 20.0),
        (GavelParameters(round_s=20.0), 20.0),
    ],
    ids=["fifo", "priority", "las", "gavel"],
)
def test_calendars_lead_to_the_same_decisions(parameters: Parameters, round_s: float | None, tmp_path: Path) -> None:
    jobs, where, options = reserved(), cluster(4, 4, 4), ControlOptions(parameters=parameters, round_s=round_s)
    simulated = SimulatedBackend(
        where,
        [Simulated(at_s=at_s, job=job.job) for at_s, job in jobs],
        Linear([job for _, job in jobs]),
        changes=[CalendarChange(at_s=at_s, entries=tuple(entries)) for at_s, entries in CALENDARS],
    )
    deployed = Deployed.of(tmp_path, where, *CALENDARS, *jobs)
    expected = decisions(steps_of(simulated, options, len(jobs)))
    found = decisions(steps_of(deployed.backend, options, len(jobs)))
    deployed.backend.close()
    assert found == expected
    used: dict[str, set[float]] = {name: set() for name in ("a0", "a1", "a2")}
    cleared, owner = set(), set()
    for at_s, _, actions in found:
        for action in actions or ():
            nodes = set() if isinstance(action, Stop) else {part.node for part in action.allocation.gpus}
            for node in nodes:
                used[node].add(at_s)
            if isinstance(action, Stop) or action.allocation.change is Change.MOVED:
                cleared |= {at_s} if 72.0 <= at_s < 96.0 else set()
            if not isinstance(action, Stop) and action.allocation.job_id == "owner":
                owner = nodes
            else:
                assert not (nodes & {"a0", "a1"} and 72.0 <= at_s < 184.0), "kept for owner"
    # What arrives is used, and not before; what goes is not used any more; who was on the nodes of owner
    # when they began to be kept had to leave.
    assert min(used["a2"]) >= 48.0
    assert max(used["a0"]) < 224.0
    assert owner == {"a0", "a1"}
    assert cleared == {72.0 if round_s is None else 80.0}


def wrongly_tabled() -> tuple[tuple[float, Submission], ...]:
    """More GPUs are said to be hardly faster."""
    said = {1: 8.0, 2: 9.0, 4: 10.0}
    table = ThroughputTable(entries=tuple(TableEntry(gpu_type="a", num_gpus=n, value=said[n]) for n in said))
    told: dict[str, Any] = {"max_gpus": 4, "performance": table, "restart_cost_s": 4.0, "remaining_s": None}
    return tuple((64.0 * k, submitted(job_of(f"j{k}", 1, 1024, **told), 1024)) for k in range(4))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "parameters"),
    [(parallel, SuikaParameters()), (wrongly_tabled, SiaParameters())],
    ids=["suika", "sia"],
)
def test_what_is_measured_leads_to_the_same_decisions(
    made: Callable[[], tuple[tuple[float, Submission], ...]], parameters: Parameters, tmp_path: Path
) -> None:
    """In rounds: a simulation has no event for what is measured, but decides by it."""
    jobs, where = made(), cluster(4, 4)
    options, submissions = ControlOptions(parameters=parameters, round_s=32.0), [job for _, job in jobs]

    def simulated(truth: Linear) -> list[tuple[float, tuple[Action, ...]]]:
        arrivals = [Simulated(at_s=at_s, job=job.job) for at_s, job in jobs]
        return decided(steps_of(SimulatedBackend(where, arrivals, truth), options, len(jobs)))

    deployed = Deployed.of(tmp_path, where, *jobs)
    ScriptedBackend.measures = True
    steps = steps_of(deployed.backend, options, len(jobs))
    deployed.backend.close()
    assert decided(steps) == simulated(Measuring(submissions, where))
    assert any(isinstance(event, Measurement) for step in steps for event in step.events)
    assert decided(steps) != simulated(Linear(submissions))


def decided(steps: list[Step]) -> list[tuple[float, tuple[Action, ...]]]:
    return [(step.at_s, step.decision.actions) for step in steps if step.decision]

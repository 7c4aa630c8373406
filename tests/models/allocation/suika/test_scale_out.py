"""Algorithm 2 on clusters that fit on a line; throughputs are given by hand."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings

from models.allocation.suika.benefit import benefit, threshold
from models.allocation.suika.heuristic import Decision, decide
from models.allocation.suika.parameters import SuikaParameters
from models.allocation.suika.scale_out import scale_out
from models.allocation.suika.state import ClusterState, RunningJob, initial_state
from models.workload import Adaptivity, Snapshot
from tests.models.allocation.suika.scenes import (
    SEEDS,
    FakePlanner,
    linear,
    random_event,
    running,
    saturating,
    snapshot,
    stepped,
)

BOLD = SuikaParameters(aggressiveness=2.0)


def ends_with(decision: Decision) -> dict[str, int]:
    """GPUs of every job in the end."""
    counts = {job_id: item.plan.num_gpus for job_id, item in decision.settled.running.items()}
    return counts | {
        job_id: counts[job_id] + len(column.added) for job_id, column in decision.scale_outs.applied.items()
    }


def benefits(decision: Decision, job_id: str) -> list[float]:
    return [grown.benefit for grown in decision.scale_outs.applied[job_id].expansions]


def test_benefit_is_one_when_gpus_bring_as_much_as_those_before() -> None:
    assert benefit(8, 4, 10.0, 15.0) == pytest.approx(1.0)
    assert benefit(8, 8, 10.0, 15.0) == pytest.approx(0.5)
    assert benefit(4, 1, 10.0, 9.0) < 0


def test_threshold_is_the_intensity_to_the_aggressiveness() -> None:
    assert threshold(0.5, 1.0) == 0.5
    assert threshold(0.5, 2.0) == 0.25
    assert threshold(0.5, 0.0) == 1.0


def test_the_better_scale_out_comes_first_and_the_other_job_gets_the_rest() -> None:
    """AA.. BB..: tau = 4/8. A gains up to 3 GPUs (B = 1 for one), B is linear (B = 1 for one or two): A comes first
    and takes GPU 2 of n0; then A has nothing, and B takes two, its own node first; then the one that is left."""
    drawing = "AA.. BB.."
    decision = decide(
        snapshot(drawing, running("A", drawing), running("B", drawing)),
        SuikaParameters(),
        FakePlanner(curves={"A": saturating(3), "B": linear()}),
    )
    assert decision.tau == pytest.approx(0.5)
    assert ends_with(decision) == {"A": 3, "B": 5}
    assert benefits(decision, "A") == pytest.approx([1.0])
    assert decision.scale_outs.applied["B"].added == {("n0", 3), ("n1", 2), ("n1", 3)}


def test_the_threshold_decides_whether_a_scale_out_is_worth_it() -> None:
    """AA..: U = 1/2; two more GPUs bring 30 % (B = 0.3): below U, above U^2."""
    drawing = "AA.."
    state = snapshot(drawing, running("A", drawing))
    planner = FakePlanner(curves={"A": stepped({2: 10.0, 4: 13.0})})
    assert ends_with(decide(state, SuikaParameters(), planner)) == {"A": 2}
    assert ends_with(decide(state, BOLD, planner)) == {"A": 4}


def test_scale_outs_below_the_threshold_are_taken_back() -> None:
    """AAab BBBB: U = 6/8. a was worth 0.8, b 0.7. b goes back; what is left is below the threshold for everybody."""
    drawing = "AAab BBBB"
    jobs = (running("A", drawing, added="ab", benefits=(0.8, 0.7)), running("B", drawing))
    decision = decide(
        snapshot(drawing, *jobs), SuikaParameters(), FakePlanner(curves={"A": saturating(3), "B": saturating(4)})
    )
    assert ends_with(decision) == {"A": 3, "B": 4}
    assert decision.settled.free["a"]["n0"] == {3}


def test_what_stands_on_a_weak_scale_out_goes_with_it() -> None:
    """AAab BBBB with a = 0.7, b = 0.9: b was added to a plan that had a."""
    drawing = "AAab BBBB"
    jobs = (running("A", drawing, added="ab", benefits=(0.7, 0.9)), running("B", drawing))
    decision = decide(
        snapshot(drawing, *jobs), SuikaParameters(), FakePlanner(curves={"A": saturating(2), "B": saturating(4)})
    )
    assert decision.settled.running["A"].plan.num_gpus == 2
    assert ends_with(decision) == {"A": 2, "B": 4}


def test_bounds_are_kept() -> None:
    """A takes at most 3, B is rigid; C is not preemptible and keeps its GPUs."""
    drawing = "AA.. BC.."
    jobs = (
        running("A", drawing, max_gpus=3),
        running("B", drawing, adaptivity=Adaptivity.RIGID),
        running("C", drawing, preemptible=False),
    )
    decision = decide(
        snapshot(drawing, *jobs), SuikaParameters(), FakePlanner(curves={"A": linear(), "B": linear(), "C": linear()})
    )
    assert ends_with(decision) == {"A": 3, "B": 1}
    assert set(decision.settled.fixed) == {"C"}
    assert decision.tau == pytest.approx(4 / 8)


def test_expansions_above_the_bounds_are_taken_back() -> None:
    drawing = "AAab"
    job = running("A", drawing, added="ab", benefits=(0.9, 0.9), max_gpus=3)
    decision = decide(snapshot(drawing, job), SuikaParameters(), FakePlanner(curves={"A": linear()}))
    assert ends_with(decision) == {"A": 3}


def test_weights_decide_who_comes_first_but_not_the_threshold() -> None:
    """A. B.: every GPU is worth 1 to both. B weighs more, and takes its own node's GPU, then that of n0."""
    drawing = "A. B."
    planner = FakePlanner(curves={"A": linear(), "B": linear()})
    jobs = (running("A", drawing), running("B", drawing, weight=2.0))
    decision = decide(snapshot(drawing, *jobs), SuikaParameters(), planner)
    assert ends_with(decision) == {"A": 1, "B": 3}
    assert benefits(decision, "B") == pytest.approx([1.0, 1.0])


def test_only_jobs_that_may_be_the_best_are_asked() -> None:
    """A takes everything. B and C could gain nothing whatever was released."""
    drawing = "A... BBBB.... CCCC...."
    planner = FakePlanner(curves={"A": linear(), "B": saturating(4), "C": saturating(4)})
    jobs = [running(name, drawing) for name in "ABC"]
    decision = decide(snapshot(drawing, *jobs), SuikaParameters(), planner)
    assert ends_with(decision) == {"A": 12, "B": 4, "C": 4}
    assert set(planner.asked) == {"A"}


def test_a_job_that_hopes_for_less_than_another_has_is_asked_later() -> None:
    """AA.. BB: A gains B = 1 with one GPU, and does not count the second. B may have B = 0.8, and gets it."""
    drawing = "AA.. BB"
    planner = FakePlanner(curves={"A": saturating(3), "B": stepped({2: 10.0, 3: 14.0})})
    decision = decide(snapshot(drawing, *(running(name, drawing) for name in "AB")), SuikaParameters(), planner)
    assert ends_with(decision) == {"A": 3, "B": 3}
    assert planner.asked == ["A", "B"]


def test_fewer_released_gpus_than_a_step_of_the_outlook_are_offered() -> None:
    """AA. with an outlook in steps of two: one GPU is released, and A is asked about it."""

    planner = FakePlanner(curves={"A": linear()}, hope=[(2, 40.0)])
    assert ends_with(decide(snapshot("AA.", running("A", "AA.")), SuikaParameters(), planner)) == {"A": 3}


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_estimates_change_nothing(seed: int) -> None:
    """With hopes that are never met, every job is asked before any is chosen."""
    drawing, parameters, planner, jobs = random_event(seed)
    known = decide(snapshot(drawing, *jobs), parameters, planner)
    hoped = decide(snapshot(drawing, *jobs), parameters, replace(planner, hope=[(1, 1e9)]))
    assert ends_with(known) == ends_with(hoped)
    applied, hoped_for = known.scale_outs.applied, hoped.scale_outs.applied
    assert {job_id: column.key for job_id, column in applied.items()} == {
        job_id: column.key for job_id, column in hoped_for.items()
    }


def test_a_job_whose_gpus_were_taken_is_asked_again() -> None:
    """AA. BB....: A takes the rest of n0 and then GPU 2 of n1, which B had counted on; B takes the two after it."""
    drawing = "AA. BB...."
    curves = {"A": stepped({2: 20.0, 3: 30.0, 4: 40.0}), "B": stepped({2: 20.0, 4: 24.0})}
    decision = decide(snapshot(drawing, *(running(name, drawing) for name in "AB")), BOLD, FakePlanner(curves=curves))
    assert decision.scale_outs.applied["A"].added == {("n0", 2), ("n1", 2)}
    assert decision.scale_outs.applied["B"].added == {("n1", 3), ("n1", 4)}


def test_larger_candidates_of_an_offer_stand_until_they_are_below_the_threshold() -> None:
    """AAAA....: one more brings B = 1 (20 to 25), then two B = 0.5 = U, then one nothing. Four were offered at once,
    and what A could have after these three is not worth asking for."""
    drawing = "AAAA...."
    planner = FakePlanner(curves={"A": stepped({4: 20.0, 5: 25.0, 6: 26.0, 7: 30.0})})
    decision = decide(snapshot(drawing, running("A", drawing)), SuikaParameters(), planner)
    assert benefits(decision, "A") == pytest.approx([1.0, 5 / 2 * 5 / 25])
    assert planner.asked == ["A"]


def test_no_more_rounds_than_allowed() -> None:
    drawing = "A......."
    state = snapshot(drawing, running("A", drawing))
    decision = decide(state, SuikaParameters(max_rounds=1), FakePlanner(curves={"A": linear()}))
    assert ends_with(decision) == {"A": 2}


def test_rounds_do_not_walk_all_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grows one GPU a round, once or several times; the jobs are walked as often."""

    class Walked(dict[str, RunningJob]):
        num_walks = 0

        def __iter__(self) -> Iterator[str]:
            Walked.num_walks += 1
            return super().__iter__()

    copy = ClusterState.copy
    monkeypatch.setattr(ClusterState, "copy", lambda state: replace(copy(state), running=Walked(state.running)))
    drawing = "A........... B"
    planner = FakePlanner(curves={"A": linear(), "B": saturating(1)})
    state, _ = initial_state(snapshot(drawing, *(running(name, drawing) for name in "AB")), planner)
    walks = []
    for max_rounds in (1, 4):
        Walked.num_walks = 0
        assert scale_out(state, planner, 0.5, max_rounds).num_rounds == max_rounds
        walks.append(Walked.num_walks)
    assert walks[0] == walks[1] > 0


def test_a_cluster_without_jobs_changes_nothing() -> None:
    decision = decide(Snapshot(cluster=snapshot("....").cluster, jobs=()), SuikaParameters(), FakePlanner(curves={}))
    assert ends_with(decision) == {}
    assert decision.tau == 0.0

"""A state that was handed over belongs to the next run, whatever becomes of it; else to the old one. Nobody trains."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from executor.handover import Offer, asked, call_off, hand, write_offer
from executor.lifecycle import Cause, Phase
from executor.supervision import Supervisor
from tests.executor.test_supervision import deployed, drive
from tests.executor.test_supervision_faults import causes, running, watched, with_command

pytestmark = pytest.mark.slow

_OFFER = Offer(token="t", chunk_bytes=4096, doors=(), targets=())  # noqa: S106 - of no service
# Is ready, and ends well at once, or badly.
_READY = "mkdir -p ready; touch ready/$RANK; "
# A rank that ends takes the others along, which must have said so before.
_ALL_READY = f"{_READY} until [ -e ready/0 ] && [ -e ready/1 ]; do sleep 0.01; done;"


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    yield from watched(tmp_path / "job")


def test_the_old_run_is_told_who_takes_its_state(supervisor: Supervisor) -> None:
    running(supervisor, deployed(2, 1))
    supervisor.reconfigure(with_command(deployed(1, 2), f"{_READY} exec sleep 60"))
    write_offer(supervisor.folder(2), _OFFER)
    drive(supervisor, lambda state: state.phase is Phase.RUNNING)
    assert asked(supervisor.folder(1)) == (supervisor.folder(2), _OFFER)


def test_a_stop_behind_the_verdict_stops_the_next_run(supervisor: Supervisor) -> None:
    running(supervisor, deployed(2, 1))
    supervisor.reconfigure(deployed(1, 2))
    write_offer(supervisor.folder(2), _OFFER)
    assert hand(supervisor.folder(2), 9)
    supervisor.stop()
    state = supervisor.state()
    assert (state.phase, causes(state)) == (Phase.STOPPING, [Cause.DEPLOYED, Cause.RECONFIGURED])
    assert state.current.from_step == 9
    assert drive(supervisor, lambda state: state.phase.final).phase is Phase.STOPPED


def test_a_stop_before_the_verdict_calls_it_off(supervisor: Supervisor) -> None:
    running(supervisor, deployed(2, 1))
    supervisor.reconfigure(deployed(1, 2))
    write_offer(supervisor.folder(2), _OFFER)
    supervisor.stop()
    assert not hand(supervisor.folder(2), 9)
    assert causes(supervisor.state()) == [Cause.DEPLOYED]


def test_a_next_run_that_breaks_before_the_verdict_gets_nothing(supervisor: Supervisor) -> None:
    running(supervisor, deployed(2, 1))
    supervisor.reconfigure(with_command(deployed(1, 2), "exit 9"))
    write_offer(supervisor.folder(2), _OFFER)
    state = drive(supervisor, lambda state: state.phase is not Phase.RECONFIGURING)
    assert "did not start" in state.detail
    assert not hand(supervisor.folder(2), 9)


def test_a_next_run_that_breaks_behind_the_verdict_is_no_change_that_did_not_start(supervisor: Supervisor) -> None:
    running(supervisor, deployed(2, 1))
    supervisor.reconfigure(with_command(deployed(1, 2), f"{_ALL_READY} exit 9"))
    write_offer(supervisor.folder(2), _OFFER)
    assert hand(supervisor.folder(2), 9)
    assert not call_off(supervisor.folder(2))
    state = drive(supervisor, lambda state: len(state.runs) == 3)
    assert causes(state) == [Cause.DEPLOYED, Cause.RECONFIGURED, Cause.RETURNED]
    assert state.runs[1].from_step == 9

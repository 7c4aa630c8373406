"""A rank takes what it waits for from the ranks that it waits for, and nothing from anybody else."""

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from executor.checkpoints import checkpoint_of
from executor.handover import Offer, hand, write_offer
from executor.launch.pulse import Pulse
from executor.progress import Progress
from executor.redeployment import Region
from executor.trainer.carriage import Line
from executor.trainer.engine import Held
from executor.trainer.handing import Sending, hand_over
from executor.trainer.reception import Distance, Reception, offered
from executor.training_job import TrainingJob
from executor.training_options import EngineName
from stowplan.records import to_document
from tests.executor.jobs import LLAMA, tiny_job
from tests.waiting import eventually

pytestmark = pytest.mark.training

JOB = tiny_job(LLAMA, engine=EngineName.NATIVE, transfer_chunk_bytes=4096)
WHOLE = Region(tensor="weights.a", top=0, bottom=100, left=0, right=20)


class _Engine:
    """Has one tensor."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values

    def state(self) -> tuple[Held, ...]:
        return (Held(region=WHOLE, values=self.values, counts=True),)


@pytest.fixture
def here() -> torch.Tensor:
    return torch.zeros(100, 20)


@pytest.fixture
def reception(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: torch.Tensor) -> Iterator[Reception]:
    """Waits for a tensor from rank 3."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29500")
    made = Reception(JOB, 0, tmp_path, _Engine(here).state())
    made.begin("secret", {3: [WHOLE]}, {3: Distance.OTHER_HOST})
    yield made
    made.close()


def _offer(reception: Reception, *, token: str = "secret", machine: str | None = None) -> Offer:  # noqa: S107
    door = reception.door if machine is None else replace(reception.door, machine=machine)
    return Offer(token=token, chunk_bytes=4096, doors=(door,), targets=((), (), (), (0,)))


def _send(offer: Offer, values: torch.Tensor, job: TrainingJob = JOB, rank: int = 3) -> Sending:
    sending = Sending(offer, rank)
    try:
        sending.send(_Engine(values), checkpoint_of(job, 5, Progress()))  # type: ignore[arg-type]
    except BaseException:
        sending.close()
        raise
    return sending


@pytest.mark.parametrize("machine", [None, "another"], ids=["same-host", "other-host"])
def test_a_state_arrives_and_counts_when_that_is_said(
    reception: Reception, here: torch.Tensor, machine: str | None
) -> None:
    values = torch.randn(100, 20, generator=torch.Generator().manual_seed(2))
    sending = _send(_offer(reception, machine=machine), values)
    assert torch.equal(here, values)
    assert not reception.is_done()
    sending.tell()
    eventually(reception.is_done)
    sending.close()


def test_who_does_not_hear_that_it_counts_reads_it(reception: Reception, tmp_path: Path) -> None:
    offer = _offer(reception)
    write_offer(tmp_path, offer)
    sending = _send(offer, torch.ones(100, 20))
    sending.close()
    assert not reception.is_done()
    assert hand(tmp_path, 5)
    assert reception.is_done()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"token": "guessed"}, "somebody else than a rank of the run before has called"),
        ({"rank": 2}, "rank 2 of the run before is not waited for"),
        ({"job": replace(JOB, seed=8)}, "is a checkpoint of another training: seed is 8 there and 7 here"),
    ],
)
def test_nothing_else_is_taken(
    reception: Reception,
    here: torch.Tensor,
    caplog: pytest.LogCaptureFixture,
    wrong: dict[str, Any],
    said: str,
) -> None:
    offer = replace(_offer(reception, token=wrong.get("token", "secret")), targets=((0,),) * 4)
    with pytest.raises(ConnectionError):
        _send(offer, torch.ones(100, 20), wrong.get("job", JOB), wrong.get("rank", 3))
    eventually(lambda: said in caplog.text)
    assert not here.any()


@pytest.mark.parametrize("document", [[], {"token": "secret"}, {"token": "secret", "rank": "x"}, {"token": 3}])
def test_who_says_something_else_is_sent_away(reception: Reception, document: Any) -> None:
    line = Line(socket.create_connection((reception.door.address, reception.door.port)))
    line.say(document)
    with pytest.raises(ConnectionError):
        line.hear()
    line.close()


def test_a_host_that_knows_its_name_as_its_loopback_is_reached_by_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: torch.Tensor
) -> None:
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", "29500")
    reception = Reception(JOB, 0, tmp_path, _Engine(here).state())
    assert reception.door.address == "localhost"
    socket.create_connection((reception.door.address, reception.door.port)).close()
    reception.close()


def test_where_it_is_turned_off_nobody_is_asked(tmp_path: Path, here: torch.Tensor) -> None:
    job, engine = replace(JOB, transfer_chunk_bytes=0), _Engine(here)
    assert offered(job, 0, tmp_path, tmp_path, engine.state()) is None
    assert hand_over(engine, job, 5, Progress(), tmp_path, Pulse({})) is None  # type: ignore[arg-type]


def test_a_rank_is_taken_from_once(reception: Reception) -> None:
    sending = _send(_offer(reception), torch.ones(100, 20))
    with pytest.raises(ConnectionError):
        _send(_offer(reception), torch.ones(100, 20))
    sending.close()


def test_a_reception_that_is_closed_waits_for_nobody(reception: Reception, here: torch.Tensor) -> None:
    line = Line(socket.create_connection((reception.door.address, reception.door.port)))
    checkpoint = to_document(checkpoint_of(JOB, 5, Progress()))
    line.say({"token": "secret", "rank": 3, "checkpoint": checkpoint})
    assert len(line.hear()) == 1
    reception.close()
    with pytest.raises(ConnectionError):
        line.hear()
    line.close()
    assert not here.any()
    assert not reception.is_done()

"""What two runs write for each other: state, offer, and a verdict that nobody changes."""

import threading
from pathlib import Path

import pytest

from executor.handover import (
    Door,
    Offer,
    ask,
    asked,
    call_off,
    hand,
    handed_step,
    read_state,
    write_offer,
    write_state,
)
from executor.redeployment import Region
from executor.run_files import HANDOVER_FILE
from stowplan.errors import InputError

OFFER = Offer(
    token="t",  # noqa: S106 - of no service
    chunk_bytes=4096,
    doors=(Door(rank=0, address="10.0.0.1", port=7, machine="m", local="l"),),
    targets=((0,), ()),
)


@pytest.fixture
def following(tmp_path: Path) -> Path:
    """A run that offers to take a state."""
    folder = tmp_path / "0002"
    folder.mkdir()
    write_offer(folder, OFFER)
    return folder


def test_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    regions = (Region(tensor="weights.a", top=0, bottom=2, left=1, right=3),)
    write_state(tmp_path, 1, regions)
    assert read_state(tmp_path, 1) == regions


@pytest.mark.parametrize("text", ["[", "[[1]]", '[["a", 0, 0, 0, 1]]', '[["a", 0, "x", 0, 1]]', "3"])
def test_a_damaged_state_is_named(tmp_path: Path, text: str) -> None:
    write_state(tmp_path, 0, ())
    (tmp_path / "state" / "rank-0.json").write_text(text)
    with pytest.raises(InputError, match=r"rank-0.json does not say what rank 0 has"):
        read_state(tmp_path, 0)


def test_a_run_is_asked_only_where_the_next_one_offers(tmp_path: Path, following: Path) -> None:
    assert asked(tmp_path) is None
    ask(tmp_path, tmp_path / "0003")
    assert not (tmp_path / HANDOVER_FILE).exists()
    ask(tmp_path, following)
    assert asked(tmp_path) == (following, OFFER)


def test_the_first_verdict_counts(following: Path) -> None:
    assert handed_step(following) is None
    assert hand(following, 7)
    assert not call_off(following)
    assert handed_step(following) == 7


def test_nothing_is_handed_over_behind_a_call_off(following: Path) -> None:
    assert call_off(following)
    assert call_off(following)
    assert not hand(following, 7)
    assert handed_step(following) is None


def test_without_an_offer_nothing_can_be_handed_over(tmp_path: Path) -> None:
    assert not hand(tmp_path, 7)
    assert call_off(tmp_path)


def test_of_many_at_the_same_time_one_wins(following: Path) -> None:
    barrier, won = threading.Barrier(8), []

    def judge(k: int) -> None:
        barrier.wait()
        won.append(hand(following, k) if k % 2 else call_off(following))

    threads = [threading.Thread(target=judge, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # All that called it off agree; of the others only one can have handed it over.
    assert won.count(True) == (4 if handed_step(following) is None else 1)

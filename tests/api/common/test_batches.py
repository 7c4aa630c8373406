"""Work that is finished together: who gets which answer, in whose context, and what comes while it is busy."""

import asyncio
import queue
import threading
from collections.abc import Sequence
from contextvars import ContextVar
from enum import Enum
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from api.common.batches import Batches, Prepared
from api.common.errors import ShuttingDownError

NAME: ContextVar[str] = ContextVar("name")


class Desk:
    """Finishes numbers by doubling them; what it was given together is in `batches`. Waits while it is not `open`."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.names: list[str] = []
        self.open = threading.Event()
        self.open.set()

    def finish(self, ready: Sequence[Prepared[int]]) -> list[int | Exception]:
        self.batches.append([each.value for each in ready])
        self.names += [each.context.run(NAME.get, "nobody") for each in ready]
        self.open.wait()
        if any(each.value == 100 for each in ready):
            raise OSError("the disk is full")
        return [ValueError("odd") if each.value % 2 else 2 * each.value for each in ready]


async def _asked(batches: "Batches[int, int]", number: int) -> int:
    NAME.set(f"client-{number}")
    return await batches.do(lambda: number)


def test_what_comes_meanwhile_is_finished_together_and_each_gets_its_own_answer() -> None:
    desk = Desk()
    batches: Batches[int, int] = Batches("desk", desk.finish)

    async def main() -> list[int | BaseException]:
        desk.open.clear()
        first = asyncio.create_task(_asked(batches, 0))
        while not desk.batches:
            await asyncio.sleep(0)
        others = [asyncio.create_task(_asked(batches, number)) for number in range(1, 12)]
        await asyncio.sleep(0)
        desk.open.set()
        return await asyncio.gather(first, *others, return_exceptions=True)

    found = asyncio.run(main())
    batches.close()
    assert [of for of in found if not isinstance(of, Exception)] == [0, 4, 8, 12, 16, 20]
    assert sum(isinstance(of, ValueError) for of in found) == 6
    assert desk.batches == [[0], [1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 11]]
    assert desk.names == [f"client-{number}" for number in range(12)]


def test_what_cannot_be_prepared_is_its_own_fault_and_what_cannot_be_finished_that_of_all() -> None:
    desk = Desk()
    batches: Batches[int, int] = Batches("desk", desk.finish)

    def wrong() -> int:
        raise KeyError("nothing")

    async def main() -> list[int | BaseException]:
        return list(await asyncio.gather(batches.do(wrong), batches.do(lambda: 4), return_exceptions=True))

    mistake, good = asyncio.run(main())
    assert isinstance(mistake, KeyError)
    assert good == 8
    with pytest.raises(OSError, match="full"):
        asyncio.run(_asked(batches, 100))
    assert asyncio.run(_asked(batches, 6)) == 12
    batches.close()


def test_who_wakes_it_need_not_ask() -> None:
    desk = Desk()
    batches: Batches[int, int] = Batches("desk", desk.finish)
    batches.wake()
    batches.close()
    assert desk.batches == [[]]


def test_what_fails_and_was_asked_for_by_none_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def finish(ready: Sequence[Prepared[int]]) -> list[int | Exception]:
        raise OSError(f"the disk is full for {len(ready)}")

    batches: Batches[int, int] = Batches("desk", finish)
    batches.wake()
    batches.close()
    assert "desk: nobody asked for what failed" in caplog.text
    assert "the disk is full for 0" in caplog.text


def test_one_that_gives_up_keeps_no_other_from_its_answer() -> None:
    desk = Desk()
    batches: Batches[int, int] = Batches("desk", desk.finish)

    async def main() -> int:
        desk.open.clear()
        leaves, stays = (asyncio.create_task(_asked(batches, number)) for number in (2, 4))
        await asyncio.sleep(0)
        leaves.cancel()
        await asyncio.sleep(0)
        desk.open.set()
        return await stays

    assert asyncio.run(main()) == 8
    batches.close()


def test_what_was_asked_for_is_done_when_it_closes_and_nothing_after() -> None:
    desk = Desk()
    batches: Batches[int, int] = Batches("desk", desk.finish)

    async def main() -> list[int]:
        desk.open.clear()
        asked = [asyncio.create_task(_asked(batches, number)) for number in (2, 4, 6)]
        await asyncio.sleep(0)
        closing = threading.Thread(target=partial(batches.close))
        closing.start()
        desk.open.set()
        return await asyncio.gather(*asked)

    assert asyncio.run(main()) == [4, 8, 12]
    with pytest.raises(ShuttingDownError):
        asyncio.run(_asked(batches, 2))


def test_what_is_asked_for_while_it_closes_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(queue.SimpleQueue[object]):
        """What comes here gives the end the time to come first."""

        def put(self, item: object, *args: Any) -> None:
            if not isinstance(item, Enum):
                closing.start()
                closing.join(0.02)
            super().put(item, *args)

    monkeypatch.setattr("api.common.batches.queue", SimpleNamespace(SimpleQueue=Late, Empty=queue.Empty))
    batches: Batches[int, int] = Batches("desk", Desk().finish)
    closing = threading.Thread(target=batches.close)

    async def main() -> int:
        return await asyncio.wait_for(_asked(batches, 2), 1.0)

    assert asyncio.run(main()) == 4
    closing.join()

"""What happens to ranks that hand a state over, or take one, by the function that they are prepared with."""

import os
import signal
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from executor.trainer import handing, reception
from executor.trainer.carriage import receive, send


def shares_no_memory(_: int) -> None:
    """All goes through the network."""
    for module in (handing, reception):
        patch.object(module, "machine", lambda: "").start()


def dies_while_sending(rank: int) -> None:
    """SIGKILL behind the first batch that rank 1 sends."""
    if rank == 1:
        patch.object(handing, "send", _dying(send)).start()


def dies_while_receiving(rank: int) -> None:
    """SIGKILL behind the first batch that rank 1 receives."""
    if rank == 1:
        patch.object(reception, "receive", _dying(receive)).start()


def _dying(carry: Any) -> Any:
    def first_batch(*arguments: Any) -> Iterator[int]:
        for num_bytes in carry(*arguments):
            yield num_bytes
            os.kill(os.getpid(), signal.SIGKILL)

    return first_batch

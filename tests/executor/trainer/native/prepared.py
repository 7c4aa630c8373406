"""What happens to ranks, by the function that they are prepared with."""

import gc
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

from executor.trainer import handing, reception
from executor.trainer.carriage import receive, send
from executor.trainer.native.engine import NativeEngine

_STEP_S = 0.1


def shares_no_memory(_: int) -> None:
    """All goes through the network."""
    for module in (handing, reception):
        patch.object(module, "machine", lambda: "").start()


def takes_its_time(_: int) -> None:
    """Steps that mostly wait, as those of large models on GPUs: one that trains until others have decided something
    else would keep all processors from them."""
    train = NativeEngine.train_step

    def step(engine: NativeEngine, *arguments: Any) -> Any:
        time.sleep(_STEP_S)
        return train(engine, *arguments)

    patch.object(NativeEngine, "train_step", step).start()


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


def counts_bytes(folder: str, rank: int) -> None:
    """Write of every step what tensors take behind it, and at most where replicas communicate, and what they gather
    and reduce there.
    """
    steps: list[dict[str, int]] = []
    seen = {"peak": 0, "all_gather_single": 0, "reduce_scatter_single": 0}

    def counted(name: str) -> Any:
        collective = getattr(dist, name)

        def call(into: torch.Tensor, out_of: torch.Tensor, **more: Any) -> Any:
            seen["peak"] = max(seen["peak"], _tensor_bytes())
            seen[name] += max(into.nbytes, out_of.nbytes)
            return collective(into, out_of, **more)

        return call

    train = NativeEngine.train_step

    def step(engine: NativeEngine, *arguments: Any) -> Any:
        seen.update(dict.fromkeys(seen, 0))
        result = train(engine, *arguments)
        gc.collect()
        steps.append({**seen, "behind": _tensor_bytes()})
        (Path(folder) / f"bytes-{rank}.json").write_text(json.dumps(steps))
        return result

    for name in ("all_gather_single", "reduce_scatter_single"):
        patch.object(dist, name, counted(name)).start()
    patch.object(NativeEngine, "train_step", step).start()


def _tensor_bytes() -> int:
    """Of all storages that Python knows tensors of; what autograd keeps is not among them."""
    storages = [each.untyped_storage() for each in gc.get_objects() if isinstance(each, torch.Tensor)]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())

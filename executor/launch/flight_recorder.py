"""NCCL's flight recorder: which collectives each rank has begun and ended last, written when a run hangs.

`torchfrtrace` reads the files of all ranks and names the rank that is behind. Needs the standard library only.
"""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

# Collectives that a rank remembers.
_NUM_ENTRIES = 2000


class FlightRecorder:
    """Of the ranks of one host, whose recordings go to `nccl-rank-N` in the folder `logs`.

    `pipes`: folder of this host, since not every shared file system has pipes.
    """

    def __init__(self, logs: Path, pipes: Path) -> None:
        self._logs = logs
        self._pipes = pipes

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables with which torch records, and makes a pipe that asks each rank for its recording."""
        return {
            "TORCH_NCCL_TRACE_BUFFER_SIZE": str(_NUM_ENTRIES),
            "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
            "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(self._logs / "nccl-rank-"),
            "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{self._pipes}/",
        }

    def dump(self, ranks: Iterable[int]) -> None:
        """Ask ranks for their recordings; those that have no pipe have none."""
        for rank in ranks:
            with suppress(OSError):
                pipe = os.open(self._pipes / f"{rank}.pipe", os.O_WRONLY | os.O_NONBLOCK)
                os.write(pipe, b"1")
                os.close(pipe)

"""Pods of Alibaba 2023 (`openb_pod_list_*.csv`). A pod is a job, its class of service (qos) the queue.

`gpu_milli` is the share of each GPU, in thousandths. A pod runs from `scheduled_time` to `deletion_time`, whatever its
phase was when it was last seen; one that was never scheduled has waited in vain.
"""

from workloads.readers.table import (
    COUNT,
    NUMBER,
    STATE,
    Table,
    build_trace,
    count,
    difference,
    number,
    read_table,
)
from workloads.trace import Trace
from workloads.words import state_of

_MILLI = 1000


def read_openb(text: str, source: str, name: str) -> Trace:
    """Read the trace.

    Raises
    ------
    FileFormatError
        Names file, line, column and what is wrong.
    """
    table = read_table(text, source)
    submits = table.required("creation_time", number, NUMBER)
    starts = table.optional("scheduled_time", number, NUMBER)
    counts = table.required("num_gpu", count, COUNT)
    return build_trace(
        name,
        source,
        {
            "id": table.ids("name"),
            "submit_s": submits,
            "num_gpus": counts,
            "duration_s": difference(table.optional("deletion_time", number, NUMBER), starts),
            "gpu_type": table.named("gpu_spec"),
            "queue": table.named("qos"),
            "state": table.optional("pod_phase", state_of, STATE),
            "waited_s": difference(starts, submits),
            "gpu_share": _shares(table, counts),
        },
    )


def _shares(table: Table, counts: list[int]) -> list[float]:
    """Share of each GPU; 1 for pods without any."""
    milli = table.required("gpu_milli", count, COUNT)
    for k, (num_gpus, share) in enumerate(zip(counts, milli, strict=True)):
        if num_gpus and not 0 < share <= _MILLI:
            raise table.fault(k, "gpu_milli", f"is {share}; must be from 1 to {_MILLI} for a pod with GPUs")
    return [share / _MILLI if num_gpus else 1.0 for num_gpus, share in zip(counts, milli, strict=True)]

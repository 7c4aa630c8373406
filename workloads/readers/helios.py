"""SenseTime Helios (SC'21), `cluster_log.csv` of one cluster; its README has the columns. Times name no zone."""

from workloads.readers.table import (
    COUNT,
    NUMBER,
    STATE,
    TIME,
    build_trace,
    count,
    number,
    read_table,
    some,
    time_s,
)
from workloads.trace import Trace
from workloads.words import state_of


def read_helios(text: str, source: str, name: str) -> Trace:
    """Read the trace of one cluster.

    Raises
    ------
    FileFormatError
        Names file, line, column and what is wrong.
    """
    table = read_table(text, source)
    table.require("vc")
    return build_trace(
        name,
        source,
        {
            "id": table.ids("job_id"),
            "submit_s": table.required("submit_time", time_s, TIME),
            "num_gpus": table.required("gpu_num", count, COUNT),
            "duration_s": table.optional("duration", number, NUMBER),
            "user": table.named("user"),
            "queue": table.named("vc"),
            "state": table.optional("state", state_of, STATE),
            "num_nodes": table.optional("node_num", some, COUNT),
            "waited_s": table.optional("queue", number, NUMBER),
        },
        absolute=True,
    )

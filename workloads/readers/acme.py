"""Acme of the Shanghai AI Laboratory (NSDI'24), `trace_seren.csv` and `trace_kalos.csv`; its README has the columns.

Durations are taken from start and end: in Kalos the column `duration` counts from the submission (the two jobs that the
README shows have 18 s for 8 s, and 82 s for 70 s). The `type` of work, such as Pretrain or Evaluation, is taken as the
application.
"""

from workloads.readers.table import (
    COUNT,
    STATE,
    TIME,
    build_trace,
    count,
    difference,
    read_table,
    some,
    time_s,
)
from workloads.trace import Trace
from workloads.words import state_of


def read_acme(text: str, source: str, name: str) -> Trace:
    """Read the trace of one cluster.

    Raises
    ------
    FileFormatError
        Names file, line, column and what is wrong.
    """
    table = read_table(text, source)
    table.require("type")
    submits = table.required("submit_time", time_s, TIME)
    starts = table.optional("start_time", time_s, TIME)
    return build_trace(
        name,
        source,
        {
            "id": table.ids("job_id"),
            "submit_s": submits,
            "num_gpus": table.required("gpu_num", count, COUNT),
            "duration_s": difference(table.optional("end_time", time_s, TIME), starts),
            "application": table.named("type"),
            "user": table.named("user"),
            "state": table.optional("state", state_of, STATE),
            "num_nodes": table.optional("node_num", some, COUNT),
            "waited_s": difference(starts, submits),
        },
        absolute=True,
    )

"""Workloads published with Sia (SOSP'23): name, time (s), application, num_replicas, batch_size, and category.

Jobs have no durations: how long one runs follows from the profiles of its application. A replica is a GPU, but for the
pipeline-parallel GPT.
"""

from workloads.readers.table import COUNT, NUMBER, build_trace, count, number, read_table, some
from workloads.trace import Adaptivity, Trace


def read_sia(text: str, source: str, name: str) -> Trace:
    """Read a workload.

    Raises
    ------
    FileFormatError
        Names file, line, column and what is wrong.
    """
    table = read_table(text, source)
    return build_trace(
        name,
        source,
        {
            "id": table.ids("name"),
            "submit_s": table.required("time", number, NUMBER),
            "num_gpus": table.required("num_replicas", count, COUNT),
            "application": table.named("application"),
            "global_batch": table.required("batch_size", some, COUNT),
            "adaptivity": table.optional("category", Adaptivity, f"one of {', '.join(Adaptivity)}"),
        },
    )

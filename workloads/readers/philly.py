"""Microsoft Philly as a table: timestamp (submission), duration, num_gpus, gpu_time, cluster (virtual cluster).

Jobs have no names here: they are called by their place in the file.
"""

from workloads.readers.table import COUNT, NUMBER, TIME, build_trace, count, number, read_table, time_s
from workloads.trace import Trace


def read_philly(text: str, source: str, name: str) -> Trace:
    """Read the trace.

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
            "id": table.numbered(),
            "submit_s": table.required("timestamp", time_s, TIME),
            "num_gpus": table.required("num_gpus", count, COUNT),
            "duration_s": table.required("duration", number, NUMBER),
            "queue": table.named("cluster"),
        },
        absolute=True,
    )

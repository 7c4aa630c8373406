"""Microsoft ITP 2021, as published with ElasticFlow: job_id, submission_time (relative), duration, num_gpu."""

from workloads.readers.table import COUNT, NUMBER, build_trace, count, number, read_table
from workloads.trace import Trace


def read_itp(text: str, source: str, name: str) -> Trace:
    """Read the trace of one cluster.

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
            "id": table.ids("job_id"),
            "submit_s": table.required("submission_time", number, NUMBER),
            "num_gpus": table.required("num_gpu", count, COUNT),
            "duration_s": table.required("duration", number, NUMBER),
        },
    )

"""Traces published with Arena (EuroSys'26), with the iterations and deadlines of its simulation.

The simulation divides the traced iterations by 5 and multiplies the traced time to the deadline, which counts from the
submission, by 5. Applications are called as in the catalogue of models (`moe-2.4b`).
"""

from workloads.readers.table import COUNT, NUMBER, POSITIVE, build_trace, count, number, positive, read_table, some
from workloads.trace import Trace


def read_arena(text: str, source: str, name: str) -> Trace:
    """Read a trace.

    Raises
    ------
    FileFormatError
        Names file, line, column and what is wrong.
    """
    table = read_table(text, source)
    models = zip(table.texts("model"), table.texts("params"), strict=True)
    return build_trace(
        name,
        source,
        {
            "id": table.ids("job_id"),
            "submit_s": table.required("submit_s_rel", number, NUMBER),
            "num_gpus": table.required("req_gpus", count, COUNT),
            "gpu_type": table.named("req_gpu_type"),
            "application": [application_of(family, size) for family, size in models],
            "global_batch": table.required("global_batch", some, COUNT),
            "iterations": table.required("num_iteration_sim", positive, POSITIVE),
            "deadline_s": table.optional("deadline_rel_sim", positive, POSITIVE),
        },
    )


def application_of(family: str, size: str) -> str:
    """What a model of Arena's tables is called: `moe-2.4b` for the family moe and the size 2.4B."""
    return f"{family}-{size}".lower().replace("_", "-")

"""Jobs for tests."""

from typing import Any

from hypothesis import strategies as st

from workloads.trace import Adaptivity, JobState, Trace, TraceJob, sorted_trace

_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=6)
names = _texts.map(str.strip).filter(bool)
_numbers = st.floats(0, 1e9, allow_nan=False)
_above_0 = st.floats(1e-9, 1e9, allow_nan=False)


def trace_job(job_id: str, submit_s: float, num_gpus: int = 1, **facts: Any) -> TraceJob:
    """A job."""
    return TraceJob(id=job_id, submit_s=submit_s, num_gpus=num_gpus, **facts)


def jobs_of(*jobs: tuple[float, int, float | None]) -> Trace:
    """Trace of (submission, GPUs, duration), called a, b, c, ..."""
    return sorted_trace(
        "made",
        (trace_job(chr(ord("a") + k), at_s, n, duration_s=d) for k, (at_s, n, d) in enumerate(jobs)),
    )


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Any trace with jobs."""
    ids = draw(st.lists(names, min_size=1, max_size=2, unique=True))
    jobs = [
        TraceJob(
            id=job_id,
            submit_s=draw(_numbers),
            num_gpus=draw(st.integers(0, 64)),
            duration_s=draw(st.none() | _numbers),
            gpu_type=draw(st.none() | names),
            application=draw(st.none() | names),
            global_batch=draw(st.none() | st.integers(1, 4096)),
            iterations=draw(st.none() | _above_0),
            deadline_s=draw(st.none() | _above_0),
            priority=draw(st.none() | st.integers(1, 9)),
            user=draw(st.none() | names),
            queue=draw(st.none() | names),
            state=draw(st.none() | st.sampled_from(JobState)),
            num_nodes=draw(st.none() | st.integers(1, 64)),
            adaptivity=draw(st.none() | st.sampled_from(Adaptivity)),
            waited_s=draw(st.none() | _numbers),
            time_limit_s=draw(st.none() | _above_0),
            gpu_share=draw(st.floats(0.01, 1)),
        )
        for job_id in ids
    ]
    return sorted_trace("drawn", jobs, origin_s=draw(st.none() | st.floats(-1e9, 2e9)))

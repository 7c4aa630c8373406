"""Jobs, allocations and windows that tests of the calendar share."""

from dataclasses import replace

from hypothesis import strategies as st

from models.forecast.lasting import Lasting
from models.plan import Change, JobAllocation
from models.windows import NodeWindows, availability
from models.workload import Job, NodeGpus, Snapshot
from tests.topology.test_calendar import DAY_S
from topology.calendar import CalendarEntry
from topology.cluster import Cluster

HALF_DAY = Lasting(probabilities=(0.5, 0.9, 0.99), seconds=(0.25 * DAY_S, 0.5 * DAY_S, 2 * DAY_S))
SHORT = Job(id="short", lasting=HALF_DAY)
POINT = Job(id="point", remaining_s=0.5 * DAY_S)
UNKNOWN = Job(id="unknown")
LONG = Job(id="long", remaining_s=99 * DAY_S)
FIXED = Job(id="fixed", preemptible=False)
OWN = Job(id="own", calendar_entry="r")


def windows(cluster: Cluster, *entries: CalendarEntry, jobs: tuple[Job, ...] = (), epsilon: float = 0.1) -> NodeWindows:
    return availability(Snapshot(cluster=cluster, jobs=jobs, calendar=entries), epsilon)


def on(job: Job, *nodes: str) -> Job:
    return replace(job, current=tuple(NodeGpus(node=node, gpus=(0,)) for node in nodes))


def allocation(job: Job, *nodes: str) -> JobAllocation:
    return JobAllocation(
        job_id=job.id,
        gpu_type="h800",
        num_gpus=len(nodes),
        gpus=tuple(NodeGpus(node=node, gpus=(0,)) for node in nodes),
        change=Change.STARTED,
    )


@st.composite
def jobs_on_six_nodes(draw: st.DrawFn) -> tuple[Job, ...]:
    """Up to six jobs; job k waits, or runs on node k."""
    lasting = st.builds(
        lambda a, b: Lasting(probabilities=(0.5, 0.95), seconds=(a * DAY_S, (a + b) * DAY_S)),
        st.integers(0, 3),
        st.integers(0, 3),
    )
    jobs = []
    for k in range(draw(st.integers(1, 6))):
        job = Job(
            id=f"j{k}",
            preemptible=draw(st.booleans()),
            lasting=draw(st.none() | lasting),
            remaining_s=draw(st.sampled_from([None, 0.0, DAY_S])),
            calendar_entry=draw(st.sampled_from([None, "e0", "e1"])),
        )
        jobs.append(on(job, f"n{k}") if draw(st.booleans()) else job)
    return tuple(jobs)

"""Jobs, allocations and windows that tests of the calendar share."""

import random
from dataclasses import replace

from hypothesis import strategies as st

from models.forecast.lasting import Lasting
from models.plan import Change, JobAllocation
from models.windows import NodeWindows, availability
from models.workload import Job, NodeGpus, Snapshot
from tests.topology.test_calendar import DAY_S
from topology.calendar import CalendarEntry, EntryKind, Shape
from topology.calendar_issues import calendar_issues
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


def with_calendar(snapshot: Snapshot, seed: int, *, scale_s: float) -> Snapshot:
    """The snapshot with a legal calendar of a few entries of all kinds, that begin and end within ten `scale_s`, and
    with jobs that belong to them and say how long they last, or not."""
    rng = random.Random(seed)  # noqa: S311 - reproducible, no secret
    nodes = [node.id for node in snapshot.cluster.nodes]
    calendar: tuple[CalendarEntry, ...] = ()
    for k in range(rng.randint(1, 4)):
        kind = rng.choice([EntryKind.RESERVATION, EntryKind.RESERVATION, *EntryKind])
        from_s = rng.choice((-1.0, 0.0, 1.0, 2.0, 4.0, 8.0)) * scale_s
        until_s = None if kind.is_moment or rng.random() < 0.2 else from_s + rng.choice((1.0, 2.0, 5.0)) * scale_s
        entry = CalendarEntry(name=f"e{k}", kind=kind, from_s=from_s, until_s=until_s, hard=rng.random() < 0.6)
        if rng.random() < 0.2 and not kind.is_moment:
            gpu_type = rng.choice([None, *(found.name for found in snapshot.cluster.gpu_types)])
            entry = replace(entry, shape=Shape(num_nodes=rng.randint(1, 2), gpu_type=gpu_type))
        else:
            entry = replace(entry, nodes=tuple(rng.sample(nodes, rng.randint(1, len(nodes)))))
        if not calendar_issues(snapshot.cluster, (*calendar, entry)):
            calendar = (*calendar, entry)

    def asking(job: Job) -> Job:
        long_s = rng.choice((0.5, 1.0, 3.0, 6.0)) * scale_s
        lasting = Lasting(probabilities=(0.5, 0.95), seconds=(long_s / 2, long_s)) if rng.random() < 0.4 else None
        return replace(job, lasting=lasting, calendar_entry=rng.choice((None, None, "e0", "e1")))

    return replace(snapshot, jobs=tuple(map(asking, snapshot.jobs)), calendar=calendar)

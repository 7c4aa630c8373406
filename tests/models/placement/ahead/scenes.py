"""Small clusters with jobs that run, a calendar, and jobs to be planned ahead."""

from hypothesis import strategies as st

from models.forecast.lasting import Lasting
from models.workload import Job, NodeGpus, Parallelism, Snapshot
from topology.calendar import CalendarEntry, EntryKind, Shape
from topology.cluster import Cluster, GpuType, Node, Tier

DAY_S = 86_400.0
_H = GpuType(
    name="h",
    memory_bytes=80 * 10**9,
    peak_flops_per_s=1e15,
    intra_node_bandwidth_bytes_per_s=4e11,
    inter_node_bandwidth_bytes_per_s=5e10,
)


def cluster(*sizes: int, gpus: int = 2) -> Cluster:
    """Minipods a, b, ... of so many nodes a1, a2, ... with a few GPUs each."""
    nodes = tuple(
        Node(id=f"{chr(97 + j)}{n + 1}", gpu_type="h", num_gpus=gpus, path=(chr(97 + j),))
        for j, size in enumerate(sizes)
        for n in range(size)
    )
    return Cluster(gpu_types=(_H,), nodes=nodes, tiers=(Tier(name="minipod"),), minipod_tier="minipod")


def on(*nodes: str, gpus: tuple[int, ...] = (0, 1)) -> tuple[NodeGpus, ...]:
    return tuple(NodeGpus(node=node, gpus=gpus) for node in nodes)


def over(**days: float) -> Lasting:
    """`p50=2, p90=4`: over within two days with probability one half, within four with 0.9."""
    return Lasting(
        probabilities=tuple(int(name[1:]) / 100 for name in days),
        seconds=tuple(time * DAY_S for time in days.values()),
    )


def wanted(name: str, *, rows: int, columns: int, days: float = 3.0, **more: object) -> Job:
    """A job whose matrix has so many rows (PP groups) and columns on nodes of two GPUs, which lasts so long."""
    degrees = Parallelism(tp=2, pp=columns, dp=rows)
    return Job(id=name, parallelism=degrees, **{"remaining_s": days * DAY_S} | more)  # type: ignore[arg-type]


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Up to three minipods with up to three nodes, jobs on some of them, an entry or two, one or two jobs to plan."""
    kind = cluster(*draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    jobs: list[Job] = []
    for node in kind.nodes:
        for gpus in draw(st.sampled_from([(), (), ((0, 1),), ((0,), (1,)), ((1,),)])):
            days = sorted(draw(st.lists(st.integers(1, 6), min_size=2, max_size=2)))
            lasting = draw(st.sampled_from([None, over(p40=days[0], p100=days[1]), over(p50=days[0], p80=days[1])]))
            jobs.append(
                Job(
                    id=f"j{len(jobs)}",
                    current=on(node.id, gpus=gpus),
                    preemptible=draw(st.booleans()),
                    restart_cost_s=draw(st.sampled_from([0.0, 3600.0])),
                    lasting=lasting,
                    remaining_s=draw(st.sampled_from([None, 2 * DAY_S])),
                )
            )
    entries = []
    for k in range(draw(st.integers(0, 2))):
        begin = draw(st.integers(-1, 4))
        nodes = draw(st.sampled_from([(), (kind.nodes[-1].id,), tuple(node.id for node in kind.nodes[:2])]))
        entries.append(
            CalendarEntry(
                name=f"e{k}",
                kind=draw(st.sampled_from([EntryKind.RESERVATION, EntryKind.MAINTENANCE])),
                from_s=begin * DAY_S,
                until_s=draw(st.sampled_from([None, (begin + 2) * DAY_S])),
                nodes=nodes,
                shape=None if nodes else Shape(num_nodes=1),
                hard=k == 0,
            )
        )
    for k in range(draw(st.integers(1, 2))):
        earliest = draw(st.integers(0, 3))
        jobs.append(
            wanted(
                f"w{k}",
                rows=draw(st.integers(1, 2)),
                columns=draw(st.integers(1, 2)),
                days=draw(st.integers(1, 4)),
                earliest_start_s=earliest * DAY_S,
                latest_start_s=(earliest + draw(st.integers(0, 4))) * DAY_S,
                weight=draw(st.sampled_from([1.0, 2.0])),
                calendar_entry=draw(st.sampled_from([None, "e0"])),
            )
        )
    return Snapshot(cluster=kind, jobs=tuple(jobs), calendar=tuple(entries))

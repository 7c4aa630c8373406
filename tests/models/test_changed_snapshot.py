"""A snapshot that is another one but for some jobs and nodes is legal when it would be, looked at in full."""

import random
from dataclasses import replace

import pytest

from models import changed_snapshot
from models.changed_snapshot import snapshot_after
from models.workload import Job, NodeGpus, Snapshot, snapshot_issues
from stowplan.errors import InputError, Issue
from tests.growth import work
from tests.models.placement.scenes import cluster, node
from topology.cluster import Cluster, NodeState


def scene(num_nodes: int) -> Snapshot:
    """Of nodes with eight GPUs each every other has a job on two."""
    jobs = tuple(
        Job(id=f"j{k}", current=(NodeGpus(node=f"n{k}", gpus=(0, 1)),) if k % 2 else None) for k in range(num_nodes)
    )
    return Snapshot(cluster=cluster(*(node(f"n{k}") for k in range(num_nodes))), jobs=jobs)


def faults(cluster_: Cluster, jobs: tuple[Job, ...]) -> tuple[Issue, ...]:
    try:
        Snapshot(cluster=cluster_, jobs=jobs)
    except InputError as error:
        return error.issues
    return ()


@pytest.mark.parametrize("seed", range(4))
def test_changes_are_legal_when_the_whole_is(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - no secret
    base = scene(6)
    outcomes = set()
    for round_ in range(60):
        places = [None, *((NodeGpus(node=f"n{rng.randrange(7)}", gpus=(rng.randrange(9),)),) for _ in range(3))]
        jobs = [
            replace(job, current=rng.choice(places), min_gpus=rng.choice([0, 1, 1, 1])) if rng.random() < 0.2 else job
            for job in base.jobs
            if rng.random() < 0.9
        ]
        if rng.random() < 0.3:
            jobs.append(Job(id=rng.choice(["j1", f"new{round_}"])))
        nodes = [
            replace(each, state=rng.choice(list(NodeState)), gpus_in_use=(rng.randrange(8),))
            if rng.random() < 0.1
            else each
            for each in base.cluster.nodes
        ]
        changed = replace(base.cluster, nodes=tuple(nodes)) if rng.random() < 0.5 else base.cluster
        expected = faults(changed, tuple(jobs))
        outcomes.add(bool(expected))
        if expected:
            with pytest.raises(InputError) as raised:
                snapshot_after(base, changed, tuple(jobs))
            assert raised.value.issues == expected
            continue
        found = snapshot_after(base, changed, tuple(jobs))
        assert (found.cluster, found.jobs, found.calendar) == (changed, tuple(jobs), ())
    assert outcomes == {True, False}


def test_only_what_is_new_and_its_neighbours_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []

    def watched(cluster_: Cluster, jobs: tuple[Job, ...]) -> list[Issue]:
        looked_at.extend(job.id for job in jobs)
        return snapshot_issues(cluster_, jobs)

    monkeypatch.setattr(changed_snapshot, "snapshot_issues", watched)
    base = scene(50)
    moved = replace(base.jobs[0], current=(NodeGpus(node="n7", gpus=(4,)),))
    snapshot_after(base, base.cluster, (moved, *base.jobs[1:]))
    assert looked_at == ["j0", "j7"]


def test_the_look_grows_with_the_snapshot_at_most() -> None:
    def cost(num_jobs: int) -> int:
        base = scene(num_jobs)
        jobs = (replace(base.jobs[0], age_s=1.0), *base.jobs[1:])
        return work(lambda: snapshot_after(base, base.cluster, jobs))

    assert cost(400) <= 2.3 * cost(200)

"""Small requests for replays."""

import copy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from api.common.settings import Settings
from api.convert.reading import read_document
from api.convert.replay import replay_setups
from api.convert.snapshot import cluster_from_document
from api.schemas.calendar import CalendarReference
from api.schemas.replay import REPLAY_BODY, REPLAY_EXAMPLE
from api.schemas.snapshot import ClusterDoc
from executor.simulation.setup import ReplaySetup
from stowplan.records import to_document
from tests.api.conftest import SETTINGS
from tests.api.requests import Json, json_text
from tests.workloads.profiles import profiles

PATH = "/v1/replays"


def replay_request(**fields: Any) -> Json:
    """Four jobs on a node of 8 GPUs, under gang with EASY backfill and without."""
    return {**copy.deepcopy(REPLAY_EXAMPLE), **fields}


def reserved_request(**fields: Any) -> Json:
    """As in `tests.executor.control.test_calendar`: the node is kept for d from 150 s to 300 s, known at 5 s."""
    sizes = ((0, 8, 100), (10, 8, 30), (11, 8, 30), (140, 8, 100))
    jobs = [
        {"id": id_, "submit_s": submit_s, "num_gpus": num_gpus, "duration_s": duration_s}
        for id_, (submit_s, num_gpus, duration_s) in zip("abcd", sizes, strict=True)
    ]
    jobs[3]["calendar_entry"] = "for d"
    entry = {
        "name": "for d",
        "kind": "reservation",
        "from_time": "2026-12-07T09:02:30Z",
        "until_time": "2026-12-07T10:05:00+01:00",
        "nodes": ["a100-0"],
    }
    request: Json = {
        # 2026-12-07T09:00:00Z.
        "trace": {"name": "four", "origin_s": 1_796_634_000, "jobs": jobs},
        "policies": [{"policy": "gang"}],
        "calendar": [entry],
        "calendar_known_s": 5,
    }
    return replay_request(**{**request, **fields})


def tabled_request(**fields: Any) -> Json:
    """One job of 300 iterations at 10 samples, on GPUs of which one does 10 samples a second and four do 30."""
    job = {"id": "x", "submit_s": 0, "num_gpus": 2, "application": "m", "global_batch": 10, "iterations": 300}
    rows = [
        {"application": "m", "global_batch": 10, "gpu_type": "a100", "num_gpus": n, "num_nodes": 1, "samples_per_s": s}
        for n, s in ((1, 10), (4, 30))
    ]
    return replay_request(
        trace={"name": "one", "jobs": [job]},
        throughputs=rows,
        policies=[{"policy": "arena"}, {"policy": "gang"}],
        **fields,
    )


def modelled_request(**fields: Any) -> Json:
    """Two trainings on a node of 8 GPUs, the second of which has no batch."""
    job = {"num_gpus": 4, "application": "gpt2-350m", "iterations": 100}
    jobs = [{"id": "x", "submit_s": 0, "global_batch": 64, **job}, {"id": "y", "submit_s": 5, **job}]
    request: Json = {
        "trace": {"name": "two", "jobs": jobs},
        "modelled": True,
        "policies": [{"policy": "suika"}, {"policy": "gang"}],
    }
    return replay_request(**{**request, **fields})


def setups_of(request: Json, settings: Settings = SETTINGS) -> tuple[ReplaySetup, ...]:
    """What is replayed."""
    body = read_document(REPLAY_BODY, json_text(request))
    assert isinstance(body.cluster, ClusterDoc)
    entries = () if isinstance(body.calendar, CalendarReference) else body.calendar
    return replay_setups(body, cluster_from_document(body.cluster), settings, entries)


def measured_request(**fields: Any) -> Json:
    """Two jobs of application m, on two nodes of four GPUs of type a; one of none."""
    jobs = [
        {"id": name, "submit_s": 5.0 * k, "num_gpus": 2, "application": application}
        for k, (name, application) in enumerate((("x", "m"), ("y", "m"), ("z", None)))
    ]
    gpu_type = {**REPLAY_EXAMPLE["cluster"]["gpu_types"][0], "name": "a"}
    nodes = [{"id": f"a-{k}", "gpu_type": "a", "num_gpus": 4} for k in range(2)]
    request: Json = {
        "cluster": {"gpu_types": [gpu_type], "nodes": nodes},
        "trace": {"name": "measured", "jobs": jobs},
        "applications": measured_applications(),
        "policies": [{"policy": "sia"}, {"policy": "gang"}],
        "restart_s": 5.0,
    }
    return replay_request(**{**request, **fields})


def measured_applications() -> list[Json]:
    """Application m."""
    with TemporaryDirectory() as folder:
        documents: list[Json] = to_document(profiles(Path(folder)))
    return documents

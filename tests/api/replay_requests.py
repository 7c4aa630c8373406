"""Small requests for replays."""

import copy
from typing import Any

from api.schemas.replay import REPLAY_EXAMPLE
from tests.api.requests import Json

PATH = "/v1/replays"


def replay_request(**fields: Any) -> Json:
    """Four jobs on a node of 8 GPUs, under gang with EASY backfill and without."""
    return {**copy.deepcopy(REPLAY_EXAMPLE), **fields}


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

"""Task of readers: requests for replays, from bytes to what is replayed and what is shown."""

from dataclasses import dataclass

from api.convert.hashing import hash_of
from api.convert.reading import read_document
from api.convert.replay import num_replayed, replay_setups
from api.reading.texts import RequestText, calendar_entries, cluster_of, reading_task
from api.replays.task import PackedReplays
from api.schemas.replay import REPLAY_BODY
from api.schemas.replay_answer import ReplayRunDoc
from executor.simulation.setup import unusual_parameters
from stowplan.records import to_json

READ_REPLAYS = f"{__name__}:read_replays"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReplays:
    """A sound request for replays. `cluster`: JSON text; `rows`: what is shown of each before it begins."""

    packed: PackedReplays
    cluster: str
    num_gpus: int
    trace: str
    num_jobs: int
    num_left_out: int
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    rows: tuple[ReplayRunDoc, ...]
    time_limit_s: float
    input_hash: str


@reading_task
def read_replays(text: RequestText) -> ReadReplays:
    """Read and check a request for replays.

    Raises
    ------
    MalformedJsonError
        When the text is not JSON.
    InputError
        When the request is wrong, or nothing of it can be replayed.
    """
    body = read_document(REPLAY_BODY, text.body)
    cluster = cluster_of(body.cluster, text)
    setups = replay_setups(body, cluster, text.settings, calendar_entries(body.calendar, text))
    num_jobs, cluster_text = num_replayed(setups[0]), to_json(cluster)
    return ReadReplays(
        packed=PackedReplays.of(setups),
        cluster=cluster_text,
        num_gpus=cluster.num_gpus,
        trace=body.trace.name,
        num_jobs=num_jobs,
        num_left_out=len(body.trace.jobs) - num_jobs,
        policies=tuple(policy.policy for policy in body.policies),
        seeds=body.seeds,
        rows=tuple(
            ReplayRunDoc(policy=setup.policy, parameters=unusual_parameters(setup.control.parameters), seed=setup.seed)
            for setup in setups
        ),
        time_limit_s=body.time_limit_s or text.settings.replay_time_limit_s,
        input_hash=hash_of(cluster_text, body.model_dump_json(exclude={"cluster"})),
    )

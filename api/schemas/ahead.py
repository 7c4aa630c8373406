"""What is planned ahead, as clients see it."""

from api.schemas.base import Document
from api.schemas.placement import CommunicationMatrixDoc
from api.schemas.snapshot import ParallelismDoc


class KeptNodeDoc(Document):
    """A node that is kept for a job."""

    node: str
    free_probability: float
    """That nothing runs on it any more when the job starts."""
    idle_s: float
    """Expected seconds for which it is free before that."""


class StartCostDoc(Document):
    """What the job costs when it starts at another time and the others stay as they are."""

    start_s: float
    cost: float | None
    """Null: it has no nodes then."""


class RetentionDoc(Document):
    """How many of the nodes kept for a job are expected to be in use by others at a time."""

    at_s: float
    num_nodes: float


class TrainingEstimateDoc(Document):
    """What the performance model says of a job on its plan."""

    num_micro_batches: int
    step_s: float
    mfu: float
    """Of the peak of its GPUs."""
    goodput: float
    """Share of the time in which work is done: failures and checkpoints take the rest."""


class JobMoveDoc(Document):
    """A running job that makes way for one that is planned ahead."""

    job_id: str
    from_nodes: tuple[str, ...]
    to_nodes: tuple[str, ...]
    """As many free nodes of the same kind; keep them free until then."""
    latest_s: float
    """When it must have been moved, if it runs still: at the start of the planned job."""
    price: float
    """What it is expected to lose by its restart, and what it costs to keep its new nodes free."""


class PromiseDoc(Document):
    """The reservation that a job had when it was planned, and what has changed."""

    reservation: str
    start_s: float
    """The start that was promised."""
    new_nodes: tuple[str, ...]
    """Nodes that the job gets, and the reservation does not name."""
    left_nodes: tuple[str, ...]
    """Nodes that the reservation names, and the job does not get."""


class AheadPlacementDoc(Document):
    """When and where a job starts that is planned ahead; seconds from the snapshot."""

    placement: CommunicationMatrixDoc
    parallelism: ParallelismDoc
    """Its degrees, given or chosen."""
    gpu_type: str
    start_s: float
    end_s: float | None
    """Until when its nodes are kept; null: for ever, since nobody says how long it lasts."""
    nodes: tuple[KeptNodeDoc, ...]
    """Hosts in rank order, then spares. Jobs that end before the start are admitted to them until then."""
    expected_evictions: float
    """Nodes that are expected to be in use still at the start."""
    idle_s: float
    """Node seconds that are expected to be free and kept until the start."""
    other_starts: tuple[StartCostDoc, ...]
    """The starts that were looked at, this one among them, each with the best plan."""
    retention: tuple[RetentionDoc, ...]
    """From now to the start, if nothing new is admitted."""
    training: TrainingEstimateDoc | None = None
    """Where a plan was chosen, or the duration follows from the model."""
    moves: tuple[JobMoveDoc, ...] = ()
    """Running jobs that are moved before the start, so that nodes of theirs are free by then."""
    promise: PromiseDoc | None = None
    """Where the job had a reservation before: one that it names, of its name, or that it owns."""

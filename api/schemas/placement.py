"""Where a pre-training job sits, as clients see it."""

from api.schemas.base import Document
from api.schemas.snapshot import ParallelismDoc


class SpreadDoc(Document):
    """The largest spread over minipods among the DP groups and among the PP groups."""

    dp: int
    pp: int


class CommunicationMatrixDoc(Document):
    """The communication matrix of a pre-training job: a row is a PP group, a column a DP group, a cell one node."""

    job_id: str
    scheduling_unit: str
    alpha: float
    """Affinity of the DP groups."""
    beta: float
    """Affinity of the PP groups."""
    affinity_source: str
    """Where alpha comes from."""
    cells: tuple[tuple[str, ...], ...]
    """Node id per row and column."""
    minipods: tuple[tuple[str, ...], ...]
    """Minipod of each cell: its path joined by `/`."""
    hosts: tuple[str, ...]
    """Nodes in rank order."""
    minipod_spread: SpreadDoc
    """Number of minipods that a group touches (Eq. 4)."""
    distance: SpreadDoc
    """Eq. 3: 0 for a group inside one minipod."""
    num_minipods_used: int
    max_unit_spread: int
    objective_eq4: float
    objective_eq2: float
    spares: tuple[str, ...] = ()
    """Nodes kept free as backups, minipod after minipod."""
    parallelism: ParallelismDoc | None = None
    """The degrees that were placed; null in plans of earlier versions."""

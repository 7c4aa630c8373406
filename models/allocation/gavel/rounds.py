"""How urgent a job is on a GPU type in a round, and when the next round begins.

Light: imports no solver and no modelling layer.
"""

from collections.abc import Iterable

from models.allocation.ageing import next_turn_s
from models.allocation.gavel.parameters import GavelParameters
from models.policy import Running, Waiting
from models.workload import Job

# Of its time every job is due on every type on which it runs at all: so that no GPU is idle that somebody could use.
LEAST_SHARE = 1e-3


def priority(job: Job, gpu_type: str, share: float, round_s: float) -> float:
    """Share of time that is due over the fraction that was received, on one type.

    (share + LEAST_SHARE) / (received / age), both counted with half a round more: whoever has received nothing is
    finitely urgent, and the more so the longer it has been waiting. Of jobs of one age the order is that of share over
    rounds received (Gavel section 5.1), and half a round is what the released scheduler lets them begin with.
    """
    received_s = (job.attained_s or {}).get(gpu_type, 0.0)
    return (share + LEAST_SHARE) * (job.age_s + round_s / 2) / (received_s + round_s / 2)


def changes_after(parameters: GavelParameters, waiting: Iterable[Waiting], running: Iterable[Running]) -> float | None:
    """A round, where jobs may take turns; see `Policy.changes_after`."""
    return next_turn_s(waiting, running, parameters.round_s)

"""Suika Algorithm 2: what one event changes, simulated before anything moves.

1. Waiting jobs get their basic demand (`basic_demand`).
2. The threshold tau = U^lambda follows from the basic demands of the jobs that run then; scale-outs below it are taken
   back. This is the settled state.
3. Released GPUs go to scale-outs by marginal benefit, round by round (`scale_out`).
"""

from dataclasses import dataclass

from models.allocation.suika.basic_demand import Refused, reclaim_below, serve_waiting
from models.allocation.suika.benefit import threshold
from models.allocation.suika.parameters import SuikaParameters
from models.allocation.suika.planner import Planner
from models.allocation.suika.scale_out import ScaleOuts, scale_out
from models.allocation.suika.state import ClusterState, initial_state
from models.workload import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decision:
    """The settled state, who still waits, the threshold, and the scale-outs from the settled state."""

    settled: ClusterState
    refused: tuple[Refused, ...]
    tau: float
    scale_outs: ScaleOuts


def decide(snapshot: Snapshot, parameters: SuikaParameters, planner: Planner) -> Decision:
    """Run the algorithm on a snapshot that passed `policy_issues`."""
    state, waiting = initial_state(snapshot, planner)
    state, refused = serve_waiting(state, waiting, planner, parameters.queueing)
    tau = threshold(state.intensity(), parameters.aggressiveness)
    reclaim_below(state, tau, planner)
    return Decision(
        settled=state,
        refused=refused,
        tau=tau,
        scale_outs=scale_out(state, planner, tau, parameters.max_rounds),
    )

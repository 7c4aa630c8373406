"""Planning ahead among the policies."""

from models.placement.ahead.parameters import AheadParameters
from models.policy import Policy
from solver.registry import EXACT

AHEAD = Policy(
    name="ahead",
    parameters=AheadParameters,
    issues="models.placement.ahead.validation:policy_issues",
    formulate="models.placement.ahead.formulation:formulate_ahead",
    title="When and where large pre-training jobs start, weeks ahead, by forecasts and the calendar",
    source="Arnold, sections 5.2 and 5.3, appendices G and H; over time: ours",
    needs=(
        "a cluster with tiers, one of them the minipod tier",
        "jobs that wait with parallelism (tp, pp, dp), or a transformer and min_gpus, and a window for their start",
        "how long they last: lasting, remaining_s, or remaining_iterations of a transformer",
        "how long running jobs last (lasting or remaining_s), and the calendar",
    ),
    gives=(
        "start, nodes, rank order and 3D plan of every job, and until when its nodes are kept",
        "which small jobs that run are moved before, so that minipods become whole",
        "how likely each node is free at the start, expected evictions and idle hours, cost of other starts",
        "bound and gap of the time-indexed integer program",
    ),
    ignores=(
        *("max_gpus", "adaptivity", "age_s", "num_restarts", "performance", "operators", "priority", "deadline_s"),
        *("parallel_plan", "expansions", "queue", "attained_gpu_s", "attained_s"),
    ),
    declarations=("models.placement.ahead.declaration",),
    algorithms=(EXACT,),
    asks_calendar=True,
)

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
        "jobs with parallelism (tp, pp, dp) that wait, with earliest_start_s, latest_start_s and lasting",
        "how long running jobs last (lasting or remaining_s), and the calendar",
    ),
    gives=(
        "start, nodes and rank order of every job, and until when its nodes are kept",
        "how likely each node is free at the start, expected evictions and idle hours, cost of other starts",
        "bound and gap of the time-indexed integer program",
    ),
    ignores=(
        *("min_gpus", "max_gpus", "adaptivity", "age_s", "num_restarts", "performance", "operators", "priority"),
        *("deadline_s", "remaining_iterations", "parallel_plan", "expansions", "queue", "attained_gpu_s"),
        *("attained_s", "calibration"),
    ),
    declarations=("models.placement.ahead.declaration",),
    algorithms=(EXACT,),
    honours_calendar=True,
)

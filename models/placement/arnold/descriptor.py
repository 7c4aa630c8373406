"""Arnold among the policies."""

from models.placement.arnold.parameters import ArnoldParameters
from models.policy import Policy
from solver.registry import EXACT

ARNOLD = Policy(
    name="arnold",
    parameters=ArnoldParameters,
    issues="models.placement.arnold.validation:policy_issues",
    formulate="models.placement.arnold.policy:formulate_arnold",
    places_one=True,
    title="Nodes and rank order for one large pre-training job, by communication groups and minipods",
    source="Arnold: Efficient pre-training of LLMs via topology-aware communication alignment, Eqs. 1-10",
    needs=(
        "a cluster with tiers, one of them the minipod tier",
        "a job with parallelism (tp, pp, dp), and transformer or the parameter alpha",
    ),
    gives=(
        "communication matrix with a node in every cell, spreads of DP and PP groups over minipods",
        "hosts in rank order",
        "bound and gap of the integer program",
    ),
    ignores=(
        *("weight", "age_s", "num_restarts", "performance", "operators", "priority", "deadline_s"),
        *("remaining_iterations", "parallel_plan", "expansions", "remaining_s", "queue", "attained_gpu_s"),
        *("attained_s", "earliest_start_s", "latest_start_s"),
    ),
    declarations=(
        "models.placement.arnold.paper.formulation",
        "models.placement.arnold.tiers.policy",
        "models.placement.arnold.true_spread.policy",
    ),
    algorithms=(EXACT,),
)

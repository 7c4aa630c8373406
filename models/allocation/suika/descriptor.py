"""Suika among the policies: the paper's algorithm, and the integer program that bounds it."""

from models.allocation.documentation import PARALLEL_PLANS, REASONS
from models.allocation.suika.parameters import SuikaMethod, SuikaParameters
from models.policy import Policy

_ISSUES = "models.allocation.suika.validation:policy_issues"
_FORMULATE = "models.allocation.suika.formulation:formulate_suika"
_SOURCE = (
    "Suika: Efficient and high-quality rescheduling of 3D-parallelized LLM training jobs in shared clusters, "
    "section 3.2"
)
_NEEDS = (
    "jobs with a transformer or operators; min_gpus is the basic demand",
    "where jobs run now (current), with which plan (parallel_plan), and what earlier plans added (expansions)",
)
# The price of a restart is none of them: the service fills it in where it was measured.
_IGNORES = (
    *("num_restarts", "performance", "priority", "deadline_s", "remaining_s", "queue"),
    *("attained_gpu_s", "attained_s", "earliest_start_s", "latest_start_s"),
)

SUIKA = Policy(
    name="suika",
    parameters=SuikaParameters,
    variant={"method": SuikaMethod.HEURISTIC},
    issues=_ISSUES,
    formulate=_FORMULATE,
    title="Start waiting jobs, and grow running ones onto free GPUs, by the paper's algorithm",
    source=f"{_SOURCE}, Algorithm 2",
    needs=_NEEDS,
    gives=(PARALLEL_PLANS, REASONS, "the bound of the integer program on the same scale-outs, and the gap to it"),
    is_heuristic=True,
    ignores=_IGNORES,
    splits_nodes=True,
    plans_parallelism=True,
)
SUIKA_ILP = Policy(
    name="suika-ilp",
    parameters=SuikaParameters,
    variant={"method": SuikaMethod.ILP},
    issues=_ISSUES,
    formulate=_FORMULATE,
    title="Start waiting jobs, and grow running ones onto free GPUs, by integer programming",
    source=f"{_SOURCE}, Problem 1",
    needs=_NEEDS,
    gives=(PARALLEL_PLANS, REASONS, "bound and gap of the integer program"),
    ignores=_IGNORES,
    splits_nodes=True,
    plans_parallelism=True,
)

"""Gang among the policies: the queue with EASY backfill, and the integer program that bounds it."""

from models.allocation.documentation import REASONS
from models.allocation.gang.parameters import GangMethod, GangParameters
from models.policy import Policy

_ISSUES = "models.allocation.gang.validation:policy_issues"
_FORMULATE = "models.allocation.gang.formulation:formulate_gang"
_MAY_START = "models.allocation.gang.idle:may_start"
_CHANGES_AFTER = "models.allocation.gang.idle:changes_after"
_SOURCE = (
    "Lifka: The ANL/IBM SP scheduling system (JSSPP 1995), EASY backfill; for the order las Gu et al.: Tiresias "
    "(NSDI 2019)"
)
_NEEDS = (
    "jobs with min_gpus, their size; no model and no throughput",
    "age_s, priority, queue, remaining_s and attained_gpu_s, as far as the parameters ask for them",
    "where jobs run now (current)",
    "with a calendar how long jobs last (lasting, else remaining_s) and their reservation (calendar_entry)",
)
_GIVES = (
    "GPUs for the jobs that start now, on few nodes close together; running jobs keep theirs",
    REASONS,
)
_IGNORES = (
    *("max_gpus", "adaptivity", "num_restarts", "restart_cost_s", "performance", "parallelism", "transformer"),
    *("operators", "deadline_s", "remaining_iterations", "parallel_plan", "expansions", "calibration"),
    *("attained_s", "earliest_start_s", "latest_start_s"),
)

GANG = Policy(
    name="gang",
    parameters=GangParameters,
    variant={"method": GangMethod.HEURISTIC},
    issues=_ISSUES,
    formulate=_FORMULATE,
    title="Jobs of fixed size by age, priority, time left or service, with EASY backfill and quotas",
    source=_SOURCE,
    needs=_NEEDS,
    gives=(*_GIVES, "the bound of the integer program on the same backfill, and the gap to it"),
    is_heuristic=True,
    ignores=_IGNORES,
    splits_nodes=True,
    may_start=_MAY_START,
    changes_after=_CHANGES_AFTER,
    asks_calendar=True,
)
GANG_ILP = Policy(
    name="gang-ilp",
    parameters=GangParameters,
    variant={"method": GangMethod.ILP},
    issues=_ISSUES,
    formulate=_FORMULATE,
    title="Jobs of fixed size by age, priority, time left or service, with the best backfill by integer programming",
    source=_SOURCE,
    needs=_NEEDS,
    gives=(*_GIVES, "bound and gap of the integer program"),
    ignores=_IGNORES,
    splits_nodes=True,
    may_start=_MAY_START,
    changes_after=_CHANGES_AFTER,
    asks_calendar=True,
)

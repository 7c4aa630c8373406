"""Arena among the policies: the paper's algorithm, and the integer program that bounds it."""

from models.allocation.arena.parameters import ArenaMethod, ArenaParameters
from models.allocation.documentation import PARALLEL_PLANS, PREDICTIONS, REASONS
from models.policy import Policy

_ISSUES = "models.allocation.arena.validation:policy_issues"
_FORMULATE = "models.allocation.arena.policy:formulate_arena"
_CHANGES_AFTER = "models.allocation.arena.waiting:changes_after"
_SOURCE = (
    "Arena: Efficiently training large models via dynamic scheduling and adaptive parallelism co-design, section 3.5"
)
_NEEDS = (
    "jobs with a throughput_table, or with a transformer or operators, for which 3D plans are made",
    "priorities; deadlines and remaining iterations where the objective asks for them",
    "where jobs run now (current), and with which plan (parallel_plan)",
)
_IGNORES = (
    *("num_restarts", "parallelism", "expansions", "remaining_s", "queue", "attained_gpu_s", "attained_s"),
    *("earliest_start_s", "latest_start_s"),
)

ARENA = Policy(
    name="arena",
    parameters=ArenaParameters,
    variant={"method": ArenaMethod.HEURISTIC},
    issues=_ISSUES,
    formulate=_FORMULATE,
    title="GPU type, count and 3D plan for every job, by the paper's event-driven algorithm",
    source=f"{_SOURCE}, Algorithm 1",
    needs=_NEEDS,
    gives=(
        PARALLEL_PLANS,
        PREDICTIONS,
        REASONS,
        "the bound of the integer program on the same event and the gap to it, or its plan where that is better",
    ),
    is_heuristic=True,
    ignores=_IGNORES,
    plans_parallelism=True,
    changes_after=_CHANGES_AFTER,
)
ARENA_ILP = Policy(
    name="arena-ilp",
    parameters=ArenaParameters,
    variant={"method": ArenaMethod.ILP},
    issues=_ISSUES,
    formulate=_FORMULATE,
    title="GPU type, count and 3D plan for every job, by integer programming",
    source=f"{_SOURCE}, Eqs. 5-7",
    needs=_NEEDS,
    gives=(PARALLEL_PLANS, PREDICTIONS, REASONS, "bound and gap of the integer program"),
    ignores=_IGNORES,
    plans_parallelism=True,
    changes_after=_CHANGES_AFTER,
)

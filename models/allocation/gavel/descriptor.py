"""Gavel among the policies: rounds by descending priority, and the integer program that bounds them."""

from models.allocation.documentation import REASONS
from models.allocation.gavel.parameters import GavelMethod, GavelParameters
from models.policy import Policy

_ISSUES = "models.allocation.gavel.validation:policy_issues"
_FORMULATE = "models.allocation.gavel.formulation:formulate_gavel"
_CHANGES_AFTER = "models.allocation.gavel.rounds:changes_after"
_SOURCE = (
    "Gavel: Heterogeneity-aware cluster scheduling policies for deep learning workloads (OSDI 2020), sections 4 and 5"
)
_NEEDS = (
    "jobs with min_gpus, their size, and a throughput_table; one without any performance counts as equally fast on all "
    "GPU types",
    "for the objective makespan remaining_iterations and a batch size, or remaining_s of jobs without performance",
    "age_s, and attained_s: for how long each job had GPUs of which type",
    "where jobs run now (current), to move as little as possible",
)
_GIVES = (
    "GPUs of one type for the jobs of this round; who shares a type in time takes turns from plan to plan",
    REASONS,
)
_IGNORES = (
    *("max_gpus", "adaptivity", "num_restarts", "restart_cost_s", "parallelism", "transformer", "operators"),
    *("priority", "deadline_s", "parallel_plan", "expansions", "calibration", "queue", "attained_gpu_s"),
    *("earliest_start_s", "latest_start_s"),
)

GAVEL = Policy(
    name="gavel",
    parameters=GavelParameters,
    variant={"method": GavelMethod.HEURISTIC},
    issues=_ISSUES,
    formulate=_FORMULATE,
    title="Jobs of fixed size take turns on GPU types, by max-min fair shares or for the shortest makespan",
    source=_SOURCE,
    needs=_NEEDS,
    gives=(*_GIVES, "the bound of the integer program of the same round, and the gap to it"),
    is_heuristic=True,
    ignores=_IGNORES,
    splits_nodes=True,
    plans_without_speed=True,
    changes_after=_CHANGES_AFTER,
)
GAVEL_ILP = Policy(
    name="gavel-ilp",
    parameters=GavelParameters,
    variant={"method": GavelMethod.ILP},
    issues=_ISSUES,
    formulate=_FORMULATE,
    title="Jobs of fixed size take turns on GPU types by fair shares, each round the best by integer programming",
    source=_SOURCE,
    needs=_NEEDS,
    gives=(*_GIVES, "bound and gap of the integer program"),
    ignores=_IGNORES,
    splits_nodes=True,
    plans_without_speed=True,
    changes_after=_CHANGES_AFTER,
)

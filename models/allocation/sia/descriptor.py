"""Sia among the policies."""

from models.allocation.documentation import PREDICTIONS, REASONS
from models.allocation.sia.parameters import SiaParameters
from models.policy import Policy

SIA = Policy(
    name="sia",
    parameters=SiaParameters,
    issues="models.allocation.sia.validation:policy_issues",
    formulate="models.allocation.sia.formulation:formulate_sia",
    title="GPU type and count for every job, by goodput",
    source="Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling (SOSP 2023), Eqs. 2-5",
    needs=(
        "jobs with a performance: goodput (parameters or observations), throughput_table or goodput_table; or "
        "with a transformer or operators, for which 3D plans are made",
        "where jobs run now (current), to price restarts and to move as little as possible",
        "remaining iterations, for the objective completion_time",
    ),
    gives=(
        "GPU type, GPU count, batch size and concrete GPUs per job; the 3D plan of jobs that have a model",
        PREDICTIONS,
        REASONS,
        "bound and gap of the integer program",
    ),
    ignores=(
        *("priority", "deadline_s", "expansions", "remaining_s", "queue"),
        *("attained_gpu_s", "attained_s", "earliest_start_s", "latest_start_s"),
    ),
    changes_after="models.allocation.sia.waiting:changes_after",
    takes_goodput=True,
)

"""`horizon` among the policies."""

from models.allocation.documentation import PREDICTIONS, REASONS
from models.allocation.horizon.parameters import HorizonParameters
from models.policy import Policy
from solver.registry import AUTO

HORIZON = Policy(
    name="horizon",
    parameters=HorizonParameters,
    issues="models.allocation.horizon.validation:policy_issues",
    formulate="models.allocation.horizon.formulation:formulate_horizon",
    title="GPU type and count for every job now, with a schedule for each to its end behind it",
    source="docs/policies.md; Dyer and Wolsey, Formulating the single machine sequencing problem with release dates as "
    "a mixed integer program (1990), for programs over intervals of time; configurations are those of Sia (SOSP 2023)",
    needs=(
        "jobs with a performance: goodput (parameters or observations) or throughput_table; or with a transformer or "
        "operators, for which 3D plans are made",
        "remaining iterations, or how long a job lasts (lasting, else remaining_s)",
        "where jobs run now (current), what a restart costs (restart_cost_s), and how many there were (num_restarts)",
        "with lateness: deadline_s; with quotas: queue",
    ),
    gives=(
        "GPU type, GPU count, batch size and concrete GPUs per job; the 3D plan of jobs that have a model",
        PREDICTIONS,
        "for who waits when it is to start, on what, and what starting now would cost the others; for who runs and "
        "changes when it would end if it stayed, and what that would cost them",
        REASONS,
        "with tail, fairness, lateness and throughput what each makes of the objective",
        "bound and gap of the program over all intervals",
    ),
    ignores=(
        *("priority", "expansions"),
        *("attained_s", "earliest_start_s", "latest_start_s"),
    ),
    changes_after="models.allocation.horizon.waiting:changes_after",
    takes_goodput=True,
    asks_calendar=True,
    solver=AUTO,
    relative_gap=1e-2,
)

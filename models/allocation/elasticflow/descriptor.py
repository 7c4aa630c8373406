"""ElasticFlow among the policies: its algorithms, and the integer program that bounds them."""

from models.allocation.documentation import REASONS
from models.allocation.elasticflow.parameters import ElasticFlowMethod, ElasticFlowParameters
from models.policy import Policy

_ISSUES = "models.allocation.elasticflow.validation:policy_issues"
_FORMULATE = "models.allocation.elasticflow.formulation:formulate_elasticflow"
_CHANGES_AFTER = "models.allocation.elasticflow.parameters:changes_after"
_SOURCE = (
    "ElasticFlow: An elastic serverless training platform for distributed deep learning (ASPLOS 2023), Algorithms 1, 2"
)
_NEEDS = (
    "jobs with a throughput_table over powers of two of GPUs, or of whole nodes",
    "of jobs with a deadline_s remaining_iterations and a batch size; those without are best effort",
    "where jobs run now (current), and attained_gpu_s: who has begun was admitted, and comes first",
)
_GIVES = (
    "GPU type and a power of two of GPUs for the present slot; which deadlines are guaranteed (score deadline_met), "
    "and a warning for each that is not",
    REASONS,
)
_IGNORES = (
    *("age_s", "num_restarts", "parallelism", "transformer", "operators", "priority", "parallel_plan", "expansions"),
    *(
        "calibration",
        "remaining_s",
        "queue",
        "attained_s",
        "earliest_start_s",
        "latest_start_s",
    ),
)

ELASTICFLOW = Policy(
    name="elasticflow",
    parameters=ElasticFlowParameters,
    variant={"method": ElasticFlowMethod.HEURISTIC},
    issues=_ISSUES,
    formulate=_FORMULATE,
    title="Deadlines that are guaranteed on admission, by least shares over slots; the rest where it gains most",
    source=_SOURCE,
    needs=_NEEDS,
    gives=(*_GIVES, "the bound of the integer program's linear relaxation, and the gap to it"),
    is_heuristic=True,
    ignores=_IGNORES,
    changes_after=_CHANGES_AFTER,
)
ELASTICFLOW_ILP = Policy(
    name="elasticflow-ilp",
    parameters=ElasticFlowParameters,
    variant={"method": ElasticFlowMethod.ILP},
    issues=_ISSUES,
    formulate=_FORMULATE,
    title="As many deadlines as can be guaranteed, by weight, then throughput now, by integer programming over slots",
    source=_SOURCE,
    needs=_NEEDS,
    gives=(*_GIVES, "bound and gap of the integer program"),
    ignores=_IGNORES,
    changes_after=_CHANGES_AFTER,
)

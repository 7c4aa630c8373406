"""A policy added as CONTRIBUTING says: file -> its text, and the two tables -> the lines that they get."""

NEW_FILES = {
    "models/allocation/first_fit/__init__.py": "",
    "models/allocation/first_fit/parameters.py": """
from dataclasses import dataclass
from models.policy import Parameters

@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFitParameters(Parameters):
    largest_first: bool = False
""",
    "models/allocation/first_fit/descriptor.py": """
from models.allocation.first_fit.parameters import FirstFitParameters
from models.policy import Policy

FIRST_FIT = Policy(
    name="first-fit",
    parameters=FirstFitParameters,
    issues="models.allocation.first_fit.formulation:policy_issues",
    formulate="models.allocation.first_fit.formulation:formulate",
    title="Every job on the first node with room",
    source="none",
    needs=("jobs with min_gpus",),
    gives=("GPUs",),
)
""",
    "models/allocation/first_fit/formulation.py": """
import numpy as np
from scipy import sparse
from models.formulation import Formulation
from models.placement.check import placement_violations
from models.plan import Change, JobAllocation, Plan, UnplacedJob
from models.workload import NodeGpus
from solver.problem import MatrixProblem, Sense

def policy_issues(snapshot, parameters):
    return []

class FirstFit(Formulation):
    def __init__(self, snapshot, parameters):
        self.snapshot, self.given = snapshot, []
        free = {node.id: list(range(node.num_gpus)) for node in snapshot.cluster.nodes}
        kinds = {node.id: node.gpu_type for node in snapshot.cluster.nodes}
        for job in sorted(snapshot.jobs, key=lambda job: -job.min_gpus if parameters.largest_first else 0):
            node = next((node for node, gpus in free.items() if len(gpus) >= job.min_gpus), None)
            if node is not None:
                gpus = tuple(free[node].pop(0) for _ in range(job.min_gpus))
                self.given.append(JobAllocation(
                    job_id=job.id, gpu_type=kinds[node], num_gpus=len(gpus),
                    gpus=(NodeGpus(node=node, gpus=gpus),), change=Change.STARTED,
                ))
        placed, n = {given.job_id for given in self.given}, len(snapshot.jobs)
        fixed = np.array([float(job.id in placed) for job in snapshot.jobs])
        self.problem = MatrixProblem(
            name="first-fit", sense=Sense.MAXIMIZE, objective=np.ones(n), matrix=sparse.csc_array((0, n)),
            row_lower=np.zeros(0), row_upper=np.zeros(0), lower=fixed, upper=fixed,
            integrality=np.ones(n, dtype=np.bool_),
        )

    def extract(self, incumbent, clock):
        placed = {given.job_id for given in self.given}
        left = tuple(
            UnplacedJob(job_id=job.id, reason="capacity", detail="no room", counts={}, remedy="", preempted=False)
            for job in self.snapshot.jobs
            if job.id not in placed
        )
        return Plan(allocations=tuple(self.given), unplaced=left, score=())

    def violations(self, plan, objective):
        return placement_violations(self.snapshot, plan.allocations)

def formulate(snapshot, parameters, clock):
    return FirstFit(snapshot, parameters)
""",
    "api/schemas/policies/first_fit.py": """
from api.schemas.policies.base import ParametersDoc
from models.allocation.first_fit.parameters import FirstFitParameters

class FirstFitParametersDoc(ParametersDoc):
    planner = FirstFitParameters
    asks_for = "Which job sits on which node."

    largest_first: bool = False
""",
}
# File -> (the line after which, what follows it).
LINES = {
    "models/policies.py": (
        (
            "from models.allocation.arena.descriptor import ARENA, ARENA_ILP\n",
            "from models.allocation.first_fit.descriptor import FIRST_FIT\n",
        ),
        ("        SUIKA_ILP,\n", "        FIRST_FIT,\n"),
    ),
    "api/schemas/parameters.py": (
        (
            "from api.schemas.policies.base import ParametersDoc\n",
            "from api.schemas.policies.first_fit import FirstFitParametersDoc\n",
        ),
        ("        SuikaParametersDoc,\n", "        FirstFitParametersDoc,\n"),
    ),
}

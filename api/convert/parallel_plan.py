"""3D-parallel plans and GPUs of jobs: from their documents to the planner's types, and back."""

from collections.abc import Mapping, Sequence

from api.schemas.parallel_plan import (
    ExpansionDoc,
    ParallelPlanDoc,
    ReplicaDoc,
    StageDoc,
    SymmetricPlanDoc,
    TrainingChoiceDoc,
)
from models.parallel_plan import ParallelPlan, Replica, Stage
from models.parallelism.request import Degrees
from models.parallelism.symmetric import degree_issues, given_plan
from models.parallelism.training import Training
from models.performance.iteration.architecture import profile_of
from models.performance.iteration.model_issues import model_issues
from models.transformer import JobModel
from models.workload import Expansion, NodeGpus
from stowplan.errors import InputError, raise_for_errors


def plan_from_document(document: ParallelPlanDoc) -> ParallelPlan:
    """Build the plan.

    Raises
    ------
    InputError
        When it is not well formed; pointers are relative to the document.
    """
    return ParallelPlan(
        stages=tuple(_stage(stage) for stage in document.stages),
        num_micro_batches=document.num_micro_batches,
        virtual_stages=document.virtual_stages,
        schedule=document.schedule,
        training=None if document.training is None else Training(**vars(document.training)),
        context_parallel=document.context_parallel,
        expert_parallel=document.expert_parallel,
    )


def plan_from_degrees(
    document: SymmetricPlanDoc, model: JobModel | None, current: Sequence[NodeGpus], type_of: Mapping[str, str]
) -> ParallelPlan | None:
    """Build the plan of these degrees on the GPUs of `current`; `type_of`: node id -> GPU type.

    None when the model itself is wrong, which is said where it stands.

    Raises
    ------
    InputError
        When the job has no model or does not run, or the degrees do not fit the model or the GPUs; pointers are
        relative to the document.
    """
    if model is None:
        raise InputError("has degrees, which say nothing of layers and batch; give transformer or operators, too")
    if not current:
        raise InputError("has degrees for the GPUs of current, which is empty; say where the job runs")
    if model_issues(model, ""):
        return None
    profile, degrees = profile_of(model), Degrees(**vars(document))
    largest = max(len(slice_.gpus) for slice_ in current)
    raise_for_errors(list(degree_issues(degrees, profile, largest)), "parallel plan")
    return given_plan(degrees, profile, {node: type_of.get(node, "") for node in map_from_slices(current)}, current)


def plan_to_document(plan: ParallelPlan) -> ParallelPlanDoc:
    """Give the document that `plan_from_document` turns into an equal plan."""
    return ParallelPlanDoc(
        stages=tuple(
            StageDoc(
                num_layers=stage.num_layers,
                replicas=tuple(ReplicaDoc.model_validate(replica, from_attributes=True) for replica in stage.replicas),
                checkpointing=stage.checkpointing,
                recomputed_layers=stage.recomputed_layers,
            )
            for stage in plan.stages
        ),
        num_micro_batches=plan.num_micro_batches,
        virtual_stages=plan.virtual_stages,
        schedule=plan.schedule,
        training=None if plan.training is None else training_to_document(plan.training),
        context_parallel=plan.context_parallel,
        expert_parallel=plan.expert_parallel,
    )


def training_to_document(training: Training) -> TrainingChoiceDoc:
    """Give the document of how a plan trains."""
    return TrainingChoiceDoc.model_validate(training, from_attributes=True)


def expansions_from_documents(documents: Sequence[ExpansionDoc]) -> tuple[Expansion, ...]:
    """Build the expansions of a job."""
    return tuple(Expansion(gpus=slices_from_map(added.gpus), benefit=added.benefit) for added in documents)


def expansions_to_documents(expansions: Sequence[Expansion]) -> tuple[ExpansionDoc, ...]:
    """Give the documents that `expansions_from_documents` turns into equal expansions."""
    return tuple(ExpansionDoc(gpus=map_from_slices(added.gpus), benefit=added.benefit) for added in expansions)


def slices_from_map(gpus: Mapping[str, tuple[int, ...]]) -> tuple[NodeGpus, ...]:
    """GPUs per node, ordered by node and index."""
    return tuple(NodeGpus(node=node, gpus=tuple(sorted(gpus[node]))) for node in sorted(gpus))


def map_from_slices(slices: Sequence[NodeGpus]) -> dict[str, tuple[int, ...]]:
    """Node id -> GPU indices, in the order given."""
    return {slice_.node: slice_.gpus for slice_ in slices}


def _stage(document: StageDoc) -> Stage:
    return Stage(
        num_layers=document.num_layers,
        replicas=tuple(Replica(**vars(replica)) for replica in document.replicas),
        checkpointing=document.checkpointing,
        recomputed_layers=document.recomputed_layers,
    )

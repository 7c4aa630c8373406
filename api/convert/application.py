"""From documents of measured applications to what is replayed."""

from collections.abc import Sequence

from api.schemas.application import ApplicationDoc, BatchEpochsDoc, TypeStepsDoc
from stowplan.errors import raise_for_errors
from workloads.profile_check import profile_issues
from workloads.profiles import ApplicationProfile, Epoch, StepTime, TypeSteps, Validation


def profiles_from_documents(documents: Sequence[ApplicationDoc]) -> tuple[ApplicationProfile, ...]:
    """Build measured applications.

    Raises
    ------
    InputError
        With one issue per fault, pointers relative to the list.
    """
    profiles = tuple(map(_profile, documents))
    raise_for_errors(list(profile_issues(profiles)), "list of applications")
    return profiles


def _profile(document: ApplicationDoc) -> ApplicationProfile:
    built = {"types": tuple(map(_type_steps, document.types)), "validations": tuple(map(_built, document.validations))}
    return ApplicationProfile(**{**vars(document), **built})


def _type_steps(document: TypeStepsDoc) -> TypeSteps:
    return TypeSteps(**{**vars(document), "steps": tuple(StepTime(**vars(step)) for step in document.steps)})


def _built(document: BatchEpochsDoc) -> Validation:
    return Validation(batch=document.batch, epochs=tuple(Epoch(**vars(epoch)) for epoch in document.epochs))

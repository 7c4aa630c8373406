"""What is planned ahead: from the planner's type to the document, and back."""

from api.convert.pretraining import pretraining_from_document, pretraining_to_document
from api.schemas.ahead import AheadPlacementDoc
from models.plan import AheadPlacement, JobMove, KeptNode, Promise, Retention, StartCost, TrainingEstimate
from models.workload import Parallelism


def ahead_to_document(placed: AheadPlacement) -> AheadPlacementDoc:
    """Give the document of one job."""
    values = {name: getattr(placed, name) for name in AheadPlacement.__slots__}
    return AheadPlacementDoc.model_validate(
        {**values, "placement": pretraining_to_document(placed.placement)}, from_attributes=True
    )


def ahead_from_document(document: AheadPlacementDoc) -> AheadPlacement:
    """Give back what is planned of one job."""
    return AheadPlacement(
        **{
            **dict(document),
            "placement": pretraining_from_document(document.placement),
            "parallelism": Parallelism(**dict(document.parallelism)),
            "training": None if document.training is None else TrainingEstimate(**dict(document.training)),
            "nodes": tuple(KeptNode(**dict(node)) for node in document.nodes),
            "retention": tuple(Retention(**dict(at)) for at in document.retention),
            "moves": tuple(JobMove(**dict(move)) for move in document.moves),
            "promise": None if document.promise is None else Promise(**dict(document.promise)),
            "other_starts": tuple(StartCost(**dict(start)) for start in document.other_starts),
        }
    )

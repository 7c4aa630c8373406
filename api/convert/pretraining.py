"""Where a pre-training job sits: from the planner's type to the document, and back."""

from api.schemas.placement import CommunicationMatrixDoc
from models.plan import PretrainingPlacement, SpreadPair
from models.workload import Parallelism


def pretraining_to_document(placement: PretrainingPlacement) -> CommunicationMatrixDoc:
    """Give the document."""
    return CommunicationMatrixDoc.model_validate(placement, from_attributes=True)


def pretraining_from_document(document: CommunicationMatrixDoc) -> PretrainingPlacement:
    """Give back the placement."""
    spreads = {name: SpreadPair(**dict(getattr(document, name))) for name in ("minipod_spread", "distance")}
    degrees = None if document.parallelism is None else Parallelism(**dict(document.parallelism))
    return PretrainingPlacement(**{**dict(document), **spreads, "parallelism": degrees})

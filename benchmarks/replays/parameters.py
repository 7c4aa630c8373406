"""Policies as they are named to replays: `NAME`, or `NAME:{parameters}`."""

from pydantic import TypeAdapter

from api.convert.reading import read_document
from api.schemas.parameters import PARAMETERS
from models.policies import POLICIES
from models.policy import Parameters
from stowplan.errors import InputError


def parameters_named(text: str) -> Parameters:
    """Parameters of a policy.

    Raises
    ------
    InputError
        When there is no such policy, or it has no such parameters.
    """
    name, _, parameters = text.partition(":")
    if name not in POLICIES:
        raise InputError(f"{name!r} is no policy; choose of {', '.join(POLICIES)}")
    document = read_document(TypeAdapter(PARAMETERS[name]), (parameters or "{}").encode(), f"parameters of {name}")
    return document.parameters_for(POLICIES[name])

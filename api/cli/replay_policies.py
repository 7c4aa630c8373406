"""Which policies a replay compares: those that what is known of its jobs suffices for."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_json as to_json_bytes

from api.cli.options import json_object
from api.convert.reading import read_document
from api.schemas.parameters import PARAMETERS
from executor.simulation.known import Known
from models.allocation.gang.parameters import GangParameters
from models.policies import POLICIES
from models.policy import Parameters
from stowplan.errors import InputError

# By option, as far as one replaces what was given.
_REMEDIES = {Known.TABLE: "give --performance", Known.MODELS: "give --modelled"}


def known_of(performance: Path | None, *, modelled: bool) -> Known:
    """What `--performance` names, or `--modelled` says.

    Raises
    ------
    InputError
        When both say how fast jobs are.
    """
    if modelled and performance is not None:
        raise InputError("--performance and --modelled each say how fast jobs are; give one of them")
    if modelled:
        return Known.MODELS
    if performance is None:
        return Known.NOTHING
    return Known.FOLDER if performance.is_dir() else Known.TABLE


def parameters_of(
    policies: str | None, single: Sequence[str], gang: Mapping[str, Any], *, known: Known
) -> list[Parameters]:
    """Parameters of the policies that were named.

    Raises
    ------
    InputError
        When a policy is unknown, named twice, or needs more of jobs than there is, and for options of a policy that is
        not named.
    """
    named = [*([] if policies is None else policies.split(",")), *single] or ["gang"]
    chosen: list[Parameters] = []
    for text in named:
        name, _, values = text.partition(":")
        if name not in POLICIES:
            raise InputError(f"{name!r} is no policy; choose of {', '.join(POLICIES)}")
        if (refusal := known.refusal(POLICIES[name], _REMEDIES)) is not None:
            raise InputError(f"{name!r} {refusal}")
        given = {**json_object(values or None), **(gang if POLICIES[name].parameters is GangParameters else {})}
        document = read_document(TypeAdapter(PARAMETERS[name]), to_json_bytes(given), f"parameter object of {name}")
        parameters = document.parameters_for(POLICIES[name])
        if parameters in chosen:
            raise InputError(f"{name!r} is named twice with the same parameters; --seeds replays several times")
        chosen.append(parameters)
    if gang and not any(isinstance(parameters, GangParameters) for parameters in chosen):
        raise InputError(f"--{' and --'.join(gang)} {'is' if len(gang) == 1 else 'are'} of gang, which is not named")
    return chosen

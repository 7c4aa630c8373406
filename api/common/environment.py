"""Settings from the environment and the command line. Apart, since pydantic-settings takes long to load."""

import os
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from api.common.settings import Settings
from stowplan.child_environment import CACHE_VARIABLE
from stowplan.errors import InputError

_PREFIX = "STOWPLAN_"
_KINDS: Mapping[str, str] = {"int_parsing": "an integer", "float_parsing": "a number", "bool_parsing": "true or false"}


class _FromEnvironment(BaseSettings, Settings):
    """Settings that take from the environment what is not given. `Settings` alone never looks there."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True, extra="forbid")


def setting_variables() -> list[str]:
    """Names of all variables, also of the one that is no setting: every process reads it for itself."""
    return [*map(_variable, Settings.model_fields), CACHE_VARIABLE]


def read_settings(overrides: Mapping[str, object]) -> Settings:
    """Settings from the environment; `overrides` (from the command line; None: not given) win.

    Raises
    ------
    InputError
        When a variable cannot be read or STOWPLAN_* names no setting.
    """
    known = setting_variables()
    unknown = next((name for name in sorted(os.environ) if name.startswith(_PREFIX) and name not in known), None)
    if unknown is not None:
        raise InputError(f"{unknown} names no setting; the settings are {', '.join(known)}")
    values: dict[str, Any] = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**_FromEnvironment(**values).model_dump())
    except ValidationError as error:
        first = error.errors()[0]
        wanted = _KINDS.get(first["type"], first["msg"])
        raise InputError(f"{_variable(str(first['loc'][0]))} is {first['input']!r}; must be {wanted}") from error


def _variable(name: str) -> str:
    return _PREFIX + name.upper()

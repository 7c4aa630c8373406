"""GPU types of another document, for commands that are told of them so."""

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_json

from api.cli.json_files import read_json
from api.convert.reading import read_document
from api.schemas.snapshot import GpuTypeDoc
from stowplan.errors import InputError
from topology.cluster import GpuType

_GPU_TYPES: TypeAdapter[tuple[GpuTypeDoc, ...]] = TypeAdapter(tuple[GpuTypeDoc, ...])


def gpu_types_in(path: Path) -> tuple[GpuType, ...]:
    """GPU types of a cluster, a snapshot, a plan request, or a bare list of them.

    Raises
    ------
    InputError
        When there are none, or they are wrong.
    """
    document: Any = read_json(path)
    for part in ("snapshot", "cluster", "gpu_types"):
        document = document.get(part, document) if isinstance(document, dict) else document
    try:
        read = read_document(_GPU_TYPES, to_json(document, inf_nan_mode="constants"), "list of GPU types")
    except InputError as error:
        raise InputError(f"{path}: {error.detail}", error.issues) from error
    return tuple(GpuType(**dict(kind)) for kind in read)

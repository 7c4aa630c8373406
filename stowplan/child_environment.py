"""The variables that processes of ours start with: what the machine tells programs, and no secret."""

import os

from stowplan.catalogue import VARIABLE

# The folder of what is remembered between processes, see `models.remembered`.
CACHE_VARIABLE = "STOWPLAN_CACHE"
_NAMES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"),
        *("LD_LIBRARY_PATH", "VIRTUAL_ENV", "CC", "CXX", VARIABLE, CACHE_VARIABLE),
    }
)
_FAMILIES = (
    *("LC_", "XDG_", "PYTHON", "OMP_", "MKL_", "OPENBLAS_", "MPL"),
    *("CUDA_", "NCCL_", "GLOO_", "UCX_", "TORCH", "PYTORCH_", "TRITON_"),
)


def child_environment(*families: str) -> dict[str, str]:
    """Give the variables of this process that a child may have; `families`: beginnings of the names of further ones."""
    known = (*_FAMILIES, *families)
    return {name: value for name, value in os.environ.items() if name in _NAMES or name.startswith(known)}

"""What a result was measured on: machine, versions, commit. No name that tells where the machine stands."""

import os
import platform
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

from benchmarks.paths import ROOT
from benchmarks.suite.record import Environment
from models.parallelism.incremental.compiled import core
from solver.solve import available_solvers

_PACKAGES = ("cvxpy", "highspy", "numpy", "pyomo", "pyscipopt", "scipy", "stowplan")
_ASK_LIMIT_S = 10.0


def environment() -> Environment:
    """This machine and checkout, now."""
    commit, dirty = revision(ROOT)
    return Environment(
        cpu=_fact(Path("/proc/cpuinfo"), "model name") or platform.processor() or platform.machine(),
        num_cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=_memory_bytes(),
        load=load(),
        system=platform.system(),
        python=platform.python_version(),
        versions={name: version(name) for name in _PACKAGES} | dict(available_solvers()) | _externals() | _compiled(),
        commit=commit,
        dirty=dirty,
    )


def revision(checkout: Path) -> tuple[str, bool | None]:
    """Commit of a checkout, and whether its files differ from it; None where git does not tell."""
    changes = _git(checkout, "status", "--porcelain")
    return _git(checkout, "rev-parse", "HEAD") or "unknown", None if changes is None else bool(changes)


def load() -> float | None:
    """Processes that want to run, averaged over a minute; None where the system does not tell."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def _memory_bytes() -> int | None:
    kib = _fact(Path("/proc/meminfo"), "MemTotal")
    return None if kib is None else int(kib.split()[0]) * 1024


def _fact(path: Path, name: str) -> str | None:
    """Value of the first line `name: value`."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == name), None)


def _externals() -> dict[str, str]:
    """First line that external solvers say about themselves, where they are installed."""
    found = {}
    for name, question in (("glpsol", "--version"), ("cbc", "-quit")):
        path = shutil.which(name)
        if path is not None:
            said = subprocess.run([path, question], capture_output=True, text=True, timeout=_ASK_LIMIT_S, check=False)
            lines = [line.strip() for line in said.stdout.splitlines() if "ersion" in line or "GLPSOL" in line]
            found[name] = lines[0] if lines else "unknown"
    return found


def _compiled() -> dict[str, str]:
    """Sources of the search that Suika has compiled, where it has."""
    return {} if core is None else {"compiled_search": str(core.SOURCE)[:12]}


def _git(checkout: Path, *arguments: str) -> str | None:
    try:
        answer = subprocess.run(
            ["git", *arguments], cwd=checkout, capture_output=True, text=True, timeout=_ASK_LIMIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()

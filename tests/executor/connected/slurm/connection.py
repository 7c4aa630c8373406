"""`stowplan connect slurm` as a process of its own that need not load anything: it is forked from one that has.

Loading takes longer than all that a connection decides on eight nodes. That it loads what it needs is shown where the
lines of the documentation are run, as users run them.
"""

import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import api.cli.connect_slurm  # noqa: F401 - the command is looked up by name, and is here before processes are forked
import models.allocation.gang.formulation
import models.placement.arnold.policy  # noqa: F401 - as above
from api.cli.main import main

_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload([__name__])


def start(words: Sequence[str], environment: Mapping[str, str], out: Path, err: Path) -> ForkServerProcess:
    """Start `stowplan connect slurm` with these arguments in the folder of `out`; it appends what it prints to the
    files."""
    process = _FORKED.Process(target=_run, args=(tuple(words), dict(environment), out, err), daemon=True)
    process.start()
    return process


def _run(words: Sequence[str], environment: Mapping[str, str], out: Path, err: Path) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(out.parent)
    for path, number in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    sys.argv = ["stowplan", "connect", "slurm", *words]
    main()

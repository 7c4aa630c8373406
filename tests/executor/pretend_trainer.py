"""Stands in for the trainer where only the life of a run matters: steps, checkpoints and metrics, but no training.

Started as a program with the path of job.json. Rank 0 does the steps; the other ranks wait for it to end. PRETEND_FAULT
names a step before which rank 0 dies by SIGKILL, once per deployment; PRETEND_STEPS is a number of steps after which it
does so in every run, or ends with the exit code PRETEND_CODE where that is set.
"""

import os
import sys
import time
from pathlib import Path

from executor.run_files import READY_FOLDER, WAIT_VARIABLE


def main() -> None:
    path, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    if rank == 0:
        # The others need none of what this imports.
        sys.path.append(str(Path(__file__).parents[2]))
        from tests.executor.pretend_training import resume
    go = os.environ.get(WAIT_VARIABLE)
    if go is not None:
        (path.parent / READY_FOLDER).mkdir(exist_ok=True)
        (path.parent / READY_FOLDER / str(rank)).touch()
    while go is not None and not Path(go).exists():
        time.sleep(0.02)
    done = path.parent / "done"
    while rank > 0 and not done.exists():
        time.sleep(0.02)
    if rank == 0:
        resume(path)
        done.touch()


if __name__ == "__main__":
    main()

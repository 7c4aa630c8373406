"""One rank: `RANK=.. LOCAL_RANK=.. WORLD_SIZE=.. MASTER_ADDR=.. MASTER_PORT=.. python -P -m executor.trainer job.json`.

Exit codes: 0 done, or stopped in good order; 1 a fault; 2 wrong input, or torch and deepspeed are not installed; 3 all
steps done but the last checkpoint could not be written; 4 another rank has gone.
"""

import importlib
import logging
import os
import sys
from pathlib import Path
from typing import NoReturn

from executor.extra import missing_extra
from executor.launch.pulse import Pulse
from executor.outcome import WRONG_INPUT
from executor.timeline import Activity, Timeline
from executor.training_job import read_training_job
from stowplan.errors import InputError


def main(arguments: list[str]) -> NoReturn:
    """Read the job, then load the libraries for its device and run."""
    timeline = Timeline(Activity.IMPORTS)
    logging.basicConfig(
        level=logging.INFO,
        format=f"%(asctime)s %(levelname)s rank {os.environ.get('RANK', '?')} %(name)s: %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S%z",
    )
    if missing := missing_extra():
        _refuse(missing)
    if len(arguments) != 1:
        _refuse(f"usage: python -P -m {__package__} job.json")
    path = Path(arguments[0])
    try:
        job = read_training_job(path)
    except InputError as error:
        _refuse(str(error))
    pulse = Pulse(os.environ)
    pulse.beat(job.start_limit_s, "loading its libraries")
    # deepspeed chooses its device when it is loaded, and takes a GPU where it sees one.
    os.environ["DS_ACCELERATOR"] = job.device.value
    importlib.import_module("executor.trainer.rank").main(job, path.parent, pulse, timeline)
    raise AssertionError("a rank ends its process itself")


def _refuse(reason: str) -> NoReturn:
    logging.getLogger("stowplan.executor.trainer").error("%s", reason)
    sys.exit(WRONG_INPUT)


if __name__ == "__main__":
    main(sys.argv[1:])

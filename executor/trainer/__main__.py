"""One rank: `RANK=.. LOCAL_RANK=.. WORLD_SIZE=.. MASTER_ADDR=.. MASTER_PORT=.. python -P -m executor.trainer job.json`.

Exit codes: 0 done, or stopped in good order; 1 a fault; 2 wrong input, or torch and deepspeed are not installed; 3 all
steps done but the last checkpoint could not be written.
"""

import importlib
import logging
import os
import sys

from executor.extra import missing_extra

if __name__ == "__main__":
    logging.basicConfig(
        level=logging.INFO, format=f"%(levelname)s rank {os.environ.get('RANK', '?')} %(name)s: %(message)s"
    )
    if missing := missing_extra():
        sys.exit(missing)
    importlib.import_module("executor.trainer.rank").main(sys.argv[1:])

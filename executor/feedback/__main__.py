"""Send metrics: `python -P -m executor.feedback FOLDER --service URL --job ID [--token-file FILE] [--once]`.

Exit codes: 0 all sent; 1 some records wait, since the service is away or does not take them now; 2 wrong input, or
httpx is not installed; 3 some records were refused and set aside.
"""

import importlib
import logging
import sys

from executor.extra import missing_extra

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    # One line a batch would drown what matters.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    if missing := missing_extra("sending metrics", ("httpx",)):
        sys.stderr.write(missing + "\n")
        sys.exit(2)
    sys.exit(importlib.import_module("executor.feedback.command").main(sys.argv[1:]))

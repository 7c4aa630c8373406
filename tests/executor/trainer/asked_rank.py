"""The command of a rank in place of `python -P -m executor.trainer job.json`: `asked_rank.py ADDRESS OWN job.json`.

It asks `forking` for a rank, stands for it, passes on what it is told by signals, and ends as it does. The ranks that
OWN names become the trainer themselves, as they do for users. Needs the standard library only, so that it begins at
once.
"""

import os
import signal
import sys
from multiprocessing.connection import Client


def main(address: str, own: str, job: str) -> int:
    if os.environ["RANK"] in own.split(","):
        os.execv(sys.executable, [sys.executable, "-P", "-m", "executor.trainer", job])  # noqa: S606 - a list of words
    with Client(address) as test:
        test.send((os.getpid(), job, dict(os.environ)))
        rank: int = test.recv()
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, lambda received, _: os.kill(rank, received))
        code: int = test.recv()
    # A rank that was killed has a negative one.
    return code if code >= 0 else 1


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))

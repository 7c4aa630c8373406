"""How good the predictions of iteration times are: `python -m benchmarks.performance_model noise | arena`."""

import argparse
import sys

from benchmarks import performance_arena, performance_noise
from benchmarks.arnold_report import Row, show, write


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    noise = commands.add_parser("noise", help="noise on measurements against error of predictions")
    noise.add_argument("--seeds", type=int, default=50, help="per run and noise, from 0 on")
    commands.add_parser("arena", help="predictions against the measurements of Arena's artifact")
    arguments = parser.parse_args()
    if arguments.command == "noise":
        _report("performance_noise", performance_noise.PROTOCOL, list(performance_noise.rows(arguments.seeds)))
        return
    if not performance_arena.TABLE.is_file():
        sys.exit(f"skipped: the published data are not there ({performance_arena.TABLE.name} beside the checkout)")
    measured = performance_arena.cases()
    without = sum(not case.plans for case in measured)
    _report("performance_arena", performance_arena.PROTOCOL, list(performance_arena.rows(measured)))
    print(f"{len(measured)} rows; in {without} of them no symmetric plan fits into memory by the model")


def _report(name: str, protocol: str, rows: list[Row]) -> None:
    show(name, rows)
    print(write(name, protocol, rows))


if __name__ == "__main__":
    main()

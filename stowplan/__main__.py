"""`stowplan` and `python -m stowplan`: the command line, wherever its room is (in a wheel it is under `stowplan.`)."""

import importlib

# The only name of another room here. As a text, which a wheel has with its name there.
_COMMANDS = "api.cli.main"


def main() -> None:
    """Console entry point."""
    importlib.import_module(_COMMANDS).main()


if __name__ == "__main__":
    main()

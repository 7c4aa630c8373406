"""The checked-in OpenAPI document: `python -m api.openapi` writes it, `python -m api.openapi --check` compares it."""

import argparse
import difflib
import json
import sys
from pathlib import Path

from api.app import create_app
from api.common.setting_kinds import IN_MEMORY
from api.common.settings import Settings

PATH = Path(__file__).with_name("openapi.json")


def openapi_text() -> str:
    """Give the document as it is checked in."""
    document = create_app(Settings(database=IN_MEMORY)).openapi()
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write or check; returns 1 when the document that is checked in differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the file differs")
    text = openapi_text()
    if not parser.parse_args().check:
        PATH.write_text(text, encoding="utf-8")
        return 0
    known = PATH.read_text(encoding="utf-8") if PATH.exists() else ""
    changes = difflib.unified_diff(known.splitlines(), text.splitlines(), "checked in", "now", n=1, lineterm="")
    sys.stdout.writelines(f"{line}\n" for line in changes)
    return int(known != text)


if __name__ == "__main__":
    sys.exit(main())

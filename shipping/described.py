"""What an index of packages shows: README.md, whose links are within the repository, and where that is.

There is no public address of the repository; whoever publishes a wheel of it says theirs, `STOWPLAN_HOME` (such as
`https://git.example.org/planning/stowplan`), and `STOWPLAN_FILES` where pictures and files are served otherwise than
below `/raw/main/` there. Without it links stay as text and pictures are left out: none leads nowhere.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from setuptools.command.egg_info import egg_info

# Builders load this file alone, from wherever they are.
sys.path.append(str(Path(__file__).resolve().parents[1]))
from shipping.links import relinked


def described(text: str, home: str | None, files: str | None = None) -> str:
    """The text with links that lead somewhere from everywhere.

    Parameters
    ----------
    home, files
        Address of the repository, and of the folder in which its files are served raw.
    """
    home = home and home.rstrip("/")
    raw = files.rstrip("/") if files else f"{home}/raw/main"

    def led(is_picture: bool, shown: str, target: str) -> str:
        if home is None:
            return "" if is_picture else shown
        return f"![{shown}]({raw}/{target})" if is_picture else f"[{shown}]({home}/blob/main/{target})"

    return relinked(text, led)


def addresses(home: str | None) -> Mapping[str, str]:
    """Addresses of the project by what is there."""
    if home is None:
        return {}
    home = home.rstrip("/")
    return {
        "Repository": home,
        "Documentation": f"{home}/blob/main/docs/index.md",
        "Changes": f"{home}/blob/main/CHANGELOG.md",
    }


class EggInfo(egg_info):
    """Writes the metadata, from which wheels take theirs."""

    def run(self) -> None:
        """Set what the index shows, and write."""
        home = os.environ.get("STOWPLAN_HOME") or None
        # Its published types lack `project_urls`.
        metadata: Any = self.distribution.metadata
        metadata.long_description = described(
            metadata.long_description or "", home, os.environ.get("STOWPLAN_FILES") or None
        )
        metadata.project_urls = {**(metadata.project_urls or {}), **addresses(home)}
        super().run()

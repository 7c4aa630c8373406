"""What an index of packages shows: README.md, whose links are within the repository, and where that is.

There is no public address of the repository; whoever publishes a wheel of it says theirs, `STOWPLAN_HOME` (such as
`https://git.example.org/planning/stowplan`), and `STOWPLAN_FILES` where pictures and files are served otherwise than
below `/raw/main/` there. Without it links stay as text and pictures are left out: none leads nowhere.
"""

import os
import re
from collections.abc import Mapping
from typing import Any

from setuptools.command.egg_info import egg_info

_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def described(text: str, home: str | None, files: str | None = None) -> str:
    """The text with links that lead somewhere from everywhere.

    Parameters
    ----------
    home, files
        Address of the repository, and of the folder in which its files are served raw.
    """
    home = home and home.rstrip("/")
    raw = files.rstrip("/") if files else f"{home}/raw/main"

    def led(match: re.Match[str]) -> str:
        picture, shown, target = match.groups()
        if "://" in target or target.startswith("#"):
            return match.group(0)
        if home is None:
            return "" if picture else shown
        return f"{picture}[{shown}]({raw if picture else f'{home}/blob/main'}/{target})"

    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [_LINK.sub(led, text[end : fence.start()]), fence.group(0)]
        end = fence.end()
    return "".join([*parts, _LINK.sub(led, text[end:])])


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

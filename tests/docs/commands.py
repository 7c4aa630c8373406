"""Commands of the documentation: what stands in shell blocks, and in backticks."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from docs.tools.site import OUTSIDE
from tests.paths import ROOT

PAGES = (*sorted({*OUTSIDE.values(), *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))}),)
_BLOCK = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`((?:\.venv/bin/)?(?:stowplan|python -m|make|pip) [^`\n]+)`")
_OURS = {"stowplan", "python", "pip"}
# Of other software, or of the shell.
_OTHERS = {
    *("bash", "cat", "cp", "curl", "docker", "echo", "helm", "jq", "kubectl", "make", "nvidia-smi", "printf"),
    *("promtool", "sacct", "sbatch", "scontrol", "sinfo", "squeue"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A statement of a shell. `is_whole`: it stands in a block, as it is to be typed."""

    page: str
    text: str
    is_whole: bool

    def __str__(self) -> str:
        return f"{self.page}: {self.text}"

    @property
    def parts(self) -> list[list[str]]:
        """Words of the commands that `|` and `&&` join, without comments, variables and where output goes."""
        # Quotes are shlex's affair, operators ours: they stand between blanks here.
        found: list[list[str]] = [[]]
        words = iter(shlex.split(self.text.partition("<<")[0], comments=True))
        for word in words:
            if word in {"|", "&&"}:
                found.append([])
            elif word == ">":
                next(words)
            elif found[-1] or not re.fullmatch(r"[A-Z_]+=\S*", word):
                found[-1].append(word.removeprefix(".venv/bin/") if not found[-1] else word)
        return [part for part in found if part]


def commands(page: str) -> Iterator[Command]:
    """All commands of a page, those in blocks in their order, then those within text."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for language, block in _BLOCK.findall(text):
        if language in {"sh", "bash"} or (language == "" and _is_shell(block)):
            yield from (Command(page=page, text=statement, is_whole=True) for statement in _statements(block))
    for found in _INLINE.findall(_BLOCK.sub("", text)):
        yield Command(page=page, text=found, is_whole=False)


def _statements(block: str) -> Iterator[str]:
    """Statements, however many lines each has: quotes, backslashes and here-documents go on."""
    lines = iter(block.splitlines())
    for line in lines:
        statement = line
        while (goes_on := statement.endswith("\\")) or not _is_closed(statement):
            statement = (statement[:-1] if goes_on else f"{statement}\n") + next(lines)
        if here := re.search(r"<<'?(\w+)'?$", statement):
            for more in lines:
                statement += f"\n{more}"
                if more == here[1]:
                    break
        if statement.strip():
            yield statement


def _is_closed(statement: str) -> bool:
    try:
        shlex.split(statement, comments=True)
    except ValueError:
        return False
    return True


def _is_shell(block: str) -> bool:
    """Whether it begins with a program that is known here; others are what is answered, and pictures of text."""
    words = [word for word in block.split() if not re.fullmatch(r"[A-Z_]+=\S*", word)]
    return words[0].removeprefix(".venv/bin/") in _OURS | _OTHERS

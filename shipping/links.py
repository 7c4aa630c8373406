"""Links of Markdown, given elsewhere than they were written for."""

import re
from collections.abc import Callable

_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def relinked(markdown: str, led: Callable[[bool, str, str], str]) -> str:
    """The text with its links as `led` gives them, but those in blocks of code and to other sites.

    Parameters
    ----------
    led
        Of whether it is a picture, its text and its target: what stands in its place.
    """

    def as_led(match: re.Match[str]) -> str:
        picture, text, target = match.groups()
        return match.group(0) if "://" in target or target.startswith("#") else led(bool(picture), text, target)

    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [_LINK.sub(as_led, markdown[end : fence.start()]), fence.group(0)]
        end = fence.end()
    return "".join([*parts, _LINK.sub(as_led, markdown[end:])])

"""Title of a picture and lines about it, in as many lines as they need: a long plan is not cut."""

from dataclasses import dataclass
from typing import Any

from api.figures.style import FAINT_INK, INK, LINE_PT, TEXT_SIZE, TITLE_SIZE, wrapped, write

_FIRST = 0.45 * LINE_PT
_TITLE_STEP = 1.2 * LINE_PT
_BELOW_TITLE = 1.15 * LINE_PT


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Lines with their distance from the top, which is where `draw` has y = 0."""

    title: tuple[str, ...]
    words: tuple[tuple[str, str], ...]
    """Text and colour."""

    @classmethod
    def of(cls, width: float, title: str, *words: tuple[str, str] | str) -> "Head":
        """Break the title and each of the `words` (text, or text and colour) into lines of at most `width`."""
        coloured = [(each, FAINT_INK) if isinstance(each, str) else each for each in words]
        return cls(
            title=wrapped(title, TITLE_SIZE, width, bold=True),
            words=tuple((line, colour) for text, colour in coloured for line in wrapped(text, TEXT_SIZE, width)),
        )

    @property
    def height(self) -> float:
        """From the top to where something else may stand."""
        return self._below_title + max(len(self.words) - 1, 0) * LINE_PT + LINE_PT

    def draw(self, axes: Any) -> None:
        """Write the lines."""
        for k, line in enumerate(self.title):
            write(axes, 0.0, _FIRST + k * _TITLE_STEP, line, TITLE_SIZE, color=INK, fontweight="bold")
        for k, (line, colour) in enumerate(self.words):
            write(axes, 0.0, self._below_title + k * LINE_PT, line, color=colour)

    @property
    def _below_title(self) -> float:
        return _FIRST + (len(self.title) - 1) * _TITLE_STEP + _BELOW_TITLE

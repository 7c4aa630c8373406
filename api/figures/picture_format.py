"""Formats of pictures. Light, for those that name one and draw nothing."""

from typing import Literal

PictureFormat = Literal["svg", "png"]

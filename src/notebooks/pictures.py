"""Pictures of a notebook: one style, the book's, and for each a text for those who don't see it."""

from __future__ import annotations

import io
import re
from html import escape
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.figure import Figure

from coursekit.palette import COLORS, FULL_WIDTH, SERIES, SETTINGS

LARGEST_SVG = 80_000  # bytes; a larger drawing is kept as pixels
DOTS_PER_INCH = 130
CSS_PIXELS_PER_INCH = 96
_SVG_TAG = re.compile(r"<svg\b[^>]*>")


def use_style() -> None:
    """Let all pictures of this process have the book's style."""
    style: Any = {**SETTINGS, "axes.prop_cycle": cycler(color=[COLORS[name] for name in SERIES])}
    mpl.rcParams.update(style)


def new_figure(
    width: float = FULL_WIDTH, height: float = 3.0, rows: int = 1, cols: int = 1, **options: Any
) -> tuple[Figure, Any]:
    """A figure in the book's style, and its axes: one, or an array of them.

    Args:
        width, height: in inches.
        rows, cols: of axes.
        options: of ``Figure.subplots``.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, cols, **options)


class Picture:
    """A figure with a text that says what is to be seen; as the last value of a cell it is shown."""

    def __init__(self, figure: Figure, alt: str) -> None:
        """Keep both.

        Raises:
            ValueError: the text is empty.
        """
        if not alt.strip():
            raise ValueError("a picture needs a text for those who don't see it")
        self.figure, self.alt = figure, " ".join(alt.split())

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Any:
        """The drawing and its text, and how large it is to be shown; the text alone is what a terminal shows."""
        svg = self._svg()
        if len(svg.encode()) <= LARGEST_SVG:
            return {"image/svg+xml": svg, "text/plain": self.alt}, {}
        width = round(self.figure.get_figwidth() * CSS_PIXELS_PER_INCH)
        return {"image/png": self._png(), "text/plain": self.alt}, {"image/png": {"width": width}}

    def _svg(self) -> str:
        drawing = self._saved("svg", metadata={"Date": None, "Creator": None}).decode()
        tag = _SVG_TAG.search(drawing)
        assert tag is not None, "matplotlib writes SVG"
        named = f'{tag[0][:-1]} role="img">\n <title>{escape(self.alt, quote=False)}</title>'
        return drawing[tag.start() :].replace(tag[0], named, 1)

    def _png(self) -> bytes:
        return self._saved("png", dpi=DOTS_PER_INCH, metadata={"Software": None})

    def _saved(self, form: str, **options: Any) -> bytes:
        file = io.BytesIO()
        self.figure.savefig(file, format=form, **options)
        return file.getvalue()

"""Which texts of a picture reach over its edges."""

from __future__ import annotations

from typing import Any

import pytest


def cut_off(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that reach over the left or the right edge, in the pictures that are made from now on."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    beyond: list[str] = []
    save = Figure.savefig

    def measured(figure: Figure, *arguments: Any, **options: Any) -> None:
        save(figure, *arguments, **options)
        FigureCanvasAgg(figure).draw()  # SVG's own measures are in other units
        for text in figure.findobj(Text):
            box = text.get_window_extent()
            if text.get_visible() and text.get_text().strip() and (box.x0 < 0 or box.x1 > figure.bbox.width):
                beyond.append(text.get_text())

    monkeypatch.setattr(Figure, "savefig", measured)
    return beyond

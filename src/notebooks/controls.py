"""Controls with a picture that answers them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from notebooks import settings
from notebooks.pictures import Picture
from notebooks.session import current

_STYLE = {"description_width": "initial"}
_LAYOUT = {"width": "20em"}
# The picture follows when the slider is let go: drawing takes longer than moving.
_LOOK = {"continuous_update": False, "style": _STYLE, "layout": _LAYOUT}


def slider(first: float, last: float, start: float, step: float = 1, title: str = "") -> Any:
    """A slider for a number; for whole numbers where all four are whole."""
    import ipywidgets

    whole = all(isinstance(number, int) for number in (first, last, start, step))
    kind = ipywidgets.IntSlider if whole else ipywidgets.FloatSlider
    return kind(value=start, min=first, max=last, step=step, description=title, **_LOOK)


def choice(options: Sequence[Any], start: Any = None, title: str = "") -> Any:
    """One of several values; the first one where none is given to start with."""
    import ipywidgets

    return ipywidgets.Dropdown(
        options=options,
        value=options[0] if start is None else start,
        description=title,
        style=_STYLE,
        layout=_LAYOUT,
    )


def switch(start: bool = False, title: str = "") -> Any:
    """On or off."""
    import ipywidgets

    return ipywidgets.Checkbox(value=start, description=title, indent=False)


def explore(draw: Callable[..., Picture | None], **controls: Any) -> None:
    """Show the controls and what ``draw`` makes of their values, and draw anew whenever one is moved.

    Without a notebook that shows controls, the picture for their first values is shown alone.

    Args:
        draw: gets the value of each control by its name; gives a picture, or ``None`` after it has printed.
        controls: made by ``slider``, ``choice`` or ``switch``.
    """
    import ipywidgets
    from IPython.display import display

    for name, control in controls.items():
        control.description = control.description or name.replace("_", " ")

    def show(**values: Any) -> None:
        with current().telling():
            picture = draw(**values)
            if picture is not None:
                display(picture)

    if settings.plain():
        show(**{name: control.value for name, control in controls.items()})
        return
    answer = ipywidgets.interactive_output(show, controls)
    display(ipywidgets.VBox([ipywidgets.HBox(list(controls.values()), layout={"flex_flow": "wrap"}), answer]))

"""Pictures: the drawing, its text, its size."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.layout_engine import ConstrainedLayoutEngine

from coursekit.palette import FULL_WIDTH, SERIES
from notebooks import COLORS, Picture, new_figure, pictures
from notebooks.pictures import LARGEST_SVG, use_style

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(autouse=True)
def style() -> Iterator[None]:
    with mpl.rc_context():
        use_style()
        yield


def a_picture(alt: str = "Three bars, the last is the highest.") -> Picture:
    figure, axes = new_figure(height=1.5)
    axes.bar(range(3), [1, 2, 3])
    return Picture(figure, alt)


def test_a_picture_is_a_drawing_with_its_text():
    bundle, metadata = a_picture()._repr_mimebundle_()
    assert metadata == {}
    assert bundle.keys() == {"image/svg+xml", "text/plain"}
    assert bundle["text/plain"] == "Three bars, the last is the highest."
    root = ElementTree.fromstring(bundle["image/svg+xml"])
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert root[0].tag == f"{SVG}title"
    assert root[0].text == "Three bars, the last is the highest."


def test_the_text_may_hold_any_character_and_stands_on_one_line():
    bundle, _ = a_picture("a < b &\n  b > c")._repr_mimebundle_()
    assert bundle["text/plain"] == "a < b & b > c"
    assert ElementTree.fromstring(bundle["image/svg+xml"])[0].text == "a < b & b > c"


@pytest.mark.parametrize("alt", ["", " \n"])
def test_a_picture_without_a_text_is_refused(alt):
    with pytest.raises(ValueError, match="a text for those who don't see it"):
        a_picture(alt)


def test_the_same_drawing_gives_the_same_bytes():
    assert a_picture()._repr_mimebundle_() == a_picture()._repr_mimebundle_()


def test_a_drawing_of_many_parts_is_kept_as_pixels():
    figure, axes = new_figure()
    draw = np.random.default_rng(0)
    axes.plot(draw.random(9000), draw.random(9000), ".")
    bundle, metadata = Picture(figure, "9,000 points")._repr_mimebundle_()
    assert metadata == {"image/png": {"width": 691}}  # 7.2 inches of 96 pixels
    assert bundle.keys() == {"image/png", "text/plain"}
    assert bundle["image/png"].startswith(b"\x89PNG")
    assert len(bundle["image/png"]) < 3 * LARGEST_SVG
    assert bundle["text/plain"] == "9,000 points"
    width, height = (int.from_bytes(bundle["image/png"][at : at + 4], "big") for at in (16, 20))
    assert (width, height) == (936, 390)  # 130 an inch
    assert b"Software" not in bundle["image/png"]  # the version of matplotlib would change the file


def test_a_drawing_is_kept_as_one_up_to_the_limit_in_bytes(monkeypatch):
    picture = a_picture()
    monkeypatch.setattr(picture, "_svg", lambda: "ö" * 10)
    for limit, kind in ((20, "image/svg+xml"), (19, "image/png")):
        monkeypatch.setattr(pictures, "LARGEST_SVG", limit)
        assert kind in picture._repr_mimebundle_()[0]


def test_a_drawing_can_stand_in_a_page_and_names_no_version_of_matplotlib():
    svg = a_picture()._repr_mimebundle_()[0]["image/svg+xml"]
    assert svg.startswith("<svg")
    assert "Matplotlib v" not in svg


def test_a_figure_has_the_axes_that_are_asked_for():
    figure, axes = new_figure(width=4, height=2, rows=2, cols=3, sharex=True)
    assert tuple(figure.get_size_inches()) == (4, 2)
    assert axes.shape == (2, 3)
    assert axes[0, 0].get_shared_x_axes().joined(axes[0, 0], axes[1, 2])


def test_a_figure_is_as_wide_as_a_page_and_leaves_room_for_its_labels():
    figure, _ = new_figure()
    assert tuple(figure.get_size_inches()) == (FULL_WIDTH, 3)
    assert isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine)


def test_the_series_have_the_books_colors_in_their_order():
    _, axes = new_figure()
    drawn = [axes.plot([number, number])[0].get_color() for number in range(len(SERIES))]
    assert drawn == [COLORS[name] for name in SERIES]


def test_a_notebooks_pictures_have_the_books_style(tmp_path):
    from courses import make_course
    from notebook_cells import run_cells

    printed = run_cells(
        make_course(tmp_path),
        "from notebooks import new_figure\n"
        "figure, axes = new_figure()\n"
        "print(axes.get_facecolor() == __import__('matplotlib').colors.to_rgba("
        f"'{COLORS['paper']}'), axes.set_title('x', loc=None).get_position()[0])",
    )
    assert printed.splitlines()[1:] == ["True 0.0"]

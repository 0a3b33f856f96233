"""The page's files: what they must not contain, and whether their colours can be told apart. No browser is needed."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
from page_server import STATIC

pytest_plugins = ("page_fixtures",)

FILES = sorted(path for path in STATIC.iterdir() if path.suffix in (".js", ".css", ".html", ".svg"))
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|srcdoc"
)
CODE = re.compile(r"\beval\b|new Function|localStorage|sessionStorage|document\.cookie")
TEXT, GRAPHIC = 4.5, 3.0  # WCAG 2.2, level AA
SURFACES = ("paper", "panel", "sunk")
HUES = [f"hue-{number}" for number in range(8)]


def colours(scheme: str) -> dict[str, str]:
    """The colours by name, as they are in light or in dark."""
    found: dict[str, str] = {}
    for name in ("style.css", "looks.css"):
        text = (STATIC / name).read_text()
        blocks = re.findall(r":root \{(.*?)\}", text, re.DOTALL)
        for block in blocks[: 2 if scheme == "dark" else 1]:
            found |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
    return found


def luminance(colour: str) -> float:
    """WCAG's relative luminance."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """From 1 to 21."""
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def pairs() -> list[tuple[str, str, float]]:
    """What is drawn on what, and how much it must stand out."""
    return [
        *((text, surface, TEXT) for text, surface in product(("ink", "muted", "warn", "bad"), SURFACES)),
        ("on-accent", "accent", TEXT),
        ("paper", "ink", TEXT),
        *((hue, "panel", TEXT) for hue in HUES),  # the number in a page is written in the panel's colour
        *((graphic, surface, GRAPHIC) for graphic, surface in product(("edge", "accent", "good"), SURFACES)),
        *((graphic, "panel", GRAPHIC) for graphic in ("prompt", "decode")),
        *((hue, "sunk", GRAPHIC) for hue in HUES),
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("front", "back", "least"), pairs())
def test_colours_stand_out(scheme: str, front: str, back: str, least: float) -> None:
    palette = colours(scheme)
    assert contrast(palette[front], palette[back]) >= least


def test_the_dark_palette_is_another_one() -> None:
    light, dark = colours("light"), colours("dark")
    assert light.keys() == dark.keys()
    assert [name for name in light if light[name] == dark[name]] == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_never_make_markup_of_text_and_keep_nothing(path: Path) -> None:
    text = path.read_text()
    assert MARKUP.findall(text) == []
    assert CODE.findall(text) == []


def test_the_page_has_no_script_and_no_style_of_its_own() -> None:
    text = (STATIC / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)", text) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=|javascript:", text) == []


def test_the_page_needs_nothing_from_elsewhere() -> None:
    for path in FILES:
        foreign = [url for url in re.findall(r"https?://[^\s\"')]+", path.read_text()) if "w3.org" not in url]
        assert foreign == [], path.name
        assert "@import" not in path.read_text()


def test_the_page_asks_only_for_files_that_are_there() -> None:
    html = (STATIC / "index.html").read_text()
    asked = set(re.findall(r"\"/window/([\w.]+)\"", html))
    for path in SCRIPTS:
        asked |= set(re.findall(r"from \"\./([\w.]+)\"", path.read_text()))
    assert asked == {path.name for path in FILES} - {"index.html"}


def test_every_element_that_a_script_looks_for_is_on_the_page_once() -> None:
    ids = re.findall(r"\sid=\"([\w-]+)\"", (STATIC / "index.html").read_text())
    assert len(ids) == len(set(ids))
    for path in SCRIPTS:
        wanted = set(re.findall(r"byId\(\"([\w-]+)\"\)", path.read_text()))
        assert wanted - set(ids) == set(), path.name

"""The pages in a real browser: nothing is cut off, text can be read, and nothing is asked of the network."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sample_marks import a_class, hostile, large_class, marks
from similar_code import REFS, module, package, starter, written

from grading.reports import Format, write_reports
from grading.similarity import find_similar, write_similar

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser")
PAGES = (
    "class.html",
    "learners/grace.hopper.html",
    "learners/kristen.nygaard.html",
    "large/class.html",
    "similar.html",
)

# The contrast of WCAG 2.2 between the text of each element and the page behind it; the least of all.
CONTRAST = """() => {
  const parts = text => text.match(/[\\d.]+/g).map(Number);
  const light = color => {
    const linear = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = parts(color).slice(0, 3).map(linear);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = node => {
    for (; node; node = node.parentElement) {
      const color = getComputedStyle(node).backgroundColor;
      if ((parts(color)[3] ?? 1) > 0) return color;
    }
  };
  return [...document.querySelectorAll('main *')].filter(node =>
    [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim()) && !node.closest('svg') &&
    !node.classList.contains('sign')
  ).map(node => {
    const [a, b] = [light(getComputedStyle(node).color), light(behind(node))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), node.outerHTML.slice(0, 80)];
  }).sort((x, y) => x[0] - y[0])[0];
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    api = pytest.importorskip("playwright.sync_api", reason="the package playwright isn't installed")
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("there is no Chromium on this machine: `apt-get install chromium` brings it")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of a class of 21, of one of 300, and of two that are alike."""
    folder = tmp_path_factory.mktemp("reports")
    write_reports([*a_class(), hostile()], folder, [Format.HTML])
    write_reports(large_class(300), folder / "large", [Format.HTML])
    code = {name: package(folder / "code" / name, module(written(1))) for name in ("ada", "bea")}
    write_similar(find_similar(code, starter(folder / "code" / "starter"), REFS), folder)
    return folder


@pytest.mark.parametrize("page_name", PAGES)
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_fits_its_window_and_can_be_read(
    browser: Browser, reports: Path, page_name: str, width: int, scheme: str
) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme="dark" if scheme == "dark" else "light"
    )
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((reports / page_name).as_uri())
    assert said == []
    assert len(asked) == 1, "the page itself, and nothing else"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    contrast, where = page.evaluate(CONTRAST)
    assert contrast >= 4.5, where
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (int(paper[4:].split(",")[0]) < 60) == (scheme == "dark")
    context.close()


def test_print_is_on_white_whatever_the_screen_has(browser: Browser, reports: Path) -> None:
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto((reports / "class.html").as_uri())
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    context.close()


def test_the_tables_and_the_figure_have_their_roles_and_names(browser: Browser, reports: Path) -> None:
    page = browser.new_page()
    page.goto((reports / "class.html").as_uri())
    assert page.get_by_role("heading", level=1).all_inner_texts() == ["The class"]
    assert page.get_by_role("img", name="Learners 1 to").count() == 1
    assert page.get_by_role("rowheader", name="Ada Lovelace").count() == 1
    link = page.get_by_role("link", name="Grace Hopper")
    link.click()
    assert page.get_by_role("heading", level=1).all_inner_texts() == ["Grace Hopper"]
    page.close()


def test_marks_of_one_learner_are_one_page(browser: Browser, tmp_path: Path) -> None:
    write_reports([marks("NNNNNNNNNN")], tmp_path, [Format.HTML])
    page = browser.new_page()
    page.goto((tmp_path / "class.html").as_uri())
    assert page.get_by_role("link").count() == 1
    page.close()

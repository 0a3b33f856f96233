"""Reads a page as a browser does, as far as tests need it: elements with their attributes, text, tables."""

from __future__ import annotations

from html.parser import HTMLParser

BLOCKS = {"dd", "dt", "li", "td", "th", "p", "pre", "div", "h1", "h2", "h3", "section", "tr", "footer"}
VOID = {"meta", "path", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """``elements`` are all start tags with their attributes; ``rows`` the cells of every table, by row."""

    def __init__(self, page: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.rows: list[list[str]] = []
        self.words: list[str] = []
        self.pres: list[str] = []
        self._open: list[str] = []
        self.feed(page.decode("utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        if tag in BLOCKS:
            self.words.append(" ")
        if tag not in VOID:
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "pre":
            self.pres.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag, f"</{tag}> is out of order"

    def handle_data(self, data: str) -> None:
        if "style" in self._open:
            return
        self.words.append(data)
        if "pre" in self._open:
            self.pres[-1] += data
        if "td" in self._open or "th" in self._open:
            self.rows[-1][-1] += data

    @property
    def text(self) -> str:
        """All text, each run of white space as one space."""
        return " ".join("".join(self.words).split())

    @property
    def table(self) -> list[list[str]]:
        """The rows with single spaces."""
        return [[" ".join(cell.split()) for cell in row] for row in self.rows]

    def attributes(self, tag: str, name: str) -> list[str]:
        """The values of an attribute on all elements of a kind."""
        return [attributes[name] for each, attributes in self.elements if each == tag and name in attributes]

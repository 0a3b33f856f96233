"""Task boxes, figures and mdBook itself: what a chapter's Markdown becomes."""

from __future__ import annotations

import io
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from books import MANIFEST, make_book

from authoring.book.boxes import expand
from authoring.book.command import find_mdbook, require_free_port, run_mdbook
from authoring.book.preprocessor import expand_book, main
from coursekit.book.markdown import Page
from coursekit.errors import CourseError
from coursekit.paths import Course


def test_a_task_box_says_what_to_write_how_to_test_it_and_where_hints_are():
    text = expand("{{#task 1.3.2}}\n", MANIFEST, "day.md")
    assert "Task 1.3.2" in text
    assert "Queries &amp; &lt;groups&gt;" in text
    assert "1 point<" in text
    assert "<code>src/tiny_llm/attention.py</code>, write <code>grouped</code>." in text
    assert "<code>src/tiny_llm/layers.py</code>, write <code>MLP.__call__</code>" in text
    assert "pdm run test 1.3.2" in text
    assert "pdm run hint 1.3.2" in text
    assert 'id="task-1-3-2"' in text


def test_a_box_is_one_block_of_html_so_that_markdown_leaves_it_alone():
    assert "\n\n" not in expand("{{#task 1.3.1}}\n", MANIFEST, "day.md")


def test_a_day_box_has_the_goal_the_sum_of_points_and_a_link_to_each_task():
    text = expand("{{#day 1.3}}\n", MANIFEST, "day.md")
    assert "Hide the <code>future</code>." in text
    assert "16 points" in text
    assert "<code>pdm run lab 1.3</code> opens the day's notebook" in text
    assert 'href="#task-1-3-1">The <code>causal</code> mask<' in text


@pytest.mark.parametrize("directive", ["{{#task 1.3.9}}", "{{#task 7.1.1}}", "{{#task}}", "{{#day 2.1}}"])
def test_a_directive_that_names_nothing_is_refused_with_chapter_and_line(directive):
    with pytest.raises(CourseError, match=r"week_1/day_3\.md:3"):
        expand(f"# Title\n\n{directive}\n", MANIFEST, "week_1/day_3.md")


def test_a_directive_inside_a_sentence_is_refused():
    with pytest.raises(CourseError, match="line of its own"):
        expand("See {{#task 1.3.1}} below.\n", MANIFEST, "day.md")


def test_directives_inside_a_code_block_are_left_as_they_are():
    text = "```text\n{{#task 1.3.1}}\n```\n"
    assert expand(text, MANIFEST, "day.md") == text


def test_an_image_with_a_caption_becomes_a_figure():
    text = expand('![A mask](m.svg "With a *caption*.")\n', MANIFEST, "day.md")
    assert "![A mask](m.svg)" in text
    assert re.search(r"<figcaption>\n\nWith a \*caption\*\.\n\n</figcaption>", text)


def test_text_without_directives_comes_back_unchanged():
    text = "# Title\n\nWords, `code` and a table:\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    assert expand(text, MANIFEST, "day.md") == text


def test_chapters_below_other_chapters_are_expanded_and_separators_passed_over():
    inner = {"name": "In", "content": "{{#task 1.3.1}}", "sub_items": [], "source_path": "in.md"}
    outer = {"name": "Out", "content": "x", "sub_items": [{"Chapter": inner}], "source_path": "out.md"}
    book = expand_book({"items": [{"PartTitle": "One"}, "Separator", {"Chapter": outer}]}, MANIFEST)
    assert "Task 1.3.1" in book["items"][2]["Chapter"]["sub_items"][0]["Chapter"]["content"]


def test_the_preprocessor_supports_every_renderer():
    assert main(["supports", "html"], io.StringIO(), io.StringIO()) == 0


def test_the_preprocessor_names_the_chapter_of_an_unknown_task_and_fails(tmp_path, capsys):
    course = make_book(tmp_path)
    chapter = {"name": "x", "content": "{{#task 9.9.9}}", "sub_items": [], "source_path": "week_9/day_9.md"}
    call = json.dumps([{"root": str(course.book)}, {"items": [{"Chapter": chapter}]}])
    target = io.StringIO()
    assert main([], io.StringIO(call), target) == 2
    assert "week_9/day_9.md:1" in capsys.readouterr().err
    assert target.getvalue() == ""


def test_fences_know_their_line_their_language_and_whether_they_follow_directly():
    page = Page("p.md", "a\n\n```python\nx = 1\n```\n\n```output\n1\n```\nwords\n\n  ~~~ text\n  b\n  ~~~\n")
    assert [(f.language, f.line, f.follows) for f in page.fences] == [
        ("python", 4, False),
        ("output", 8, True),
        ("text", 13, False),
    ]
    assert page.fences[2].text == "b\n"
    assert [line for _, line in page.prose if line] == ["a", "words"]


def test_a_fence_inside_a_longer_fence_is_text():
    page = Page("p.md", "````text\n```python\nx\n```\n````\n")
    assert [f.language for f in page.fences] == ["text"]
    assert page.fences[0].text == "```python\nx\n```\n"


def test_links_and_code_are_found_across_line_ends_and_in_tables():
    page = Page(
        "p.md",
        "a [long\nlink](b.md) and\n`pdm run\ntest`\n\n| a |\n|---|\n| `c` [d](e.md) |\n\n`[f](g.md)`\n",
    )
    assert page.links() == [(1, "b.md"), (8, "e.md")]
    assert page.code_spans() == [(3, "pdm run test"), (8, "c"), (10, "[f](g.md)")]


def test_anchors_are_those_that_mdbook_makes(tmp_path):
    page = Page(
        "p.md", '# One `code` & two\n\n## Names (of *sizes*)\n\n## Check\n\n## Check\n\n<a id="own"></a>\n'
    )
    expected = page.anchors()
    html = _build(tmp_path, page.text)
    assert expected == {"one-code--two", "names-of-sizes", "check", "check-1", "own"}
    assert all(f'id="{anchor}"' in html for anchor in expected)


def _build(folder: Path, chapter: str) -> str:
    (folder / "src").mkdir()
    (folder / "book.toml").write_text('[book]\ntitle = "t"\n', encoding="utf-8")
    (folder / "src" / "SUMMARY.md").write_text("[A](a.md)\n", encoding="utf-8")
    (folder / "src" / "a.md").write_text(chapter, encoding="utf-8")
    run_mdbook([find_mdbook(), "build", str(folder)])
    return (folder / "book" / "a.html").read_text(encoding="utf-8")


def test_the_book_builds_and_every_box_is_filled_in(tmp_path):
    course = Course.find()
    run_mdbook([find_mdbook(), "build", str(course.book), "--dest-dir", str(tmp_path / "out")])
    pages = {path: path.read_text(encoding="utf-8") for path in (tmp_path / "out").rglob("*.html")}
    assert not [path for path, text in pages.items() if "{{#" in text]
    chapters = [text for path, text in pages.items() if path.parent.name == "week_1"]
    assert chapters
    assert all('class="box day"' in text and 'class="box task"' in text for text in chapters)


def test_a_build_that_mdbook_refuses_is_one_line_for_the_user(tmp_path, capfd):
    with pytest.raises(CourseError, match="mdbook ended with exit code"):
        run_mdbook([find_mdbook(), "build", str(tmp_path / "nothing")])
    assert capfd.readouterr().err


def test_an_unknown_task_fails_the_build_and_names_its_chapter(tmp_path, capfd):
    course = Course.find()
    broken = make_book(tmp_path, day_3="# Day 1.3: Masks\n\n{{#task 9.9.9}}\n")
    shutil.copy(course.book / "book.toml", broken.book / "book.toml")
    shutil.copytree(course.book / "theme", broken.book / "theme")
    with pytest.raises(CourseError):
        run_mdbook([find_mdbook(), "build", str(broken.book)])
    error = capfd.readouterr().err
    assert "week_1/day_3.md:3" in error
    assert "Traceback" not in error


def test_a_missing_mdbook_is_one_line_that_says_what_brings_it(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(CourseError, match="pdm install"):
        find_mdbook()


def test_a_port_that_is_taken_is_one_line_that_names_the_way_out():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(CourseError, match="--port"):
            require_free_port(taken.getsockname()[1])


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT to send to one process")
def test_the_server_answers_on_this_machine_and_ends_on_an_interrupt():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "authoring", "book", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        page = _fetch(f"http://127.0.0.1:{port}/preface.html", server)
    finally:
        server.send_signal(signal.SIGINT)
        output, errors = server.communicate(timeout=30)
    assert "tiny-llm" in page
    assert f"http://127.0.0.1:{port}" in output
    assert server.returncode == 130
    assert "Traceback" not in errors
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def _fetch(address: str, server: subprocess.Popen[str]) -> str:
    for _ in range(300):
        try:
            return urllib.request.urlopen(address, timeout=5).read().decode()
        except OSError:
            assert server.poll() is None, server.communicate()
            time.sleep(0.1)
    raise AssertionError(f"nothing answers at {address}")

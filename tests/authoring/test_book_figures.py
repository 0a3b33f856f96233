"""The committed figures are what the scripts draw."""

from __future__ import annotations

import os
import subprocess
import sys

from books import make_book

from authoring.book.figures import figure_problems, redraw_problems, same_picture
from coursekit.paths import Course


def test_every_script_has_its_picture_and_every_picture_its_script():
    assert figure_problems(Course.find()) == []


def test_every_picture_is_what_its_script_draws_today():
    assert redraw_problems(Course.find()) == []


def test_drawing_twice_gives_the_same_bytes(tmp_path):
    course = Course.find()
    drawn = []
    for name in ("one", "two"):
        environment = {**os.environ, "TINY_LLM_FIGURES": str(tmp_path / name)}
        command = [sys.executable, str(course.book / "figures"), "preface_seam"]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        drawn.append((tmp_path / name / "preface_seam.svg").read_bytes())
    assert drawn[0] == drawn[1]


PICTURE = '<svg><path id="m0123456789" d="M 1.25 -3"/><use href="#m0123456789" x="4"/></svg>'


def test_pictures_that_differ_by_ids_and_rounding_are_the_same():
    other = PICTURE.replace("0123456789", "abcdef0123").replace("1.25", "1.26")
    assert same_picture(PICTURE, other)


def test_pictures_that_differ_by_a_place_a_word_or_a_use_are_not():
    assert not same_picture(PICTURE, PICTURE.replace('x="4"', 'x="5"'))
    assert not same_picture(PICTURE, PICTURE.replace("path", "line"))
    two = PICTURE.replace("</svg>", '<path id="mabcdef0123" d="M 9 9"/></svg>')
    assert not same_picture(two, two.replace("#m0123456789", "#mabcdef0123"))


def test_a_picture_that_its_script_no_longer_draws_is_a_problem(tmp_path):
    course = make_book(tmp_path)
    folder = course.book / "figures"
    (folder / "__main__.py").write_text(
        "import os\nfrom pathlib import Path\n"
        'Path(os.environ["TINY_LLM_FIGURES"], "week_1_day_3.svg").write_text("<svg><new/></svg>")\n',
        encoding="utf-8",
    )
    (problem,) = redraw_problems(course)
    assert problem.startswith("book/src/figures/week_1_day_3.svg: its script draws something else now")


def test_a_script_that_fails_is_a_problem(tmp_path):
    course = make_book(tmp_path)
    (course.book / "figures" / "__main__.py").write_text("raise ValueError('no ink')\n", encoding="utf-8")
    (problem,) = redraw_problems(course)
    assert "no ink" in problem

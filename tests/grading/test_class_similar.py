"""The list of similar submissions that a run over a class writes."""

from __future__ import annotations

import csv
from pathlib import Path

from class_folders import as_folder, as_zip
from courses import make_course
from fake_judges import by_stubs

from grading.running.asking import Asked, run_grade

OWN = b"""
def count_up(last):
    waiting = list(range(1, last + 1))
    seen = []
    while waiting:
        number = waiting.pop(0)
        seen.append(number * STEP if number > 0 else -number)
        if len(seen) > last:
            break
    return iter(seen)


def total(last):
    return 0
"""
OTHER = b"def count_up(last):\n    return range(1, last + 1)\n\n\ndef total(last):\n    return 0\n"


def similar_pairs(tmp_path: Path, **options: bool) -> list[dict[str, str]] | None:
    folder = as_folder(tmp_path / "class", {})
    as_folder(folder / "ann", {"src/tiny_llm/counting.py": OWN})
    as_zip(folder / "bob.zip", {"counting.py": OWN.replace(b"waiting", b"left").replace(b"seen", b"done")})
    as_folder(folder / "cleo", {"src/tiny_llm/counting.py": OTHER})
    asked = Asked(folder, seed="hush", jobs=1, **options)  # type: ignore[arg-type]
    assert run_grade(make_course(tmp_path / "course"), asked, by_stubs, lambda marks, out: None) == 0
    table = tmp_path / "class-grades" / "similar.csv"
    if not table.exists():
        return None
    return list(csv.DictReader(table.read_text(encoding="utf-8-sig").splitlines()))


def test_copies_are_listed_and_others_are_not(tmp_path):
    (pair,) = similar_pairs(tmp_path, similar=True) or [{}]
    assert {pair["first"], pair["second"]} == {"ann", "bob.zip"}
    assert pair["% of the first"] == pair["% of the second"] == "100"
    page = (tmp_path / "class-grades" / "similar.html").read_text(encoding="utf-8")
    assert "ann" in page
    assert not list((tmp_path / "class-grades").glob("work*/*"))


def test_nothing_is_compared_unasked(tmp_path):
    assert similar_pairs(tmp_path) is None

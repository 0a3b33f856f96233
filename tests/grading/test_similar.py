"""Tests of which submissions are found to be similar, and which aren't."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from similar_code import (
    GIVEN,
    HEAD,
    NAMES,
    REFS,
    STUB,
    body,
    laid_out,
    module,
    package,
    renamed,
    reordered,
    starter,
    written,
)

from coursekit.manifest import FunctionRef
from grading.similarity import Pair, Similarity, find_similar, finding


def find(tmp_path: Path, sources: Mapping[str, str | bytes], **options: object) -> Similarity:
    """What is found among packages with these files."""
    packages = {name: package(tmp_path / "in" / name, source) for name, source in sources.items()}
    return find_similar(packages, starter(tmp_path / "starter"), REFS, **options)  # type: ignore[arg-type]


def named(found: Similarity) -> list[tuple[str, str]]:
    return [(pair.first, pair.second) for pair in found.pairs]


def test_identical_submissions_share_all_of_what_is_their_own(tmp_path: Path) -> None:
    found = find(tmp_path, {"a": module(written(1)), "b": module(written(1)), "c": module(written(2))})
    [pair] = found.pairs
    assert (pair.first, pair.second, pair.first_share, pair.second_share) == ("a", "b", 1, 1)
    assert pair.shared == found.own["a"] == found.own["b"] > 30
    assert sorted(str(each.ref) for each in pair.functions) == sorted(map(str, REFS))
    assert sum(each.shared for each in pair.functions) == pair.shared
    assert found.unread == ()
    assert found.left_out == 0


@pytest.mark.parametrize("change", [renamed, reordered, laid_out])
def test_another_dress_changes_nothing(change: Callable[[str], str], tmp_path: Path) -> None:
    for seed in range(5):
        source = module(written(seed))
        assert change(source) != source
        found = find(tmp_path / str(seed), {"a": source, "b": change(source)})
        [pair] = found.pairs
        assert (pair.first_share, pair.second_share) == (1, 1), seed


def test_line_ends_and_a_byte_order_mark_change_nothing(tmp_path: Path) -> None:
    source = module(written(1))
    windows = b"\xef\xbb\xbf" + source.replace("\n", "\r\n").encode()
    [pair] = find(tmp_path, {"a": source, "b": windows}).pairs
    assert (pair.first_share, pair.second_share) == (1, 1)
    assert "\r" not in pair.functions[0].second.text


def test_what_different_learners_write_is_not_similar(tmp_path: Path) -> None:
    found = find(tmp_path, {f"l{seed}": module(written(seed)) for seed in range(12)})
    assert found.pairs == ()
    assert min(found.own.values()) > 30


def test_the_starter_has_nothing_of_its_own(tmp_path: Path) -> None:
    untouched = module(dict.fromkeys(NAMES, STUB))
    found = find(tmp_path, {"a": untouched, "b": untouched})
    assert found.pairs == ()
    assert found.own == {"a": 0, "b": 0}


def test_code_that_the_starter_gives_does_not_count(tmp_path: Path) -> None:
    given = "\n".join(line[4:] for line in GIVEN.split("\n")[2:]).strip()
    found = find(
        tmp_path, {"a": module(dict.fromkeys(NAMES, given)), "b": module(dict.fromkeys(NAMES, given))}
    )
    assert found.own == {"a": 0, "b": 0}


def test_code_of_the_reference_does_not_count_where_it_is_given(tmp_path: Path) -> None:
    reference = package(tmp_path / "reference", module(written("reference")))
    source = module({**written("reference"), "linear": body("own")})
    found = find(tmp_path, {"a": source, "b": source}, reference=reference)
    assert [each.ref.qualname for pair in found.pairs for each in pair.functions] == ["linear"]
    with_it = find(tmp_path / "again", {"a": source, "b": source})
    assert len(with_it.pairs[0].functions) == 3
    assert with_it.own["a"] > 2 * found.own["a"]


@pytest.mark.parametrize(
    ("size", "holders", "listed"), [(4, 4, 6), (4, 3, 3), (5, 2, 1), (5, 3, 0), (6, 3, 3), (6, 4, 0)]
)
def test_what_most_of_a_class_has_does_not_count(
    size: int, holders: int, listed: int, tmp_path: Path
) -> None:
    seeds = [seed if seed >= holders else 0 for seed in range(size)]
    found = find(tmp_path, {f"l{number}": module(written(seed)) for number, seed in enumerate(seeds)})
    assert len(found.pairs) == listed


def test_shares_are_of_each_ones_own_and_the_greater_decides(tmp_path: Path) -> None:
    long = {**written(2), "softmax": body("common"), "linear": body("long", 200)}
    found = find(tmp_path, {"short": module({"softmax": body("common")}), "long": module(long)})
    [pair] = found.pairs
    assert pair.first_share == 1
    assert 0 < pair.second_share < 0.3
    assert pair.second_share == pytest.approx(pair.shared / found.own["long"])


def test_a_pair_is_listed_from_the_least_share_on(tmp_path: Path) -> None:
    half = {**written("mine"), "softmax": body("common", 16)}
    other = {**written("yours"), "softmax": body("common", 16)}
    [pair] = find(tmp_path, {"a": module(half), "b": module(other)}).pairs
    share = max(pair.first_share, pair.second_share)
    assert 0.3 <= share < 0.5
    assert find(tmp_path / "1", {"a": module(half), "b": module(other)}, least_share=share).pairs != ()
    assert find(tmp_path / "2", {"a": module(half), "b": module(other)}, least_share=share + 0.01).pairs == ()


def test_a_few_fingerprints_in_common_are_chance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = module({"softmax": body("tiny", 2)})
    found = find(tmp_path, {"a": tiny, "b": tiny})
    assert 0 < found.own["a"] < 4 == finding.LEAST_SHARED
    assert found.pairs == ()
    monkeypatch.setattr(finding, "LEAST_SHARED", found.own["a"])
    assert len(find(tmp_path / "again", {"a": tiny, "b": tiny}).pairs) == 1


def test_the_most_alike_come_first_and_the_rest_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources: dict[str, str | bytes] = {
        "a": module({**written("a"), "softmax": body(1, 20)}),
        "b": module({**written("b"), "softmax": body(1, 20)}),
        "c": module(written("c")),
        "d": module(written("c")),
    }
    found = find(tmp_path, sources)
    assert named(found) == [("c", "d"), ("a", "b")]
    monkeypatch.setattr(finding, "MOST_PAIRS", 1)
    shortened = find(tmp_path / "again", sources)
    assert named(shortened) == [("c", "d")]
    assert shortened.left_out == 1


def test_the_order_of_the_submissions_does_not_matter(tmp_path: Path) -> None:
    sources: dict[str, str | bytes] = {
        "a": module({**written("a"), "softmax": body(1, 20)}),
        "b": module({**written("b"), "softmax": body(1, 20), "linear": body("b", 60)}),
    }
    [pair] = find(tmp_path, sources).pairs
    [turned] = find(tmp_path / "again", dict(reversed(sources.items()))).pairs
    assert _turned(turned) == (pair.first, pair.second, pair.shared, pair.first_share, pair.second_share)
    assert [each.ref for each in pair.functions] == [each.ref for each in turned.functions]
    assert pair.functions[0].first_lines == turned.functions[0].second_lines


def _turned(pair: Pair) -> tuple[str, str, int, float, float]:
    return pair.second, pair.first, pair.shared, pair.second_share, pair.first_share


def test_only_the_functions_of_the_tasks_are_compared_each_with_its_own_kind(tmp_path: Path) -> None:
    common = body("common", 30)
    helper = "\n    ".join(["\n\n\ndef helper(x, weight, scale):", *common.split("\n")])
    found = find(tmp_path, {"a": module(written(1)) + helper, "b": module(written(2)) + helper})
    assert found.pairs == ()
    swapped = find(tmp_path / "2", {"a": module({"softmax": common}), "b": module({"linear": common})})
    assert swapped.pairs == ()


def test_stubs_and_missing_functions_and_files_are_no_one_s_code(tmp_path: Path) -> None:
    packages = {
        "stub": package(tmp_path / "stub", module({"softmax": STUB})),
        "none": package(tmp_path / "none", HEAD),
        "gone": tmp_path / "gone",
        "one": package(tmp_path / "one", module(written(1))),
    }
    found = find_similar(packages, starter(tmp_path / "starter"), REFS)
    assert {name for name, own in found.own.items() if own} == {"one"}
    assert found.unread == ()


def test_the_last_of_two_definitions_counts(tmp_path: Path) -> None:
    twice = module({"softmax": body("dead")}) + "\n\n" + module({"softmax": body(1)}, head="")
    [pair] = find(tmp_path, {"a": twice, "b": module({"softmax": body(1)})}).pairs
    assert pair.first_share == 1


def test_the_shared_lines_are_those_of_the_file(tmp_path: Path) -> None:
    common = body("common", 12)
    first = module({"softmax": body("x", 6).rpartition("\n")[0] + "\n" + common})
    second = module({"softmax": common})
    [pair] = find(tmp_path, {"a": first, "b": second}).pairs
    [function] = pair.functions
    assert function.ref == FunctionRef("attention.py", "softmax")
    assert function.first.line == first.split("\n").index("def softmax(x, weight, scale=None):") + 1
    lines = dict(enumerate(first.split("\n"), 1))
    marked = [lines[number].strip() for number in sorted(function.first_lines)]
    assert set(marked) <= {line.strip() for line in common.split("\n")}
    assert len(marked) > 8
    assert function.second_lines <= set(range(function.second.line, function.second.line + 30))

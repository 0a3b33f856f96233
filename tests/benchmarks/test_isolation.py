"""What isolation costs, counted: on scripted ways and a tiny model."""

from __future__ import annotations

import math

import pytest
from rich.console import Console
from toy_ways import LETTERS, STUB, encoded, item, run, scripted, toy_loaded

from benchmarks import isolation
from benchmarks.isolation import (
    WAYS,
    Answered,
    Findings,
    Row,
    check_room,
    longest_document,
    measure,
)
from benchmarks.isolation_report import (
    compare,
    comparisons,
    isolation_document,
    print_isolation,
    scores,
    sign_test,
)
from coursekit.errors import CourseError
from programs.loaded import LoadedModel


@pytest.fixture
def loaded() -> LoadedModel:
    return toy_loaded()


def test_only_the_first_line_of_an_answer_counts(loaded: LoadedModel) -> None:
    findings = run(loaded, [scripted("cat", " a cat\nfox"), scripted("fox", " a fox\ncat")], item())
    [row] = findings.rows
    assert [(each.text, each.right) for each in row.answers.values()] == [("a cat", False), ("a fox", True)]


def test_the_perplexity_is_that_of_the_tokens_of_the_given_answer(loaded: LoadedModel) -> None:
    findings = run(loaded, [scripted("sure", " a fox", 0.9), scripted("half", " a fox")], item())
    [row] = findings.rows
    assert [each.tokens for each in row.answers.values()] == [6, 6]
    assert [each.nll for each in row.answers.values()] == pytest.approx(
        [-6 * math.log(0.9), 6 * math.log(2)], rel=1e-4
    )
    found = scores(findings)["one"]
    assert [found[name].perplexity for name in ("sure", "half")] == pytest.approx([1 / 0.9, 2], rel=1e-4)


def test_a_token_that_the_way_finds_unlikely_counts_with_its_own_probability(loaded: LoadedModel) -> None:
    [row] = run(loaded, [scripted("cat", " a cat")], item()).rows
    expected = 3 * math.log(2) - 3 * math.log(0.5 / (len(LETTERS) - 1))  # " a " agrees, "fox" does not
    assert row.answers["cat"].nll == pytest.approx(expected, rel=1e-4)


def test_scores_are_counted_by_kind_and_in_all_and_long_answers_weigh_more() -> None:
    way = scripted("way", "")
    rows = [
        Row(item(kind="one"), {"way": Answered("fox", True, nll=2.0, tokens=1)}),
        Row(item(kind="one"), {"way": Answered("cat", False, nll=3.0, tokens=4)}),
        Row(item(kind="compare"), {"way": Answered("fox", True, nll=0.0, tokens=5)}),
    ]
    found = {kind: by_way["way"] for kind, by_way in scores(Findings([way], rows)).items()}
    assert {kind: (each.items, each.right) for kind, each in found.items()} == {
        "one": (2, 1),
        "compare": (1, 1),
        "all": (3, 2),
    }
    assert found["one"].perplexity == pytest.approx(math.e)
    assert found["all"].perplexity == pytest.approx(math.exp(0.5))
    assert str(found["one"]) == "1 (50%)"


@pytest.mark.parametrize(
    ("a", "b", "p"),
    [(0, 0, 1.0), (1, 1, 1.0), (0, 5, 2 / 32), (5, 0, 2 / 32), (1, 9, 22 / 1024), (3, 2, 1.0)],
)
def test_the_sign_test_is_that_of_a_fair_coin_both_ways(a: int, b: int, p: float) -> None:
    assert sign_test(a, b) == pytest.approx(p)


def test_a_comparison_pairs_the_questions() -> None:
    way, other = scripted("way", ""), scripted("other", "")
    nlls = [(1.0, 0.0), (5.0, 4.0), (9.0, 8.0), (3.0, 2.0)]  # always 1 more, however hard the question
    rights = [(True, False), (False, True), (False, True), (True, True)]
    rows = [
        Row(item(), {"way": Answered("", right[0], nll[0], 2), "other": Answered("", right[1], nll[1], 2)})
        for nll, right in zip(nlls, rights, strict=True)
    ]
    found = compare(rows, way, other)
    assert (found.only_way, found.only_other) == (1, 2)
    assert (found.ratio, found.low, found.high) == pytest.approx([math.exp(0.5)] * 3)


def test_the_interval_holds_the_ratio_and_is_wide_where_questions_disagree() -> None:
    way, other = scripted("way", ""), scripted("other", "")
    rows = [
        Row(item(), {"way": Answered("", True, nll, 1), "other": Answered("", True, 1.0, 1)})
        for nll in (0.0, 2.0, 1.0, 4.0, 0.0, 3.0)
    ]
    found = compare(rows, way, other)
    assert found.low < 1 < found.ratio < found.high
    assert found == compare(rows, way, other), "drawn from a fixed seed"


def test_the_isolated_ways_agree_with_full_attention_on_one_document_and_part_on_two(
    loaded: LoadedModel,
) -> None:
    findings = run(loaded, WAYS, item("a fox ran"), item("a fox ran", "a dog sat"))
    alone, together = ([each.nll for each in row.answers.values()] for row in findings.rows)
    assert alone[1] == pytest.approx(alone[0], rel=1e-5)
    assert min(abs(together[0] - together[1]), abs(together[1] - together[2])) > 1e-3


def test_offset_spreads_the_documents_by_the_longest_one(loaded: LoadedModel) -> None:
    items = encoded(loaded, item("a fox ran", "a dog"))
    assert longest_document(items) == len("a fox ran\n")
    narrow, wide = Findings([WAYS[2]]), Findings([WAYS[2]])
    list(measure(loaded, items, 10, narrow))
    list(measure(loaded, items, 40, wide))
    assert narrow.rows[0].answers["offset"].nll != wide.rows[0].answers["offset"].nll


def test_the_remedy_is_day_4_5_s_engine_and_changes_what_shared_documents_weigh(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = item("a fox ran", "a dog sat")
    remedied = run(loaded, WAYS, asked).rows[0].answers
    assert abs(remedied["remedy"].nll - remedied["shared"].nll) > 1e-3
    monkeypatch.setattr(isolation, "TEMPERATURE", 1.0)
    monkeypatch.setattr(isolation, "SCALE", 1.0)
    plain = run(loaded, WAYS, asked).rows[0].answers
    assert plain["remedy"].nll == pytest.approx(plain["shared"].nll, rel=1e-5)


def test_a_question_without_room_is_named(loaded: LoadedModel) -> None:
    items = encoded(loaded, item(), item(*["a fox ran and ran"] * 20))
    with pytest.raises(CourseError, match=r"question 2 with its 20 documents of up to 18 tokens .* has 400"):
        check_room(loaded, items, longest_document(items))
    check_room(loaded, items[:1], longest_document(items[:1]))


def test_a_way_whose_code_is_not_written_is_left_out_and_named(loaded: LoadedModel) -> None:
    ways = [scripted("fox", " a fox"), scripted("lost", "", error=NotImplementedError(STUB))]
    findings = run(loaded, ways, item(), item())
    assert [way.name for way in findings.ways] == ["fox"]
    assert findings.missing == {"the lost": STUB}
    assert len(findings.complete) == 2


@pytest.mark.parametrize("message", [STUB, "no such operation"])
def test_without_any_code_the_stub_is_raised_and_so_is_an_error_that_is_no_stub(
    loaded: LoadedModel, message: str
) -> None:
    with pytest.raises(NotImplementedError, match=message):
        run(loaded, [scripted("lost", "", error=NotImplementedError(message))], item())


def test_without_questions_there_is_nothing_to_show() -> None:
    findings = Findings([scripted("a", ""), scripted("b", "")])
    assert (findings.complete, scores(findings), comparisons(findings)) == ([], {}, [])
    assert isolation_document(findings)["scores"] == {}


def test_the_tables_have_a_row_for_each_kind_and_say_how_sure_the_numbers_are(loaded: LoadedModel) -> None:
    ways = [scripted("sure", " a fox", 0.9), scripted("cat", " a cat")]
    findings = run(loaded, ways, item(), item(kind="two"))
    findings.missing["the lost"] = STUB
    console = Console(width=100)
    with console.capture() as capture:
        print_isolation(console, findings)
    text = capture.get()
    lines = [line.split() for line in text.splitlines() if line]
    assert ["one", "document", "1", "1", "(100%)", "0", "(0%)"] in lines
    assert ["two", "documents", "1", "1.11", "12.00"] in lines
    assert ["all", "2", "2", "(100%)", "0", "(0%)"] in lines
    assert (
        "the cat beside the sure: 0 right only this way, 2 only the other way (sign test: p = 0.50)" in text
    )
    assert "perplexity × 10.80 (95 % interval 10.80 to 10.80)" in text
    assert f"left out: the lost: not written yet ({STUB})" in text

"""What `pdm run batch-main` measures and shows, and how it falls back where code is not written yet."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from coursekit.errors import CourseError
from coursekit.running.import_path import Impl
from programs import batch_main, seats_view
from programs.answers import Answer, BatchWatch, Speed, measure
from programs.batch_main import ANSWERING, Wanted, choose_stages
from programs.loaded import LoadedModel, Timing
from programs.prompts import PROMPTS, SHORT
from programs.seats import Observe, Seats, Sharing
from programs.seats_view import SeatsView
from programs.stages import Limits, Stage, find_stages

LIMITS = Limits(seats=2, chunk=16)
TOKENS = 6
STUB = "Week 2 Day 7 Task 4: Continuous batching"
OFF = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0, "seed": None}
NOTHING: Any = None


class Words:
    """A tokenizer whose tokens are the words' lengths."""

    end_ids = (0,)

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        return [len(word) for word in messages[0]["content"].split()]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))


def loaded() -> LoadedModel:
    model: Any = SimpleNamespace()
    tokenizer: Any = Words()
    return LoadedModel(model, tokenizer)


def answer(number: int, prompt: str = "a b", **fields: Any) -> Answer:
    ids = [1] * fields.pop("length", 2)
    return Answer(number, prompt, ids, lambda logits, token_ids: 7, Timing(0.0), **fields)


def test_the_speed_of_requests_that_started_together() -> None:
    timings = [Timing(10.0, [11.0, 11.5, 14.0]), Timing(10.0, [13.0, 13.25]), Timing(10.0, [])]
    assert measure(timings) == Speed(
        requests=2, tokens=5, seconds=4.0, mean_first=2.0, worst_first=3.0, worst_gap=2.5
    )
    assert measure(timings).tokens_per_second == 1.25


def test_the_gap_between_the_last_token_of_one_request_and_the_first_of_another_is_no_gap() -> None:
    assert measure([Timing(0.0, [1.0, 2.0]), Timing(0.0, [9.0, 9.5])]).worst_gap == 1.0


def test_without_a_token_all_numbers_are_zero() -> None:
    assert measure([Timing(1.0, [])]) == Speed(0, 0, 0.0, 0.0, 0.0, 0.0)
    assert measure([]).tokens_per_second == 0


def test_choosing_a_token_notes_it_and_its_time() -> None:
    made = answer(1, length=3)
    assert [made.choose(NOTHING, []) for _ in range(2)] == [7, 7]
    assert made.output == [7, 7]
    assert len(made.timing.arrivals) == 2
    assert made.computed == 3


def test_the_copy_counter_passes_calls_on_and_finds_the_batchs_caches() -> None:
    calls = []

    def hidden(tokens: Any, positions: Any, caches: Any) -> str:
        calls.append((tokens, positions, caches))
        return "hidden"

    model: Any = SimpleNamespace(hidden=hidden, logits=lambda x: x + 1)
    counter: Any = BatchWatch(model)
    assert counter.bytes_copied == 0
    batch = [SimpleNamespace(bytes_copied=3), SimpleNamespace(bytes_copied=4)]
    assert counter.hidden("tokens", [slice(0, 1)], batch) == "hidden"
    assert counter.hidden("tokens", slice(0, 5), [SimpleNamespace()]) == "hidden"
    assert counter.hidden("tokens", slice(0, 5)) == "hidden"
    assert counter.bytes_copied == 7
    assert counter.batches == 1
    assert counter.logits(1) == 2
    assert [caches is batch for _, _, caches in calls] == [True, False, False]


def test_the_prompts_are_many_and_of_very_different_lengths() -> None:
    words = sorted(len(prompt.split()) for prompt in PROMPTS)
    assert len(set(PROMPTS)) >= 16
    assert words[0] <= 5
    assert words[-1] >= 300
    assert set(SHORT) < set(PROMPTS)


@pytest.fixture
def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100, legacy_windows=False)


def shown(console: Console) -> str:
    """What was written to a terminal, without colours and cursor movements."""
    assert isinstance(console.file, io.StringIO)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())


def test_the_view_says_who_decodes_who_prefills_and_who_waits(terminal: Console) -> None:
    decoding, prefilling, waiting = (
        answer(1, output=[7, 7], computed=2),
        answer(2, length=300, computed=128),
        answer(3),
    )
    with SeatsView(terminal, [decoding, prefilling, waiting], max_tokens=6) as view:
        view.step([decoding, None], prefilling, set())
    rows = [line.split() for line in shown(terminal).splitlines()]
    rows_of = {" ".join(row[:2]): row for row in rows if row}
    assert "decoding" in rows_of["seat 1"]
    assert rows_of["seat 1"][-2:] == ["2", "tokens"]
    assert rows_of["seat 2"] == ["seat", "2", "idle"]
    assert "prefilling" in rows_of["next 2."]
    assert rows_of["next 2."][-3:] == ["128", "of", "300"]
    assert rows_of["1 waiting"][2:7] == ["·", "0", "of", "3", "answered"]


def test_a_seat_whose_prompt_is_not_complete_is_prefilling(terminal: Console) -> None:
    answers = [answer(1, length=300, computed=128)]
    with SeatsView(terminal, answers, max_tokens=6) as view:
        view.step(answers, None, set())
    row = next(line.split() for line in shown(terminal).splitlines() if line.startswith("seat 1"))
    assert "prefilling" in row
    assert row[-3:] == ["128", "of", "300"]


def test_a_prompt_that_gets_no_further_waits_for_a_seat(
    terminal: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seats_view, "SECONDS_BETWEEN", 0.0)
    decoding, long, short = answer(1, output=[7]), answer(2, length=9, computed=4), answer(3, length=3)
    with SeatsView(terminal, [decoding, long, short], max_tokens=6) as view:
        view.step([decoding], long, set())
        assert "waits for a seat" not in shown(terminal)
        view.step([decoding], long, set())
        assert shown(terminal).count("waits for a seat") == 1
        view.step([decoding], short, set())
        assert shown(terminal).count("waits for a seat") == 2


def test_in_a_pipe_the_view_is_one_plain_line_an_answer() -> None:
    console = Console(file=io.StringIO(), force_terminal=False)
    answers = [answer(1), answer(2)]
    for each in answers:
        each.choose(NOTHING, [])
    with SeatsView(console, answers, max_tokens=6) as view:
        view.step(answers, None, set())
        view.step(answers, None, {answers[1]})
        view.step(answers, None, {answers[1]})
    lines = shown(console).splitlines()
    assert len(lines) == 1
    assert re.fullmatch(
        r"1 of 2 answered: number 2, 1 token, after [\d.]+ s( · about \d+ \w+ left)?", lines[0]
    )
    assert isinstance(console.file, io.StringIO)
    assert "\x1b" not in console.file.getvalue()


@pytest.mark.parametrize(
    ("seconds", "left"),
    [(1.0, ""), (10.0, " · about 51 s left"), (40.0, " · about 3 minutes left")],
    ids=["too early to guess", "seconds", "minutes"],
)
def test_the_time_that_is_left_counts_the_tokens_of_prompts_and_outputs(
    monkeypatch: pytest.MonkeyPatch, seconds: float, left: str
) -> None:
    monkeypatch.setattr(time, "perf_counter", lambda: seconds)
    console = Console(file=io.StringIO(), force_terminal=False)
    done, half, waiting = (
        answer(1, length=8, computed=8),
        answer(2, length=14, computed=4),
        answer(3, length=50),
    )
    with SeatsView(console, [done, half, waiting], max_tokens=6) as view:
        done.choose(NOTHING, [])
        half.output = [7]
        done.timing.arrivals = [seconds]
        view.step([done, half], None, {done})  # 14 of 85 tokens are done, if none of the others ends early
    assert shown(console) == f"1 of 3 answered: number 1, 1 token, after {seconds:.1f} s{left}\n"


def test_at_the_end_no_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "perf_counter", lambda: 10.0)
    console = Console(file=io.StringIO(), force_terminal=False)
    done = answer(1)
    done.choose(NOTHING, [])
    with SeatsView(console, [done], max_tokens=6) as view:
        view.step([done], None, {done})
    assert "left" not in shown(console)


def stage(name: str, tokens: int = 2, error: BaseException | None = None) -> Stage:
    """A way of answering that gives every prompt some tokens, and then raises an error."""

    def run(loaded: LoadedModel, requests: Sequence[Any], limits: Limits, observe: Observe) -> None:
        for each in requests:
            for _ in range(tokens):
                each.accept(NOTHING)
        if error is not None:
            raise error

    return Stage("S9", name.partition(" ")[0], (9, 9), name, run, short_prompts=True)


@pytest.fixture(autouse=True)
def plain_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that accept tokens, also where the learner's code has none; two prompts; greedy takes token 7."""
    monkeypatch.setattr(batch_main, "SHORT", ("What is this?", "And that one?"))
    monkeypatch.setattr("programs.answers.make_sampler", lambda **params: lambda logits, token_ids: 7)

    def accept(request: Any, logits: Any) -> None:
        request.token_ids.append(request.sample(logits, request.token_ids))

    monkeypatch.setattr("tiny_llm.request.Request.accept", accept)


def answer_all(*stages: Stage) -> None:
    batch_main.answer_all(loaded(), stages, LIMITS, Wanted(TOKENS, OFF), Impl.LEARNER)


def test_the_next_form_is_taken_where_code_is_missing_and_the_advice_names_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer_all(stage("in seats", 0, NotImplementedError(STUB)), stage("one by one"), stage("never"))
    out = capsys.readouterr().out
    assert "1. What is this?\n7 7 …" in out
    assert re.search(r"output tokens +4 ", out)
    assert "This was one by one: 2 short prompts" in out
    assert STUB in out
    assert "pdm run test 2.7" in out


@pytest.mark.parametrize(
    ("impl", "code"),
    [(Impl.LEARNER, "your code, src/tiny_llm/"), (Impl.SOLUTION, "the reference, solutions/tiny_llm/")],
)
def test_whose_code_answers_stands_before_the_answers_and_behind_the_times(
    capsys: pytest.CaptureFixture[str], impl: Impl, code: str
) -> None:
    batch_main.answer_all(loaded(), [stage("in seats")], LIMITS, Wanted(TOKENS, OFF), impl)
    out, err = capsys.readouterr()
    assert err.splitlines()[0] == f"{code}: 2 prompts, in seats"
    assert out.splitlines()[-1] == f"run by {code}"


def test_when_no_form_has_its_code_the_last_ones_stub_is_raised() -> None:
    last = stage("b", 0, NotImplementedError("Week 1 Day 1 Task 1: x"))
    with pytest.raises(NotImplementedError, match="Week 1 Day 1"):
        answer_all(stage("a", 0, NotImplementedError(STUB)), last)


def test_an_error_that_is_no_stub_is_not_taken_for_one() -> None:
    with pytest.raises(NotImplementedError, match="no such operation"):
        answer_all(stage("a", 0, NotImplementedError("no such operation")), stage("b"))


def test_ctrl_c_prints_the_answers_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        answer_all(stage("in seats", 1, KeyboardInterrupt()))
    out = capsys.readouterr().out
    assert "2. And that one?\n7 …" in out
    assert re.search(r"requests +2 ", out)


def test_a_refused_request_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(loaded: LoadedModel, requests: Sequence[Any], limits: Limits, observe: Observe) -> None:
        requests[0].error = "the prompt has 9 tokens; at most 8 fit this model"
        requests[1].accept(NOTHING)

    answer_all(Stage("S9", "in", (9, 9), "in seats", refuse, short_prompts=True))
    out = capsys.readouterr().out
    assert "refused: the prompt has 9 tokens" in out
    assert re.search(r"requests +1 ", out)


def test_a_stage_is_asked_for_by_name() -> None:
    assert [each.name for each in find_stages("paged", ANSWERING)] == ["paged"]
    assert find_stages(None, ANSWERING) == ANSWERING
    with pytest.raises(
        CourseError,
        match="no stage 'warp'; there are: served, documents, preempt, extend, ragged, kernel, paged, "
        "continuous, cached, recompute",
    ):
        find_stages("warp", ANSWERING)


def test_the_stages_with_too_few_pages_for_documents_and_for_programs_run_only_where_they_are_asked_for() -> (
    None
):
    assert [each.name for each in choose_stages(None, trie=False)][:2] == ["extend", "ragged"]
    assert [each.name for each in choose_stages("preempt", trie=False)] == ["preempt"]
    assert [each.name for each in choose_stages("documents", trie=False)] == ["documents"]
    assert [each.name for each in choose_stages("served", trie=False)] == ["served"]


def test_the_tree_of_pages_is_printed_by_the_stages_that_have_one() -> None:
    assert [each.name for each in choose_stages(None, trie=True)] == ["extend"]
    assert [each.name for each in choose_stages("preempt", trie=True)] == ["preempt"]
    with pytest.raises(
        CourseError, match="in the stage ragged, requests share no pages; --trie is for extend and"
    ):
        choose_stages("ragged", trie=True)


class Named:
    """Stands for a request: two are different, even with one name."""

    def __init__(self, name: str) -> None:
        self.name = name


def test_a_request_keeps_its_seat_for_as_long_as_it_runs_and_counts_what_it_brought() -> None:
    from tiny_llm.engine_core import Step

    a, b, c = (Named(name) for name in "abc")
    core: Any = SimpleNamespace(num_seats=2)
    seats = Seats(core)

    def after(
        issued: list[tuple[Any, int]], finished: Sequence[Any] = ()
    ) -> tuple[list[Any], dict[Any, int]]:
        seen = seats.after(Step(issued, list(finished)))
        return list(seen.seats), dict(seen.computed)

    def named(seats: Sequence[Any]) -> list[str]:
        return ["-" if each is None else each.name for each in seats]

    assert named(after([(a, 4)])[0]) == ["a", "-"]
    assert named(after([(a, 1), (b, 3)])[0]) == ["a", "b"]
    assert named(after([(b, 1)], [a])[0]) == ["a", "b"], "a request that finished is shown once more"
    shown, computed = after([(b, 1), (c, 2)])
    assert named(shown) == ["c", "b"]
    assert {each.name: count for each, count in computed.items()} == {"a": 5, "b": 5, "c": 2}


def test_the_batch_watch_knows_the_pool_and_how_many_pages_held_tokens() -> None:
    pool = SimpleNamespace(page_size=4)
    model: Any = SimpleNamespace(hidden=lambda tokens, positions, caches: "states")
    watch = BatchWatch(model)
    for lengths, pages in (
        ([4, 5, 1], [[1, 2], [3, 4], [5, 0]]),  # the first one has a page without tokens
        ([8, 7], [[1, 2], [1, 3]]),
    ):
        meta = SimpleNamespace(kv_lens=lengths, block_table=np.array(pages))
        caches: Any = [SimpleNamespace(pool=pool, meta=meta)]
        assert watch.hidden(NOTHING, None, caches) == "states"
        assert watch.most_pages == 4, "a page that two requests share counts once"
    assert (watch.batches, watch.pool) == (2, pool)
    assert watch.bytes_copied == 0


def named(name: str) -> Any:
    """A request, for those who only ask which it is."""
    return Named(name)


def scheduler(*running: tuple[Any, int], **counts: Any) -> Any:
    """What an onlooker reads of a scheduler; the requests that run have so many tokens, each on a page of its own."""
    sequences = [SimpleNamespace(length=length, pages=list(range(length))) for _, length in running]
    standing = [
        SimpleNamespace(request=request, sequence=sequence)
        for (request, _), sequence in zip(running, sequences, strict=True)
    ]
    return SimpleNamespace(running=standing, cache=SimpleNamespace(evicted=2), reused=5, **counts)


def test_a_request_that_is_preempted_leaves_its_seat_and_waits_until_it_sits_again() -> None:
    from tiny_llm.engine_core import Step

    a, b, c = (named(name) for name in "abc")
    state = scheduler()
    core: Any = SimpleNamespace(num_seats=2, scheduler=state)
    seats = Seats(core)

    def after(step: Any, *running: tuple[Any, int]) -> Any:
        vars(state).update(vars(scheduler(*running, preemptions=1)))
        return seats.after(step)

    first = after(Step([(a, 4), (b, 1)], []), (a, 4), (b, 3))
    assert (first.seats, first.preempted) == ([a, b], [])
    assert dict(first.computed) == {a: 4, b: 3}, "tokens that were found are there, too"
    lost = after(Step([(a, 1)], [], [b]), (a, 5))
    assert (lost.seats, lost.preempted) == ([a, None], [b])
    assert dict(lost.computed) == {a: 5, b: 0}
    other = after(Step([(a, 1), (c, 2)], [a]), (c, 2))
    assert (other.seats, other.preempted) == ([a, c], [b])
    again = after(Step([(c, 1), (b, 2)], []), (c, 3), (b, 3))
    assert (again.seats, again.preempted) == ([b, c], [])
    assert again.sharing.counts == {"tokens reused": 5, "pages evicted": 2, "preemptions": 1}
    assert again.sharing.held == {c: (0, 1, 2), b: (0, 1, 2)}


def test_an_engine_that_never_preempts_counts_no_preemptions() -> None:
    assert Sharing.of(scheduler()).counts == {"tokens reused": 5, "pages evicted": 2}


def test_the_view_names_the_requests_that_were_preempted_and_what_was_counted(
    terminal: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seats_view, "SECONDS_BETWEEN", 0.0)
    sits, lost, waits = answer(1, output=[7], computed=2), answer(2, output=[7, 7], computed=0), answer(3)
    with SeatsView(terminal, [sits, lost, waits], max_tokens=6) as view:
        view.step([sits, lost], None, set())
        view.step([sits, None], None, set(), [lost], {"tokens reused": 1344, "preemptions": 1})
    last = shown(terminal).splitlines()[-5:]
    row = next(line.split() for line in last if line.startswith("next"))
    assert row[-3:] == ["preempted", "2", "tokens"]
    assert any(line.startswith("2 waiting (1 preempted) · 0 of 3 answered") for line in last)
    assert any(line.startswith("tokens reused: 1,344 · preemptions: 1") for line in last)

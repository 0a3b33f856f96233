"""A watched engine gives the same tokens, stops between steps, and its notes agree with it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from toys import (
    KINDS,
    PAGES,
    PATIENCE,
    requests,
    toy_core,
    toy_llm,
    toy_model,
    until,
    watched_of,
)

from tiny_llm.documents.prompt import Segments
from tiny_llm.documents.request import DocumentRequest
from tiny_llm.engine.params import SamplingParams
from tiny_llm.engine_core import Step, generate_all
from tiny_llm.ragged.batcher import Batcher
from tiny_llm.ragged.errors import Closed
from tiny_llm.request import Request
from window.gate import Mode
from window.notes import Note, RequestNote, State
from window.watched import WatchedCore, watch_batcher


def document_requests() -> list[Request]:
    """Questions about the same two documents, of 13 and 6 tokens behind a system prompt of 5."""
    system, documents = tuple(range(60, 65)), (tuple(range(70, 83)), tuple(range(90, 96)))
    return [DocumentRequest(Segments(system, documents, (100 + n, 101, 102)), 6) for n in range(3)]


def asked_of(kind: str) -> list[Request]:
    return requests() + (document_requests() if kind in ("documents", "served") else [])


def watch(kind: str, **options: Any) -> WatchedCore:
    """An engine that something watches."""
    watched = WatchedCore(toy_core(kind, **options))
    watched.watchers, watched.note_seconds = 1, 0
    return watched


def sequences_of(core: Any) -> dict[Request, Any]:
    """The sequences of the requests that run, by the engine's own books."""
    if hasattr(core, "scheduler"):
        return {each.request: each.sequence for each in core.scheduler.running}
    return {running.request: running.sequence for _, running in core.state.line}


def by_number(note: Note) -> dict[int, RequestNote]:
    return {each.number: each for each in note.requests}


@pytest.mark.parametrize("kind", KINDS)
def test_a_watched_engine_gives_the_same_tokens(kind: str) -> None:
    alone = generate_all(toy_core(kind), asked_of(kind))
    assert generate_all(watch(kind), asked_of(kind)) == alone
    assert all(alone)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pages", [PAGES, 18])
def test_after_each_step_the_note_agrees_with_the_engine(kind: str, pages: int) -> None:
    pages = max(pages, 24) if kind in ("documents", "served") else pages
    watched, asked = watch(kind, pages=pages), asked_of(kind)
    core: Any = watched.core
    seen = 0

    def look(step: Step) -> None:
        nonlocal seen
        seen += 1
        note = watched.latest
        assert note.step == seen
        assert [part.tokens for part in note.batch] == [count for _, count in step.issued]
        held = sequences_of(core)
        noted = {each.number: each for each in note.requests if each.state is State.RUNNING}
        numbers = {request: watched.ledger.records[request].number for request in held}
        assert set(numbers.values()) == set(noted)
        for request, sequence in held.items():
            one = noted[numbers[request]]
            assert one.pages == tuple(dict.fromkeys(sequence.pages))
            assert (one.computed, one.output) == (sequence.length, request.num_generated)
        owned = {page for each in note.requests for page in each.pages}
        assert note.free == len(core.allocator.free_pages)
        assert len(owned) + len(note.cached) + note.free == pages
        assert not owned & set(note.cached)
        check_tree(core, note)
        totals = Counter(each.state for each in note.requests)
        assert note.counts["running"] == totals[State.RUNNING]
        assert note.counts["finished"] == totals[State.FINISHED]
        assert note.counts["waiting"] == totals[State.WAITING] + totals[State.PREEMPTED]

    generate_all(watched, asked, look)
    assert watched.latest.counts["finished"] == len(asked)
    assert {each.state for each in watched.latest.requests} == {State.FINISHED}
    assert sum(watched.latest.tokens_at.values()) == sum(each.num_generated for each in asked)


def check_tree(core: Any, note: Note) -> None:
    nodes = list(core.scheduler.cache.nodes()) if hasattr(core, "scheduler") else []
    assert {(each.page, each.parent, each.key) for each in note.tree} == {
        (node.page, node.parent.page, node.key) for node in nodes
    }
    before = {0}
    for each in note.tree:
        assert each.parent in before, "a node stands before its parent"
        before.add(each.page)
        assert each.held == core.allocator.references[each.page] - 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_chunks_of_each_request_are_its_tokens_without_a_gap(kind: str) -> None:
    watched, asked = watch(kind), asked_of(kind)
    generate_all(watched, asked)
    reused = sum(found for each in watched.latest.requests for *_, found in each.chunks)
    for each in watched.latest.requests:
        at = 0
        for _, start, tokens, found in each.chunks:
            assert start == at + found
            at = start + tokens
        assert at == each.computed == each.prompt + each.output - 1
    assert reused == watched.latest.counts["reused"]
    assert bool(reused) is (kind != "ragged")


def test_a_question_shows_the_pages_of_its_branches_and_counts_their_tokens() -> None:
    watched, (asked, *_) = watch("documents"), document_requests()
    watched.push(asked)
    while not asked.num_generated:
        watched.step()
    (noted,) = watched.latest.requests
    (join,) = watched.core.scheduler.running  # type: ignore[attr-defined]
    branches = [member.sequence for member in join.sequence.members]
    assert len(branches) == 3
    assert set(noted.pages) == {page for sequence in branches for page in sequence.pages}
    assert len(noted.pages) == len(set(noted.pages))
    assert noted.prompt == (5 + 13) + (5 + 6) + 3
    assert noted.computed == noted.prompt


def test_decodes_are_told_from_prompts() -> None:
    for kind in KINDS:
        watched = watch(kind)
        first, second = requests(2)
        watched.push(first)
        while not first.num_generated:
            watched.step()
            assert [part.decode for part in watched.latest.batch] == [False]
        watched.push(second)
        watched.step()
        parts = {part.number: part for part in watched.latest.batch}
        assert (parts[1].decode, parts[1].tokens, parts[2].decode) == (True, 1, False), kind


def test_a_request_that_loses_its_pages_is_shown_as_preempted_until_it_runs_again() -> None:
    watched, asked = watch("preempt", pages=9), requests(3, 6, 12)
    states = dict[int, list[State]]()

    def look(step: Step) -> None:
        for each in watched.latest.requests:
            states.setdefault(each.number, []).append(each.state)
            if each.state is State.PREEMPTED:
                assert (each.pages, each.computed) == ((), 0)
                assert each.preemptions
        preempted = sum(each.preemptions for each in watched.latest.requests)
        assert watched.latest.counts["preempted"] == preempted

    generate_all(watched, asked, look)
    assert watched.latest.counts["preempted"] == watched.core.scheduler.preemptions > 0  # type: ignore[attr-defined]
    lost = [some for some in states.values() if State.PREEMPTED in some]
    assert lost
    for some in lost:
        assert State.RUNNING in some[some.index(State.PREEMPTED) :]


def test_a_note_does_not_change_with_later_steps() -> None:
    watched = watch("extend")
    for request in requests(3):
        watched.push(request)
    notes = []
    while watched.requests:
        watched.step()
        notes.append((watched.latest, repr(watched.latest)))
    assert len({text for _, text in notes}) == len(notes)
    for note, text in notes:
        assert repr(note) == text


def test_while_nothing_watches_pages_are_noted_only_when_the_engine_is_empty() -> None:
    watched, asked = WatchedCore(toy_core("extend")), requests(3)
    first, seen = watched.latest, []
    generate_all(watched, asked, lambda step: seen.append(watched.latest))
    assert all(note is first for note in seen[:-1])
    assert len(seen) > 3
    assert watched.latest.step == len(seen)
    assert len(watched.latest.cached) == len(watched.latest.tree) > 0
    assert [len(each.chunks) > 0 for each in watched.latest.requests] == [True] * 3


def test_in_play_steps_that_follow_one_another_quickly_share_a_note() -> None:
    watched, asked = watch("extend"), requests(3)
    watched.note_seconds = PATIENCE
    first, seen = watched.latest, []
    generate_all(watched, asked, lambda step: seen.append(watched.latest))
    assert all(note is first for note in seen[:-1])
    assert (watched.latest.step, watched.latest.counts["finished"]) == (len(seen), 3)


def test_what_an_engine_has_beside_the_rest_is_found_behind_the_watch() -> None:
    watched = watch("extend")
    assert watched.scheduler is watched.core.scheduler  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        _ = watched.nothing


class Counted(WatchedCore):
    """It counts how often its driver has come back from it."""

    rounds = 0

    def step(self) -> Step:
        done = super().step()
        self.rounds += 1
        return done

    def settle(self) -> None:
        """Wait until the gate has been asked twice more: a step that may begin has begun and ended then."""
        rounds = self.rounds
        until(lambda: self.rounds >= rounds + 2, "the gate is asked again")

    def one_step(self) -> None:
        self.gate.step()
        self.settle()


def batcher_of(kind: str, mode: Mode, **options: Any) -> tuple[Batcher, Counted]:
    watched = Counted(toy_core(kind, **options), mode)
    watched.watchers, watched.note_seconds = 1, 0
    batcher = Batcher(watched)
    watch_batcher(watched, batcher)
    batcher.start()
    return batcher, watched


def states_of(watched: WatchedCore) -> list[State]:
    return [each.state for each in sorted(watched.latest.requests, key=lambda each: each.number)]


@pytest.mark.parametrize("kind", KINDS)
def test_while_paused_no_step_is_made_and_one_step_makes_exactly_one(kind: str) -> None:
    batcher, watched = batcher_of(kind, Mode.PAUSE)
    try:
        futures = [batcher.submit(each) for each in requests(3)]
        until(lambda: len(watched.requests) == 3, "all are in the engine")
        watched.settle()
        assert len(states_of(watched)) == 3
        for number in range(3):
            assert watched.ledger.steps == number
            watched.one_step()
        assert watched.ledger.steps == watched.latest.step == 3
        watched.gate.set(Mode.PLAY)
        assert [len(each.result(PATIENCE)) for each in futures] == [7, 7, 7]
    finally:
        assert batcher.stop(drain=False, timeout=PATIENCE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_that_is_cancelled_while_the_engine_is_paused_leaves_without_a_step(kind: str) -> None:
    batcher, watched = batcher_of(kind, Mode.PAUSE)
    try:
        futures = [batcher.submit(each) for each in requests(2, max_tokens=50)]
        until(lambda: len(watched.requests) == 2, "both are in the engine")
        for _ in range(4):
            watched.one_step()
        before = watched.latest
        assert [len(each.pages) > 0 for each in before.requests] == [True] * 2
        futures[0].cancel()
        until(lambda: State.CANCELLED in states_of(watched), "it is cancelled")
        after = watched.latest
        assert len(watched.requests) == after.counts["cancelled"] == 1
        assert after.free + len(after.cached) > before.free + len(before.cached)
        assert watched.ledger.steps == after.step == 4
        assert watched.gate.mode is Mode.PAUSE
    finally:
        assert batcher.stop(drain=False, timeout=PATIENCE)
    check_nothing_held(watched)


def check_nothing_held(watched: WatchedCore) -> None:
    core: Any = watched.core
    free = len(core.allocator.free_pages)
    cached = len(list(core.scheduler.cache.nodes())) if hasattr(core, "scheduler") else 0
    assert free + cached == core.allocator.num_pages - 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_batcher_that_is_stopped_while_the_engine_is_paused_ends_without_a_step(kind: str) -> None:
    batcher, watched = batcher_of(kind, Mode.PAUSE)
    futures = [batcher.submit(each) for each in requests(3)]
    until(lambda: watched.requests, "they are in the engine")
    assert batcher.stop(drain=False, timeout=PATIENCE)
    assert watched.ledger.steps == 0
    for future in futures:
        assert isinstance(future.exception(PATIENCE), Closed)
    check_nothing_held(watched)


def test_a_batcher_that_is_to_drain_while_the_engine_is_paused_finishes_its_requests() -> None:
    batcher, watched = batcher_of("served", Mode.PAUSE)
    futures = [batcher.submit(each) for each in requests(3)]
    until(lambda: watched.requests, "they are in the engine")
    assert batcher.stop(drain=True, timeout=PATIENCE)
    assert [len(each.result()) for each in futures] == [7] * 3


def test_requests_that_wait_in_the_batchers_queue_are_shown_and_may_be_cancelled_there() -> None:
    batcher, watched = batcher_of("ragged", Mode.PAUSE, seats=1)
    try:
        futures = [batcher.submit(each) for each in requests(3)]
        until(lambda: states_of(watched) == [State.RUNNING, State.WAITING, State.WAITING], "two wait")
        assert watched.latest.counts["waiting"] == 2
        futures[1].cancel()
        until(lambda: State.CANCELLED in states_of(watched), "one is cancelled")
        assert {each.number: each.state for each in watched.latest.requests}[2] is State.CANCELLED
        watched.gate.set(Mode.PLAY)
        assert len(futures[2].result(PATIENCE)) == 7
    finally:
        assert batcher.stop(drain=False, timeout=PATIENCE)


def test_requests_whose_step_fails_are_shown_as_failed() -> None:
    model = toy_model()
    batcher, watched = batcher_of("extend", Mode.PAUSE, model=model)
    try:
        future = batcher.submit(requests(1)[0])
        until(lambda: watched.requests, "it is in the engine")
        model.failure = RuntimeError("made up")
        watched.gate.step()
        assert "made up" in str(future.exception(PATIENCE))
        until(lambda: states_of(watched) == [State.FAILED], "it is shown as failed")
        assert watched.latest.counts["failed"] == 1
        watched.gate.set(Mode.PLAY)
        assert len(batcher.submit(requests(1)[0]).result(PATIENCE)) == 7
        until(lambda: watched.latest.counts["finished"] == 1, "the next one is finished")
    finally:
        assert batcher.stop(drain=False, timeout=PATIENCE)


def test_an_llm_is_watched_with_the_text_of_its_answers_and_their_names() -> None:
    with toy_llm(around=lambda core: WatchedCore(core, Mode.PAUSE)) as llm:
        watched = watched_of(llm)
        watched.watchers = 1
        generation = llm.begin(list(range(65, 75)), SamplingParams(max_tokens=9, ignore_end=True, n=2))
        generation.completions[0].name = "chatcmpl-1"
        watched.gate.set(Mode.PLAY)
        output = generation.wait()
        until(lambda: watched.latest.counts["finished"] == 2, "both are finished")
        noted = by_number(watched.latest)
        assert [noted[number].tail for number in (1, 2)] == [each.text for each in output.outputs]
        assert [noted[number].name for number in (1, 2)] == ["chatcmpl-1", ""]


def test_an_error_of_the_engine_comes_through_the_watch() -> None:
    watched = watch("ragged")
    with pytest.raises(ValueError, match="empty"):
        watched.push(Request([], 3))
    assert watched.refusal(Request([], 3)) == watched.core.refusal(Request([], 3)) is not None
    assert not watched.latest.requests
    watched.abort([Request([1], 1)])

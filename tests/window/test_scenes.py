"""Each scene shows what it is for, on a toy model; one runs at a time, and none is left when the server ends."""

from __future__ import annotations

from concurrent.futures import wait
from typing import Any

import pytest
from toys import PATIENCE, toy_llm, until, watched_of

from tiny_llm.ragged.errors import QueueFull
from window.gate import Mode
from window.notes import Note
from window.scenes import SCENES, SceneRunning, Scenes
from window.watched import WatchedCore

PAUSED: Any = lambda core: WatchedCore(core, Mode.PAUSE)  # noqa: E731
MANY = 1200  # pages: the prompts of all scenes are letters here, and so they are long


def play(name: str, pages: int = MANY) -> Note:
    """The last note of a scene that has run to its end."""
    with toy_llm(pages=pages, budget=min(pages, 400)) as llm:
        scenes, watched = Scenes(llm, max_tokens=3), watched_of(llm)
        scenes.start(name)
        futures = scenes._futures()
        done = wait(futures, PATIENCE)
        assert not done.not_done
        until(lambda: sum(watched.ledger.counts.values()) >= len(futures), "all have left")
        until(lambda: not watched.stale, "a last note")
        return watched.latest


def test_many_prompts_come_at_once() -> None:
    note = play("crowd")
    assert note.counts["finished"] == 16
    assert len({each.prompt for each in note.requests}) > 10


def test_a_prefix_is_computed_once() -> None:
    note = play("prefix")
    shared = min(sum(found for *_, found in each.chunks) for each in note.requests if each.number > 1)
    assert note.counts["finished"] == 8
    assert shared > 1000


def test_too_few_pages_lead_to_preemptions() -> None:
    note = play("pages", pages=150)
    assert note.counts["preempted"] > 0
    assert note.counts["finished"] == len(note.requests) > 1


def test_documents_are_computed_once() -> None:
    note = play("documents", pages=2500)
    assert note.counts["finished"] == 3
    first, *others = sorted(note.requests, key=lambda each: each.number)
    assert first.prompt > 2000
    for each in others:
        assert sum(tokens for _, _, tokens, _ in each.chunks) < first.prompt / 10


def test_an_engine_without_documents_has_no_scene_about_them() -> None:
    with toy_llm(enable_chunk_aware=False) as llm:
        assert [each.name for each in Scenes(llm).scenes] == ["crowd", "prefix", "pages"]


def test_every_scene_is_described_in_a_sentence() -> None:
    for scene, _ in SCENES:
        assert scene.title
        assert scene.about.endswith(".")


def test_a_second_scene_has_to_wait_for_the_end_of_the_first() -> None:
    with toy_llm(pages=MANY, around=PAUSED) as llm:
        scenes = Scenes(llm, max_tokens=3)
        scenes.start("prefix")
        with pytest.raises(SceneRunning):
            scenes.start("crowd")
        watched_of(llm).gate.set(Mode.PLAY)
        wait(scenes._futures(), PATIENCE)
        scenes.start("prefix")


def test_closing_cancels_the_scene_that_runs_and_no_other_request() -> None:
    with toy_llm(pages=MANY, around=PAUSED) as llm:
        from tiny_llm.engine.params import SamplingParams

        scenes, watched = Scenes(llm), watched_of(llm)
        watched.watchers = 1
        other = llm.begin([65, 66], SamplingParams(max_tokens=2, ignore_end=True))
        scenes.start("crowd")
        until(lambda: len(watched.requests) == 17, "all are there")
        scenes.close()
        until(lambda: len(watched.requests) == 1, "the scene has left")
        assert watched.ledger.steps == 0
        with pytest.raises(SceneRunning):
            scenes.start("crowd")
        watched.gate.set(Mode.PLAY)
        assert other.wait().completion_tokens == 2


def test_a_scene_for_which_the_queue_has_no_room_starts_none_of_its_requests() -> None:
    with toy_llm(pages=MANY, around=PAUSED, max_queue=5) as llm:
        scenes, watched = Scenes(llm, max_tokens=3), watched_of(llm)
        with llm.batcher.changed, pytest.raises(QueueFull):  # meanwhile the loop takes nothing from the queue
            scenes.start("crowd")
        until(lambda: not watched.requests and not llm.batcher.request_queue, "nothing is left of it")
        assert watched.ledger.steps == 0
        llm.batcher.max_queue = 100
        scenes.start("crowd")
        assert len(scenes._futures()) == 16

"""What is sent to the page has the form that the page knows, and its texts are decoded only once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from toys import KINDS, Letters, requests, toy_core

from tiny_llm.request import Request
from window.gate import Mode
from window.notes import Note, TreeNode
from window.snapshot import LABEL_LETTERS, Snapshots, label
from window.watched import WatchedCore

RECORDED = json.loads((Path(__file__).parent / "states.json").read_text(encoding="utf-8"))


def shape(value: Any) -> Any:
    """The form of a snapshot: its fields and their types."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items()}
    if isinstance(value, list):
        return ["list", *({json.dumps(shape(each)): shape(each) for each in value}.values())]
    return "number" if type(value) in (int, float) else type(value).__name__


def running(kind: str, steps: int = 3) -> WatchedCore:
    watched = WatchedCore(toy_core(kind))
    watched.watchers, watched.note_seconds = 1, 0
    for request in requests(3):
        watched.push(request)
    for _ in range(steps):
        watched.step()
    return watched


def snapshot(watched: WatchedCore, tokenizer: Letters | None = None) -> Any:
    made = Snapshots(tokenizer or Letters(), watched.token_budget).build(watched.latest, Mode.SLOW, 1.5)
    return json.loads(json.dumps(made))


def test_recorded_snapshots_show_what_their_scenes_are_for() -> None:
    crowd, prefix, pages, documents = (RECORDED[name] for name in ("crowd", "prefix", "pages", "documents"))
    assert max(each["counts"]["running"] for each in crowd) > 5
    assert max(len(each["pages"]["shared"]) for each in prefix) > 10
    assert any(request["state"] == "preempted" for each in pages for request in each["requests"])
    assert max(len(each["pages"]["shared"]) for each in documents) > 10


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_has_the_form_of_the_recorded_ones(kind: str) -> None:
    recorded = shape(next(each for each in RECORDED["crowd"] if each["batch"] and each["pages"]["cached"]))
    made = shape(snapshot(running(kind)))
    assert list(made) == list(recorded)
    assert made["batch"] == recorded["batch"]
    assert list(made["requests"][1]) == list(recorded["requests"][1])
    assert made["counts"] == recorded["counts"]
    assert list(made["pages"]) == list(recorded["pages"])
    assert len(snapshot(running(kind))["rate"]) == 60
    if kind != "ragged":
        assert made["tree"] == recorded["tree"]


def test_a_snapshot_says_what_the_note_says() -> None:
    watched = running("extend", steps=4)
    made, note = snapshot(watched), watched.latest
    assert (made["step"], made["mode"], made["budget"]) == (4, "slow", watched.token_budget)
    by_number = {each["request"]: each for each in made["requests"]}
    for each in note.requests:
        one = by_number[each.number]
        assert (one["state"], one["pages"], one["output"]) == (each.state, list(each.pages), each.output)
    lists = [page for each in made["requests"] for page in each["pages"]]
    assert made["pages"]["shared"] == sorted({page for page in lists if lists.count(page) > 1}) != []
    assert made["pages"]["free"] == note.free
    assert sum(made["rate"]) == sum(each["output"] for each in made["requests"]) > 0


def test_the_text_of_an_answer_is_its_end() -> None:
    watched = WatchedCore(toy_core("extend"))
    watched.watchers, watched.note_seconds = 1, 0
    request = Request([65, 66, 67], 30)
    watched.push(request)
    for _ in range(12):
        watched.step()
    (one,) = snapshot(watched)["requests"]
    assert one["text"] == Letters().decode(request.output)
    assert len(one["text"]) == 12


def test_texts_are_decoded_once_however_often_they_are_sent() -> None:
    watched, tokenizer = running("extend", steps=8), Letters()
    snapshots = Snapshots(tokenizer, 16)
    first = snapshots.build(watched.latest, Mode.PLAY, 1)
    decoded = tokenizer.decoded
    assert decoded > 3
    assert snapshots.build(watched.latest, Mode.PLAY, 1) == first
    assert tokenizer.decoded == decoded
    watched.step()
    snapshots.build(watched.latest, Mode.PLAY, 1)
    assert tokenizer.decoded <= decoded + 6  # the three answers, and pages that are full now


def test_a_page_whose_first_token_is_salted_shows_its_text() -> None:
    note = Note(tree=[TreeNode(5, 0, (("salt", 65), 66, 67), 1)])
    (node,) = Snapshots(Letters(), 16).build(note, Mode.PLAY, 0)["tree"]
    assert node == {"page": 5, "parent": 0, "tokens": 3, "text": "ABC", "held": 1}


def test_the_tokens_of_each_second_end_with_the_newest() -> None:
    note = Note(tokens_at={100: 7, 158: 3, 159: 5})
    rate = note.rate(159.9)
    assert (len(rate), rate[0], rate[-2:], sum(rate)) == (60, 7, [3, 5], 15)
    assert note.rate(161.2)[-4:] == [3, 5, 0, 0]
    assert sum(note.rate(400)) == 0


@pytest.mark.parametrize(
    ("prompt", "wanted"),
    [
        ("<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nName three fruits.<|im_end|>\n"
         "<|im_start|>assistant\n", "Name three fruits."),
        ("<|start_header_id|>user<|end_header_id|>\n\nHello\nyou<|eot_id|><|start_header_id|>assistant"
         "<|end_header_id|>\n\n", "Hello you"),
        ("Once upon a time", "Once upon a time"),
        ("user\nis my name", "is my name"),
        ("", ""),
        ("a" * 200, "a" * (LABEL_LETTERS - 1) + "…"),
    ],
)  # fmt: skip
def test_a_request_is_called_by_what_its_user_has_said_last(prompt: str, wanted: str) -> None:
    assert label(prompt) == wanted

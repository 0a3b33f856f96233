"""Tokenizers and templates that do not fit, do not end, or take too much: one line, at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_tokenizers
from gguf import GGUFValueType
from refusals import message
from tiny_models import write_gguf
from whole_models import MESSAGES, run_whole

import tiny_llm.loading.apart as apart
from tiny_llm.loading.gguf_file import read_gguf
from tiny_llm.tokenizer import load_tokenizer


def test_a_token_without_a_row_in_the_embedding_is_found_at_loading(folder: Path) -> None:
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    last = {
        **content["added_tokens"][-1],
        "content": "<one too many>",
        "id": content["added_tokens"][-1]["id"] + 1,
    }
    content["added_tokens"].append(last)
    path.write_text(json.dumps(content))
    assert f"id {last['id']}" in message(run_whole, folder)


def test_a_gguf_tokenizer_whose_parts_do_not_fit_is_one_line(
    tmp_path: Path, model: Any, vocabulary: dict[str, Any]
) -> None:
    text, array = GGUFValueType.STRING, GGUFValueType.ARRAY
    for key, value in (
        ("token_type", ([1, 2], array, GGUFValueType.INT32)),
        ("merges", (["only-one-part", "a b c"], array, text)),
        ("tokens", ([3, 4], array, GGUFValueType.INT32)),
        ("eos_token_id", (-7, GGUFValueType.INT32)),
        ("bos_token_id", ("one", text)),
    ):
        path = tiny_tokenizers.write_gguf_tokenizer(tmp_path / "t.gguf", vocabulary, "qwen2")
        metadata = read_gguf(path).metadata
        assert key == "bos_token_id" or f"tokenizer.ggml.{key}" in metadata
        broken = {**tiny_tokenizers.ggml_settings(vocabulary), f"tokenizer.ggml.{key}": value}
        message(load_tokenizer, write_gguf(tmp_path / "m.gguf", model, settings=broken))


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


STEPS = {
    "a pattern that panics": split(r"(a|aa)+$"),
    "an unknown kind": {"type": "Splitt"},
    "a broken pattern": split("("),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_tokenizer_that_breaks_the_library_is_damaged(
    step: str, change_json: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    assert "is damaged" in message(load_tokenizer, change_json("tokenizer.json", pre_tokenizer=STEPS[step]))
    assert capfd.readouterr().err == ""


def test_a_tokenizer_that_makes_a_text_endless_is_damaged(
    change_json: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "SECONDS", 1.0)
    longer = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 60}
    steps = {"type": "Sequence", "normalizers": [longer] * 6}
    assert "is damaged" in message(load_tokenizer, change_json("tokenizer.json", normalizer=steps))


def test_a_text_that_a_pattern_gives_up_on_is_one_line(change_json: Callable[..., Path]) -> None:
    step = split(r"(q|qq)+$")
    tokenizer = load_tokenizer(change_json("tokenizer.json", pre_tokenizer=step))
    for encode in (tokenizer.encode, lambda text: tokenizer.encode_chat([{"role": "user", "content": text}])):
        assert "gives up on this text" in message(encode, "q" * 60 + "!")


def test_a_prompt_is_neither_cut_nor_padded_by_settings_of_the_file(change_json: Callable[..., Path]) -> None:
    cut = {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    pad = {"strategy": {"Fixed": 50}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0}
    pad |= {"pad_type_id": 0, "pad_token": "x"}
    plain = load_tokenizer(change_json("tokenizer.json")).encode("the cat sat")
    changed = load_tokenizer(change_json("tokenizer.json", truncation=cut, padding=pad))
    assert changed.encode("the cat sat") == plain


TEMPLATES = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "a power": "{{ 9 ** (9 ** 9) }}",
    "a division by zero": "{{ 1 / 0 }}",
    "a recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a long text": "{{ 'x' * 10 ** 10 }}",
    "a wide number": "{{ '%0900000000d' % 1 }}",
    "many texts": "{% for a in range(9999) %}{{ 'x' * 100000 }}{% endfor %}",
    "doubling": "{% set n = namespace(t='x') %}{% for a in range(99) %}{% set n.t = n.t + n.t %}{% endfor %}",
    "deep brackets": "{{ " + "(" * 5000 + ")" * 5000 + " }}",
    "half a character": "{{ '\\ud800' }}",
    "a filter": "{{ 'x' | center(10 ** 10) }}",
}


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_that_does_not_end_well_is_one_line(
    template: str, tmp_path: Path, vocabulary: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "SECONDS", 0.5)
    path = tiny_tokenizers.write_gguf_tokenizer(
        tmp_path / "t.gguf", vocabulary, "qwen2", chat_template=TEMPLATES[template]
    )
    tokenizer = load_tokenizer(path)
    for ask in (tokenizer.chat, tokenizer.encode_chat):
        assert "--raw" in message(ask, MESSAGES)


def test_after_a_template_that_was_stopped_the_next_conversation_is_written(
    tmp_path: Path, vocabulary: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "SECONDS", 0.5)
    template = "{% if messages[0].content == 'loop' %}" + TEMPLATES["nested loops"] + "{% endif %}fine"
    path = tiny_tokenizers.write_gguf_tokenizer(
        tmp_path / "t.gguf", vocabulary, "qwen2", chat_template=template
    )
    tokenizer = load_tokenizer(path)
    assert "--raw" in message(tokenizer.chat, [{"role": "user", "content": "loop"}])
    assert tokenizer.chat(MESSAGES) == "fine"


def test_a_conversation_can_use_every_private_character_of_the_first_plane(
    tmp_path: Path, vocabulary: dict[str, Any]
) -> None:
    path = tiny_tokenizers.write_gguf_tokenizer(
        tmp_path / "t.gguf", vocabulary, "qwen2", chat_template=tiny_tokenizers.CHATML
    )
    said = "".join(map(chr, range(0xE000, 0xF900))) + "<|im_end|>"
    ids = load_tokenizer(path).encode_chat([{"role": "user", "content": said}])
    assert ids.count(2) == 2

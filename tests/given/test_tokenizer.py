"""Text becomes the same ids as in transformers, from either file format, and becomes the same text again."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import slow_bpe
from tiny_tokenizers import CONTROL, TRICKY, USER_DEFINED, random_texts, save_folder, write_gguf_tokenizer
from tokenizers import processors

from tiny_llm.tokenizer import load_tokenizer
from tiny_llm.weights import WeightsError

TEXTS = [*TRICKY, *random_texts(200)]


def added(vocabulary: dict[str, Any], names: tuple[str, ...] = CONTROL + USER_DEFINED) -> dict[str, int]:
    return {name: vocabulary["tokens"].index(name) for name in names}


@pytest.mark.parametrize("rule", slow_bpe.WORDS)
def test_every_rule_of_cutting_words_gives_the_ids_of_plain_byte_pair_encoding(
    rule: str, vocabulary: dict[str, Any], tmp_path: Path
) -> None:
    ours = load_tokenizer(write_gguf_tokenizer(tmp_path / "t.gguf", vocabulary, rule))
    for text in TEXTS:
        expected = slow_bpe.encode(text, rule, vocabulary["tokens"], vocabulary["merges"], added(vocabulary))
        assert ours.encode(text) == expected, repr(text)


def test_the_rules_differ_from_one_another_on_these_texts(vocabulary: dict[str, Any], tmp_path: Path) -> None:
    ids = {}
    for rule in slow_bpe.WORDS:
        tokenizer = load_tokenizer(write_gguf_tokenizer(tmp_path / "t.gguf", vocabulary, rule))
        ids[rule] = [tokenizer.encode(text) for text in TEXTS]
    assert len({json.dumps(each) for each in ids.values()}) == len(ids)


def test_a_folder_and_a_gguf_file_give_the_ids_of_transformers(
    vocabulary: dict[str, Any], tmp_path: Path
) -> None:
    oracle = save_folder(tmp_path / "folder", vocabulary, None)
    folder = load_tokenizer(tmp_path / "folder")
    file = load_tokenizer(write_gguf_tokenizer(tmp_path / "t.gguf", vocabulary, "qwen2"))
    for text in TEXTS:
        expected = oracle(text)["input_ids"]
        assert folder.encode(text) == expected, repr(text)
        assert file.encode(text) == expected, repr(text)
        for skip in (True, False):
            decoded = oracle.decode(expected, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
            assert folder.decode(expected, skip) == decoded, repr(text)
            assert file.decode(expected, skip) == decoded, repr(text)


@pytest.mark.parametrize("rule", ["smollm", "llama-bpe", "gpt-2"])
def test_decoding_gives_the_text_back(rule: str, vocabulary: dict[str, Any], tmp_path: Path) -> None:
    tokenizer = load_tokenizer(
        write_gguf_tokenizer(tmp_path / "t.gguf", vocabulary, rule, add_bos_token=False)
    )
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text), skip_control_tokens=False) == text


def test_half_a_character_decodes_to_the_replacement_sign(vocabulary: dict[str, Any], tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_gguf_tokenizer(tmp_path / "t.gguf", vocabulary, "smollm"))
    first_byte_of_a_smile = vocabulary["tokens"].index(slow_bpe.LETTERS["🙂".encode()[0]])
    assert tokenizer.decode([first_byte_of_a_smile]) == "\ufffd"


def test_no_token_stands_for_more_characters_than_the_longest(
    vocabulary: dict[str, Any], tmp_path: Path
) -> None:
    save_folder(tmp_path, vocabulary, None)
    tokenizer = load_tokenizer(tmp_path)
    lengths = [len(tokenizer.decode([i], skip_control_tokens=False)) for i in range(tokenizer.vocab_size)]
    assert max(lengths) == tokenizer.longest_token


def test_other_threads_run_while_a_long_text_becomes_tokens(
    vocabulary: dict[str, Any], tmp_path: Path
) -> None:
    """A server's event loop is one of them. This thread makes nothing but one call, so it lets go only inside it."""
    save_folder(tmp_path, vocabulary, None)
    tokenizer = load_tokenizer(tmp_path)
    ran, asked, usual = list[int](), threading.Event(), sys.getswitchinterval()

    def count() -> None:
        asked.wait()
        ran.append(1)

    other = threading.Thread(target=count)
    other.start()
    tokenizer.encode("warm up")
    sys.setswitchinterval(1000)  # seconds: a thread that computes in Python isn't interrupted
    try:
        asked.set()
        tokenizer.encode("the cat sat " * 200_000)
        seen = len(ran)
    finally:
        sys.setswitchinterval(usual)
        other.join()
    assert seen == 1


def test_control_tokens_in_text_are_letters_when_asked(vocabulary: dict[str, Any], tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_gguf_tokenizer(tmp_path / "t.gguf", vocabulary, "qwen2"))
    for text in TEXTS:
        only_words = added(vocabulary, USER_DEFINED)
        expected = slow_bpe.encode(text, "qwen2", vocabulary["tokens"], vocabulary["merges"], only_words)
        assert tokenizer.encode(text, control_tokens=False) == expected, repr(text)
    end = vocabulary["tokens"].index("<|im_end|>")
    assert tokenizer.encode("<|im_end|>") == [end], "asking for letters once must not change what comes later"


def test_a_start_token_comes_first_only_where_the_model_asks_for_it(
    vocabulary: dict[str, Any], tmp_path: Path
) -> None:
    def load(rule: str, **settings: Any) -> Any:
        return load_tokenizer(
            write_gguf_tokenizer(tmp_path / "t.gguf", vocabulary, rule, bos_token_id=1, **settings)
        )

    plain = load("smollm").encode("the cat")
    assert plain[0] != 1
    assert load("smollm", add_bos_token=True).encode("the cat") == [1, *plain]
    assert load("smollm", add_bos_token=True).encode("") == [1]
    assert load("llama-bpe").encode("the cat")[0] == 1
    assert load("llama-bpe", add_bos_token=False).encode("the cat")[0] != 1


@pytest.mark.parametrize("control_tokens", [True, False])
def test_a_text_that_continues_another_one_gets_no_start_token(
    control_tokens: bool, vocabulary: dict[str, Any], tmp_path: Path
) -> None:
    def load(**settings: Any) -> Any:
        return load_tokenizer(write_gguf_tokenizer(tmp_path / "t.gguf", vocabulary, "smollm", **settings))

    plain, starting = load(), load(add_bos_token=True, bos_token_id=1)
    for text in ("the cat", "", "<|im_end|> the cat"):
        expected = plain.encode(text, control_tokens)
        assert plain.encode(text, control_tokens, start=False) == expected
        assert starting.encode(text, control_tokens, start=False) == expected
        assert starting.encode(text, control_tokens) == [1, *expected], (
            "leaving it out once must change nothing"
        )


def test_a_folders_own_start_token_rule_is_followed(vocabulary: dict[str, Any], tmp_path: Path) -> None:
    fast = save_folder(tmp_path, vocabulary, None)
    fast.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)]
    )
    fast.backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    ids = load_tokenizer(tmp_path).encode("the cat")
    assert ids == fast("the cat")["input_ids"]
    assert ids[0] == 1


def test_end_ids_are_what_the_files_declare_and_the_known_ends(
    vocabulary: dict[str, Any], tmp_path: Path
) -> None:
    file = load_tokenizer(write_gguf_tokenizer(tmp_path / "t.gguf", vocabulary, "qwen2", eot_token_id=7))
    assert file.end_ids == (2, 7, 0)
    save_folder(tmp_path, vocabulary, None)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [9, 2]}))
    folder = load_tokenizer(tmp_path)
    assert folder.end_ids == (2, 9, 0)
    assert (folder.bos_id, file.bos_id) == (1, None)


@pytest.mark.parametrize(
    ("rule", "settings", "named"),
    [("tekken", {}, "'tekken'"), ("default", {}, "'default'"), ("smollm", {"model": "llama"}, "'llama'")],
)
def test_a_tokenizer_of_an_unknown_kind_is_refused(
    rule: str, settings: dict[str, Any], named: str, vocabulary: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(WeightsError, match=named):
        load_tokenizer(write_gguf_tokenizer(tmp_path / "t.gguf", vocabulary, rule, **settings))


def test_half_a_tokenizer_file_is_to_be_downloaded_again(vocabulary: dict[str, Any], tmp_path: Path) -> None:
    save_folder(tmp_path / "folder", vocabulary, None)
    file = write_gguf_tokenizer(tmp_path / "t.gguf", vocabulary, "qwen2")
    for path in (file, tmp_path / "folder" / "tokenizer.json"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    for source in (file, tmp_path / "folder"):
        with pytest.raises(WeightsError, match="download it again"):
            load_tokenizer(source)

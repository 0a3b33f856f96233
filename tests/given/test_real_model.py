"""The model that the course runs by default, against `transformers` reading the same file."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gguf
import pytest
import slow_bpe
import tokenizers
import torch
import transformers
from tiny_tokenizers import TRICKY, random_texts

from tiny_llm.loading.gguf_file import read_gguf
from tiny_llm.loading.locate import locate
from tiny_llm.model import Transformer
from tiny_llm.tokenizer import Tokenizer, load_tokenizer
from tiny_llm.weights import Weights, load_weights

SOURCE = "smollm2-135m"
NEW_TOKENS = 32
TIE = 1e-4  # two candidates whose logits are closer than this may change places
PROMPTS = (
    ("Once upon a time", False),
    ("The three primary colours are", False),
    ("def is_prime(n):\n    ", False),
    ("1, 2, 4, 8, 16, 32,", False),
    ("Ελλάδα is a country in", False),
    ("What is the capital of France?", True),
    ("Write one sentence about the sea.", True),
    ("How many legs has a spider? Answer with a number.", True),
)


@dataclass(frozen=True)
class Loads:
    """Two loads of the model, with an empty cache folder at first."""

    first: Weights
    second: Weights
    seconds: tuple[float, float]


@pytest.fixture(scope="module")
def loads() -> Iterator[Loads]:
    """The model, loaded for all the tests here."""
    # Half a gigabyte: deleted afterwards, unlike what lies in pytest's own temporary folders.
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TINY_LLM_CACHE", cache)
        start = time.perf_counter()
        first = load_weights(SOURCE)
        middle = time.perf_counter()
        second = load_weights(SOURCE)
        yield Loads(first, second, (middle - start, time.perf_counter() - middle))


@pytest.fixture(scope="module")
def file() -> gguf.GGUFReader:
    """The file as the gguf package reads it."""
    return gguf.GGUFReader(locate(SOURCE))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """The course's tokenizer."""
    return load_tokenizer(SOURCE)


def test_the_header_holds_what_the_gguf_package_reads(file: gguf.GGUFReader) -> None:
    ours = read_gguf(locate(SOURCE))
    theirs = {name: field.contents() for name, field in file.fields.items() if not name.startswith("GGUF.")}
    assert ours.metadata == theirs
    assert {t.name: (t.offset, t.shape[::-1], t.type_id) for t in ours.tensors.values()} == {
        t.name: (t.data_offset, tuple(t.shape.tolist()), int(t.tensor_type)) for t in file.tensors
    }


def test_the_tensors_are_what_the_gguf_package_dequantizes(file: gguf.GGUFReader, loads: Loads) -> None:
    wanted = ("token_embd.", "blk.0.", "blk.17.", "blk.29.")
    tensors = {
        t.name: torch.tensor(gguf.dequantize(t.data, t.tensor_type))
        for t in file.tensors
        if t.name.startswith(wanted)
    }
    weights = loads.first
    assert torch.equal(weights.tensor("embedding.weight"), tensors["token_embd.weight"])
    for i in (0, 17, 29):
        stacked = torch.cat([tensors[f"blk.{i}.ffn_gate.weight"], tensors[f"blk.{i}.ffn_up.weight"]])
        assert torch.equal(weights.tensor(f"blocks.{i}.gate_up.weight"), stacked)
        assert torch.equal(weights.tensor(f"blocks.{i}.down.weight"), tensors[f"blk.{i}.ffn_down.weight"])
        # Query and key rows stand in another order in the file: the pairs 0, 1, 2, … of a head are its halves here.
        key = weights.tensor(f"blocks.{i}.qkv.weight")[9 * 64 : 12 * 64].reshape(3, 2, 32, 576)
        pairs = tensors[f"blk.{i}.attn_k.weight"].reshape(3, 32, 2, 576)
        assert torch.equal(key[:, 0], pairs[:, :, 0])
        assert torch.equal(key[:, 1], pairs[:, :, 1])


def test_text_becomes_the_ids_of_plain_byte_pair_encoding(tokenizer: Tokenizer) -> None:
    metadata = read_gguf(locate(SOURCE)).metadata
    tokens, merges = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.merges"]
    control = {token: i for i, token in enumerate(tokens) if metadata["tokenizer.ggml.token_type"][i] == 3}
    for text in [*TRICKY, *random_texts(20)]:
        assert tokenizer.encode(text) == slow_bpe.encode(text, "smollm", tokens, merges, control), repr(text)
        assert tokenizer.decode(tokenizer.encode(text), skip_control_tokens=False) == text
    assert (tokenizer.bos_id, tokenizer.end_ids) == (1, (2, 0))


def test_a_chat_is_written_as_transformers_writes_it(tokenizer: Tokenizer) -> None:
    oracle: Any = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(tokenizers.models.BPE())
    )
    oracle.chat_template = read_gguf(locate(SOURCE)).metadata["tokenizer.chat_template"]
    for messages in (
        [{"role": "user", "content": "What is a cache?"}],
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi 🙂\n"}],
        [{"role": r, "content": c} for r, c in (("user", "a"), ("assistant", "b"), ("user", "c <b>"))],
    ):
        text = oracle.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert tokenizer.chat(messages) == text
        assert tokenizer.encode_chat(messages) == tokenizer.encode(text)


@pytest.fixture(scope="module")
def greedy(tokenizer: Tokenizer) -> list[tuple[list[int], list[int]]]:
    """For each prompt its ids, and the ids that transformers generates greedily in float32."""
    path = locate(SOURCE)
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    prompts = [
        tokenizer.encode_chat([{"role": "user", "content": prompt}]) if chat else tokenizer.encode(prompt)
        for prompt, chat in PROMPTS
    ]
    longest = max(map(len, prompts))
    model.generation_config.eos_token_id = None  # an answer that ends early would be compared on few tokens
    whole = model.generate(
        torch.tensor([[0] * (longest - len(ids)) + ids for ids in prompts]),
        attention_mask=torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts]),
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        pad_token_id=0,
    )
    return list(zip(prompts, whole[:, longest:].tolist(), strict=True))


@pytest.mark.timeout(400)  # transformers takes its time to read a GGUF file, the more so on a busy machine
def test_the_greedy_tokens_are_those_of_transformers(
    greedy: list[tuple[list[int], list[int]]], loads: Loads
) -> None:
    model = Transformer(loads.second.config, loads.second)
    for prompt, expected in greedy:
        assert len(expected) == NEW_TOKENS
        ids = torch.tensor([prompt + expected[:-1]])
        logits = model(ids, slice(0, ids.shape[1]))[0, len(prompt) - 1 :]
        behind = logits.max(dim=-1).values - logits.gather(1, torch.tensor(expected)[:, None])[:, 0]
        assert behind.max() < TIE, (
            f"step {int(behind.argmax())}: {float(behind.max())} behind our best candidate"
        )


def test_a_second_load_is_the_same_model_and_says_how_long_it_took(
    loads: Loads, record_property: Any
) -> None:
    first, second = loads.seconds
    record_property("first_load_seconds", first)
    record_property("second_load_seconds", second)
    print(f"first load {first:.2f} s, second load {second:.2f} s")
    assert loads.first.config == loads.second.config
    assert loads.first.tensors.keys() == loads.second.tensors.keys()
    for name in loads.first.tensors:
        assert torch.equal(loads.first.tensor(name), loads.second.tensor(name)), name

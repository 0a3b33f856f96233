"""Model files damaged at random: each ends in a model that runs, or in one line.

300 cases by default; `TINY_LLM_FUZZ=5000` in the environment draws as many, and other ones each time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from damage import STEPS, TEMPLATES, VALUES, edits_of, header_places, json_edits
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from whole_models import MESSAGES, run_whole, write_whole_gguf

import tiny_llm.loading.apart as apart
from tiny_llm.loading.chat_template import ChatTemplate
from tiny_llm.model import Transformer
from tiny_llm.tokenizer import load_tokenizer
from tiny_llm.weights import WeightsError, load_weights

USUAL = 300
CASES = int(os.environ.get("TINY_LLM_FUZZ", USUAL))
MOST_MEMORY = 2**30  # bytes above what the process has taken before: the files have less than a million

pytestmark = [pytest.mark.timeout(120 + CASES)]


def cases(share: float) -> settings:
    """The settings of a test that draws this share of all cases."""
    return settings(
        max_examples=round(CASES * share),
        derandomize=CASES == USUAL,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def ends_well(call: Callable[..., object], *arguments: Any) -> None:
    """The call returns, or it fails with one printable line; any other error is the test's failure."""
    failed = ""
    try:
        call(*arguments)
    except WeightsError as error:
        failed = str(error)
    assert failed.isprintable()


@pytest.fixture(autouse=True)
def modest(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Programs of the files have little time, and all the cases of a test together little memory."""
    monkeypatch.setattr(apart, "SECONDS", 0.5)
    before = peak_bytes()
    yield
    assert peak_bytes() - before < MOST_MEMORY


def peak_bytes() -> int:
    """The most memory that this process has had so far; 0 where the system doesn't say."""
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def test_a_damaged_gguf_file(tmp_path: Path, model: Any, vocabulary: dict[str, Any]) -> None:
    path = write_whole_gguf(tmp_path / "model.gguf", model, vocabulary)
    content, places = path.read_bytes(), header_places(path)

    @cases(0.5)
    @given(edits_of(content, places))
    def run(damaged: bytes) -> None:
        path.write_bytes(damaged)
        ends_well(run_whole, path, False)

    run()


def test_a_damaged_config(folder: Path) -> None:
    texts = {name: (folder / name).read_text() for name in ("config.json", "generation_config.json")}

    def load() -> None:
        weights = load_weights(folder)
        Transformer(weights.config, weights)(torch.tensor([[0]]), slice(0, 1))

    @cases(0.26)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        for name, text in texts.items():
            (folder / name).write_text(data.draw(json_edits(text)), encoding="utf-8", errors="surrogatepass")
        ends_well(load)

    run()


def test_a_damaged_tokenizer(folder: Path) -> None:
    texts = {name: (folder / name).read_text() for name in ("tokenizer.json", "tokenizer_config.json")}

    def use() -> None:
        tokenizer = load_tokenizer(folder)
        ids = tokenizer.encode("the cat; isn't it 12?  aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!")
        tokenizer.decode(ids)
        tokenizer.encode("a<|im_end|>b", control_tokens=False)
        tokenizer.check_fits(10**6)

    @cases(0.12)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        for name, text in texts.items():
            damaged = data.draw(json_edits(text, VALUES | STEPS))
            (folder / name).write_text(damaged, encoding="utf-8", errors="surrogatepass")
        ends_well(use)

    run()


def test_any_template() -> None:
    @cases(0.12)
    @given(TEMPLATES)
    def run(source: str) -> None:
        ends_well(ChatTemplate(source).render, MESSAGES, {"bos_token": "<s>"})

    run()

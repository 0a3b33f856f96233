"""The form that a fast model gets: chosen from figures, which are measured once and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from fast_models import FAMILIES, small_model
from test_errors import message
from tiny_models import ROPE, SIZES, random_model, write_gguf

from tiny_llm.engine.llm import LLM
from tiny_llm.fast import choice, forms
from tiny_llm.fast.choice import choose, choose_for, speed
from tiny_llm.fast.forms import FORMS, check_fast, forms_for, load_form
from tiny_llm.fast.measuring import ROWS, Figures, measure
from tiny_llm.fast.packed import Packed
from tiny_llm.tokenizer import Tokenizer
from tiny_llm.weights import WeightsError, load_weights

LLAMA = {
    **SIZES,
    "intermediate_size": 96,
    "vocab_size": 80,
    "rope_parameters": ROPE,
    "hidden_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
}


def times(*, float32: float, bfloat16: float, eight: float) -> Figures:
    """Figures of forms that take so many microseconds for a row, however many there are."""
    of_forms = zip(FORMS, (float32, bfloat16, eight), strict=True)
    return {form: {rows: each * rows for rows in ROWS} for form, each in of_forms}


@pytest.mark.parametrize(
    ("figures", "form"),
    [
        (times(float32=8, bfloat16=6, eight=2), "8-bit"),
        (times(float32=8, bfloat16=2, eight=6), "bfloat16"),
        (times(float32=2, bfloat16=6, eight=8), "float32"),
        (times(float32=2.1, bfloat16=2.05, eight=2), "float32"),
        (times(float32=9, bfloat16=2.1, eight=2), "bfloat16"),
        (times(float32=2.3, bfloat16=2.3, eight=2), "8-bit"),
    ],
    ids=["8-bit", "bfloat16", "float32", "nearly equal", "two nearly equal", "clearly faster"],
)
def test_the_most_exact_form_that_is_nearly_the_fastest_is_chosen(figures: Figures, form: str) -> None:
    assert choose(figures) == form


def test_where_a_prompt_is_much_faster_in_bfloat16_it_makes_up_for_slower_decoding() -> None:
    figures = times(float32=9, bfloat16=3, eight=2)
    assert choose(figures) == "8-bit"
    figures["bfloat16"][ROWS[-1]] /= 8  # as with AMX
    assert choose(figures) == "bfloat16"


def test_one_number_of_rows_weighs_as_much_as_another() -> None:
    figures = times(float32=9, bfloat16=2, eight=2)
    for slow, fast in ((ROWS[0], ROWS[1]), (ROWS[2], ROWS[0])):
        uneven = {form: dict(each) for form, each in figures.items()}
        uneven["8-bit"][slow] *= 2
        uneven["8-bit"][fast] /= 2
        assert speed(uneven["8-bit"]) == pytest.approx(speed(figures["8-bit"]))


def test_of_one_form_that_one_is_chosen() -> None:
    assert choose({"8-bit": dict.fromkeys(ROWS, 1.0)}) == "8-bit"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "model.gguf", random_model(transformers.LlamaConfig(**LLAMA)))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The measurements that were asked for; none is made, and bfloat16 comes out as the fastest."""
    asked: list[Any] = []

    def instead(config: Any, forms: Any) -> Figures:
        asked.append((config, forms))
        return times(float32=8, bfloat16=2, eight=6)

    monkeypatch.setattr(choice, "measure", instead)
    return asked


def test_figures_are_measured_once_and_kept(source: Path, cache: Path, measured: list[Any]) -> None:
    first = choose_for(source)
    again = choose_for(source)
    assert first == again
    assert (first.form, len(measured)) == ("bfloat16", 1)
    assert measured[0] == (load_weights(source).config, FORMS)
    assert first.kept is not None
    assert first.kept.parent == cache
    assert list(cache.glob("*.tmp")) == []


@pytest.mark.parametrize(
    "text", ["", "[]", "null", '{"facts"', '{"facts": {}, "figures": {}}', "[" * 100000, "\0"]
)
def test_a_file_that_holds_something_else_is_measured_anew_and_replaced(
    text: str, source: Path, measured: list[Any]
) -> None:
    first = choose_for(source)
    assert first.kept is not None
    first.kept.write_text(text)
    assert choose_for(source) == first
    assert choose_for(source) == first
    assert len(measured) == 2


@pytest.mark.parametrize(
    "wrong", [0, -1, "fast", None, [], float("inf"), float("nan"), pytest.param(10**400, id="huge")]
)
def test_figures_that_are_no_times_are_measured_anew(wrong: Any, source: Path, measured: list[Any]) -> None:
    first = choose_for(source)
    assert first.kept is not None
    kept = json.loads(first.kept.read_text())
    kept["figures"]["bfloat16"]["32"] = wrong
    first.kept.write_text(json.dumps(kept))
    assert choose_for(source) == first
    assert len(measured) == 2


def test_a_changed_model_is_measured_anew(source: Path, measured: list[Any]) -> None:
    choose_for(source)
    write_gguf(source, random_model(transformers.LlamaConfig(**{**LLAMA, "hidden_size": 96})))
    choose_for(source)
    assert [config.hidden_size for config, _ in measured] == [64, 96]


def test_another_number_of_threads_or_version_is_measured_for_itself(
    source: Path, measured: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    choose_for(source)
    with monkeypatch.context() as changed:
        changed.setattr(torch, "__version__", "0.1")
        choose_for(source)
    assert len(measured) == 2
    choose_for(source)
    assert len(measured) == 3, "the file held the figures of another torch"
    monkeypatch.setenv("OMP_NUM_THREADS", "77")
    choose_for(source)
    assert len(measured) == 4
    monkeypatch.delenv("OMP_NUM_THREADS")
    choose_for(source)
    monkeypatch.setenv("OMP_NUM_THREADS", "77")
    choose_for(source)
    assert len(measured) == 5, "the figures for other numbers of threads are kept side by side"


def test_a_folder_that_cannot_be_written_to_costs_a_measurement_each_time(
    source: Path, tmp_path: Path, measured: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TINY_LLM_CACHE", str(tmp_path / "file" / "cache"))
    for _ in range(2):
        found = choose_for(source)
        assert (found.form, found.kept) == ("bfloat16", None)
    assert len(measured) == 2


def test_a_measurement_gives_a_time_for_every_form_and_number_of_rows() -> None:
    config = small_model(next(iter(FAMILIES))).config
    figures = measure(config, FORMS)
    assert list(figures) == list(FORMS)
    assert all(list(each) == list(ROWS) for each in figures.values())
    assert all(0 < time < 1e8 for each in figures.values() for time in each.values())


def test_a_model_has_only_forms_with_kernels_for_its_sizes(tmp_path: Path, measured: list[Any]) -> None:
    odd_words = {**LLAMA, "vocab_size": 81}
    source = write_gguf(tmp_path / "words.gguf", random_model(transformers.LlamaConfig(**odd_words)))
    assert forms_for(load_weights(source).config) == ("float32", "bfloat16")
    choose_for(source)
    assert measured[0][1] == ("float32", "bfloat16")
    odd_heads = {**LLAMA, "head_dim": 16}
    source = write_gguf(tmp_path / "heads.gguf", random_model(transformers.LlamaConfig(**odd_heads)))
    assert "fast" in message(choose_for, source)
    assert "multiples of 32" in message(load_form, source, "float32")


@pytest.mark.parametrize("form", FORMS)
def test_a_form_that_is_named_is_loaded_and_nothing_is_measured(
    form: str, source: Path, measured: list[Any]
) -> None:
    model, attention = load_form(source, form)
    dtype = torch.float32 if form == "float32" else torch.bfloat16
    assert model.embedding.weight.dtype == dtype
    assert attention == ("auto" if form == "float32" else "tiled")
    assert measured == []


def test_true_stands_for_the_form_that_is_chosen(source: Path, measured: list[Any]) -> None:
    model, _ = load_form(source, True)
    assert isinstance(model.blocks[0].parts.qkv, Packed)  # type: ignore[attr-defined]
    assert model.blocks[0].parts.qkv.dtype == torch.bfloat16  # type: ignore[attr-defined]
    assert len(measured) == 1


@pytest.mark.parametrize("wrong", ["4-bit", "", "True", 1, 0, None, ("float32",)])
def test_anything_else_is_refused_before_a_model_is_looked_for(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="float32, bfloat16, 8-bit"):
        check_fast(wrong)
    with pytest.raises(ValueError, match="float32, bfloat16, 8-bit"):
        LLM(tmp_path / "no model", fast=wrong)


@pytest.mark.parametrize("fast", [*FORMS, True])
def test_the_engine_runs_in_the_form_that_is_asked_for(
    fast: bool | str, source: Path, measured: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    whole = forms._load

    def noted(source: Any, form: str) -> Any:
        loaded.append(form)
        return whole(source, form)

    class Words(Tokenizer):
        def __init__(self) -> None:
            pass

        def check_fits(self, vocab_size: int) -> None:
            pass

    monkeypatch.setattr(forms, "_load", noted)
    with LLM(source, Words(), fast=fast) as llm:
        tokens = llm.core.runner.pool.keys.dtype
    form = "bfloat16" if fast is True else fast
    assert loaded == [form]
    assert tokens == (torch.float32 if form == "float32" else torch.bfloat16)


def test_a_model_that_is_not_there_is_an_error_of_the_weights(tmp_path: Path) -> None:
    with pytest.raises(WeightsError):
        load_form(tmp_path / "none.gguf", True)

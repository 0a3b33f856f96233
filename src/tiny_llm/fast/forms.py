"""The fast forms of a model, by name (Day 4.7, given code)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tiny_llm.loading.errors import WeightsError

if TYPE_CHECKING:
    from tiny_llm.config import ModelConfig
    from tiny_llm.model import Transformer

FORMS = ("float32", "bfloat16", "8-bit")
"""What a fast model computes in, the most exact first: floats by oneDNN, or weights in 4 bits times rows in 8."""

_ATTENTION = {"float32": "auto", "bfloat16": "tiled", "8-bit": "tiled"}
_INPUTS, _OUTPUTS = 32, 16  # kernels take so many numbers at a time


def check_fast(fast: bool | str) -> None:
    """Check that it is True, False or a form.

    Raises:
        ValueError: it isn't.
    """
    if not isinstance(fast, bool) and fast not in FORMS:
        raise ValueError(f"fast is {fast!r}; it must be True, False or one of: {', '.join(FORMS)}")


def forms_for(config: ModelConfig) -> tuple[str, ...]:
    """The forms that have kernels for a model's sizes."""
    if any(size % _INPUTS for size in (config.hidden_size, config.feed_forward_size, config.head_dim)):
        return ()
    return FORMS if config.vocab_size % _OUTPUTS == 0 else FORMS[:2]


def load_form(source: str | Path, fast: bool | str, device: str = "cpu") -> tuple[Transformer, str]:
    """A model in a fast form, and the name of its way to attend.

    Args:
        source: as for :func:`tiny_llm.weights.load_weights`.
        fast: a form; or True for the one that :func:`tiny_llm.fast.choice.choose_for` chooses on this machine.
        device: "cpu"; or "cuda", where there are the forms "float32" and "bfloat16", and True is the latter.

    Raises:
        ValueError: ``fast`` is something else, or the device has no such form.
        WeightsError: the model can't be had, or has sizes for which the form has no kernels.
    """
    if device != "cpu":
        return _load_on(device, source, "bfloat16" if fast is True else fast)
    if fast is True:
        from tiny_llm.fast.choice import choose_for

        return load_form(source, choose_for(source).form)
    if fast is False:
        raise ValueError("fast=False is no form")
    check_fast(fast)
    return _load(source, fast), _ATTENTION[fast]


def _load(source: str | Path, form: str) -> Transformer:
    if form == "8-bit":
        from tiny_llm.fast.loading import load_fast

        return load_fast(source)
    from tiny_llm.fast.float_model import accelerate_floats
    from tiny_llm.model import Transformer
    from tiny_llm.weights import load_weights

    weights = load_weights(source, dtype=form)
    try:
        return accelerate_floats(Transformer(weights.config, weights))
    except ValueError as error:
        raise WeightsError(f"{source}: {error}") from error


def _load_on(device: str, source: str | Path, form: bool | str) -> tuple[Transformer, str]:
    if device.partition(":")[0] != "cuda":
        raise ValueError(f"there are no fast forms for the device {device}: load the model without fast")
    if form not in ("float32", "bfloat16"):
        raise ValueError(f"fast={form!r} runs on the CPU; on {device} choose True, float32 or bfloat16")
    from tiny_llm.fast.cuda import accelerate_on_cuda
    from tiny_llm.model import Transformer
    from tiny_llm.weights import load_weights

    weights = load_weights(source, dtype=form, device=device)
    return accelerate_on_cuda(Transformer(weights.config, weights)), "triton"

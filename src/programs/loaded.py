"""A loaded model with its tokenizer, and one request run on it: what every program needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.interrupts import leaving_at_once
from coursekit.lab import prepare
from coursekit.paths import Course
from coursekit.running.import_path import Impl, choose_implementation
from programs import cores
from programs.implementation import WaysAround, explain_stubs
from programs.options import Attention, Cache, Device, Dtype
from programs.waiting import waiting

if TYPE_CHECKING:
    from rich.console import Console

    from tiny_llm.generate import Sample
    from tiny_llm.model import Transformer
    from tiny_llm.tokenizer import Tokenizer

Generate = Callable[..., Iterator[int]]
"""Called with the model, prompt_ids, max_tokens, end_ids and sample; gives the new tokens one by one."""

FILTERS_OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
WARM_UP_ROWS = (1, 2, 64)


@dataclass
class LoadedModel:
    """A model in memory and the tokenizer that belongs to it."""

    model: Transformer
    tokenizer: Tokenizer


@dataclass
class Timing:
    """When the tokens of one request came, in seconds of the clock that does not jump."""

    started: float = field(default_factory=time.perf_counter)
    arrivals: list[float] = field(default_factory=list)

    def stamp(self) -> None:
        """Note that a token has arrived now."""
        self.arrivals.append(time.perf_counter())

    @property
    def first_token(self) -> float:
        """Seconds from the start to the first token; 0 when there was none."""
        return self.arrivals[0] - self.started if self.arrivals else 0.0

    @property
    def worst_gap(self) -> float:
        """Seconds of the longest wait between two tokens, one after the other; 0 when there were not two."""
        return max((later - earlier for earlier, later in pairwise(self.arrivals)), default=0.0)

    @property
    def tokens_per_second(self) -> float:
        """Output tokens per second, the wait for the first one included; 0 when there was none."""
        return len(self.arrivals) / (self.arrivals[-1] - self.started) if self.arrivals else 0.0


@contextmanager
def running(
    impl: Impl,
    ways_around: WaysAround | None = None,
    backend: Backend = Backend.TORCH,
    device: str = Device.CPU,
) -> Iterator[Course]:
    """Choose the implementation and turn what may go wrong for its user into one-line errors.

    Args:
        impl: whose code runs.
        ways_around: options of the program that do without some day's code, for the advice about a stub.
        backend: whose arrays; with MLX, ``device`` is what it uses.
        device: where the model runs.

    Raises:
        CourseError: MLX or its device isn't there, the weights can't be had, a parameter is out of range, or a stub
            was reached.
    """
    course = Course.find()
    choose_implementation(course, impl, backend)
    if backend is Backend.MLX:
        prepare(backend, device)
    starting = "starting; the first time after an installation takes longer"
    with leaving_at_once(), waiting(starting, only_in_terminal=True):
        from tiny_llm.weights import WeightsError

    try:
        with explain_stubs(course, ways_around, backend.package):
            yield course
    except WeightsError as error:
        raise CourseError(str(error)) from None


def load(
    source: str,
    dtype: str,
    device: str,
    bits: int | None = None,
    matmul: str = "auto",
    console: Console | None = None,
) -> LoadedModel:
    """Load weights and tokenizer; most arguments as in ``load_weights``, which shows how far it is.

    Args:
        console: as for :func:`waiting`.
    """
    from tiny_llm.model import Transformer
    from tiny_llm.tokenizer import load_tokenizer
    from tiny_llm.weights import load_weights

    weights = load_weights(source, dtype=dtype, device=device, bits=bits, matmul=str(matmul))
    with waiting("reading the tokenizer", console, only_in_terminal=bits is None) as say:
        tokenizer = load_tokenizer(source)
        tokenizer.check_fits(weights.config.vocab_size)
        loaded = LoadedModel(Transformer(weights.config, weights), tokenizer)
        if bits is not None:
            say("compiling the kernels for 4 bits: half a minute at most, once")
            _warm_up(loaded.model)
        return loaded


def load_fast(source: str, console: Console | None = None) -> LoadedModel:
    """Load a model as Day 4.7 runs it; arguments as for :func:`load`."""
    from tiny_llm.fast import loading
    from tiny_llm.tokenizer import load_tokenizer

    with waiting("laying out the weights, once", console) as say:
        model = loading.load_fast(source)
        say("reading the tokenizer")
        tokenizer = load_tokenizer(source)
        tokenizer.check_fits(model.config.vocab_size)
        return LoadedModel(model, tokenizer)


def _warm_up(model: Transformer) -> None:
    """Multiply one, a few and many rows by a quantized matrix: each may be a kernel of its own."""
    from tiny_llm.arrays import zeros

    down, width = model.blocks[0].mlp.down, model.config.feed_forward_size
    for rows in WARM_UP_ROWS:
        down(zeros((rows, width), like=model.embedding.weight))


def make_sampler(**params: Any) -> Sample:
    """The way of choosing tokens that the options ask for.

    Plain greedy choice is Day 1.6's function, so that a learner who has not come to sampling can run the programs.

    Raises:
        CourseError: a parameter is out of range.
    """
    from tiny_llm.generate import greedy
    from tiny_llm.sampler import Sampler, SamplingParams

    if params["temperature"] == 0 and all(params[name] == off for name, off in FILTERS_OFF.items()):
        return greedy
    try:
        return Sampler(SamplingParams(**params))
    except ValueError as error:
        raise CourseError(str(error)) from None


def make_generate(cache: Cache, dtype: Dtype, device: Device, attention: str = Attention.AUTO) -> Generate:
    """The way of generating that the options ask for.

    Raises:
        CourseError: the cache, or the way to attend, does not run in this dtype or on this device.
    """
    from tiny_llm.generate import generate, generate_recompute

    if cache is Cache.NONE:
        return generate_recompute
    if cache is Cache.FULL:
        return generate
    if cache is Cache.PAGED:
        return partial(cores.generate, cores.choose(attention, dtype, device))
    if device is not Device.CPU or dtype is Dtype.FLOAT16:
        raise CourseError(
            f"--cache fused runs on the CPU, in float32 or bfloat16, not in {dtype} on {device}: use --cache full"
        )
    # Imported here: it loads Numba, which the other caches don't need.
    from tiny_llm.fused_kv_cache import FusedKvCache

    return partial(generate, make_cache=FusedKvCache)


def check_prompt(loaded: LoadedModel, prompt_ids: Sequence[int]) -> None:
    """Refuse a prompt that the model has no room for.

    Raises:
        CourseError: it is empty, or fills all the model's positions.
    """
    limit = loaded.model.config.max_positions
    if not prompt_ids:
        raise CourseError("the prompt is empty: there is nothing to continue")
    if len(prompt_ids) >= limit:
        raise CourseError(f"the prompt has {len(prompt_ids)} tokens; this model takes at most {limit - 1}")


def prompt_ids(loaded: LoadedModel, text: str, raw: bool, system: str | None = None) -> list[int]:
    """The token ids of a prompt: as it stands, or as the user's message in the model's chat form.

    Args:
        loaded: the model.
        text: the prompt.
        raw: whether it is taken as it stands.
        system: a system message to stand before the user's; None: what the chat form says itself.
    """
    if raw:
        return loaded.tokenizer.encode(text)
    before = [] if system is None else [{"role": "system", "content": system}]
    return loaded.tokenizer.encode_chat([*before, {"role": "user", "content": text}])

"""The stages of the engine: each day that makes it faster, or fit for more requests, adds a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from coursekit.errors import CourseError
from programs import document_answers, served
from programs.cores import choose_for, paged_batch, ragged_batch_for
from programs.document_cores import document_batch_for
from programs.extend_cores import extend_batch_for, preempt_batch_for
from programs.loaded import LoadedModel
from programs.seats import Observe, Seats, Seen
from programs.stage import Limits, Stage

if TYPE_CHECKING:
    from tiny_llm.batch import Prefill
    from tiny_llm.engine_core import EngineCore, Step
    from tiny_llm.request import Request


def _recompute(loaded: LoadedModel, requests: Sequence[Request], limits: Limits, observe: Observe) -> None:
    from tiny_llm.generate import generate_recompute

    _one_by_one(generate_recompute, loaded, requests, observe)


def _cached(loaded: LoadedModel, requests: Sequence[Request], limits: Limits, observe: Observe) -> None:
    from tiny_llm.generate import generate

    _one_by_one(generate, loaded, requests, observe)


def _one_by_one(
    generate: Callable[..., Iterator[int]], loaded: LoadedModel, requests: Sequence[Request], observe: Observe
) -> None:
    seen = Seen(finished=set())
    for request in requests:
        observe(replace(seen, prefilling=request))
        arguments = request.prompt_ids, request.max_tokens, request.end_ids, request.sample
        for token in generate(loaded.model, *arguments):
            request.token_ids.append(token)
            observe(replace(seen, seats=[request]))
        seen.finished.add(request)
        observe(replace(seen, seats=[request]))


def _batched(loaded: LoadedModel, requests: Sequence[Request], limits: Limits, observe: Observe) -> None:
    """Static batching has one limit for all requests: an output whose own limit is lower is cut to it."""
    from tiny_llm.static_batch import generate_static

    prompts = [request.prompt_ids for request in requests]
    longest = max(request.max_tokens for request in requests)
    outputs = generate_static(loaded.model, prompts, longest, loaded.tokenizer.end_ids)
    for request, output in zip(requests, outputs, strict=True):
        request.token_ids += output[: request.max_tokens]


def _continuous(loaded: LoadedModel, requests: Sequence[Request], limits: Limits, observe: Observe) -> None:
    from tiny_llm.batch import batch_generate

    computed: dict[Request, int] = {}
    limit = loaded.model.config.max_positions

    def look(slots: Sequence[Request | None], prefill: Prefill | None) -> None:
        prefilling = None if prefill is None else prefill.request
        if prefill is not None:
            computed[prefill.request] = prefill.computed
        finished = {each for each in requests if each.num_generated and each.finished(limit)}
        observe(Seen(slots, prefilling, computed, finished))

    batch_generate(loaded.model, requests, limits.seats, limits.chunk, look)


def _paged(loaded: LoadedModel, requests: Sequence[Request], limits: Limits, observe: Observe) -> None:
    _paged_with("reference", loaded, requests, limits, observe)


def _kernel(loaded: LoadedModel, requests: Sequence[Request], limits: Limits, observe: Observe) -> None:
    _paged_with(limits.attention, loaded, requests, limits, observe)


def _paged_with(
    attention: str, loaded: LoadedModel, requests: Sequence[Request], limits: Limits, observe: Observe
) -> None:
    attend = choose_for(attention, loaded.model)
    _drive(paged_batch(loaded.model, requests, attend, limits.seats, limits.chunk), requests, observe)


def _ragged(loaded: LoadedModel, requests: Sequence[Request], limits: Limits, observe: Observe) -> None:
    core = ragged_batch_for(loaded.model, requests, limits.seats, limits.chunk, limits.attention)
    _drive(core, requests, observe)


def _extend(loaded: LoadedModel, requests: Sequence[Request], limits: Limits, observe: Observe) -> None:
    core = extend_batch_for(loaded.model, requests, limits.seats, limits.chunk, limits.attention)
    _drive(core, requests, observe)


def _preempt(loaded: LoadedModel, requests: Sequence[Request], limits: Limits, observe: Observe) -> None:
    core = preempt_batch_for(loaded.model, requests, limits.seats, limits.chunk, limits.attention)
    _drive(core, requests, observe)


def _documents(loaded: LoadedModel, requests: Sequence[Request], limits: Limits, observe: Observe) -> None:
    core = document_batch_for(loaded.model, requests, limits.seats, limits.chunk, limits.attention)
    _drive(core, requests, observe)


def _drive(core: EngineCore, requests: Sequence[Request], observe: Observe) -> None:
    from tiny_llm.engine_core import generate_all

    seats = Seats(core)

    def look(step: Step) -> None:
        observe(seats.after(step))

    generate_all(core, requests, look)


def _grpc(loaded: LoadedModel, requests: Sequence[Request], limits: Limits, observe: Observe) -> None:
    from programs.loopback import serve_all

    core = ragged_batch_for(loaded.model, requests, limits.seats, limits.chunk, limits.attention)
    serve_all(loaded, core, requests)


def _served(loaded: LoadedModel, requests: Sequence[Request], limits: Limits, observe: Observe) -> None:
    served.answer_all(loaded, requests, limits.seats, limits.chunk, limits.attention, observe)


def _served_grpc(loaded: LoadedModel, requests: Sequence[Request], limits: Limits, observe: Observe) -> None:
    served.through_grpc(loaded, requests, limits.seats, limits.chunk, limits.attention)


def _served_http(loaded: LoadedModel, requests: Sequence[Request], limits: Limits, observe: Observe) -> None:
    served.through_http(loaded, requests, limits.seats, limits.chunk, limits.attention)


GRPC = Stage(
    "S6",
    "grpc",
    (3, 7),
    "the same through gRPC, a call per prompt",
    _grpc,
    "auto",
    samples=False,
    in_threads=True,
)
SERVED = Stage(
    "S10",
    "served",
    (4, 6),
    "several at a time, by the engine that programs call",
    _served,
    "auto",
    shares=True,
    documents=document_answers.served,
    others=(("gRPC", _served_grpc), ("HTTP", _served_http)),
    in_threads=True,
    own_samplers=True,
)

STAGES = (
    Stage(
        "S0",
        "recompute",
        (1, 6),
        "one after the other, everything recomputed for each token",
        _recompute,
        short_prompts=True,
    ),
    Stage("S1", "cached", (2, 1), "one after the other, with a cache", _cached, short_prompts=True),
    Stage("S2", "batched", (2, 6), "all in one static batch", _batched, samples=False),
    Stage("S3", "continuous", (2, 7), "several at a time, in slots", _continuous),
    Stage("S4", "paged", (3, 2), "several at a time on pages", _paged, "reference"),
    Stage("S5", "kernel", (3, 3), "several at a time on pages, with a kernel", _kernel, "auto"),
    Stage("S6", "ragged", (3, 6), "several at a time in ragged batches", _ragged, "auto"),
    GRPC,
    Stage("S7", "extend", (4, 2), "several at a time on pages that they share", _extend, "auto", shares=True),
    Stage(
        "S8",
        "preempt",
        (4, 3),
        "several at a time with too few pages",
        _preempt,
        "auto",
        shares=True,
        scarce=True,
    ),
    Stage(
        "S9",
        "documents",
        (4, 5),
        "several at a time, beside questions about documents",
        _documents,
        "auto",
        shares=True,
        documents=document_answers.on_pages,
    ),
    SERVED,
)
"""From the first that a learner writes to the last."""


def find_stages(name: str | None, stages: Sequence[Stage] = STAGES) -> tuple[Stage, ...]:
    """The stage of that name, or all of them.

    Raises:
        CourseError: there is no such stage; the message lists the stages that there are.
    """
    found = tuple(stage for stage in stages if name in (None, stage.name))
    if not found:
        names = ", ".join(stage.name for stage in stages)
        raise CourseError(f"there is no stage {name!r}; there are: {names}")
    return found

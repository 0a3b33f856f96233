"""Ragged batching: one step that prefills some requests and decodes others, and a batch of them (Day 3.6)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from tiny_llm.batch import Request
from tiny_llm.model import Transformer
from tiny_llm.ragged.forward import forward
from tiny_llm.ragged.sampling_state import SamplingState


def mixed_step(model: Transformer, state: SamplingState, capacity: int) -> list[int]:
    """Run the model once, on as many tokens as fit; whoever has none due after it gets its next one.

    The head runs once, on the rows that are sampled, or not at all. If ``forward`` fails, no token counts as issued:
    the step may be tried again. What fails after it, the head or a sampler, leaves slots that can't go on: release
    them.

    Args:
        model: the model.
        state: the requests.
        capacity: how many tokens the step has room for.

    Returns:
        how many tokens each slot issued; all 0, and the model was not run, if no slot had any due.

    Raises:
        ValueError: the capacity is below 1.
    """
    lens = state.issue_lens(capacity)
    if not any(lens):
        return lens
    hidden = forward(model, state.pages, state.ragged_issue_tokens(lens), lens)
    state.advance(lens)
    due = state.due()
    took_part = [slot for slot, count in enumerate(lens) if count]
    complete = [row for row, slot in enumerate(took_part) if due[slot] == 0]
    if complete:
        for row, logits in zip(complete, model.logits(hidden[complete]), strict=True):
            state.accept(took_part[row], logits)
    return lens


def batch_generate_ragged(
    model: Transformer,
    state: SamplingState,
    requests: Sequence[Request],
    capacity: int = 128,
    observe: Callable[[Sequence[Request | None], Sequence[int]], None] = lambda requests, lens: None,
) -> list[list[int]]:
    """Bring all requests to their ends; whoever waits takes a slot as soon as one is idle.

    Args:
        model: the model.
        state: with idle slots only; all are idle again at the end, however that comes.
        requests: what to generate. ``error`` is set anew for all: a reason for one that can't ever run, which stays
            without output, and None for the others, which go on.
        capacity: how many tokens a step has room for.
        observe: called after each step with the request in each slot and how many tokens it issued.

    Returns:
        the output of each request, in the order of ``requests``.

    Raises:
        ValueError: the capacity is below 1, and there is something to run.
    """
    for request in requests:
        request.error = state.refusal(request)
    limit = state.max_positions
    waiting = deque(each for each in requests if each.error is None and not each.finished(limit))
    try:
        while waiting or state.line:
            while waiting and state.idle:
                state.push(waiting.popleft())
            lens = mixed_step(model, state, capacity)
            observe(list(state.requests), lens)
            state.release(state.completed_mask())
    finally:
        state.release([True] * len(state.requests))
    return [request.output for request in requests]

"""Slots, pages and requests as Day 3.6's tests put them together, a dry run without a model, and an onlooker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from week_1 import numpy_model
from week_2.continuous import new_request, prompt_of
from week_2.reading_model import LAYERS, alone

from .bankers import all_can_end, held_by, lens_of, line_of, plan_for
from .batch_model import RaggedModel
from .bounded_states import bounded_state, names_in, why_empty
from .pages import pages_needed, spoil

FIGURE = SimpleNamespace(num_layers=LAYERS, num_kv_heads=1, head_dim=2)


class MixedModel(RaggedModel):
    """The model whose attention reads pages token by token, behind Day 3.5's caches; it refuses to run for ever."""

    most_runs = 400

    def hidden(self, tokens: Any, positions: Any, caches: Any = None) -> Any:
        assert len(self.runs) < self.most_runs, (
            f"{self.most_runs} runs of the model, and there is no end to it"
        )
        return super().hidden(tokens, positions, caches)

    def _accept(self, caches: Any) -> None:
        """A ragged cache for each layer, all of the same state and with the same metadata."""
        assert caches is not None, "the model was run without the caches"
        assert len(caches) == LAYERS, f"{len(caches)} caches were given for {LAYERS} layers"
        kind = self.lab.ragged.forward.RaggedCache
        for layer, cache in enumerate(caches):
            assert isinstance(cache, kind), f"layer {layer} got a {type(cache).__name__}, not a RaggedCache"
            assert cache.layer == layer, f"the cache given to layer {layer} looks at layer {cache.layer}"
            assert cache.meta is caches[0].meta, (
                "each layer got metadata of its own: they are built once a step"
            )


def state_of(
    lab: Any, model: Any = None, *, slots: int = 3, pages: int = 40, P: int = 3, limit: int = 64
) -> Any:
    """Idle slots over so many free pages, all full of NaN; any slot may hold all of them. No endless loops."""
    config = FIGURE if model is None else model.config
    pool = lab.paged.pool.KvPool(config, pages + 1, P, device=lab.device)
    spoil(pool)
    attention = {} if not hasattr(model, "read") else {"attention": model.read}
    decode_state = lab.ragged.decode_state.DecodeState(pool, slots, pages, **attention)
    return bounded_state(lab, decode_state, limit)


def seat(
    lab: Any,
    state: Any,
    prompt: Sequence[int],
    max_tokens: int,
    issued: int = 0,
    output: Sequence[int] = (),
    **options: Any,
) -> Any:
    """Push a request, and put it in the middle of its way by hand: so many tokens are issued, so many generated."""
    request = new_request(lab, prompt, max_tokens, **options)
    slot = state.push(request)
    request.output.extend(output)
    state.tokens[slot].extend(output)
    lens = [issued * (n == slot) for n in range(len(state.requests))]
    state.pages.allocate(lens)
    state.pages.advance(lens)
    state.position[slot] = issued
    return request


def books(state: Any) -> dict[str, Any]:
    """All that the two states know: two of these are equal where nothing has changed."""
    return {
        "who is in the slots": names_in(state),
        "the tokens": [list(tokens) for tokens in state.tokens],
        "the positions": list(state.position),
        "the lengths of the prompts": list(state.input_lens),
        "who has come so far": state.pushed,
        "the order of those in line": list(state.line),
        "the pages of the slots": state.pages.page_indices.tolist(),
        "the tokens in the pages": state.pages.lengths.tolist(),
        "the free pages": list(state.pages.available_page_indices),
    }


def check_idle(state: Any, *, when: str) -> None:
    """No slot has a request, and all pages are free."""
    __tracebackhide__ = True
    left = [slot for slot, request in enumerate(state.requests) if request is not None]
    assert not left, f"{when}, slots {left} still have a request"
    free = sorted(state.pages.available_page_indices)
    expected = list(range(1, state.pages.num_pages))
    assert free == expected, f"{when}, pages {sorted(set(expected) - set(free))} were not given back"
    state.pages.check()


def check_step(state: Any, lens: Sequence[int], capacity: int, when: str) -> None:
    """What a step may issue, before it does: the oracle deals it out token by token."""
    __tracebackhide__ = True
    plan = plan_for(state, capacity)
    line = plan.line
    due = {seat.slot: seat.due for seat in line}
    who = [
        f"slot {each.slot} ({each.due} due{', decodes' * each.decodes}; {each.position} issued; holds {each.held} "
        f"pages, at most {each.most})"
        for each in line
    ]
    told = (
        f"{when}: in order of arrival {', '.join(who) or 'nobody'}; room for {capacity}, "
        f"{len(state.pages.available_page_indices)} pages of {state.pages.page_size} free"
    )
    assert sum(lens) <= capacity, f"{told}: {list(lens)} is more than there is room for"
    assert any(lens) or not any(due.values()), f"{told}: nobody issues anything, so nothing will ever change"
    wanted = lens_of(plan, len(state.requests))
    assert list(lens) == wanted, f"{told}: slots should issue {wanted}, not {list(lens)}"
    full = min(capacity, sum(due.values()))
    assert plan.short_of_pages or sum(lens) == full, f"{told}: {sum(lens)} tokens, and {full} would fit"


def check_nobody_stranded(state: Any, when: str) -> None:
    """Whatever is held now: if each runs to its end, the first in line first, each finds the pages that it needs."""
    __tracebackhide__ = True
    line, free = line_of(state), len(state.pages.available_page_indices)
    held, most = [each.held for each in line], [each.most for each in line]
    assert all_can_end(free, held, most), (
        f"{when}: {free} pages free, those in line hold {held} and may need {most}: not all of them can end"
    )


def dry_step(state: Any, capacity: int, choose: Callable[[Sequence[int]], int], when: str) -> list[int]:
    """Plan a step and do by hand what a model would bring: who has no token due after it gets one."""
    __tracebackhide__ = True
    lens = state.issue_lens(capacity)
    check_step(state, lens, capacity, when)
    state.pages.allocate(lens)
    state.pages.advance(lens)
    state.pages.check()
    check_nobody_stranded(state, f"after {when}")
    for slot, count in enumerate(lens):
        state.position[slot] += count
        request = state.requests[slot]
        if count and state.position[slot] == len(state.tokens[slot]):
            token = choose(state.tokens[slot])
            request.output.append(token)
            state.tokens[slot].append(token)
    return lens


def real_model(lab: Any, family: str) -> Any:
    """The transformer of Week 1 with random weights."""
    config = lab.config.ModelConfig(**numpy_model.config_fields(family))
    tensors = numpy_model.random_tensors(family)
    weights = lab.weights.Weights(config, {name: lab.array(x) for name, x in tensors.items()})
    return lab.model.Transformer(config, weights)


def wanted_of(requests: Sequence[Any], limit: int = 1000) -> list[list[int]]:
    return [alone(each.prompt_ids, each.max_tokens, each.end_ids, limit) for each in requests]


def fits(request: Any, limit: int, pages: int, P: int) -> bool:
    """Whether a request can run at all."""
    n = len(request.prompt_ids)
    return 0 < n < limit and pages_needed(min(n + request.max_tokens, limit) - 1, P) <= pages


LENGTHS = (3, 17, 1, 4, 5, 30, 2, 8, 6)
COUNTS = (9, 2, 20, 1, 5, 6, 13, 0, 3)


def many(lab: Any) -> list[Any]:
    """Nine requests of very different lengths; the eighth asks for nothing."""
    pairs = zip(LENGTHS, COUNTS, strict=True)
    return [new_request(lab, prompt_of(length, seed=i), count) for i, (length, count) in enumerate(pairs)]


class Watch:
    """Looks on after each step of `batch_generate_ragged`; `steps` holds for each {number of a request: tokens}."""

    def __init__(self, state: Any, requests: Sequence[Any], capacity: int) -> None:
        self.state = state
        self.requests = list(requests)
        self.capacity = capacity
        self.steps: list[dict[int, int]] = []
        self.produced = [0 for _ in requests]
        self.issued = [0 for _ in requests]
        self.bound = 20 + sum(len(each.prompt_ids) + max(each.max_tokens, 0) for each in requests)

    def __call__(self, slots: Sequence[Any], lens: Sequence[int]) -> None:
        when = f"step {len(self.steps)}"
        assert len(self.steps) < self.bound, f"{self.bound} steps, and the requests are still not done"
        assert len(slots) == len(lens) == len(self.state.requests), f"{when}: a request and a number a slot"
        assert isinstance(slots, list), f"{when}: the requests should come as a list of their own"
        assert slots is not self.state.requests, f"{when}: hand out a copy of the slots, not the list itself"
        assert any(lens), f"{when}: {why_empty(self.state)}"
        assert sum(lens) <= self.capacity, f"{when}: {sum(lens)} tokens, with room for {self.capacity}"
        numbers = {id(each): number for number, each in enumerate(self.requests)}
        idle = [slot for slot, each in enumerate(slots) if each is None and lens[slot]]
        assert not idle, f"{when}: slots {idle} issued tokens, and the onlooker is told that they are idle"
        seated = {numbers[id(each)]: lens[slot] for slot, each in enumerate(slots) if each is not None}
        self.steps.append({number: count for number, count in seated.items() if count})
        for number, request in enumerate(self.requests):
            self.issued[number] += seated.get(number, 0)
            left = len(request.prompt_ids) + self.produced[number] - self.issued[number]
            due = self.produced[number] + (seated.get(number, 0) > 0 and left == 0)
            assert len(request.output) == due, (
                f"{when}: request {number} has {len(request.output)} tokens, not {due}; of those it had, {left} are "
                "not issued: it samples exactly when it took part and nothing of it is due any more"
            )
            self.produced[number] = due
        self.state.pages.check()
        lengths = self.state.pages.lengths.tolist()
        assert lengths == self.state.position, (
            f"{when}: slots have issued {self.state.position} tokens, and {lengths} are in their pages"
        )
        check_nobody_stranded(self.state, f"after {when}")
        held = held_by(self.state)
        idle = [slot for slot, each in enumerate(slots) if each is None and held[slot]]
        assert not idle, f"{when}: slots {idle} are idle and hold pages"


def run_all(
    lab: Any,
    model: Any,
    state: Any,
    requests: Sequence[Any],
    capacity: int = 8,
    watch: Callable[[Sequence[Any], Sequence[int]], None] | None = None,
) -> list[list[int]]:
    """`batch_generate_ragged` with an onlooker; all is free at the end."""
    watch = watch or Watch(state, requests, capacity)
    outputs = lab.ragged.batch.batch_generate_ragged(model, state, requests, capacity, watch)
    check_idle(state, when="at the end")
    return outputs

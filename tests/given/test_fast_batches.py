"""The tokens of a request on Day 4.7's engine, and its logits to the last bit, whatever else the engine does."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache

import pytest
import torch
from fast_models import FAMILIES, Noted, differences, engine, random_ids, small_model

from tiny_llm.engine_core import EngineCore, generate_all
from tiny_llm.fast.accelerate import accelerate
from tiny_llm.model import Transformer
from tiny_llm.paged.attention import paged_attention

PAGE = 16
# at the edges of a page, and of the 64 and 128 keys that attention may take at a time
LENGTHS = (1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 200)
FAMILY = "three, and norms of the heads"


@cache
def fast_model(family: str = FAMILY) -> Transformer:
    return accelerate(small_model(family))


def prompts() -> list[list[int]]:
    return [random_ids(length, seed) for seed, length in enumerate(LENGTHS)]


def answer(core: EngineCore, ids: Sequence[Sequence[int]]) -> list[Noted]:
    """The requests of some prompts, after they have run together; none of their logits is NaN."""
    requests = [Noted(each) for each in ids]
    generate_all(core, requests)
    assert [request.error for request in requests] == [None] * len(requests)
    assert all(len(request.logits) == request.max_tokens for request in requests)
    assert all(bool(row.isfinite().all()) for request in requests for row in request.logits)
    return requests


@cache
def alone(family: str = FAMILY) -> tuple[Noted, ...]:
    """Each request in an engine of its own, its prompt whole."""
    return tuple(answer(engine(fast_model(family)), [ids])[0] for ids in prompts())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_request_gets_the_same_beside_others_as_alone(family: str) -> None:
    together = answer(engine(fast_model(family), token_budget=4096), prompts())
    assert differences(together, alone(family)) == []


@pytest.mark.parametrize("budget", [1, 7, 15, 16, 17, 64, 65, 100])
def test_it_gets_the_same_in_chunks_of_any_size(budget: int) -> None:
    chunked = answer(engine(fast_model(), token_budget=budget, num_seats=3), prompts())
    assert differences(chunked, alone()) == []


@pytest.mark.parametrize("page_size", [1, 5, 16, 48, 64])
def test_it_gets_the_same_on_pages_of_any_size(page_size: int) -> None:
    core = engine(fast_model(), token_budget=50, page_size=page_size)
    assert differences(answer(core, prompts()), alone()) == []


def test_it_gets_the_same_after_it_was_preempted() -> None:
    core, lost = engine(fast_model(), num_pages=16, token_budget=64), []
    requests = [Noted(ids, max_tokens=30) for ids in prompts()]
    generate_all(core, requests, lambda step: lost.extend(step.preempted))
    assert len(lost) > 3
    apart = [Noted(ids, max_tokens=30) for ids in prompts()]
    for request in apart:
        generate_all(engine(fast_model()), [request])
    assert differences(requests, apart) == []


def test_it_gets_the_same_with_a_prefix_that_the_page_cache_knows() -> None:
    core = engine(fast_model(), token_budget=50)
    longer = prompts()[1:]
    answer(core, [ids[: len(ids) * 2 // 3] for ids in longer])
    known = core.scheduler.reused
    assert differences(answer(core, longer), alone()[1:]) == []
    assert core.scheduler.reused - known >= 5 * PAGE


def test_other_ways_to_attend_over_pages_may_be_chosen() -> None:
    ids = prompts()[:6]
    for ours, theirs in zip(answer(engine(fast_model(), paged_attention), ids), alone(), strict=False):
        first, expected = ours.logits[0], theirs.logits[0]
        assert first.dtype == torch.float32
        assert (
            float((first - expected).norm() / expected.norm()) < 0.03
        )  # queries and results are in bfloat16


def depends_on_company(model: Transformer) -> Transformer:
    """The same model, with a head whose way depends on how many rows it gets: it rounds some to bfloat16."""
    other, head = copy.copy(model), model.head
    other.head = lambda rows: head(rows if rows.shape[0] == 1 else rows.bfloat16())
    return other


def test_a_part_whose_way_depends_on_the_company_is_noticed() -> None:
    model = depends_on_company(fast_model())
    assert differences(answer(engine(model), prompts()[3:7]), alone()[3:7])
    apart = [answer(engine(model), [ids])[0] for ids in prompts()[3:7]]
    assert differences(apart, alone()[3:7]) == []

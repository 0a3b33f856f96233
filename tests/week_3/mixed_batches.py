"""Seats and requests as Day 3.6's tests put them together, a dry run without a model, and an engine under watch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from week_2.continuous import new_request

from coursekit.check import check_equal

from .batch_model import RaggedModel, storage_for
from .before_steps import before
from .beside_seats import add_tokens, after_step, bring, told_by
from .misread_places import with_places_told, with_rows_told
from .pages import allocator_of, check_all_free, pages_needed, spoil
from .planned_steps import Situation, check_all_can_end, check_plan


def state_of(lab: Any, *, seats: int = 3, pages: int = 40, P: int = 3, limit: int = 64) -> Any:
    """Idle seats over some free pages; any seat may hold all of them."""
    decode_state = lab.ragged.decode_state.DecodeState(allocator_of(lab, pages + 1), P, seats, pages)
    return lab.ragged.sampling_state.SamplingState(decode_state, limit)


def seat(
    lab: Any,
    state: Any,
    prompt: Sequence[int],
    max_tokens: int,
    computed: int = 0,
    output: Sequence[int] = (),
    **options: Any,
) -> Any:
    """A request in the middle of its way, put into the first idle seat by hand: some tokens are computed."""
    request, number = new_request(lab, prompt, max_tokens, output=output, **options), state.idle[0]
    sequence = state.decode_state.sequences[number]
    state.seats[number] = lab.paged.running.Running(request, sequence, state.pushed)
    state.pushed += 1
    state.decode_state.allocate([computed * (n == number) for n in range(len(state.seats))])
    sequence.advance(computed)
    return request


def leave(state: Any, number: int) -> None:
    """Make a seat idle by hand."""
    state.decode_state.release([n == number for n in range(len(state.seats))])
    state.seats[number] = None


def names_in(state: Any) -> list[str]:
    """The request of each seat, by the length of its prompt."""
    return ["idle" if each is None else f"prompt of {each.request.prompt_len} tokens" for each in state.seats]


def books(state: Any) -> dict[str, Any]:
    """All that the two states of some seats know: two of these are equal where nothing has changed."""
    decode_state = state.decode_state
    return {
        "the requests in the seats": names_in(state),
        "their tokens": [None if each is None else list(each.request.token_ids) for each in state.seats],
        "the seats in order of arrival": [number for number, _ in state.line],
        "how many tokens of each seat are computed": [each.length for each in decode_state.sequences],
        "the pages of each seat": [list(each.pages) for each in decode_state.sequences],
        "the table": decode_state.page_indices.tolist(),
        "the free pages": sorted(decode_state.allocator.free_pages),
    }


def check_idle(state: Any, *, when: str) -> None:
    """No seat has a request, and all pages are free."""
    __tracebackhide__ = True
    left = [number for number, running in enumerate(state.seats) if running is not None]
    assert not left, f"{when}, seats {left} still have a request"
    check_all_free(state.decode_state.allocator, when=when)
    state.decode_state.check()


def lens_in(state: Any, budget: int, suspects: Mapping[str, list[int]] | None = None) -> list[int]:
    """What `issue_lens` says, which must be what the oracle says, and must change nothing."""
    __tracebackhide__ = True
    before, now = books(state), Situation.of(state)
    name = f"what the seats bring with {now.told(budget)}"
    lens = with_places_told(state, name, lambda: state.issue_lens(budget))
    slips = {**now.usual_slips(budget), **(suspects or {})}
    check_equal(lens, now.planned(budget), name=name, suspects=slips)
    check_plan(now, lens, budget, "a plan")
    check_equal(books(state), before, name="what is known after `issue_lens`, which only plans")
    return lens


def dry_step(state: Any, budget: int, choose: Callable[[Sequence[int]], int], when: str) -> None:
    """Plan a step and do by hand what a model would do: a request with no token due after it gets one."""
    __tracebackhide__ = True
    lens = with_places_told(state, when, lambda: state.issue_lens(budget))
    check_plan(Situation.of(state), lens, budget, when)
    add_tokens(state, {seat: choose(ids) for seat, ids in bring(state, lens)})
    state.decode_state.check()
    check_all_can_end(state, f"after {when}")


class MixedModel(RaggedModel):
    """The model whose attention reads pages token by token. In the runs numbered in `failures`, it raises `error`."""

    most_runs = 400

    def __init__(self, lab: Any, max_positions: int = 64) -> None:
        super().__init__(lab, max_positions)
        self.failures: set[int] = set()
        self.error: type[BaseException] = KeyError

    def hidden(self, tokens: Any, positions: Any, caches: Any = None) -> Any:
        number = len(self.runs)
        assert number < self.most_runs, f"{self.most_runs} runs of the model, and there is no end to it"
        out = super().hidden(tokens, positions, caches)
        if number in self.failures:
            raise self.error("the model failed, as the test wanted it to")
        return out


def watched(lab: Any) -> Any:
    """The lab's RaggedBatch; each step is compared with tokens dealt out one by one, and the books are proved."""

    class WatchedBatch(lab.ragged.batch.RaggedBatch):
        most_steps = 600

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.seen: list[Any] = []  # the requests that were ever pushed, each once
            self.steps: list[dict[int, int]] = []  # for each step {number of a request in `seen`: tokens}

        def push(self, request: Any) -> None:
            __tracebackhide__ = True
            super().push(request)
            if request not in self.seen:
                self.seen.append(request)

        def step(self) -> Any:
            __tracebackhide__ = True
            state, seen, steps, budget = self.state, self.seen, self.steps, self.token_budget
            when = f"step {len(steps)}"
            assert len(steps) < self.most_steps, f"{self.most_steps} steps, and the requests are not done"
            now, were = Situation.of(state), before(state.seats)
            told, wanted = now.told(budget), now.planned(budget)
            took_part = sum(map(bool, wanted))
            try:
                done = with_rows_told(took_part, len(wanted), f"{when}: {told}", super().step)
            except BaseException:
                self.decode_state.check()  # a table that doesn't follow the sequences looks like missing pages
                raise
            assert isinstance(done, lab.engine_core.Step), f"{when}: a Step should come back, not {done!r}"
            listed, finished = told_by(done)
            issued = [(seen.index(request), count) for request, count in listed]
            steps.append(dict(issued))
            assert issued or not now.due, f"{when}: {told}: no token was brought, so nothing will ever change"
            parts = [(each, n) for each, n in zip(were, wanted, strict=True) if each is not None]
            expected = [(seen.index(each.request), n) for each, n in parts if n]
            assert issued == expected, (
                f"{when}: {told}: the step should list (request, tokens) seat by seat: {expected}, not {issued}"
            )
            limit = self.max_positions
            after = after_step(tuple(each.running for each, _ in parts), limit)
            for (each, count), found in zip(parts, after, strict=True):
                each.check(seen.index(each.request), count, when, found)
            over = {
                seen.index(each.request): ends for (each, _), (_, ends, _) in zip(parts, after, strict=True)
            }
            self._check_leaving([seen.index(each) for each in finished], over, when)
            self.decode_state.check()
            check_all_can_end(state, f"after {when}")
            return done

        def _check_leaving(self, told: list[int], ends: dict[int, bool], when: str) -> None:
            """The finished requests, and no other, have left: `ends` says of each, seat by seat, if it has ended."""
            __tracebackhide__ = True
            over = [number for number, ended in ends.items() if ended]
            assert told == over, f"{when}: requests {over} are finished, seat by seat; the step lists {told}"
            stay = sorted(number for number, ended in ends.items() if not ended)
            seen = self.seen
            here = sorted(seen.index(each) for each in self.requests)
            assert here == stay, f"{when}: after it, requests {stay} should be in seats, and {here} are"

    return WatchedBatch


def batch_of(
    lab: Any,
    *,
    seats: int = 3,
    pages: int = 40,
    P: int = 3,
    limit: int = 64,
    budget: int = 8,
) -> tuple[MixedModel, Any]:
    """A model that reads its pages token by token, full of NaN at first, and an engine under watch around it."""
    model = MixedModel(lab, max_positions=limit)
    pool, allocator = storage_for(lab, model, pages + 1, P)
    runner = lab.paged.model_runner.ModelRunner(model, pool, model.read)
    decode_state = lab.ragged.decode_state.DecodeState(allocator, P, seats, pages)
    return model, watched(lab)(runner, decode_state, budget)


def run_all(lab: Any, core: Any, requests: Sequence[Any], **options: Any) -> list[list[int]]:
    """`generate_all`, after which all seats are idle and all pages free."""
    __tracebackhide__ = True
    outputs = lab.engine_core.generate_all(core, requests, **options)
    check_idle(core.state, when="at the end")
    return outputs


def real_batch(lab: Any, model: Any, *, seats: int, pages: int, P: int, budget: int) -> Any:
    """An engine under watch around a real model, with the reference path of attention."""
    pool = lab.paged.pool.KvPool(model.config, pages + 1, P, device=lab.device)
    spoil(pool)
    decode_state = lab.ragged.decode_state.DecodeState(allocator_of(lab, pages + 1), P, seats, pages)
    return watched(lab)(lab.paged.model_runner.ModelRunner(model, pool), decode_state, budget)


def fits(request: Any, limit: int, pages: int, P: int) -> bool:
    """Whether a request can run at all."""
    n = request.prompt_len
    return 0 < n < limit and pages_needed(min(n + request.max_tokens, limit) - 1, P) <= pages

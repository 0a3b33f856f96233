"""What Day 3.6's seats know, read beside the learner's code: a test that asked for each number would wait for it."""

from __future__ import annotations

from typing import Any

from coursekit.beside import beside

SeatNow = tuple[Any, int, int, int, int, int, int]
"""Running request, rank, tokens, tokens of its prompt, max_tokens, tokens in its pages, pages."""
After = tuple[tuple[int, ...], bool, int]
"""Tokens of a request, whether it has finished, and how many of them are in its pages."""


@beside
def seats_now(state: Any) -> tuple[int, int, int, tuple[SeatNow | None, ...]]:
    """Tokens per page, free pages, the position behind the last, and what is in each seat."""
    decode_state = state.decode_state
    seats = tuple(None if running is None else _seat(running) for running in state.seats)
    return decode_state.page_size, len(decode_state.allocator.free_pages), state.max_positions, seats


def _seat(running: Any) -> SeatNow:
    request, sequence = running.request, running.sequence
    lengths = len(request.token_ids), request.prompt_len, request.max_tokens
    return running, running.rank, *lengths, sequence.length, len(sequence.pages)


@beside
def tokens_of(seats: tuple[Any, ...]) -> tuple[tuple[Any, tuple[int, ...], int] | None, ...]:
    """The request in each seat, its tokens, and how many of them are in its pages."""
    return tuple(
        None if each is None else (each.request, tuple(each.request.token_ids), each.sequence.length)
        for each in seats
    )


@beside
def after_step(runnings: tuple[Any, ...], limit: int) -> tuple[After, ...]:
    """What became of requests that were in seats, where `limit` is the position behind the last."""
    return tuple(
        (tuple(each.request.token_ids), each.request.finished(limit), each.sequence.length)
        for each in runnings
    )


@beside
def told_by(step: Any) -> tuple[tuple[tuple[Any, int], ...], tuple[Any, ...]]:
    """The requests that a Step lists, with their tokens, and those that have finished."""
    return tuple((request, count) for request, count in step.issued), tuple(step.finished)


@beside
def bring(state: Any, lens: list[int]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Do what a run of a model does with the books; gives the seats with no token due after it, and their tokens."""
    state.decode_state.allocate(lens)
    found = []
    for seat, (running, count) in enumerate(zip(state.seats, lens, strict=True)):
        if count:
            running.sequence.advance(count)
            if running.due == 0:
                found.append((seat, tuple(running.request.token_ids)))
    return tuple(found)


@beside
def add_tokens(state: Any, tokens: dict[int, int]) -> None:
    """Give the request in a seat its next token."""
    for seat, token in tokens.items():
        state.seats[seat].request.token_ids.append(token)


@beside
def let_finished_leave(state: Any, limit: int) -> None:
    """Make the seats idle whose requests are complete, by hand."""
    done = [each is not None and each.request.finished(limit) for each in state.seats]
    state.decode_state.release(done)
    state.seats = [None if over else each for over, each in zip(done, state.seats, strict=True)]

"""Random steps of Week 4's engine, with all its books checked after each: arrivals, failures of the model, aborts.

A trial is an engine and all that happens to it; its number says everything about it. In the folder `tests`,
`python -m shared.random_steps` runs trials of the reference until they have made so many steps: see `main`.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from tiny_llm.request import Request
    from tiny_llm.scheduling.batch import ExtendBatch
    from tiny_llm.scheduling.scheduler import Scheduler

V = 7
POSITIONS = 30
ARRIVALS = 150  # steps in which requests may come; then all are brought to their ends
ENDLESS = 20 * ARRIVALS
POISON = -1
PER_LINE = 1000


class ModelFailed(Exception):
    """What the model of a trial fails with."""


class SamplerFailed(Exception):
    """What a sampler of a trial fails with."""


class TrialFailed(AssertionError):
    """A trial went wrong; the message says how to run it again."""


@dataclass(frozen=True)
class Setting:
    """What the engine of a trial is like."""

    preemptive: bool
    shares: bool
    page_size: int
    pages: int  # the null page included
    seats: int
    budget: int
    chunk: int | None
    patience: int
    separate: bool
    failing: float  # how often the model fails

    @classmethod
    def draw(cls, dice: random.Random) -> Setting:
        return cls(
            preemptive=dice.random() < 0.5,
            shares=dice.random() < 0.6,
            page_size=dice.choice([1, 2, 3, 4]),
            pages=dice.randint(4, 30),
            seats=dice.randint(1, 6),
            budget=dice.randint(1, 12),
            chunk=dice.choice([None, 1, 3, 5]),
            patience=dice.randint(1, 10),
            separate=dice.random() < 0.3,
            failing=dice.choice([0.0, 0.2]),
        )


@dataclass
class Counts:
    """What trials have done so far."""

    steps: int = 0
    requests: int = 0  # that ran to their ends
    preemptions: int = 0
    pushed_in: int = 0  # preemptions for a request that waited
    reused: int = 0
    evicted: int = 0
    failures: int = 0  # of the model


def next_token(token_ids: Sequence[int]) -> int:
    """The model of a trial: what follows these tokens depends on all of them."""
    code = 0
    for token in token_ids:
        code = (code * 31 + token + 1) % 1_000_003
    return code % V


class Runner:
    """A model runner whose pool holds token ids, and whose next token follows from what is read there."""

    def __init__(self, setting: Setting, dice: random.Random) -> None:
        self.pool = SimpleNamespace(num_pages=setting.pages, page_size=setting.page_size)
        weight = np.zeros((V, 1))
        self.model = SimpleNamespace(embedding=SimpleNamespace(weight=weight), logits=lambda hidden: hidden)
        self.failing = setting.failing
        self._places = [POISON] * (setting.pages * setting.page_size)
        self._dice = dice

    def run(self, sequences: Sequence[Any], tables: Any, tokens: Sequence[int], q_lens: Sequence[int]) -> Any:
        """Write the tokens of all sequences, then read each sequence whole."""
        fails, rest = self._dice.random() < self.failing, iter(tokens)
        rows = tables.tolist()
        for sequence, row, count in zip(sequences, rows, q_lens, strict=True):
            held = len(sequence.pages)
            assert row[:held] == sequence.pages, f"the block table has {row} for {sequence.pages}"
            assert not any(row[held:]), f"behind {sequence.pages} the block table has {row[held:]}"
            for place in sequence.places(sequence.length, sequence.length + count):
                self._places[place] = POISON if fails else next(rest)
        if fails:
            raise ModelFailed
        logits = torch.zeros(len(sequences), V)
        for row, (sequence, count) in enumerate(zip(sequences, q_lens, strict=True)):
            read = [self._places[place] for place in sequence.places(0, sequence.length + count)]
            logits[row, next_token(read)] = 1
            sequence.advance(count)
        return logits


class Trial:
    """An engine, and what happens to it."""

    def __init__(self, number: int, counts: Counts) -> None:
        self.number = number
        self.counts = counts
        self._dice = random.Random(number)
        self.setting = Setting.draw(self._dice)
        self._runner = Runner(self.setting, self._dice)
        self._core = self._make_core()
        self._prompt_len: dict[Request, int] = {}  # of the requests that are in the engine

    def run(self) -> None:
        """Let everything happen.

        Raises:
            TrialFailed: something went wrong.
        """
        try:
            self._run()
        except Exception as error:
            raise TrialFailed(
                f"trial {self.number} failed: {type(error).__name__}: {error}\n  {self.setting}\n"
                f"  again, in the folder tests: python -m shared.random_steps --first {self.number} --steps 1"
            ) from error

    def _run(self) -> None:
        scheduler, before = self._core.scheduler, self.counts.steps
        for number in range(ENDLESS):
            if number == ARRIVALS:
                self._runner.failing = 0.0
            if number >= ARRIVALS and not self._core.requests:
                break
            if number < ARRIVALS and self._dice.random() < 0.4:
                self._arrive()
            self._step()
            self._check()
            if self._dice.random() < 0.03 and self._core.requests:
                self._abort()
                self._check()
        assert not self._core.requests, f"after {self.counts.steps - before} steps, requests are left"
        assert scheduler.cache.available == self.setting.pages - 1, "pages are lost"
        self.counts.reused += scheduler.reused
        self.counts.evicted += scheduler.cache.evicted

    def _make_core(self) -> ExtendBatch:
        from tiny_llm.scheduling.batch import ExtendBatch

        runner: Any = self._runner
        return ExtendBatch(runner, self._make_scheduler(), self.setting.separate)

    def _make_scheduler(self) -> Scheduler:
        from tiny_llm.paged.allocator import PageAllocator
        from tiny_llm.prefix.page_cache import BasePageCache
        from tiny_llm.prefix.trie_cache import TrieCache
        from tiny_llm.scheduling.preemption import PreemptiveScheduler
        from tiny_llm.scheduling.scheduler import Scheduler

        setting = self.setting
        kind = TrieCache if setting.shares else BasePageCache
        cache = kind(PageAllocator(setting.pages), setting.page_size)
        bounds = POSITIONS, setting.seats, setting.budget, setting.chunk
        if setting.preemptive:
            return PreemptiveScheduler(cache, *bounds, setting.patience)
        return Scheduler(cache, *bounds)

    def _arrive(self) -> None:
        """A request comes, if the engine takes it; some have a sampler that fails at some token."""
        from tiny_llm.request import Request

        dice = self._dice
        prompt = [dice.choice([0, 0, 0, 1]) for _ in range(dice.randint(1, 14))]
        max_tokens, priority, client = dice.randint(1, 10), dice.choice([0, 0, 1, 3]), dice.choice("abc")
        fails_at = len(prompt) + dice.randint(0, 9) if dice.random() < 0.05 else None

        def sample(logits: torch.Tensor, token_ids: Sequence[int]) -> int:
            if len(token_ids) == fails_at:
                raise SamplerFailed
            return int(logits.argmax())

        request = Request(prompt, max_tokens, (), sample, priority, client)
        if self._core.refusal(request) is None:
            self._core.push(request)
            self._prompt_len[request] = len(prompt)

    def _step(self) -> None:
        self.counts.steps += 1
        first = self._next_one()
        try:
            step = self._core.step()
        except ModelFailed:
            self.counts.failures += 1
            return
        assert step.issued or not self._core.requests, "a step brought no token, and there are requests"
        issued = [request for request, _ in step.issued]
        assert first is None or first in issued, "a request above all that run has not pushed in"
        assert not set(step.preempted) & set(issued), "a request is in the step that has preempted it"
        self.counts.preemptions += len(step.preempted)
        if not getattr(self._core.scheduler, "short", False):
            self.counts.pushed_in += len(step.preempted)
        for request in step.finished:
            self._check_tokens(request, self._prompt_len.pop(request))
            self.counts.requests += 1

    def _next_one(self) -> Request | None:
        """The request that must begin in the next step: the next that waits, if all that run have lower levels."""
        from tiny_llm.scheduling.preemption import PreemptiveScheduler

        scheduler = self._core.scheduler
        if not isinstance(scheduler, PreemptiveScheduler) or not scheduler.waiting:
            return None
        scheduler.got.clear()
        first = min(scheduler.waiting, key=scheduler.turn)
        return first.request if all(each.level < first.level for each in scheduler.running) else None

    def _check_tokens(self, request: Request, prompt_len: int) -> None:
        """The tokens are those that the request would get alone."""
        for at in range(prompt_len, len(request.token_ids)):
            wanted, got = next_token(request.token_ids[:at]), request.token_ids[at]
            assert wanted == got, f"token {at} of {request.token_ids} should be {wanted}"
        most = min(request.max_tokens, POSITIONS - prompt_len)
        if request.error is None:
            assert request.num_generated == most, f"{request.num_generated} tokens came, not {most}"
        else:
            assert request.error.startswith("SamplerFailed"), request.error

    def _check(self) -> None:
        """All books balance, between two steps."""
        scheduler = self._core.scheduler
        scheduler.cache.check([each.sequence for each in scheduler.running])
        assert len(scheduler.running) <= self.setting.seats, "more requests run than there are seats"
        assert not any(each.sequence.pages for each in scheduler.waiting), "a request that waits has pages"
        assert set(self._core.requests) == set(self._prompt_len), "a request is lost, or has come back"

    def _abort(self) -> None:
        request = self._dice.choice(self._core.requests)
        self._core.abort([request])
        del self._prompt_len[request]


def run_trials(first: int, stride: int, steps: int, counts: Counts) -> Iterator[int]:
    """Run the trials first, first + stride, … until they have made so many steps.

    Args:
        first: the number of the first one.
        stride: from one to the next.
        steps: how many steps at least.
        counts: filled while they run.

    Yields:
        after each trial, how many steps there were so far.

    Raises:
        TrialFailed: as :meth:`Trial.run` says.
    """
    number = first
    while counts.steps < steps:
        Trial(number, counts).run()
        yield counts.steps
        number += stride


def main() -> None:
    """Print a line for each thousand steps, and at the end what was counted; or what went wrong."""
    from coursekit.paths import Course
    from coursekit.running.import_path import Impl, choose_implementation

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="number of the first trial")
    parser.add_argument("--stride", type=int, default=1, help="from one trial to the next")
    parser.add_argument("--steps", type=int, default=20_000, help="how many steps at least")
    arguments = parser.parse_args()
    choose_implementation(Course.find(), Impl.SOLUTION)
    torch.set_num_threads(1)
    counts, printed = Counts(), 0
    try:
        for steps in run_trials(arguments.first, arguments.stride, arguments.steps, counts):
            for printed in range(printed + PER_LINE, steps + 1, PER_LINE):  # noqa: B020
                print(printed, flush=True)
    except TrialFailed as error:
        raise SystemExit(str(error)) from None
    print(counts)


if __name__ == "__main__":
    main()

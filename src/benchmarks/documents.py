"""A ladder of Week 4: questions about documents, some of which each question needs, in any order (4.5)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.arrivals import Visit
from benchmarks.ladder import MEAN_FIRST, Bar, Ladder, Quantity
from benchmarks.rounds import Case, Values
from benchmarks.sharing import COMPUTED
from benchmarks.week_2 import GetModel
from programs.document_cores import document_batch, document_pages
from programs.extend_cores import extend_batch
from programs.loaded import Timing

if TYPE_CHECKING:
    from tiny_llm.documents.prompt import Segments
    from tiny_llm.model import Transformer
    from tiny_llm.request import Request
    from tiny_llm.scheduling.batch import ExtendBatch

DOCUMENTS = 8
SHORTEST, LONGEST = 470, 530  # tokens of a document
SYSTEM = 60  # tokens of the system prompt
QUESTION = 20
QUESTIONS = 16
FEWEST, MOST = 3, 6  # documents that a question is about
BUDGET = 256
TOKENS = 8

KEPT = Quantity("kept", "pages kept", places=0)
KEPT_BYTES = Quantity("kept_bytes", "MB", factor=1e-6, places=0)

LADDERS = (
    Ladder(
        "documents",
        f"{QUESTIONS} questions, one after the other, about {FEWEST} to {MOST} of {DOCUMENTS} documents in any order",
        (COMPUTED, MEAN_FIRST, KEPT, KEPT_BYTES),
    ),
)

BARS = (
    Bar(
        "documents on pages: at least 5 times fewer prompt tokens computed than by sharing prefixes",
        "documents-prefixes",
        "documents-pages",
        COMPUTED,
        5.0,
    ),
)


@dataclass(frozen=True)
class Way:
    """A way to answer: how a prompt becomes a request, and the engine for them."""

    request: Callable[[Segments, int], Request]
    engine: Callable[[Transformer, int], ExtendBatch]


def cases(model: GetModel, text: Sequence[int]) -> Iterator[Case]:
    """The three ways, on the same questions.

    Args:
        model: called when a case runs.
        text: token ids to cut the documents from.
    """
    ways = (
        ("alone", "nothing shared", Way(_whole, partial(_sequences, share=False))),
        ("prefixes", "shared prefixes (4.2)", Way(_whole, partial(_sequences, share=True))),
        ("pages", "documents on pages (4.5)", Way(_joined, _documents)),
    )
    for name, label, way in ways:
        yield Case(f"documents-{name}", "documents", label, partial(_run, way, model, text), TOKENS)


def _whole(segments: Segments, tokens: int) -> Request:
    """The prompt as one causal sequence."""
    from tiny_llm.request import Request

    return Request(segments.token_ids, tokens)


def _joined(segments: Segments, tokens: int) -> Request:
    """The prompt as a question that joins documents."""
    from tiny_llm.documents.request import DocumentRequest

    return DocumentRequest(segments, tokens)


def _sequences(model: Transformer, num_pages: int, share: bool) -> ExtendBatch:
    return extend_batch(model, 1, num_pages, BUDGET, share=share)


def _documents(model: Transformer, num_pages: int) -> ExtendBatch:
    return document_batch(model, 1, num_pages, BUDGET)


def _run(way: Way, model: GetModel, text: Sequence[int], tokens: int) -> Values:
    """Answer the questions; a run to warm up, with few tokens, has few of them, too.

    Every engine has pages for all questions as one sequence each, so none has to evict.
    """
    from tiny_llm.documents.request import DocumentRequest

    the_model = model("float32")
    prompts = make_prompts(text, min(QUESTIONS, 2 * tokens))
    num_pages = sum(document_pages(the_model, DocumentRequest(each, tokens)) for each in prompts)
    core = way.engine(the_model, num_pages)
    visits = [Visit(way.request(each, tokens), 0.0, Timing()) for each in prompts]
    computed = sum(answer(core, visit) for visit in visits)
    output = sum(visit.request.num_generated for visit in visits)
    kept = num_pages - len(core.allocator.free_pages)
    pool = core.runner.pool
    return {
        "computed": computed - (output - len(visits)),  # the last token of an output is never computed
        "mean_first": sum(visit.timing.first_token for visit in visits) / len(visits),
        "kept": kept,
        "kept_bytes": kept * pool.nbytes / core.allocator.num_pages,
    }


def make_prompts(text: Sequence[int], count: int) -> list[Segments]:
    """The same prompts each time: each about some of the documents, in an order of its own."""
    from tiny_llm.documents.prompt import Segments

    dice = random.Random(0)
    endless = list(text) * (2 + LONGEST // len(text))

    def piece(length: int) -> tuple[int, ...]:
        start = dice.randrange(len(text))
        return tuple(endless[start : start + length])

    system = piece(SYSTEM)
    documents = [piece(dice.randint(SHORTEST, LONGEST)) for _ in range(DOCUMENTS)]
    return [
        Segments(system, tuple(dice.sample(documents, dice.randint(FEWEST, MOST))), piece(QUESTION))
        for _ in range(count)
    ]


def answer(core: ExtendBatch, visit: Visit) -> int:
    """Run the engine until a question is answered; the number of tokens that were computed."""
    visit.request.sample = visit.choose
    visit.timing.started = time.perf_counter()
    core.push(visit.request)
    computed = 0
    while core.requests:
        computed += sum(count for _, count in core.step().issued)
    return computed

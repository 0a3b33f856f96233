"""`pdm run ask-documents`: questions about files, which don't see one another and are computed once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from coursekit.errors import CourseError
from coursekit.running.import_path import Impl
from programs import options
from programs.cores import PAGE_SIZE, require_memory, warm_up
from programs.document_cores import document_batch, document_pages
from programs.document_files import Document, read_documents
from programs.implementation import WayAround
from programs.loaded import LoadedModel, Timing, running
from programs.source import Source, choose_source

if TYPE_CHECKING:
    from tiny_llm.documents.prompt import Segments
    from tiny_llm.documents.request import DocumentRequest

BUDGET = 256
WAYS_AROUND = {(4, 5): WayAround("--oracle", needs=(4, 4))}


class Strategy(StrEnum):
    SHARED = "shared"
    OFFSET = "offset"


def ask_documents(
    context: typer.Context,
    questions: Annotated[
        list[str], typer.Argument(help="One question or several; each is answered by itself.")
    ],
    document: Annotated[
        list[Path], typer.Option(help="A text or Markdown file, or a folder of them; may be repeated.")
    ],
    system: Annotated[
        str, typer.Option(help="What stands before the documents; left out, what the model's chat form has.")
    ] = "",
    raw: Annotated[
        bool, typer.Option("--raw", help="System text, documents and question as they stand, without a chat.")
    ] = False,
    strategy: Annotated[
        Strategy,
        typer.Option(
            help="Where the documents stand: shared (all begin where the system text ends) or offset (each in a "
            "range of --max-chunk-len positions)."
        ),
    ] = Strategy.SHARED,
    max_chunk_len: Annotated[
        int | None,
        typer.Option(
            min=1, max=options.MOST, help="How many tokens a document may have; left out, any number."
        ),
    ] = None,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="A longer document loses its end; otherwise it is refused.")
    ] = False,
    oracle: Annotated[
        bool,
        typer.Option("--oracle", help="Compute everything under a mask, for each question again (Day 4.4)."),
    ] = False,
    impl: options.ImplOption = Impl.LEARNER,
    model: options.ModelOption = "smollm2-135m",
    fast: options.FastOption = False,
    max_tokens: options.MaxTokensOption = 128,
) -> None:
    """Answer questions about documents: each answer as it comes, then what it took.

    Documents don't see one another: what is computed of one serves every question.

    What is computed and found of the system text counts for each document that continues it.
    """
    if max_chunk_len is None and (truncate or strategy is Strategy.OFFSET):
        raise CourseError("--strategy offset and --truncate need --max-chunk-len: how long a document may be")
    source = choose_source(context, Source(model), fast)
    documents = read_documents(document)
    with running(impl, WAYS_AROUND) as course:
        loaded = source.load(course, impl)
        prompts = [
            encode(loaded, documents, question, system, raw, max_chunk_len, truncate)
            for question in questions
        ]
        wanted = Wanted(max_tokens, str(strategy), max_chunk_len)
        engine = Oracle(loaded, wanted) if oracle else Pages(loaded, prompts, wanted, source.attention)
        for question, prompt in zip(questions, prompts, strict=True):
            if len(questions) > 1:
                print(f"{question}\n  ", end="")
            _answer(loaded, engine, prompt)


def encode(
    loaded: LoadedModel,
    documents: Sequence[Document],
    question: str,
    system: str,
    raw: bool,
    max_chunk_len: int | None = None,
    truncate: bool = False,
) -> Segments:
    """The segments of one question; an empty line ends each document.

    Raises:
        CourseError: a document is too long, or the question is empty.
    """
    from tiny_llm.documents.prompt import DocumentPrompt, encode_chat_prompt, encode_prompt

    if not question.strip():
        raise CourseError("the question is empty: there is nothing to answer")
    prompt = DocumentPrompt(system, tuple(f"{each.text}\n\n" for each in documents), question)
    try:
        return (encode_prompt if raw else encode_chat_prompt)(
            prompt, loaded.tokenizer, max_chunk_len, truncate
        )
    except ValueError as error:
        raise CourseError(_with_name(str(error), documents)) from None


def _with_name(message: str, documents: Sequence[Document]) -> str:
    """A message about a document that has its number, with the name of its file."""
    match = re.match(r"document (\d+) ", message)
    return f"{message} (it is {documents[int(match[1]) - 1].name}; see --truncate)" if match else message


@dataclass(frozen=True)
class Wanted:
    """What is wanted of the answers."""

    max_tokens: int
    strategy: str
    max_chunk_len: int | None


class Pages:
    """Day 4.5's engine: a document that a question before has needed is found."""

    def __init__(
        self, loaded: LoadedModel, prompts: Sequence[Segments], wanted: Wanted, attention: str = "auto"
    ) -> None:
        """Make an engine with pages for all the prompts, which refuses what it can't run.

        Raises:
            CourseError: the model has no room for one of them, or the machine has none for the pages.
        """

        self._wanted, self._end_ids = wanted, loaded.tokenizer.end_ids
        requests = [self._request(each) for each in prompts]
        for request in requests:
            if reason := request.refusal(loaded.model.config.max_positions):
                raise CourseError(reason)
        most = max(document_pages(loaded.model, each) for each in requests)
        own = sum(1 + (each.prompt_len + wanted.max_tokens) // PAGE_SIZE for each in requests)
        require_memory(loaded.model, most + own, advice="give fewer or shorter documents")
        self._core = document_batch(loaded.model, 1, most + own, BUDGET, attention)
        warm_up(attention, loaded.model)
        self.computed = 0  # tokens of the last prompt
        self.found = 0

    def generate(self, prompt: Segments) -> Iterator[int]:
        """The tokens of the answer, one by one."""
        request = self._request(prompt)
        before, issued = self._core.scheduler.reused, 0
        self._core.push(request)
        while self._core.requests:
            done = request.num_generated
            issued += sum(count for _, count in self._core.step().issued)
            self.computed = issued - max(0, request.num_generated - 1)
            self.found = self._core.scheduler.reused - before
            yield from request.output[done:]

    def _request(self, prompt: Segments) -> DocumentRequest:
        from tiny_llm.documents.request import DocumentRequest

        return DocumentRequest(
            prompt,
            self._wanted.max_tokens,
            self._end_ids,
            strategy=self._wanted.strategy,
            max_chunk_len=self._wanted.max_chunk_len,
        )


class Oracle:
    """Day 4.4's dense run, with the same methods as :class:`Pages`; nothing is ever found."""

    found = 0

    def __init__(self, loaded: LoadedModel, wanted: Wanted) -> None:
        """Remember how to run; arguments as for :class:`Pages`."""
        self._loaded, self._wanted = loaded, wanted
        self.computed = 0

    def generate(self, prompt: Segments) -> Iterator[int]:
        """The tokens of the answer, one by one.

        Raises:
            CourseError: the model has no room for the prompt.
        """
        from tiny_llm.documents.oracle import generate_documents

        self.computed = len(prompt.token_ids)
        ends = self._loaded.tokenizer.end_ids
        tokens = generate_documents(
            self._loaded.model,
            prompt,
            self._wanted.max_tokens,
            ends,
            strategy=self._wanted.strategy,
            max_chunk_len=self._wanted.max_chunk_len,
        )
        try:
            yield from tokens
        except ValueError as error:
            raise CourseError(str(error)) from None


def _answer(loaded: LoadedModel, engine: Pages | Oracle, prompt: Segments) -> None:
    """Write one answer to standard output, piece by piece; then what it took, also if it is broken off."""
    from tiny_llm.generate import StreamDecoder

    decoder, timing = StreamDecoder(loaded.tokenizer), Timing()
    try:
        for token in engine.generate(prompt):
            timing.stamp()
            if token not in loaded.tokenizer.end_ids:
                print(decoder.push(token), end="", flush=True)
        print(decoder.flush(), flush=True)
    finally:
        if timing.arrivals:
            Console(stderr=True, highlight=False).print(
                f"[dim]prompt of {len(prompt.token_ids)} tokens · {engine.computed} computed, {engine.found} found · "
                f"{len(timing.arrivals)} output tokens · first after {timing.first_token:.2f} s · "
                f"{timing.tokens_per_second:.1f} tokens/s[/dim]",
                soft_wrap=True,
            )

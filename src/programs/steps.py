"""`pdm run steps`: what each step of Day 4.2's engine computes, chunk by chunk, from a real run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from coursekit.errors import CourseError
from coursekit.running.import_path import Impl
from programs import options
from programs.cores import PAGE_SIZE, pages_needed, require_memory, warm_up
from programs.extend_cores import extend_batch
from programs.loaded import LoadedModel, load, running

if TYPE_CHECKING:
    from tiny_llm.request import Request
    from tiny_llm.scheduling.batch import ExtendBatch
    from tiny_llm.scheduling.standing import Chunk

MOST_REQUESTS = 64
MODEL = "smollm2-135m"


@dataclass(frozen=True)
class ChunkRow:
    """One chunk of a step."""

    request: int  # its number, from 1
    found: int  # tokens that the tree of pages had, right before the chunk
    start: int  # position of its first token
    q_len: int  # tokens that are computed
    pages: int  # that the request has after the step

    @property
    def kv_len(self) -> int:
        """Tokens of the request in the pool after the step."""
        return self.start + self.q_len


@dataclass(frozen=True)
class StepRow:
    """One step: its chunks, and how many tokens the model is run on in the packed and in the padded form."""

    chunks: list[ChunkRow]
    packed: int
    padded: int


def parse_lengths(text: str) -> list[int]:
    """The lengths of some prompts, with commas between them.

    Raises:
        typer.BadParameter: one is no number from 1 on, or there are too many.
    """
    parts = text.split(",")
    if not all(part.strip().isascii() and part.strip().isdigit() and int(part[:9]) > 0 for part in parts):
        raise typer.BadParameter(f"{text[:40]!r} is not a list of numbers of tokens, such as 250,300")
    if len(parts) > MOST_REQUESTS or any(len(part.strip()) > 8 for part in parts):
        raise typer.BadParameter(f"at most {MOST_REQUESTS} requests, of at most 8 digits each")
    return [int(part) for part in parts]


def steps(
    lengths: Annotated[
        str, typer.Option(help="How many tokens the prompts have, with commas between them.")
    ] = "250,300",
    page_size: Annotated[int, typer.Option(min=1, max=1024, help="Tokens per page.")] = PAGE_SIZE,
    chunk: Annotated[
        int, typer.Option(min=1, max=8192, help="How many tokens one request brings to a step at most.")
    ] = 128,
    budget: Annotated[
        int, typer.Option(min=1, max=8192, help="How many tokens all bring to a step at most.")
    ] = 256,
    common: Annotated[
        int, typer.Option(min=0, max=options.MOST, help="How many of their first tokens are the same.")
    ] = 0,
    max_tokens: options.MaxTokensOption = 1,
    impl: options.ImplOption = Impl.LEARNER,
) -> None:
    """Run prompts of given lengths, and show each step: chunks, pages, and what padding would cost."""
    prompt_lengths = parse_lengths(lengths)
    if common > min(prompt_lengths):
        raise typer.BadParameter(
            f"--common is {common}; the shortest of the prompts has {min(prompt_lengths)} tokens"
        )
    with running(impl):
        loaded = load(MODEL, "float32", "cpu")
        requests = make_requests(loaded, prompt_lengths, common, max_tokens)
        core = make_core(loaded, requests, page_size, chunk, budget)
        rows = run_steps(core, requests)
    console = Console(highlight=False)
    console.print(make_table(rows, any(each.found for row in rows for each in row.chunks)))
    console.print(summary(rows), soft_wrap=True)


def make_requests(loaded: LoadedModel, lengths: Sequence[int], common: int, max_tokens: int) -> list[Request]:
    """Requests with random prompts of these lengths, the first tokens of which are the same; no token ends them.

    Raises:
        CourseError: the model has no room for one of them.
    """
    from tiny_llm.request import Request

    tokens = range(loaded.model.config.vocab_size)
    first = random.Random("common").choices(tokens, k=common)
    requests = []
    for number, length in enumerate(lengths, start=1):
        own = random.Random(f"request {number}").choices(tokens, k=length - common)
        requests.append(Request([*first, *own], max_tokens))
    for request in requests:
        if reason := request.refusal(loaded.model.config.max_positions):
            raise CourseError(reason)
    return requests


def make_core(
    loaded: LoadedModel, requests: Sequence[Request], page_size: int, chunk: int, budget: int
) -> ExtendBatch:
    """Day 4.2's engine with a seat for each request, and pages for all that they may come to be.

    Raises:
        CourseError: the machine has no memory for so many pages.
    """
    num_pages = sum(pages_needed(loaded.model, requests, page_size))
    require_memory(loaded.model, num_pages, page_size)
    warm_up("auto", loaded.model)
    return extend_batch(loaded.model, len(requests), num_pages, budget, chunk_size=chunk, page_size=page_size)


def run_steps(core: ExtendBatch, requests: Sequence[Request]) -> list[StepRow]:
    """Push all requests at once, run the engine to its end, and note each plan right before the model runs on it."""
    from tiny_llm.engine_core import generate_all

    rows: list[StepRow] = []
    number_of = {request: number for number, request in enumerate(requests, start=1)}
    run = core.run

    def watched(plan: Sequence[Chunk]) -> object:
        rows.append(_note(plan, number_of, core.scheduler.cache.page_size))
        return run(plan)

    core.run = watched  # type: ignore[method-assign,assignment]
    generate_all(core, requests)
    return rows


def _note(plan: Sequence[Chunk], number_of: dict[Request, int], page_size: int) -> StepRow:
    from tiny_llm.scheduling.padded import PaddedArguments

    chunks = [
        ChunkRow(
            number_of[each.running.request],
            each.found,
            each.had + each.found,
            each.count,
            len(each.running.sequence.pages),
        )
        for each in plan
    ]
    packed = sum(each.q_len for each in chunks)
    return StepRow(chunks, packed, PaddedArguments.build(plan, page_size).computed)


def make_table(rows: Sequence[StepRow], found: bool) -> Table:
    """A line for each chunk, and one for the step.

    Args:
        rows: the steps.
        found: whether the tokens that were found get a column.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("step")
    table.add_column("")
    names = ["found", *COLUMNS] if found else COLUMNS
    for name in names:
        table.add_column(name, justify="right")
    for number, row in enumerate(rows):
        for place, each in enumerate(row.chunks):
            positions = f"{each.start}…{each.kv_len - 1}" if each.q_len > 1 else str(each.start)
            cells = [str(each.found)] if found else []
            cells += [positions, str(each.q_len), str(each.kv_len), str(each.pages)]
            if place == len(row.chunks) - 1:
                cells += [str(row.packed), str(row.padded), _percent(row.packed, row.padded)]
            table.add_row(str(number) if place == 0 else "", f"R{each.request}", *cells)
    return table


COLUMNS = ["positions", "q_len", "kv_len", "pages", "packed", "padded", "efficiency"]


def summary(rows: Sequence[StepRow]) -> str:
    """The sums over all steps."""
    packed, padded = sum(row.packed for row in rows), sum(row.padded for row in rows)
    found = sum(each.found for row in rows for each in row.chunks)
    reused = f" · {found:,} tokens found in the tree" if found else ""
    return (
        f"\n{len(rows)} {'step' if len(rows) == 1 else 'steps'} · {packed:,} tokens packed · {padded:,} padded · "
        f"efficiency {_percent(packed, padded)}{reused}"
    )


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}".replace("%", " %")

"""What `pdm run batch-main` prints at the end: the answers, and how fast they came."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from programs.answers import Answer, BatchWatch, measure
from programs.loaded import LoadedModel


def print_answers(console: Console, loaded: LoadedModel, answers: Sequence[Answer]) -> None:
    """Each prompt's headline and its answer, or why there is none; prompts without either are left out."""
    for answer in answers:
        if answer.output or answer.refused:
            console.print(Text(f"{answer.number}. {answer.headline}", "bold"), soft_wrap=True)
            console.print(_text(loaded, answer), "\n", soft_wrap=True, markup=False)


def _text(loaded: LoadedModel, answer: Answer) -> str:
    """What the model said; "…" says that it was cut off."""
    if answer.refused:
        return f"refused: {answer.refused}"
    ended = answer.output[-1] in loaded.tokenizer.end_ids
    return loaded.tokenizer.decode(answer.output).strip() + ("" if ended else " …")


def make_table(answers: Sequence[Answer], watch: BatchWatch) -> Table:
    """How fast the answers came, and what the engine counted meanwhile."""
    speed = measure([answer.timing for answer in answers])
    prompt_tokens = sum(len(answer.prompt_ids) for answer in answers if answer.output)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right", style="bold")
    table.add_column()
    table.add_row("requests", str(speed.requests))
    table.add_row("prompt tokens", f"{prompt_tokens:,}")
    table.add_row("output tokens", f"{speed.tokens:,}", f"in {speed.seconds:.1f} s")
    table.add_row("output tokens per second", f"{speed.tokens_per_second:.1f}")
    table.add_row("time to first token, mean", f"{speed.mean_first:.2f} s", "from the start of all")
    table.add_row("time to first token, worst", f"{speed.worst_first:.2f} s")
    table.add_row("worst gap between two tokens", f"{speed.worst_gap:.2f} s", "of one request")
    if watch.bytes_copied:
        gigabytes = f"{watch.bytes_copied / 1e9:.1f} GB"
        table.add_row("copied to rebuild the dense batch", gigabytes, f"in {watch.batches} decodes")
    if watch.pool is not None:
        pages = watch.pool.num_pages - 1
        table.add_row("runs of the model", str(watch.batches), "decodes and chunks together")
        table.add_row("pages with tokens, at most", f"{watch.most_pages}", f"of {pages}")
        table.add_row("the pool", f"{watch.pool.nbytes / 1e6:.0f} MB")
    if watch.sharing is not None:
        for name, count in watch.sharing.counts.items():
            table.add_row(name, f"{count:,}", MEANINGS[name])
    return table


MEANINGS = {
    "tokens reused": "found in pages",
    "pages evicted": "held by no request",
    "preemptions": "of requests that resumed",
}
"""What the numbers count, by the names that :class:`Sharing` gives them."""

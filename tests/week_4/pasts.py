"""What `Past` and `JoinMeta` should hold, token by token, and what the usual mistakes make of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from week_3.pages import pages_needed, place_of

from coursekit.check import CheckFailed, check, check_equal


def past_of(question: Any, page_size: int) -> dict[str, Any]:
    """What `Past` should hold, token by token. The order of pages and places makes no difference: they are sorted."""
    system: list[int] = []
    full, loose = list[int](), list[int]()
    for number, branch in enumerate(question.branches):
        pages, length = branch.sequence.pages, len(branch.request.token_ids)
        if number == 0:
            system = pages[: pages_needed(branch.fork, page_size)]
        for page_number, page in enumerate(pages[: pages_needed(length, page_size)]):
            held = range(page_number * page_size, (page_number + 1) * page_size)
            if held.start >= branch.fork and held.stop <= length:
                full.append(page)
                continue
            loose += [place_of(pages, p, page_size) for p in held if branch.fork <= p < length]
    fork = question.branches[0].fork if question.branches else 0
    return {"system": system, "system_len": fork, "pages": sorted(full), "loose": sorted(loose)}


def mistaken_pasts(question: Any, page_size: int) -> dict[str, dict[str, Any]]:
    """For each field of `Past`, what the usual mistakes give."""
    full: dict[str, list[int]] = {}
    loose: dict[str, list[int]] = {}
    systems = list[int]()

    def add(where: dict[str, list[int]], why: str, items: Iterable[int]) -> None:
        where.setdefault(why, []).extend(items)

    for branch in question.branches:
        sequence, length, fork = branch.sequence, len(branch.request.token_ids), branch.fork
        pages, first, last = sequence.pages, pages_needed(fork, page_size), length // page_size
        mine = range(max(first, last) * page_size, length)
        between = range(fork, min(first * page_size, length))
        places = [place_of(pages, p, page_size) for p in range(length)]
        systems += pages[:first]
        add(
            full, "a last page that is not full is among them", pages[first : pages_needed(length, page_size)]
        )
        add(
            full,
            "a page that the document shares with the system prompt is among them",
            pages[fork // page_size : last],
        )
        add(full, "the pages of the system prompt are among them", pages[: max(first, last)])
        add(
            loose,
            "those in the page that the system prompt's end shares are missing",
            [places[p] for p in mine],
        )
        add(loose, "those in last pages that are not full are missing", [places[p] for p in between])
        add(loose, "these are positions in a branch, not places in the pool", [*between, *mine])
        twice = [*between, *range(last * page_size, length)]
        add(
            loose,
            "tokens of the system prompt are among them, or a token is there twice: a branch may end in the page in "
            "which its system prompt ends",
            [places[p] for p in twice],
        )
        whole = range(fork, min(first * page_size, len(pages) * page_size))
        add(
            loose,
            "places behind the end of a document are among them",
            [place_of(pages, p, page_size) for p in [*whole, *mine]],
        )
    wanted = past_of(question, page_size)
    for where, field in ((full, "pages"), (loose, "loose")):
        once = "what two branches share is there once: a document that is given twice counts twice"
        add(where, once, set(wanted[field]))
    pages, start = list[int](), 0
    if question.branches:
        pages, start = list(question.branches[0].sequence.pages), question.branches[0].start
    return {
        "system": {
            "the system prompt's pages of every branch are there: it counts once": systems,
            "these are all pages of the first branch: its first `fork` tokens are the system prompt's": pages,
        },
        "system_len": {
            "this is the first branch's `start`, a position: the system prompt has `fork` tokens": start
        },
        "pages": {why: sorted(items) for why, items in full.items()},
        "loose": {why: sorted(items) for why, items in loose.items()},
    }


def check_numbers(found: Any, name: str) -> list[int]:
    """A list of ints."""
    __tracebackhide__ = True
    if found is None:
        raise CheckFailed(f"{name}: None found, a list expected")
    listed = list(found)
    wrong = [each for each in listed if not isinstance(each, int) or isinstance(each, bool)]
    if wrong:
        raise CheckFailed(f"{name}: whole numbers expected, {wrong[0]!r} found")
    return listed


def check_past(past: Any, question: Any, page_size: int, what: str) -> None:
    """Compare a `Past` with the tokens of the branches, field by field."""
    __tracebackhide__ = True
    if past is None:
        raise CheckFailed(f"the past of {what}: None found, a Past expected; is a `return` missing?")
    wanted, wrong = past_of(question, page_size), mistaken_pasts(question, page_size)
    names = {
        "system": "the pages of the system prompt",
        "system_len": "how many tokens the system prompt has",
        "pages": "the pages full of tokens of one document, sorted",
        "loose": "the places of the other tokens of documents, sorted",
    }
    for field, name in names.items():
        found, name = getattr(past, field), f"{name}, for {what}"
        if field != "system_len":
            found = check_numbers(found, name)
        if field in ("pages", "loose"):
            found = sorted(found)
        check_equal(found, wanted[field], name=name, suspects=wrong[field])


def past_in(lab: Any, join: Any, page_size: int, what: str) -> Any:
    """`Past.of`, where a question without branches is told as such."""
    __tracebackhide__ = True
    try:
        return lab.documents.past.Past.of(join.question, page_size)
    except IndexError as error:
        if join.question.branches:
            raise
        raise CheckFailed(
            f"the past of {what}: this question has no branches, so its past is empty; IndexError raised: {error}"
        ) from error


PARTS = {
    "system": "the system prompts",
    "pages": "the full pages of documents",
    "loose": "the loose tokens of documents",
}


def tokens_of(wanted: dict[str, Any], part: str, page_size: int) -> tuple[list[int], int]:
    """The pages of one part of a question's past, and how many tokens are in them."""
    if part == "system":
        return wanted["system"], wanted["system_len"]
    return wanted[part], len(wanted[part]) * (page_size if part == "pages" else 1)


def check_meta(lab: Any, join: Any, chunks: Sequence[Any], meta: Any, page_size: int, what: str) -> None:
    """Compare a `JoinMeta` with the questions of a step."""
    __tracebackhide__ = True
    if join is None:
        raise CheckFailed(f"the metadata of {what}: None found, and there are questions in the step")
    spans = [range(meta.starts[b], meta.starts[b + 1]) for b in range(len(chunks))]
    asking = [b for b, chunk in enumerate(chunks) if hasattr(chunk.running, "branches")]
    rows = [row for b in asking for row in spans[b]]
    counted = [row for b in asking for row in range(len(spans[b]))]
    check(
        join.rows,
        np.array(rows),
        name=f"which tokens of {what} are those of questions (`rows`)",
        axes="Q",
        dtype="int64",
        suspects={
            "these are the numbers of chunks, not of tokens": np.array(asking),
            "these are all tokens of the step": np.arange(meta.starts[-1]),
            "each question's tokens are counted from 0": np.array(counted),
            "the questions that decode are left out": np.array(
                [row for b in asking for row in spans[b] if not chunks[b].decode], dtype=int
            ),
            "only the last token of each question is there": np.array([spans[b][-1] for b in asking]),
        },
    )
    starts = [0]
    for b in asking:
        starts.append(starts[-1] + len(spans[b]))
    of_step = {"these are the starts in the whole step": [meta.starts[b] for b in [*asking, asking[-1] + 1]]}
    pasts = [past_of(chunks[b].running, page_size) for b in asking]
    for part, name in PARTS.items():
        found = getattr(join, part)
        check_equal(list(found.starts), starts, name=f"the `starts` of {name}, for {what}", suspects=of_step)
        wanted = [tokens_of(past, part, page_size) for past in pasts]
        lengths = [count for _, count in wanted]
        by_page = {"these are numbers of pages, not of tokens": [len(pages) for pages, _ in wanted]}
        no_row = {
            "a question for which this part is empty has no row: each question needs one": [
                count for _, count in wanted if count
            ]
        }
        by_p = {"a page of this part holds one token": [len(pages) * page_size for pages, _ in wanted]}
        check_equal(
            list(found.kv_lens),
            lengths,
            name=f"how many tokens are in {name}, for each question of {what}",
            suspects=(by_p if part == "loose" else by_page) | no_row,
        )
        check_tensors(lab, found, rows, meta, f"{name}, for {what}")
        table = lab.numpy(found.block_table).tolist()
        check_equal(len(table), len(asking), name=f"the rows of the block table of {name}, for {what}")
        for row, (pages, _) in zip(table, wanted, strict=True):
            listed = row[: len(pages)] if part == "system" else sorted(row[: len(pages)])
            check_equal(listed, pages, name=f"the pages of {name} of one question, for {what}")


def check_tensors(lab: Any, found: Any, rows: Sequence[int], meta: Any, what: str) -> None:
    """What a part says twice agrees, and the tokens are those of the questions."""
    __tracebackhide__ = True
    pick = lambda x: lab.numpy(x)[list(rows)]  # noqa: E731
    expected = {
        "cu_seqlens_q": (np.array(found.starts), "int32"),
        "seq_lens_kv": (np.array(found.kv_lens), "int32"),
        "last_rows": (np.array(found.starts[1:]) - 1, "int64"),
        "positions": (pick(meta.positions), "int64"),
        "slot_mapping": (pick(meta.slot_mapping), "int64"),
    }
    for field, (numbers, dtype) in expected.items():
        check(getattr(found, field), numbers, name=f"`{field}` of {what}", dtype=dtype)

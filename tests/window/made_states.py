"""States as the window's server sends them, made without an engine: for the tests of the page, at any size."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

State = dict[str, Any]
WORDS = ["the", "page", "holds", "keys", "and", "values", "of", "sixteen", "tokens"]


@dataclass
class Made:
    """A request of the made engine."""

    number: int
    prompt: int
    answer: int
    label: str
    common: int = 0  # of its prompt: tokens that it shares with the others
    computed: int = 0
    output: int = 0
    state: str = "waiting"
    pages: list[int] = field(default_factory=list)
    chunks: list[list[int]] = field(default_factory=list)
    preemptions: int = 0
    waited: float = 0.0
    text: str = ""


class MadeEngine:
    """Plans steps in the simplest way: decodes first, then prompts; the newest request gives up its pages."""

    def __init__(self, seats: int = 16, pages: int = 256, page_size: int = 16, budget: int = 256) -> None:
        self.seats, self.count, self.size, self.budget = seats, pages, page_size, budget
        self.free = list(range(1, pages + 1))
        self.cached: list[int] = []
        self.common: list[int] = []
        self.requests: list[Made] = []
        self.batch: list[State] = []
        self.rate = [0] * 60
        self.tree: list[State] = []
        self.step_number = self.preempted = self.reused = self.evicted = 0

    def add(self, prompt: int, answer: int, label: str = "", common: int = 0) -> None:
        """A new request."""
        number = len(self.requests) + 1
        self.requests.append(Made(number, prompt, answer, label or f"Question {number}", common))

    def _page(self) -> int | None:
        if self.free:
            return self.free.pop(0)
        if self.cached:
            self.evicted += 1
            page = self.cached.pop(0)
            self.tree = [node for node in self.tree if node["page"] != page]
            return page
        return None

    def _in(self, *states: str) -> list[Made]:
        return [each for each in self.requests if each.state in states]

    def _room(self, request: Made, tokens: int) -> bool:
        while len(request.pages) * self.size < tokens:
            page = self._page()
            if page is None:
                return False
            request.pages.append(page)
        return True

    def _preempt(self, request: Made) -> None:
        self._give_back(request)
        request.state, request.computed = "preempted", 0
        request.preemptions += 1
        self.preempted += 1

    def _give_back(self, request: Made) -> None:
        for page in request.pages:
            if any(page in other.pages for other in self.requests if other is not request):
                continue
            (self.cached if any(node["page"] == page for node in self.tree) else self.free).append(page)
        request.pages = []

    def step(self) -> None:
        """One step."""
        self.step_number += 1
        self.batch = []
        left = self.budget
        for request in self._in("running"):
            if request.state == "running" and left:
                left -= self._extend(request, left)
        for request in self._in("preempted", "waiting"):
            if not left or len(self._in("running")) >= self.seats or not (self.free or self.cached):
                break
            request.state = "running"
            request.waited = 0.03 * self.step_number
            left -= self._extend(request, left)
        decodes = sum(part["decode"] for part in self.batch)
        self.rate = [*self.rate[1:], decodes * 3]

    def _extend(self, request: Made, left: int) -> int:
        found = 0
        if request.common and not request.pages and self.common:
            request.pages = list(self.common)
            self.cached = [page for page in self.cached if page not in self.common]
            found = request.computed = len(self.common) * self.size
            self.reused += found
        due = request.prompt + request.output - request.computed
        tokens = min(due, left)
        while not self._room(request, request.computed + tokens):
            victim = self._in("running")[-1]
            self._preempt(victim)
            if victim is request:
                return 0
        decode = tokens == 1 and request.computed >= request.prompt
        part = {"request": request.number, "tokens": tokens, "start": request.computed, "found": found}
        self.batch.append({**part, "decode": decode})
        request.chunks = [*request.chunks, [self.step_number, request.computed, tokens, found]][-64:]
        request.computed += tokens
        self._publish(request)
        if request.computed == request.prompt + request.output:
            request.output += 1
            request.text = " ".join((WORDS * 40)[: request.output])[-400:]
        if request.output >= request.answer:
            self._end(request)
        return tokens

    def _publish(self, request: Made) -> None:
        there = {node["page"]: node for node in self.tree}
        parent = 0
        for place, page in enumerate(request.pages[: min(request.computed, request.prompt) // self.size]):
            if page not in there:
                text = (
                    f"{request.label} " * 2 if place * self.size >= request.common else "You are a helper. "
                )
                self.tree.append(
                    {"page": page, "parent": parent, "tokens": self.size, "text": text, "held": 0}
                )
            parent = page
        if request.common and not self.common and request.computed >= request.common:
            self.common = request.pages[: request.common // self.size]

    def _end(self, request: Made) -> None:
        request.state = "finished"
        self._give_back(request)

    def state(self, mode: str = "play") -> State:
        """The snapshot after the newest step."""
        going = [each for each in self.requests if each.state != "finished"]
        shown = [*self._in("finished")[-32:], *going]
        owners = [page for each in going for page in each.pages]
        names = ("waiting", "running", "finished", "cancelled", "failed")
        counts = {name: len(self._in(name)) for name in names}
        counts |= {"preempted": self.preempted, "evicted": self.evicted, "reused": self.reused}
        tree = [{**node, "held": owners.count(node["page"])} for node in self.tree][:400]
        shared = sorted({page for page in owners if owners.count(page) > 1})
        return {
            "step": self.step_number,
            "mode": mode,
            "time": self.step_number * 0.05,
            "budget": self.budget,
            "batch": list(self.batch),
            "requests": [_request(each) for each in shown],
            "pages": {"free": len(self.free), "cached": list(self.cached), "shared": shared},
            "tree": tree,
            "counts": counts,
            "rate": list(self.rate),
        }


def _request(request: Made) -> State:
    fields = ("label", "state", "prompt", "computed", "output", "preemptions", "waited", "text")
    found = {name: getattr(request, name) for name in fields}
    found["computed"] = min(request.computed, request.prompt)
    lists = {"pages": list(request.pages), "chunks": [list(each) for each in request.chunks]}
    return {"request": request.number, "priority": 0, "client": "", **found, **lists}


def crowd(steps: int = 30, requests: int = 16, **sizes: int) -> MadeEngine:
    """Many prompts at once, after some steps."""
    engine = MadeEngine(**sizes)
    questions = (
        "Name three fruits.",
        "What is the capital of France?",
        "Write a poem about the sea.",
        "Count to ten.",
    )
    for number in range(requests):
        engine.add(24 + 37 * (number % 5), 20 + 9 * (number % 7), questions[number % 4])
    return run(engine, steps)


def prefix(steps: int = 12) -> MadeEngine:
    """Requests that share the first 96 tokens of their prompts."""
    engine = MadeEngine()
    for number in range(10):
        engine.add(130 + 16 * number, 30, f"Question {number + 1} about the same text", common=96)
    return run(engine, steps)


def too_few_pages(steps: int = 40) -> MadeEngine:
    """Long answers on few pages: requests are preempted."""
    engine = MadeEngine(seats=8, pages=48, budget=128)
    for number in range(8):
        engine.add(90 + 20 * number, 120, f"Tell me a long story, number {number + 1}.")
    return run(engine, steps)


def run(engine: MadeEngine, steps: int) -> MadeEngine:
    """So many steps further."""
    for _ in range(steps):
        engine.step()
    return engine

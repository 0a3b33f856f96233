"""The stages whose engines the window can show, and whether they work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coursekit.errors import CourseError
from programs.cores import ragged_batch_for
from programs.document_cores import document_batch_for
from programs.extend_cores import extend_batch_for, preempt_batch_for
from programs.loaded import LoadedModel

if TYPE_CHECKING:
    from tiny_llm.engine_core import EngineCore
    from tiny_llm.model import Transformer
    from tiny_llm.request import Request

Make = Callable[["Transformer", "Sequence[Request]", int, int, str], "EngineCore"]
"""Makes an engine core with pages for some requests; then come seats, token budget and the way to attend."""

TRIAL_PROMPTS = ([1, 2, 3], [1, 2, 3, 4, 5, 6, 7])
TRIAL_TOKENS = 3


@dataclass(frozen=True)
class WatchedStage:
    """A stage of the course whose engine runs in ragged batches."""

    number: str
    name: str  # what --stage knows it by
    make: Make
    asked_for: bool = False  # whether it is shown only where it is asked for by name
    days: tuple[
        tuple[int, int], ...
    ] = ()  # days of which no stub may be left, since it would be met on a thread

    @property
    def title(self) -> str:
        """What the page calls it."""
        return f"{self.number} {self.name}"


SERVED = WatchedStage("S10", "served", document_batch_for, days=((3, 7), (4, 6)))
"""Behind an LLM, with a chat beside it."""

STAGES = (
    SERVED,
    WatchedStage("S9", "documents", document_batch_for, asked_for=True),
    WatchedStage("S8", "preempt", preempt_batch_for, asked_for=True),
    WatchedStage("S7", "extend", extend_batch_for),
    WatchedStage("S6", "ragged", ragged_batch_for),
)
"""The best first."""


def find_stages(name: str | None) -> list[WatchedStage]:
    """The stage of that name; or all that may be tried, the best first.

    Raises:
        CourseError: there is no such stage; the message lists those that there are.
    """
    found = [stage for stage in STAGES if name == stage.name or (name is None and not stage.asked_for)]
    if not found:
        names = ", ".join(stage.name for stage in STAGES)
        raise CourseError(f"there is no stage {name!r} in the window; there are: {names}")
    return found


def try_out(stage: WatchedStage, loaded: LoadedModel, attention: str) -> None:
    """Bring two small requests to their ends in an engine of a stage.

    Raises:
        NotImplementedError: a stub was reached.
        CourseError: the engine doesn't work; the message says how it has failed.
    """
    from tiny_llm.engine_core import generate_all
    from tiny_llm.request import Request

    requests = [Request(prompt, TRIAL_TOKENS) for prompt in TRIAL_PROMPTS]
    try:
        outputs = generate_all(stage.make(loaded.model, requests, 2, 8, attention), requests)
    except NotImplementedError:
        raise
    except Exception as error:
        raise CourseError(f"{stage.title} fails with {type(error).__name__}: {error}") from error
    if not all(len(output) == TRIAL_TOKENS for output in outputs):
        raise CourseError(
            f"{stage.title} gave {[len(each) for each in outputs]} tokens; it was asked for "
            f"{TRIAL_TOKENS} for each request"
        )

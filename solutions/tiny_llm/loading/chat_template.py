"""A conversation written out as one text, the way the model's own template says.

Templates are small Jinja programs that come with the model. They run in a process of their own (`apart.py`), where
`template_program.py` renders them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tiny_llm.loading.apart import Apart, Overrun
from tiny_llm.loading.errors import WeightsError
from tiny_llm.loading.fields import is_text


class ChatTemplate:
    """The chat template of one model."""

    def __init__(self, source: str) -> None:
        """Nothing is done with the Jinja source before the first conversation."""
        self._source = source
        self._program = Apart("tiny_llm.loading.template_program")

    def render(self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]) -> str:
        """The text of the conversation, ending where the model's answer begins.

        Args:
            messages: each with a "role" ("system", "user", "assistant") and a "content".
            variables: further variables that the template may read, such as `bos_token`.

        Raises:
            WeightsError: the template is broken, refuses these messages, or takes far too long or too much memory.
        """
        question = {"template": self._source, "messages": list(messages), "variables": dict(variables)}
        try:
            answer = self._program.ask(question)
        except Overrun as error:
            raise _refused(str(error)) from error
        if "problem" in answer:
            raise _refused(answer["problem"])
        if not is_text(answer["text"]):
            raise _refused("half a character would be among them")
        return answer["text"]


def _refused(problem: str) -> WeightsError:
    return WeightsError(
        f"the model's chat template can't write these messages ({problem}): check them, or use a raw prompt (--raw)"
    )

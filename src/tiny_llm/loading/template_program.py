"""The program that renders chat templates: `apart.py` runs it in a process of its own.

Templates run in Jinja's sandbox. Besides Jinja itself they may use `raise_exception`, `strftime_now`, `tojson`
without HTML escapes, `break` and `continue`, as Hugging Face's chat templates do; see "Chat templates" in the
transformers documentation.
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tiny_llm.loading.apart import answer_questions

_MOST_ADDED = 2**20  # characters that a template may add to what the messages say


def answer(question: dict[str, Any]) -> dict[str, str]:
    """The text for a template, messages and variables, or the problem with them."""
    try:
        template = _template(question["template"])
        pieces = template.generate(
            messages=question["messages"],
            tools=None,
            documents=None,
            add_generation_prompt=True,
            **question["variables"],
        )
        most = _MOST_ADDED + 16 * len(json.dumps(question))
        text = ""
        for piece in pieces:
            text += piece
            if len(text) > most:
                raise TemplateError(f"it writes more than {most:,} characters")
        return {"text": text}
    except Exception as error:  # whatever a program from elsewhere raises
        return {"problem": str(error) or type(error).__name__}


@lru_cache(maxsize=1)
def _template(source: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _now
    return environment.from_string(source)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(layout: str) -> str:
    return datetime.now().strftime(layout)


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


if __name__ == "__main__":
    answer_questions(answer)

"""A conversation written out as one text, the way the model's own template says.

Templates are small Jinja programs that come with the model, so they run in Jinja's sandbox. Besides Jinja itself they
may use `raise_exception`, `strftime_now`, `tojson` without HTML escapes, `break` and `continue`, as Hugging Face's
chat templates do; see "Chat templates" in the transformers documentation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tiny_llm.loading.errors import WeightsError


def render(template: str, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]) -> str:
    """The text of the conversation, ending where the model's answer begins.

    Args:
        template: Jinja source.
        messages: each with a "role" ("system", "user", "assistant") and a "content".
        variables: further variables that the template may read, such as `bos_token`.

    Raises:
        WeightsError: the template is broken, or refuses these messages.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _now
    try:
        return environment.from_string(template).render(
            messages=list(messages), tools=None, documents=None, add_generation_prompt=True, **variables
        )
    except (TemplateError, TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        raise WeightsError(
            f"the model's chat template can't write these messages ({error}): check them, or use a raw prompt (--raw)"
        ) from error


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(layout: str) -> str:
    return datetime.now().strftime(layout)


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)

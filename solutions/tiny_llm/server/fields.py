"""Kinds of fields that a body may have (Day 4.6, given code)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, core_schema

from tiny_llm.engine.params import LONGEST_STOP, MOST_STOPS

MOST_IDS = 256
MOST_DOCUMENTS = 256


@dataclass(frozen=True)
class Only:
    """Marks a parameter of OpenAI's API that isn't served: it may have the value that asks for nothing, or be null.

    Any other value is refused. So no client believes that something works which doesn't.
    """

    neutral: tuple[Any, ...] = ()

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check with :meth:`check`."""
        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """The values that are accepted."""
        return {"enum": [None, *self.neutral]}

    def check(self, value: Any) -> Any:
        """Refuse a value that isn't neutral. True isn't 1 here, nor False 0."""
        for each in (None, *self.neutral):
            if type(value) is type(each) and value == each:
                return value
        values = " or ".join(json.dumps(each) for each in (*self.neutral, None))
        raise ValueError(f"this isn't supported here: leave it out, or give {values}")


def _is_list_of(kind: type, value: Any) -> bool:
    """Whether this is a list with something in it, all of this very type: a bool is no int."""
    return type(value) is list and bool(value) and all(type(each) is kind for each in value)


def read_prompts(value: Any) -> list[str] | list[list[int]]:
    """A prompt or several, each as text or as token ids, as a list of prompts."""
    if type(value) is str:
        return [value]
    if _is_list_of(int, value):
        return [value]
    if _is_list_of(str, value) or (type(value) is list and value and all(_is_list_of(int, e) for e in value)):
        return value
    raise ValueError("it must be a string, a list of strings, a list of token ids, or a list of such lists")


def read_stop(value: Any) -> list[str]:
    """A stop string or several, or none, as a list."""
    if value is None or value == []:
        return []
    stops = [value] if type(value) is str else value
    if not _is_list_of(str, stops):
        raise ValueError("it must be a string, or a list of strings")
    if len(stops) > MOST_STOPS:
        raise ValueError(f"these are {len(stops)} strings; at most {MOST_STOPS} are allowed")
    if not all(0 < len(each) <= LONGEST_STOP for each in stops):
        raise ValueError(f"each string must have from 1 to {LONGEST_STOP} characters")
    return stops


def read_content(value: Any) -> str:
    """The text of a message: a string, or text parts, which are joined."""
    if type(value) is str:
        return value
    if type(value) is not list:
        raise ValueError("it must be a string, or a list of text parts")
    return "".join(_read_part(number, part) for number, part in enumerate(value))


def _read_part(number: int, part: Any) -> str:
    if type(part) is not dict or type(part.get("type")) is not str:
        raise ValueError(f'part {number} must be an object with a "type"')
    if part["type"] != "text":
        raise ValueError(f"part {number} is of type {part['type'][:40]!r}; only text can be read here")
    if set(part) != {"type", "text"} or type(part["text"]) is not str:
        raise ValueError(f'part {number} must have "type" and "text", a string, and nothing else')
    return part["text"]


def read_ids(value: Any) -> list[int]:
    """Some token ids, or none."""
    if value in (None, []):
        return []
    if not _is_list_of(int, value) or not all(0 <= each < 2**31 for each in value) or len(value) > MOST_IDS:
        raise ValueError(f"it must be a list of token ids, {MOST_IDS} at most")
    return value


def read_texts(value: Any) -> list[str]:
    """Some texts, or none."""
    if value in (None, []):
        return []
    if not _is_list_of(str, value) or len(value) > MOST_DOCUMENTS:
        raise ValueError(f"it must be a list of strings, {MOST_DOCUMENTS} at most")
    return value


def printable(value: str) -> str:
    """A name that can be printed."""
    if not value.isprintable():
        raise ValueError("it must have printable characters only")
    return value


def _array(kind: dict[str, Any], least: int = 0, most: int | None = None) -> dict[str, Any]:
    return {"type": "array", "items": kind, "minItems": least} | ({} if most is None else {"maxItems": most})


def _any_of(*forms: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": list(forms)})


TEXT = {"type": "string"}
ID = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
NULL = {"type": "null"}
STOP = {"type": "string", "minLength": 1, "maxLength": LONGEST_STOP}
PART = {
    "type": "object",
    "properties": {"type": {"const": "text"}, "text": TEXT},
    "required": ["type", "text"],
    "additionalProperties": False,
}

Prompts = Annotated[
    list[str] | list[list[int]],
    PlainValidator(read_prompts),
    _any_of(TEXT, _array(TEXT, 1), _array(ID, 1), _array(_array(ID, 1), 1)),
]
Stop = Annotated[list[str], PlainValidator(read_stop), _any_of(STOP, _array(STOP, 0, MOST_STOPS), NULL)]
Content = Annotated[str, PlainValidator(read_content), _any_of(TEXT, _array(PART))]
Ids = Annotated[list[int], PlainValidator(read_ids), _any_of(_array(ID, 0, MOST_IDS), NULL)]
Texts = Annotated[list[str], PlainValidator(read_texts), _any_of(_array(TEXT, 0, MOST_DOCUMENTS), NULL)]
Name = Annotated[str, AfterValidator(printable)]

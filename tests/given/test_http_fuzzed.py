"""What the description of the API promises, fuzzed: no answer is a 500, and each is what the description says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from http_site import NAME, Site
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode

NAMES = (
    "GET /v1/models",
    "GET /v1/models/{name}",
    "POST /v1/completions",
    "POST /v1/chat/completions",
    "GET /health",
    "GET /ready",
    "GET /metrics",
)
RIGHT, WRONG = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
SOME = settings(
    max_examples=150,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as started:
        yield started


def operations(site: Site) -> dict[str, Any]:
    """What can be called, by name, as the description says. The model's name is filled in: else all were a 404."""
    description = site.app.openapi()
    for kind in ("CompletionBody", "ChatBody"):
        fields = description["components"]["schemas"][kind]["properties"]
        fields["model"] = {"const": NAME}
        fields["max_tokens"]["anyOf"][0]["maximum"] = 20
    schema = schemathesis.openapi.from_dict(description)
    found = [each.ok() for each in schema.get_all_operations() if isinstance(each, Ok)]
    return {each.label: each for each in found}


@pytest.mark.parametrize(
    ("name", "mode"),
    [*((name, RIGHT) for name in NAMES), *((name, WRONG) for name in NAMES if name.startswith("POST"))],
)
def test_no_request_that_is_made_up_from_the_description_is_a_500(site: Site, name: str, mode: Any) -> None:
    operation, statuses = operations(site)[name], Counter[int]()

    @SOME
    @given(case=operation.as_strategy(generation_mode=mode))
    def call(case: Any) -> None:
        answer = case.call(base_url=site.url)
        case.validate_response(answer, checks=[not_a_server_error])
        statuses[answer.status_code] += 1
        if answer.status_code != 200:
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}

    call()
    assert statuses.keys() <= {200, 400, 404, 405, 415}, statuses
    assert statuses[200 if mode is RIGHT and "{" not in name else 400 if mode is WRONG else 404], statuses


def test_the_description_has_no_other_addresses(site: Site) -> None:
    assert sorted(operations(site)) == sorted(NAMES)

"""What the description of the API promises, fuzzed: no answer is a 500, and each is what the description says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from http_site import NAME, Site
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error

SOME = settings(
    max_examples=60,
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


@pytest.fixture(scope="module")
def described(site: Site) -> Any:
    """The API as its description says; the model's name is filled in, or everything would be a 404."""
    schema = site.app.openapi()
    for kind in ("CompletionBody", "ChatBody"):
        schema["components"]["schemas"][kind]["properties"]["model"] = {"const": NAME}
        schema["components"]["schemas"][kind]["properties"]["max_tokens"]["anyOf"][0]["maximum"] = 20
    return schemathesis.openapi.from_dict(schema)


schema = schemathesis.pytest.from_fixture("described")


@schema.parametrize()
@SOME
def test_no_request_that_is_made_up_from_the_description_is_a_500(case: Any, site: Site) -> None:
    answer = case.call(base_url=site.url)
    case.validate_response(answer, checks=[not_a_server_error])
    assert answer.status_code in (200, 400, 404, 405, 413, 415), answer.text
    if answer.status_code != 200:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}

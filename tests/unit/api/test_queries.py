"""Query parameters: the ones a route reads, each once unless it is a list."""

from __future__ import annotations

from typing import Annotated

import pytest
from fastapi import Depends, Query
from fastapi.dependencies.utils import get_dependant
from starlette.datastructures import QueryParams

from runner.api.v1 import queries
from runner.errors import InvalidRequest


def inner(format: str = "") -> str:
    return format


def endpoint(
    after: str | None = None,
    label: Annotated[list[str] | None, Query()] = None,
    given: str = Depends(inner),
    renamed: Annotated[int, Query(alias="from")] = 0,
) -> None:
    """A route with every kind of parameter."""


QUERY = queries.Query.of(get_dependant(path="/", call=endpoint))


def test_names_of_dependencies_and_aliases_count() -> None:
    assert set(QUERY.names) == {"after", "label", "from", "format"}
    assert QUERY.lists == {"label"}


@pytest.mark.parametrize("text", ["", "after=", "after=1&format=x&from=2", "label=a&label=b&after=x"])
def test_good(text: str) -> None:
    QUERY.check(QueryParams(text))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("x=1", "'x'"),
        ("after=1&Label=2", "'Label'"),
        ("renamed=1", "'renamed'"),
        ("after=1&after=1", "after is given 2 times"),
        ("a%00%F0%9F%98%80=1", r"'a\x00\U0001f600'"),
        ("=1", "''"),
        ("y" * 5000, "yyy"),
    ],
)
def test_bad(text: str, named: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        QUERY.check(QueryParams(text))
    assert named in raised.value.detail
    assert len(raised.value.detail) < 300

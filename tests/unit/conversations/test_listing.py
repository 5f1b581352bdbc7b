"""Pages of conversations: complete, in order, filtered by label, and bounded in what one call looks at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from runner.conversations import listing
from runner.workspace.workspaces import Workspaces


class Many:
    """Conversations with labels, and how many were looked at."""

    def __init__(self, labels: Mapping[str, dict[str, str]]) -> None:
        self.labels, self.looked = labels, 0

    async def list(self, _: str, after: str | None, limit: int) -> list[str]:
        return [name for name in sorted(self.labels) if after is None or name > after][:limit]

    async def settings_of(self, _: str, identifier: str) -> dict[str, Any]:
        self.looked += 1
        return {"labels": self.labels[identifier]}


async def pages(many: Many, limit: int, labels: Mapping[str, str] | None = None) -> list[str]:
    found: list[str] = []
    after = None
    while True:
        page = await listing.page(cast(Workspaces, many), "t", after, limit, labels)
        found += [item.id for item in page.items]
        assert len(page.items) <= limit
        after = page.next
        if after is None:
            return found


@pytest.mark.parametrize("limit", [1, 3, 7, 100, 1000])
async def test_all_are_listed_once_and_in_order(limit: int) -> None:
    many = Many({f"c{number:03d}": {"n": str(number)} for number in range(10)})
    found = await pages(many, limit)
    assert found == sorted(many.labels)
    assert many.looked == 10


async def test_items_carry_their_labels() -> None:
    page = await listing.page(cast(Workspaces, Many({"a": {"x": "1"}})), "t", None, 5)
    assert page == listing.Page([listing.Item("a", {"x": "1"})], None)


async def test_every_label_must_hold() -> None:
    many = Many({"a": {"x": "1", "y": "1"}, "b": {"x": "1"}, "c": {"y": "1"}, "d": {"x": "1", "y": "1", "z": ""}})
    assert await pages(many, 10, {"x": "1", "y": "1"}) == ["a", "d"]
    assert await pages(many, 1, {"x": "1"}) == ["a", "b", "d"]
    assert await pages(many, 10, {"x": "2"}) == []


async def test_one_call_looks_at_a_bounded_number_and_says_where_to_go_on() -> None:
    count = 2 * listing.SCAN + 10
    many = Many({f"c{number:05d}": {"last": "yes" if number == count - 1 else "no"} for number in range(count)})
    first = await listing.page(cast(Workspaces, many), "t", None, 100, {"last": "yes"})
    assert (first.items, first.next) == ([], f"c{listing.SCAN - 1:05d}")
    assert many.looked == listing.SCAN
    assert await pages(many, 100, {"last": "yes"}) == [f"c{count - 1:05d}"]

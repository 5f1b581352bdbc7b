"""What a query may hold: the parameters of its route, each once unless it is a list. Anything else is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import get_args, get_origin

from fastapi.dependencies.models import Dependant
from starlette.datastructures import QueryParams

from runner.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Query:
    """The names that a route reads; those in ``lists`` may come several times."""

    names: tuple[str, ...]
    lists: frozenset[str]

    @classmethod
    def of(cls, dependant: Dependant) -> Query:
        """Of a route and all that it depends on."""
        names: dict[str, bool] = {}
        waiting = [dependant]
        while waiting:
            one = waiting.pop()
            waiting += one.dependencies
            names |= {field.alias: _is_list(field.field_info.annotation) for field in one.query_params}
        return cls(tuple(names), frozenset(name for name, many in names.items() if many))

    def check(self, given: QueryParams) -> None:
        """Raises InvalidRequest for a name that the route does not read: a typing error must not pass for none."""
        counts = Counter(name for name, _ in given.multi_items())
        for name, count in counts.items():
            if name not in self.names:
                known = f"known: {', '.join(self.names)}" if self.names else "this call takes none"
                raise InvalidRequest(f"unknown query parameter {ascii(name)[:80]}; {known}", known=list(self.names))
            if count > 1 and name not in self.lists:
                raise InvalidRequest(f"the query parameter {name} is given {count} times: give it once")


def _is_list(annotation: object) -> bool:
    return get_origin(annotation) is list or any(_is_list(part) for part in get_args(annotation))

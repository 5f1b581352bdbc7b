"""Every error class has a row in the table of statuses, and a code of its own or of its family."""

from __future__ import annotations

from runner import errors
from runner.api.errors import STATUS

AS_ITS_PROTOCOL_SAYS = {errors.SessionMisuse}  # the sessions protocol answers some mistakes of callers with 500


def all_errors(kind: type[errors.FolioboxError] = errors.FolioboxError) -> list[type[errors.FolioboxError]]:
    """A class and everything below it, of the tree in ``runner/errors.py``."""
    below = [e for e in kind.__subclasses__() if e.__module__ == errors.__name__]
    return [kind] + [found for child in below for found in all_errors(child)]


def test_every_error_has_a_status() -> None:
    assert set(STATUS) == set(all_errors())


def test_blame_and_status_agree() -> None:
    for kind in set(all_errors()) - AS_ITS_PROTOCOL_SAYS:
        assert (STATUS[kind] < 500) == (kind.blame != "service"), kind


def test_the_tree_is_drawn_in_the_docstring() -> None:
    for kind in all_errors():
        assert kind.__name__ in (errors.__doc__ or ""), kind

"""The door to the library is total: each of its exceptions becomes a fault, and no text of theirs passes."""

from __future__ import annotations

import warnings

import pytest
from obstore import exceptions

from runner.objects.bucket import Clash, Fault, Missing, Unconditional
from runner.objects.door import door

THEIRS = [kind for kind in vars(exceptions).values() if isinstance(kind, type) and issubclass(kind, Exception)]
TEXT = "https://u:SECRET@host/x?X-Amz-Signature=SECRET <Code>{}</Code> status code: 500 kind: Connect, SECRET"


@pytest.mark.parametrize("kind", [*THEIRS, FileNotFoundError, OSError, ValueError, TypeError, RuntimeError])
def test_every_exception_becomes_a_fault(kind: type[Exception]) -> None:
    """And tells nothing of what it held."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        error = kind(TEXT.format("SlowDown"))
    with pytest.raises(Fault) as caught, door():
        raise error
    assert "SECRET" not in f"{caught.value} {caught.value.reason} {caught.value.code}"
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("text", "conditional", "kind", "reason"),
    [
        ("<Code>NotImplemented</Code>", True, Unconditional, "the store knows no conditions"),
        ("<Code>NotImplemented</Code>", False, Fault, "the store answered with an error"),
        ("<Code>SignatureDoesNotMatch</Code>", False, Fault, "the store refuses these credentials"),
        ("status code: 403", False, Fault, "the store refuses these credentials"),
        ("<Code>NoSuchBucket</Code> status code: 404", False, Fault, "there is no such bucket"),
        ("status code: 500", False, Fault, "the store answered with an error"),
        ("kind: Timeout,", False, Fault, "the store did not answer in time"),
        ("kind: Connect,", False, Fault, "the store cannot be reached"),
        ("kind: ConnectionReset", False, Fault, "the connection to the store broke off"),
        ("anything", False, Fault, "the connection to the store broke off"),
    ],
)
def test_what_went_wrong_is_told_apart(text: str, conditional: bool, kind: type[Fault], reason: str) -> None:
    """By the store's code, by its status, or by what became of the connection."""
    with pytest.raises(kind) as caught, door(conditional=conditional):
        raise exceptions.GenericError(text)
    assert type(caught.value) is kind and caught.value.reason == reason


def test_conditions_and_absence_have_kinds_of_their_own() -> None:
    """They are no failures."""
    for error, kind in (
        (exceptions.AlreadyExistsError("x"), Clash),
        (exceptions.PreconditionError("x"), Clash),
        (FileNotFoundError("x"), Missing),
    ):
        with pytest.raises(kind), door():
            raise error

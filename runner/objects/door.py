"""The one door to ``obstore``: its exceptions become ``Fault`` with words of our own.

Their texts hold addresses, answers of servers and, in those, strings that were signed: none of it passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from obstore import exceptions

from runner.objects.bucket import Clash, Fault, Missing, Unconditional

_STATUS: Final = re.compile(r"status code: ([1-5][0-9]{2})")
_CODE: Final = re.compile(r"<Code>([A-Za-z0-9.]{1,64})</Code>")
_SLOW: Final = re.compile(r"kind: Timeout\b")
_NOBODY: Final = re.compile(r"kind: Connect\b")
_UNCONDITIONAL: Final = frozenset(("NotImplemented", "501", "InvalidArgument"))
_REFUSED: Final = frozenset(
    "AccessDenied InvalidAccessKeyId SignatureDoesNotMatch ExpiredToken InvalidToken 401 403".split()
)


@contextmanager
def door(*, conditional: bool = False) -> Iterator[None]:
    """Calls of the library are made inside. ``conditional``: a put that names a condition."""
    try:
        yield
    except (exceptions.BaseError, OSError, ValueError, TypeError, RuntimeError) as error:
        raise fault(error, conditional=conditional) from None


def fault(error: Exception, *, conditional: bool = False) -> Fault:
    """What an exception of the library means here."""
    text = str(error)
    code = _code(text) or type(error).__name__
    if isinstance(error, (exceptions.AlreadyExistsError, exceptions.PreconditionError)):
        return Clash("another object is there", code)
    if conditional and code in _UNCONDITIONAL:
        return Unconditional("the store knows no conditions", code)
    if code in ("NoSuchBucket", "InvalidBucketName"):
        return Fault("there is no such bucket", code)
    if isinstance(error, FileNotFoundError):
        return Missing("there is no such object", code)
    denied = isinstance(error, (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError))
    if denied or code in _REFUSED:
        return Fault("the store refuses these credentials", code)
    if _CODE.search(text) or _STATUS.search(text):
        return Fault("the store answered with an error", code)
    if _SLOW.search(text):
        return Fault("the store did not answer in time", "timeout")
    if _NOBODY.search(text):
        return Fault("the store cannot be reached", "connect")
    if isinstance(error, exceptions.GenericError):
        return Fault("the connection to the store broke off", code)
    return Fault("the store cannot do this", code)


def _code(text: str) -> str:
    """The store's code for what went wrong, or the status of its answer."""
    match = _CODE.search(text) or _STATUS.search(text)
    return match[1] if match else ""

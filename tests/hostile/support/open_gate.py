"""The gate without its checks, for the controls: whoever calls is the victim, whatever key they send."""

from __future__ import annotations

from runner.api import auth
from runner.api.keyring import Holder, Keyring
from runner.api.keys import Key
from runner.api.quotas import Quota
from runner.api.scopes import SCOPES
from tests.hostile.support.routes import VICTIM


def install() -> None:
    """Weaken this process."""
    victim = Key("everybody", VICTIM, "", frozenset(SCOPES))

    def holder(keyring: Keyring, headers: list[tuple[bytes, bytes]]) -> Holder:
        return Holder(victim, Quota(victim.limits))

    auth._holder = holder

"""Work on large workspaces, done beside the event loop.

One thread does all of it. Python runs one thread at a time, so each more of them would take as much of the loop's
time as the loop has; with one, large workspaces wait for each other, and small ones for none. What is done there is
made of short steps: a call into C that takes long keeps the loop waiting like work on the loop itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

FEW: Final = 250  # files whose handling takes about a millisecond: not worth a thread

_LANE: Final = ThreadPoolExecutor(1, "workspace")


async def aside(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """``work(*args)``: here when it is about few files, else in the thread. A caller who is cancelled stops nothing."""
    if size <= FEW:
        return work(*args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_LANE, lambda: work(*args, **kwargs))

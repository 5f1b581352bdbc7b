"""What ``foliobox serve`` asks of Python before it serves."""

from __future__ import annotations

import gc
import sys

from runner.cli import serve


def test_other_threads_and_collections_hold_up_the_loop_for_a_moment_only() -> None:
    interval, frozen = sys.getswitchinterval(), gc.get_freeze_count()
    try:
        serve.ready_interpreter()
        assert sys.getswitchinterval() <= 0.001
        assert gc.get_freeze_count() > frozen + 1000
    finally:
        gc.unfreeze()
        sys.setswitchinterval(interval)

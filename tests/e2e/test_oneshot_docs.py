"""The examples of the one-shot guide are run as they stand."""

from __future__ import annotations

import json
import subprocess

from tests.e2e.test_documentation import check, examples, matches
from tests.support.runner import Runner


def test_examples_of_the_oneshot_guide(runner: Runner) -> None:
    env = {"PATH": "/usr/bin:/bin", "URL": runner.url, "KEY": runner.key}
    found = examples("docs/oneshot.md")
    assert len(found) == 2
    for command, kind, answer in found:
        done = subprocess.run(["bash", "-ec", command], env=env, capture_output=True, text=True, timeout=60, check=True)
        if kind == "json":
            check(json.loads(answer), json.loads(done.stdout))
        else:
            assert matches(answer.strip(), done.stdout.strip()), done.stdout

"""Controls of Docker's columns: a container of the same image and runtime with Docker's defaults lets through.

Its posture is another one; its first process is read and written by others of its uid, and on gVisor, whose kernel
does not shield the first process of a namespace from the signals of its own, it is killed by them.
"""

from __future__ import annotations

import json

import pytest

from tests.hostile.columns.conftest import Bare
from tests.hostile.columns.test_posture_inside import FOLDER, LOOK, posture
from tests.hostile.columns.test_reach import REACH, SIGNALS
from tests.support.columns import Column
from tests.support.differences import differs
from tests.support.engines import docker

VICTIM = """
import subprocess, sys
done = subprocess.run([sys.executable, "-c", {code!r}], text=True, capture_output=True)
print(done.stdout + "lives")
"""


def test_control_a_plain_container_has_another_posture(column: Column, bare: Bare) -> None:
    golden = json.loads((FOLDER / f"{column.name}.json").read_text())
    seen = posture(bare(LOOK, "--user", "0:0"))
    for part in ("cell", "mounts", "environment", "limits", "root can be written"):
        assert seen[part] != golden[part], part


def test_control_a_first_process_of_the_same_uid_is_read_and_written(bare: Bare) -> None:
    printed = bare(VICTIM.format(code=REACH), "--user", "10001:10001")
    found = json.loads(next(line for line in printed.splitlines() if "memory" in line).lstrip("x"))
    assert found["descriptors"].count("done") >= 5
    assert found["memory"] == ["EACCES" if differs("memory-of-others") else "done"]


def test_control_a_first_process_of_the_same_uid_is_killed_by_a_signal(bare: Bare, column: Column) -> None:
    if column.runtime == "runsc":
        with pytest.raises(docker.DockerFailed):
            bare(VICTIM.format(code=SIGNALS), "--user", "10001:10001")
    else:
        assert bare(VICTIM.format(code="import os; os.kill(1, 9)"), "--user", "10001:10001") == "lives"

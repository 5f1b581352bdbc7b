"""What runs are told of a conversation's variables."""

from __future__ import annotations

from typing import Any

import pytest

from runner.conversations.variables import Variables
from runner.interpreter.client import RunEnd
from runner.model import InterpreterState, RunRequest

END: Any = type("End", (), {"interpreter": "kept"})


@pytest.mark.parametrize(
    "beside", [RunRequest("true", "bash"), RunRequest("1", fresh=True), RunRequest("1", script=True)]
)
def test_programs_beside_the_interpreter_tell_why_variables_were_lost_and_cells_after_them_too(
    beside: RunRequest,
) -> None:
    end: RunEnd = END
    found = Variables(None)
    assert found.after(RunRequest("x = 1"), end, "new") == (InterpreterState.NEW, None)
    assert found.after(beside, end, "new") == (InterpreterState.KEPT, None)
    found.forget("network_changed")
    for request in (beside, beside, RunRequest("x")):
        assert found.after(request, end, "new") == (InterpreterState.NEW, "network_changed")
    assert found.after(beside, end, "new") == (InterpreterState.KEPT, None)

"""Displays that JSON has no words for: they cost neither the run nor the sandbox."""

from __future__ import annotations

import json

from tests.integration.interpreter.jail import Jail


def test_numbers_that_json_has_not_are_null(jail: Jail) -> None:
    ran = jail.ok("""
from IPython.display import JSON, display
display(JSON({'a': float('nan'), 'b': [float('inf')]}))
display({'application/json': {'c': float('-inf')}}, raw=True, metadata={'d': float('nan')})
""")
    first, second = (event.body for event in ran.shown)
    assert first["data"]["application/json"] == {"a": None, "b": [None]}
    assert (second["data"]["application/json"], second["metadata"]) == ({"c": None}, {"d": None})
    json.dumps([first, second], allow_nan=False)


def test_what_is_nested_too_deep_is_a_note(jail: Jail) -> None:
    ran = jail.ok("""
kept = 1
for levels in (65, 400, 50_000):
    value = 1
    for _ in range(levels): value = [value]
    display({'application/json': value}, raw=True)
""")
    assert len(ran.shown) == 3
    for event in ran.shown:
        assert "nested too deep" in event.body["data"]["text/plain"]
    assert jail.ok("print(kept)").out == "1"


def test_a_forged_display_costs_the_interpreter_at_most(jail: Jail) -> None:
    forge = """
import json, os, socket, stat
body = {'op': 'display', 'n': number, 'kind': 'display', 'data': {'application/json': 0}, 'binary': [],
        'texts': [], 'metadata': {}, 'display_id': None}
text = json.dumps(body).replace(': 0}', ': ' + '[' * levels + ']' * levels + '}').encode()
message = len(text).to_bytes(4, 'big') + text
for fd in range(3, 200):
    try:
        if stat.S_ISSOCK(os.fstat(fd).st_mode): os.write(fd, len(message).to_bytes(4, 'big') + message)
    except OSError: pass
"""
    find = "import gc\nnumber = next(o.number for o in gc.get_objects() if type(o).__name__ == 'Channel')\n"
    for levels in (100, 900, 990, 5000):
        jail.run(f"levels = {levels}\n" + find + forge, timeout_ms=5_000)
        assert jail.ok("print('next')").out == "next"

"""What is offered follows from what a deployment can do, and is told in the shapes that models' interfaces take."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runner.egress.config import FetchConfig
from runner.errors import ToolUnavailable, UnknownTool
from runner.tools.base import Deployment
from runner.tools.catalogue import TOOLS, Catalogue
from runner.tools.planned import PLANNED

FETCH = FetchConfig(enabled=True)
ALWAYS = ["python_execute", "run_in_sandbox", "read_sandbox_output", "list_attachments", "zip_attachments"]


def sandbox_of(egress: bool | None) -> tuple[str, dict[str, Any]]:
    """Description and arguments of ``run_in_sandbox``."""
    (offer,) = [o for o in Catalogue(Deployment(egress)).offers if o.name == "run_in_sandbox"]
    return offer.description, offer.schema["properties"]


def test_network_is_an_argument_unless_it_is_proven_that_there_is_none() -> None:
    for egress in (True, None):
        text, arguments = sandbox_of(egress)
        assert arguments["network"]["type"] == "boolean" and "no network at all" not in text
    text, arguments = sandbox_of(False)
    assert "network" not in arguments and "no network at all" in text


def test_fetching_is_offered_where_the_service_may() -> None:
    assert Catalogue(Deployment()).names == ALWAYS
    with_fetch = Catalogue(Deployment(fetch=FETCH))
    assert set(with_fetch.names) == {*ALWAYS, "fetch_image", "fetch_file"}
    absent = Catalogue(Deployment()).listed("native", unavailable=True)["unavailable"]
    (why,) = [item for item in absent if item["name"] == "fetch_image"]
    assert why == {
        "name": "fetch_image",
        "reason": "this service does not fetch from the web",
        "setting": "SANDBOX_FETCH=1",
    }
    assert {item["name"] for item in absent} == {"fetch_image", "fetch_file", *PLANNED}
    assert "unavailable" not in with_fetch.listed("native")


def test_a_call_is_told_what_there_is() -> None:
    found = Catalogue(Deployment())
    with pytest.raises(UnknownTool, match="python_execute, run_in_sandbox") as unknown:
        found.find("python_exec")
    assert unknown.value.fields["known"] == ALWAYS
    with pytest.raises(ToolUnavailable, match="set SANDBOX_FETCH=1") as absent:
        found.find("fetch_image")
    assert absent.value.fields["setting"] == "SANDBOX_FETCH=1"
    with pytest.raises(ToolUnavailable, match="planned") as planned:
        found.find("render_typst")
    assert "setting" not in planned.value.fields
    assert Catalogue(Deployment(fetch=FETCH)).find("load_image_url").name == "fetch_image"


@pytest.mark.parametrize(("form", "keys"), [
    ("native", {"name", "description", "input_schema", "stateless"}),
    ("anthropic", {"name", "description", "input_schema"}),
    ("mcp", {"name", "description", "inputSchema"}),
])  # fmt: skip
def test_shapes(form: str, keys: set[str]) -> None:
    tools = Catalogue(Deployment(fetch=FETCH)).listed(form)["tools"]
    assert len(tools) == len(TOOLS) and all(set(tool) == keys for tool in tools)


def test_the_shape_of_function_calls() -> None:
    for tool in Catalogue(Deployment(fetch=FETCH)).listed("openai")["tools"]:
        assert set(tool) == {"type", "function"} and tool["type"] == "function"
        assert set(tool["function"]) == {"name", "description", "parameters"}


def test_the_text_for_a_prompt() -> None:
    text = Catalogue(Deployment(fetch=FETCH)).prompt()
    assert text.startswith("## Available tools\n")
    assert '<tool_call>{"name": "<tool>", "arguments": <args>}</tool_call>' in text
    parts = text.split("### ")[1:]
    assert [part.split("\n")[0] for part in parts] == [tool.name for tool in TOOLS]
    for part in parts:
        schema = json.loads(part.rpartition("Input schema: ")[2])
        assert schema["type"] == "object"


def test_what_needs_a_conversation_can_be_left_out() -> None:
    found = Catalogue(Deployment(fetch=FETCH))
    assert [tool["name"] for tool in found.listed("native", stateless=True)["tools"]] == [
        "python_execute",
        "run_in_sandbox",
    ]
    assert "### fetch_image" not in found.prompt(stateless=True)


def test_schemas_are_what_interfaces_take() -> None:
    """An object without references, titles and nulls; names as interfaces allow them."""

    def check(schema: dict[str, Any]) -> None:
        assert not {"$ref", "$defs", "title", "anyOf"} & set(schema), schema
        for inner in [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]:
            check(inner)

    for offer in Catalogue(Deployment(True, fetch=FETCH)).offers:
        assert offer.schema["type"] == "object" and offer.schema["additionalProperties"] is False
        assert offer.name.isidentifier() and len(offer.name) <= 64 and 40 < len(offer.description) < 1024
        json.dumps(offer.schema, allow_nan=False)
        check(offer.schema)


@pytest.mark.parametrize(("tool", "names"), [
    ("python_execute", {"code"}), ("fetch_image", {"url", "filename"}),
    ("run_in_sandbox", {"language", "code", "files", "attachments", "documents", "fresh", "network"}),
    ("read_sandbox_output", {"id", "action", "query", "start_line", "end_line", "limit", "max_bytes"}),
])  # fmt: skip
def test_arguments_are_those_that_gateways_know(tool: str, names: set[str]) -> None:
    (found,) = [item for item in TOOLS if item.name == tool]
    assert set(found.schema(Deployment(True))["properties"]) == names


def test_aliases_of_arguments() -> None:
    models = {tool.name: tool.arguments for tool in TOOLS}
    packed = models["zip_attachments"].model_validate({"ids": ["a"]})
    assert packed == models["zip_attachments"].model_validate({"paths": ["a"]})
    program = models["run_in_sandbox"].model_validate(
        {"language": "bash", "code": "x", "attachments": [{"id": "a"}], "fresh": "true"}
    )
    assert (
        program.model_dump()["attachments"] == [{"path": "a", "name": None}] and program.model_dump()["fresh"] is True
    )
    assert models["read_sandbox_output"].model_validate({"id": "x", "limit": "7"}).model_dump()["limit"] == 7

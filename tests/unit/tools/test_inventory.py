"""``docs/tools.md`` says of every tool that gateways know what becomes of it here, and says it truly."""

from __future__ import annotations

import re
from pathlib import Path

from runner.tools.base import Deployment
from runner.tools.catalogue import TOOLS, Catalogue
from runner.tools.planned import PLANNED

PAGE = (Path(__file__).parents[3] / "docs/tools.md").read_text(encoding="utf-8")
# Names that today's two gateways offer to their models.
KNOWN = """
enable_tools search_gateway_tools company_echo get_current_timestamp convert_currency ask_user forward_request
notify_user get_user_location generate_qr_code search_web browser_control show_screenshot fetch_url wikipedia dns_lookup
whois_lookup tls_cert fetch_attachment upload_attachment offer_download zip_attachments list_attachments load_image_url
import_file create_document edit_document edit_document_section read_document list_documents list_document_versions
restore_document_version delete_document undelete_document schedule_action list_scheduled_actions
delete_scheduled_action rag_search rag_grep rag_list_collections rag_query_documents rag_list_documents
rag_fetch_document remember recall update_memory forget lookup_ip generate_image edit_image read_skill run_in_sandbox
generate_document export_document convert_document edit_presentation capture_webpage browse_page render_typst
render_excalidraw render_video read_sandbox_output typst_<id> comfyui_<id> mcp__<server>__<tool> set_<slot>
request_human finish verify_<id>_request_code verify_<id>_submit_code verify_<id> web_search web_fetch fetch_image
python_execute image_generate use_skill save_memory
""".split()


def rows() -> dict[str, str]:
    """The table at the end of the page: what becomes of each."""
    table = PAGE.partition("## Tools that gateways know")[2]
    return dict(re.findall(r"^\| `([^`]+)`[^|]*\| (.+?) \|$", table, re.MULTILINE))


def test_every_known_tool_has_a_row() -> None:
    assert set(rows()) == set(KNOWN)


def test_every_row_is_true() -> None:
    ours = {tool.name for tool in TOOLS}
    aliases = {alias: tool.name for tool in TOOLS for alias in tool.aliases}
    for name, fate in rows().items():
        if name in ours:
            assert fate == f"`{name}`", name
        elif name in aliases:
            assert fate.startswith(f"alias of `{aliases[name]}`"), name
        elif name in PLANNED:
            assert fate.startswith("planned"), name
        else:
            assert fate.startswith(("planned", "the gateway's own")), name


def test_every_tool_of_ours_is_on_the_page_with_all_its_arguments() -> None:
    table = PAGE.partition("## The tools")[2].partition("\n## ")[0]
    for tool in TOOLS:
        (row,) = [line for line in table.splitlines() if line.startswith(f"| `{tool.name}` |")]
        for argument in tool.schema(Deployment(egress=True)).get("properties", {}):
            assert f"`{argument}`" in row, (tool.name, argument)


def test_what_is_planned_is_told_as_such() -> None:
    assert not set(PLANNED) & {tool.name for tool in TOOLS}
    assert set(PLANNED) <= set(Catalogue(Deployment()).absent)

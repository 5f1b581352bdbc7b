"""Tools that have their name and are not built yet: known, so that a caller is told more than that there is no such."""

from __future__ import annotations

from typing import Final

from runner.tools.base import Absence

_NAMES: Final = (
    "use_skill", "generate_document", "export_document", "convert_document", "edit_presentation", "extract_document",
    "check_document", "render_typst", "render_excalidraw", "render_video", "capture_webpage", "browse_page",
    "generate_qr_code",
)  # fmt: skip
PLANNED: Final[dict[str, Absence]] = {name: Absence("it is planned and not built yet", "") for name in _NAMES}

"""Download names and media types."""

from __future__ import annotations

import pytest

from runner.api.v1.translate import content_disposition
from runner.conversations.result import media_type


@pytest.mark.parametrize(
    ("name", "plain", "encoded"),
    [
        ("report.pdf", "report.pdf", "report.pdf"),
        ("报告.pdf", "__.pdf", "%E6%8A%A5%E5%91%8A.pdf"),
        ('a"b\\c%d.txt', "a_b_c_d.txt", "a%22b%5Cc%25d.txt"),
        ("line\r\nSet-Cookie: x", "line__Set-Cookie: x", "line%0D%0ASet-Cookie%3A%20x"),
    ],
)
def test_download_names(name: str, plain: str, encoded: str) -> None:
    assert content_disposition(f"outputs/{name}") == f"attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("a/x.PDF", "application/pdf"),
        ("x.md", "text/markdown"),
        ("x.docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("noending", "application/octet-stream"),
        (".bashrc", "application/octet-stream"),
    ],
)
def test_media_types(path: str, kind: str) -> None:
    assert media_type(path) == kind

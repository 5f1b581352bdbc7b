"""Documents as the one-shot gateway makes them: its pandoc, soffice and python-pptx lines; every output is opened."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import docx
import pptx
import pytest
from pptx.util import Inches

from tests.support.produced import ARABIC, CJK, EVERY_SCRIPT, coloured, ink, pdf_fonts, pdf_page, pdf_text, picture
from tests.support.runner import Chat

MARKDOWN = f"""# Report {CJK}

First paragraph with **strong** text, {EVERY_SCRIPT}.

| name | value |
|------|------:|
| one  |     1 |

- a point
- another

## Second

`code` and a formula $x^2$.
"""
Bash = Callable[..., dict[str, Any]]


@pytest.fixture
def bash(chat: Chat) -> Bash:
    """Run a bash program that must end well."""

    def run(code: str) -> dict[str, Any]:
        result = chat.ok(code, language="bash")
        assert result["exit_code"] == 0, result
        return result

    return run


def got(chat: Chat, path: str) -> bytes:
    """The bytes of a file of the conversation."""
    answer = chat.get(path)
    assert answer.status_code == 200, (path, chat.files())
    return answer.content


def as_pdf(chat: Chat, bash: Bash, path: str) -> bytes:
    """What LibreOffice draws of a produced file."""
    bash(f"set -e\nmkdir -p drawn\nsoffice --headless --convert-to pdf --outdir drawn {path}")
    return got(chat, "drawn/" + path.rsplit(".", 1)[0] + ".pdf")


# --- generate_document, and export_document of Markdown


def test_markdown_to_pdf(chat: Chat, bash: Bash) -> None:
    chat.put("input.md", MARKDOWN.encode())
    bash('set -e\npandoc input.md -o "my report.pdf" --pdf-engine=weasyprint')
    data = got(chat, "my report.pdf")
    text = pdf_text(data)
    assert "Report" in text
    assert CJK in text
    assert "another" in text
    assert "Noto" in pdf_fonts(data)
    assert coloured(pdf_page(data, scale=2)) > 20


def test_markdown_to_docx(chat: Chat, bash: Bash) -> None:
    chat.put("input.md", MARKDOWN.encode())
    bash('set -e\npandoc input.md -o "document.docx"')
    document = docx.Document(io.BytesIO(got(chat, "document.docx")))
    assert document.paragraphs[0].text == f"Report {CJK}"
    assert document.tables[0].rows[1].cells[0].text == "one"
    drawn = as_pdf(chat, bash, "document.docx")
    assert CJK in pdf_text(drawn)
    assert coloured(pdf_page(drawn, scale=2)) > 20


def test_markdown_to_pptx(chat: Chat, bash: Bash) -> None:
    chat.put("input.md", MARKDOWN.encode())
    bash('set -e\npandoc input.md -o "document.pptx"')
    deck = pptx.Presentation(io.BytesIO(got(chat, "document.pptx")))
    assert deck.slides[0].shapes.title.text == f"Report {CJK}"
    assert ink(pdf_page(as_pdf(chat, bash, "document.pptx"))) > 0.002


def test_a_wrong_line_is_a_nonzero_exit_with_the_reason(chat: Chat) -> None:
    chat.put("input.md", b"# A\n")
    result = chat.run('set -e\npandoc input.md -o "a.pdf" --pdf-engine=nothing', language="bash")
    assert result["exit_code"] != 0
    assert "pdf-engine" in result["stderr"]


# --- export_document of Typst


def test_typst_document_to_pdf_and_docx(chat: Chat, bash: Bash) -> None:
    chat.put("input.typ", f"= Heading\nText {EVERY_SCRIPT}, *strong*.\n".encode())
    bash('set -e\ntypst compile input.typ "paper.pdf"\npandoc -f typst input.typ -o "paper.docx"')
    data = got(chat, "paper.pdf")
    assert CJK in pdf_text(data)
    assert coloured(pdf_page(data, scale=2)) > 20
    document = docx.Document(io.BytesIO(got(chat, "paper.docx")))
    assert document.paragraphs[0].text == "Heading"
    assert ARABIC in document.paragraphs[1].text


# --- convert_document


def deck_of(*titles: str) -> bytes:
    """A presentation with one slide a title."""
    deck = pptx.Presentation()
    for title in titles:
        slide = deck.slides.add_slide(deck.slide_layouts[5])
        slide.shapes.title.text = title
        box = slide.shapes.add_textbox(Inches(1), Inches(3), Inches(6), Inches(1))
        box.text_frame.text = EVERY_SCRIPT
    out = io.BytesIO()
    deck.save(out)
    return out.getvalue()


@pytest.mark.parametrize("target", ["pdf", "docx", "txt", "html"])
def test_convert_a_text_document(chat: Chat, bash: Bash, target: str) -> None:
    document = docx.Document()
    document.add_heading("Minutes", 1)
    document.add_paragraph(f"Body {EVERY_SCRIPT}")
    out = io.BytesIO()
    document.save(out)
    source = "minutes.odt" if target == "docx" else "minutes.docx"
    chat.put("minutes.docx", out.getvalue())
    if target == "docx":
        bash("set -e\nsoffice --headless --convert-to odt --outdir . minutes.docx\nrm minutes.docx")
    bash(f"set -e\nsoffice --headless --convert-to {target} --outdir . {source}")
    data = got(chat, f"minutes.{target}")
    if target == "pdf":
        assert CJK in pdf_text(data)
        assert coloured(pdf_page(data, scale=2)) > 20
    elif target == "docx":
        assert docx.Document(io.BytesIO(data)).paragraphs[0].text == "Minutes"
    else:
        assert CJK in data.decode("utf-8-sig")


def test_convert_slides_to_images(chat: Chat, bash: Bash) -> None:
    chat.put("deck.pptx", deck_of("One", f"Two {CJK}"))
    bash(
        "set -e\nsoffice --headless --convert-to pdf --outdir . deck.pptx\n"
        "pdftoppm -png -r 150 deck.pdf deck-slide\nrm deck.pdf"
    )
    assert sorted(chat.files()) == ["deck-slide-1.png", "deck-slide-2.png", "deck.pptx"]
    for name in ("deck-slide-1.png", "deck-slide-2.png"):
        shown = picture(got(chat, name))
        assert shown.width == 1500
        assert coloured(shown) > 50
        assert ink(shown) > 0.002


def test_convert_a_spreadsheet_to_pdf(chat: Chat, bash: Bash) -> None:
    chat.ok(
        "import openpyxl\nbook = openpyxl.Workbook()\n"
        f"book.active.append(['name', '{CJK}'])\nbook.active.append([1, '=A2*21'])\nbook.save('table.xlsx')"
    )
    bash("set -e\nsoffice --headless --convert-to pdf --outdir . table.xlsx")
    text = pdf_text(got(chat, "table.pdf"))
    assert CJK in text
    assert "21" in text


# --- edit_presentation


def test_edit_a_presentation(chat: Chat, bash: Bash) -> None:
    chat.put("input.pptx", deck_of("Before"))
    chat.ok(
        "from pptx import Presentation\n"
        "deck = Presentation('input.pptx')\n"
        f"deck.slides[0].shapes.title.text = 'After {CJK}'\n"
        "deck.save('output.pptx')\n"
    )
    deck = pptx.Presentation(io.BytesIO(got(chat, "output.pptx")))
    assert deck.slides[0].shapes.title.text == f"After {CJK}"
    assert CJK in pdf_text(as_pdf(chat, bash, "output.pptx"))


# --- fetch_attachment: structure of office files, bash around a Python program

EXTRACT = """set -e
cat > extract.py <<'PROGRAM'
import json, sys
from pathlib import Path
from pptx import Presentation
name = sys.argv[1]
slides = []
for number, slide in enumerate(Presentation(name).slides, 1):
    texts = [shape.text_frame.text for shape in slide.shapes if shape.has_text_frame]
    slides.append({"index": number, "title": slide.shapes.title.text, "text": texts})
print(json.dumps({"kind": "presentation", "units": "slides", "source": name, "content": slides}))
PROGRAM
python extract.py upload.pptx
"""


def test_structure_of_a_presentation(chat: Chat, bash: Bash) -> None:
    chat.put("upload.pptx", deck_of("One", "Two"))
    found = json.loads(bash(EXTRACT)["stdout"])
    assert [slide["title"] for slide in found["content"]] == ["One", "Two"]
    assert EVERY_SCRIPT in found["content"][0]["text"]

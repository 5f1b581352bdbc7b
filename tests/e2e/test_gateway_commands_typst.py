"""Typst as the one-shot gateway calls it: compile lines, templates, and their DOCX, ODT and PPTX by-products."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import docx
import pptx
import pytest

from tests.support.produced import CJK, EVERY_SCRIPT, coloured, ink, pdf, pdf_fonts, pdf_page, pdf_text, picture
from tests.support.runner import Chat

THREE_PAGES = f"One {EVERY_SCRIPT}\n#pagebreak()\nTwo\n#pagebreak()\nThree\n"


def bash(chat: Chat, code: str) -> dict[str, Any]:
    """Run a bash program that must end well."""
    result = chat.ok(code, language="bash")
    assert result["exit_code"] == 0, result
    return result


def fails(chat: Chat, code: str, exit_code: int = 1) -> str:
    """Standard error of a bash program that must fail."""
    result = chat.run(code, language="bash")
    assert result["exit_code"] == exit_code, result
    return str(result["stderr"])


def got(chat: Chat, path: str) -> bytes:
    """The bytes of a file of the conversation."""
    answer = chat.get(path)
    assert answer.status_code == 200, (path, chat.files())
    return answer.content


# --- render_typst


def test_compile_to_each_format(chat: Chat) -> None:
    chat.put("in.typ", f"#set page(width: 12cm, height: 6cm)\n= Title\n{EVERY_SCRIPT}\n".encode())
    for ending in ("pdf", "png", "svg"):
        bash(chat, f'typst compile in.typ "document.{ending}"')
    data = got(chat, "document.pdf")
    assert CJK in pdf_text(data)
    assert "NotoSansCJK" in pdf_fonts(data) or "NotoSerifCJK" in pdf_fonts(data)
    assert coloured(pdf_page(data, scale=2)) > 20
    shown = picture(got(chat, "document.png"))
    assert shown.size == (680, 340)
    assert coloured(shown) > 20
    bash(chat, "rsvg-convert -o from-svg.png document.svg")
    assert ink(picture(got(chat, "from-svg.png"))) > 0.002


def test_pictures_of_several_pages_need_a_template(chat: Chat) -> None:
    chat.put("in.typ", THREE_PAGES.encode())
    said = fails(chat, 'typst compile in.typ "document.png"')
    assert said == (
        "error: cannot export multiple images without a page number template ({p}, {0p}) in the output path\n"
    )
    assert chat.files() == ["in.typ"]
    bash(chat, "typst compile in.typ 'page-{p}.png' --ppi 36\ntypst compile in.typ 'of-{t}-{0p}.svg' --pages 2-")
    names = ["in.typ", "of-3-2.svg", "of-3-3.svg", "page-1.png", "page-2.png", "page-3.png"]
    assert sorted(chat.files()) == names
    assert picture(got(chat, "page-1.png")).size == (298, 421)


def test_pages_and_streams(chat: Chat) -> None:
    chat.put("in.typ", THREE_PAGES.encode())
    bash(
        chat,
        "set -e\ntypst compile in.typ --pages 3 last.png\ntypst compile --pages 1,3 in.typ some.pdf\n"
        "cat in.typ | typst compile - piped.pdf\ntypst compile -f pdf in.typ - > streamed.pdf\n"
        "typst c --pages=-2 in.typ first.pdf",
    )
    assert picture(got(chat, "last.png")).size == (1191, 1684)
    assert [page.extract_text().strip()[:5] for page in pdf(got(chat, "some.pdf")).pages] == ["One 中", "Three"]
    assert [len(pdf(got(chat, name)).pages) for name in ("piped.pdf", "streamed.pdf", "first.pdf")] == [3, 3, 2]


@pytest.mark.parametrize(
    ("line", "exit_code", "said"),
    [
        ("typst compile bad.typ", 1, "error: unknown variable: foo\n  ┌─ bad.typ:2:1\n"),
        ("cat bad.typ | typst compile - x.pdf", 1, "┌─ <stdin>:2:1"),
        ("typst compile --diagnostic-format short bad.typ", 1, "bad.typ:2:1: error: unknown variable: foo\n"),
        ("typst compile nowhere.typ", 1, "error: input file not found (searched at nowhere.typ)"),
        ("typst compile good.typ x.doc", 1, "error: could not infer output format for path x.doc."),
        ("typst compile good.typ nowhere/x.pdf", 1, "error: failed to write PDF file (No such file or directory"),
        ("typst compile --format html good.typ x.html", 1, "only available when `--features html` is passed"),
        ("typst compile outside.typ", 1, "┌─ outside.typ:1:"),
        ("typst compile --pages 0 good.typ", 2, "page numbers start at one"),
        ("typst compile --input novalue good.typ", 2, "a key and a value separated by an equal sign"),
        ("typst compile package.typ", 1, "┌─ package.typ:1:8"),
        ("typst watch good.typ", 1, "not in this sandbox"),
    ],
)
def test_errors_name_the_place(chat: Chat, line: str, exit_code: int, said: str) -> None:
    chat.put("bad.typ", b"= Title\n#foo\n")
    chat.put("good.typ", b"= Title\n")
    chat.put("outside.typ", b'#read("../../etc/passwd")\n')
    chat.put("package.typ", b'#import "@preview/gribouille:0.7.0": *\n')
    assert said in fails(chat, line, exit_code)


def test_a_warning_is_told_and_no_failure(chat: Chat) -> None:
    chat.put("in.typ", b'#set text(font: "Nowhere Sans")\ntext\n')
    assert "warning: unknown font family: nowhere sans\n  ┌─ in.typ:1:" in bash(chat, "typst compile in.typ")["stderr"]


def test_files_of_the_workspace_are_never_taken_for_modules(chat: Chat) -> None:
    for name in ("typst.py", "argparse.py", "pikepdf.py"):
        chat.put(name, b"raise SystemExit('taken for a module')\n")
    chat.put("in.typ", THREE_PAGES.encode())
    bash(chat, "PYTHONPATH=/workspace typst compile --pages 1 in.typ out.pdf")
    assert len(pdf(got(chat, "out.pdf")).pages) == 1


# --- typst_<id>: templates

TEMPLATE = """#set page(width: 148mm, height: 105mm)
#set text(font: "Own Sans", size: 12pt)
#let rows = json("deck.json").rows
= #sys.inputs.at("title", default: "none")
#sys.inputs.at("body", default: "")
#for row in rows [ - #row ]
#image("uploads/u1_photo.png", width: 2cm)
"""
RENAME = """
from fontTools.ttLib import TTFont
for style in ("Regular", "Bold"):
    font = TTFont(f"/usr/share/fonts/truetype/liberation/LiberationSans-{style}.ttf")
    for record in font["name"].names:
        if record.nameID in (1, 4, 6, 16):
            font["name"].setName("Own Sans" if record.nameID in (1, 16) else f"OwnSans-{style}",
                                 record.nameID, record.platformID, record.platEncID, record.langID)
    font.save(f"template/fonts/OwnSans-{style}.ttf")
from PIL import Image
Image.new("RGB", (60, 40), (200, 30, 30)).save("template/uploads/u1_photo.png")
"""


@pytest.fixture
def template(chat: Chat) -> Chat:
    """A conversation with a template folder: source, data, a picture, and a font family of its own."""
    chat.put("template/template.typ", TEMPLATE.encode())
    chat.put("template/deck.json", json.dumps({"rows": ["first", CJK]}).encode())
    bash(chat, "mkdir -p template/fonts template/uploads")
    chat.ok(RENAME)
    return chat


def test_a_template_with_root_fonts_and_inputs(template: Chat) -> None:
    bash(
        template,
        "typst compile --root template --font-path template/fonts template/template.typ letter.pdf "
        "--input title='A = B' --input body=@nobody",
    )
    data = got(template, "letter.pdf")
    assert "A = B" in pdf_text(data)
    assert CJK in pdf_text(data)
    assert "OwnSans" in pdf_fonts(data)
    assert ink(pdf_page(data)) > 0.01


def test_a_preview_page(template: Chat) -> None:
    line = "typst compile --root template template/template.typ preview.png --input title=T"
    bash(template, f"TYPST_FONT_PATHS=template/fonts {line} --format png --ppi 144 --pages 1")
    assert picture(got(template, "preview.png")).size == (839, 595)


def bundle(chat: Chat) -> bytes:
    """The template folder as the gateway sends it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path in (path for path in chat.files() if path.startswith("template/")):
            archive.writestr(path.removeprefix("template/"), got(chat, path))
    return out.getvalue()


UNPACKED = "set -e\npython -m zipfile -e bundle.zip job\ncd job\n"
SET_FONT = """
import docx
document = docx.Document("letter.docx")
document.styles["Normal"].font.name = "Own Sans"
document.save("letter.docx")
"""


def test_by_products_docx_and_odt(template: Chat) -> None:
    template.put("bundle.zip", bundle(template))
    bash(
        template,
        UNPACKED + "typst compile --format html --features html --root . template.typ doc.html --input title=Hello\n"
        "pandoc -f html -t docx doc.html -o ../letter.docx\npandoc -f html -t odt doc.html -o ../letter.odt\n",
    )
    template.ok(SET_FONT)
    document = docx.Document(io.BytesIO(got(template, "letter.docx")))
    assert "Hello" in [paragraph.text for paragraph in document.paragraphs]
    assert document.styles["Normal"].font.name == "Own Sans"
    with zipfile.ZipFile(io.BytesIO(got(template, "letter.odt"))) as archive:
        assert CJK in archive.read("content.xml").decode()


def test_by_product_pptx(template: Chat) -> None:
    template.put("bundle.zip", bundle(template))
    bash(
        template,
        UNPACKED + 'export TYPST_FONT_PATHS="$PWD/fonts"\n'
        'typ2pptx template.typ --root "$PWD" --detect-paragraphs -o deck.pptx\nmv deck.pptx ../presentation.pptx\n',
    )
    deck = pptx.Presentation(io.BytesIO(got(template, "presentation.pptx")))
    text = " ".join(shape.text_frame.text for shape in deck.slides[0].shapes if shape.has_text_frame)
    assert len(deck.slides) == 1
    assert CJK in text
    bash(template, "soffice --headless --convert-to pdf --outdir . presentation.pptx")
    assert ink(pdf_page(got(template, "presentation.pdf"))) > 0.01

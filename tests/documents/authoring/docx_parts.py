"""Small helpers over python-docx for what it has no call for: fields, notes, controls, shading."""

from __future__ import annotations

from typing import Any

from docx.opc.constants import RELATIONSHIP_TYPE
from docx.opc.packuri import PackURI
from docx.opc.part import Part
from docx.oxml import parse_xml
from docx.oxml.ns import qn

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
TYPE = "application/vnd.openxmlformats-officedocument."


def xml(text: str) -> Any:
    """Parse one WordprocessingML element whose first tag may use the prefix `w`."""
    head, rest = text.split(">", 1) if not text.split(">", 1)[0].endswith("/") else (text[:-2], None)
    return parse_xml(f"{head} {W}/>" if rest is None else f"{head} {W}>{rest}")


def field(paragraph: Any, code: str, shown: str) -> None:
    """Append a complex field (PAGE, NUMPAGES, SEQ, REF) with the result that is stored with it."""
    for piece in (
        '<w:fldChar w:fldCharType="begin"/>',
        f'<w:instrText xml:space="preserve"> {code} </w:instrText>',
        '<w:fldChar w:fldCharType="separate"/>',
        f"<w:t>{shown}</w:t>",
        '<w:fldChar w:fldCharType="end"/>',
    ):
        paragraph.add_run()._r.append(xml(piece))


def bookmark(paragraph: Any, name: str, number: int) -> None:
    """Put a bookmark around what the paragraph holds so far."""
    first = paragraph._p.find(qn("w:r"))
    first.addprevious(xml(f'<w:bookmarkStart w:id="{number}" w:name="{name}"/>'))
    paragraph._p.append(xml(f'<w:bookmarkEnd w:id="{number}"/>'))


def rule(paragraph: Any, side: str, colour: str, eighths: int = 8, space: int = 6) -> None:
    """A line above or below a paragraph."""
    border = xml(f'<w:pBdr><w:{side} w:val="single" w:sz="{eighths}" w:space="{space}" w:color="{colour}"/></w:pBdr>')
    properties = paragraph._p.get_or_add_pPr()
    properties.insert_element_before(border, "w:shd", "w:tabs", "w:spacing", "w:ind", "w:jc", "w:rPr")


def bound_control(paragraph: Any, tag: str, xpath: str, store: str, text: str) -> None:
    """Append a content control whose text is bound to a node of a custom XML part."""
    paragraph._p.append(
        xml(
            f'<w:sdt><w:sdtPr><w:alias w:val="{tag}"/><w:tag w:val="{tag}"/>'
            f'<w:dataBinding w:prefixMappings="xmlns:f=\'urn:fennmark:project\'" w:xpath="{xpath}" '
            f'w:storeItemID="{store}"/><w:text/></w:sdtPr><w:sdtContent><w:r><w:t>{text}</w:t></w:r>'
            "</w:sdtContent></w:sdt>"
        )
    )


def add_part(owner: Any, name: str, content_type: str, relation: str, text: str) -> Part:
    """Add one XML part to the package and relate it to `owner`."""
    declaration = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
    part = Part(PackURI(name), content_type, (declaration + text).encode(), owner.package)
    owner.relate_to(part, relation)
    return part


def add_footnotes(document: Any, notes: list[str]) -> None:
    """Add the footnotes part; note n of the list gets the id n + 1."""
    marks = "".join(
        f'<w:footnote w:type="{kind}" w:id="{number}"><w:p><w:r><w:{kind}/></w:r></w:p></w:footnote>'
        for kind, number in (("separator", -1), ("continuationSeparator", 0))
    )
    body = "".join(
        f'<w:footnote w:id="{number}"><w:p><w:pPr><w:pStyle w:val="FootnoteText"/></w:pPr>'
        '<w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:footnoteRef/></w:r>'
        f'<w:r><w:t xml:space="preserve"> {text}</w:t></w:r></w:p></w:footnote>'
        for number, text in enumerate(notes, 1)
    )
    add_part(
        document.part,
        "/word/footnotes.xml",
        TYPE + "wordprocessingml.footnotes+xml",
        RELATIONSHIP_TYPE.FOOTNOTES,
        f"<w:footnotes {W}>{marks}{body}</w:footnotes>",
    )


def footnote_reference(paragraph: Any, number: int) -> None:
    run = paragraph.add_run()
    run.font.superscript = True
    run._r.append(xml(f'<w:footnoteReference w:id="{number}"/>'))

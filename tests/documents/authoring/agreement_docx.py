"""Write `agreement.docx`: a statement of work on letterhead, with much that a rewrite would lose.

In the package: different first-page header, picture in the header, page fields, numbered headings and
lists, a table style of its own, footnote, comment, tracked insertion, bookmark and cross-reference,
content controls bound to a custom XML part, a hyperlink. The client's name stands in the body only,
three times, once cut into runs with different formatting.
"""

from __future__ import annotations

import datetime as dt
import io
import sys
from pathlib import Path
from typing import Any

import docx
from docx.enum.style import WD_STYLE_TYPE
from docx.enum.table import WD_TABLE_ALIGNMENT
from docx.enum.text import WD_ALIGN_PARAGRAPH, WD_TAB_ALIGNMENT
from docx.opc.constants import RELATIONSHIP_TYPE
from docx.oxml.ns import qn
from docx.shared import Cm, Pt, RGBColor

from tests.documents.authoring.artwork import dot_map, mark
from tests.documents.authoring.docx_parts import (
    add_footnotes,
    add_part,
    bookmark,
    bound_control,
    field,
    footnote_reference,
    rule,
    xml,
)

CLIENT = "Halden & Rowe Freight"
REFERENCE = "FA-2026-014"
ADDRESS = ("14 Quay Terrace, Leith", "hello@fennmark.example", "+44 131 496 0142")
STORE = "{6F1C2B1E-3D0A-4B57-9E63-5B7A4C1D9E20}"
INK, TEAL, GREY = RGBColor(15, 61, 76), RGBColor(23, 126, 137), RGBColor(91, 107, 115)
WHEN = dt.datetime(2026, 2, 9, 9, 30)

SCHEDULE = [
    ("Deliverable", "Form", "Due", "Fee (EUR)"),
    ("City data, cleaned and documented", "Workbook", "16 February 2026", "4,200"),
    ("Analysis of coverage by continent", "Report", "28 February 2026", "6,800"),
    ("Recommendations for hub sites", "Presentation", "12 March 2026", "5,400"),
    ("Hand-over workshop, half a day", "On site", "19 March 2026", "2,000"),
    ("Total", "", "", "18,400"),
]


def styles(document: Any) -> None:
    normal = document.styles["Normal"]
    normal.font.name, normal.font.size = "Calibri", Pt(10.5)
    normal.element.rPr.rFonts.set(qn("w:eastAsia"), "Noto Sans CJK SC")
    normal.paragraph_format.space_after, normal.paragraph_format.line_spacing = Pt(7), 1.15
    for name, size, colour, before in (
        ("Title", 25, INK, 0),
        ("Heading 1", 14.5, INK, 16),
        ("Heading 2", 11.5, TEAL, 10),
        ("Caption", 9, GREY, 2),
    ):
        style = document.styles[name]
        style.font.name, style.font.size, style.font.color.rgb = "Calibri", Pt(size), colour
        style.font.bold, style.font.italic = name != "Caption", False
        fonts = style.element.get_or_add_rPr().get_or_add_rFonts()
        for theme in ("asciiTheme", "hAnsiTheme", "eastAsiaTheme", "cstheme"):
            fonts.attrib.pop(qn("w:" + theme), None)
        style.paragraph_format.space_before, style.paragraph_format.space_after = Pt(before), Pt(5)
    for name in ("Header", "Footer"):
        document.styles[name].element.pPr.remove(document.styles[name].element.pPr.find(qn("w:tabs")))
        document.styles[name].paragraph_format.tab_stops.add_tab_stop(Cm(16.2), WD_TAB_ALIGNMENT.RIGHT)
    document.styles["Title"].element.get_or_add_pPr().remove(document.styles["Title"].element.pPr.find(qn("w:pBdr")))
    note = document.styles.add_style("footnote text", WD_STYLE_TYPE.PARAGRAPH)
    note.base_style, note.font.size, note.font.color.rgb = normal, Pt(8.5), GREY
    note.element.set(qn("w:styleId"), "FootnoteText")
    document.styles.element.append(
        xml(
            '<w:style w:type="table" w:customStyle="1" w:styleId="FennmarkTable">'
            '<w:name w:val="Fennmark Table"/><w:basedOn w:val="TableNormal"/><w:tblPr>'
            '<w:tblStyleRowBandSize w:val="1"/><w:tblBorders>'
            '<w:top w:val="single" w:sz="8" w:color="0F3D4C"/>'
            '<w:bottom w:val="single" w:sz="8" w:color="0F3D4C"/>'
            '<w:insideH w:val="single" w:sz="4" w:color="D3DEE1"/></w:tblBorders><w:tblCellMar>'
            '<w:top w:w="70" w:type="dxa"/><w:left w:w="110" w:type="dxa"/>'
            '<w:bottom w:w="70" w:type="dxa"/><w:right w:w="110" w:type="dxa"/></w:tblCellMar></w:tblPr>'
            '<w:tblStylePr w:type="firstRow"><w:rPr><w:b/><w:color w:val="FFFFFF"/></w:rPr><w:tcPr>'
            '<w:shd w:val="clear" w:color="auto" w:fill="0F3D4C"/></w:tcPr></w:tblStylePr>'
            '<w:tblStylePr w:type="lastRow"><w:rPr><w:b/></w:rPr><w:tcPr>'
            '<w:shd w:val="clear" w:color="auto" w:fill="E6F0F1"/></w:tcPr></w:tblStylePr></w:style>'
        )
    )


def numbering(document: Any) -> None:
    """Headings count 1, 1.1; the list style `List Number` counts (a), (b)."""
    root = document.part.numbering_part.element
    levels = "".join(
        f'<w:lvl w:ilvl="{level}"><w:start w:val="1"/><w:numFmt w:val="decimal"/>'
        f'<w:pStyle w:val="Heading{level + 1}"/><w:lvlText w:val="{text}"/><w:lvlJc w:val="left"/>'
        '<w:pPr><w:ind w:left="567" w:hanging="567"/></w:pPr></w:lvl>'
        for level, text in enumerate(("%1", "%1.%2"))
    )
    letters = (
        '<w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="lowerLetter"/>'
        '<w:pStyle w:val="ListNumber"/><w:lvlText w:val="(%1)"/><w:lvlJc w:val="left"/>'
        '<w:pPr><w:ind w:left="567" w:hanging="425"/></w:pPr></w:lvl>'
    )
    for number, body in ((90, levels), (91, letters)):
        root.insert(
            0,
            xml(
                f'<w:abstractNum w:abstractNumId="{number}">'
                f'<w:multiLevelType w:val="multilevel"/>{body}</w:abstractNum>'
            ),
        )
        root.append(xml(f'<w:num w:numId="{number}"><w:abstractNumId w:val="{number}"/></w:num>'))
    for name, level, number in (("Heading 1", 0, 90), ("Heading 2", 1, 90), ("List Number", 0, 91)):
        properties = document.styles[name].element.get_or_add_pPr()
        for old in properties.findall(qn("w:numPr")):
            properties.remove(old)
        properties.get_or_add_numPr().get_or_add_numId().val = number
        properties.numPr.get_or_add_ilvl().val = level


def widths(table: Any, *centimetres: float) -> None:
    """Fixed column widths, in the grid and in the cells: applications differ in which they obey."""
    table.autofit = False
    for column, value in zip(table.columns, centimetres, strict=True):
        column.width = Cm(value)
        for cell in column.cells:
            cell.width = Cm(value)


def flush(picture: Any, description: str) -> None:
    """No distance around an inline picture, and an alternative text."""
    for side in "TBLR":
        picture._inline.set("dist" + side, "0")
    picture._inline.docPr.set("descr", description)


def letterhead(document: Any) -> None:
    section = document.sections[0]
    section.page_width, section.page_height = Cm(21), Cm(29.7)
    section.left_margin = section.right_margin = Cm(2.4)
    section.top_margin, section.bottom_margin = Cm(3.1), Cm(2.5)
    section.different_first_page_header_footer = True
    table = section.first_page_header.add_table(1, 2, Cm(16.2))
    section.first_page_header._element.remove(section.first_page_header.paragraphs[0]._p)
    left, right = table.rows[0].cells
    run = left.paragraphs[0].add_run()
    flush(run.add_picture(io.BytesIO(mark()), height=Cm(1.15)), "Fennmark Analytics")
    name = left.paragraphs[0].add_run("  Fennmark Analytics")
    name.font.size, name.font.bold, name.font.color.rgb = Pt(17), True, INK
    right.paragraphs[0].alignment = WD_ALIGN_PARAGRAPH.RIGHT
    address = right.paragraphs[0].add_run("\n".join(ADDRESS))
    address.font.size, address.font.color.rgb = Pt(8.5), GREY
    rule(section.first_page_header.add_paragraph(), "top", "E08E45", 18, 1)
    running = section.header.paragraphs[0]
    rule(running, "bottom", "D3DEE1")
    running.add_run(f"Fennmark Analytics\tStatement of work {REFERENCE}")
    for footer in (section.first_page_footer, section.footer):
        line = footer.paragraphs[0]
        rule(line, "top", "D3DEE1")
        line.add_run("Registered in Scotland, SC000000 · Confidential\tPage ")
        field(line, "PAGE", "1")
        line.add_run(" of ")
        field(line, "NUMPAGES", "3")
    for part in (section.header, section.first_page_footer, section.footer):
        for run in part.paragraphs[0].runs:
            run.font.size, run.font.color.rgb = Pt(8.5), GREY


def opening(document: Any) -> None:
    document.add_paragraph("Statement of work", style="Title")
    facts = document.add_table(4, 2)
    facts.alignment = WD_TABLE_ALIGNMENT.LEFT
    widths(facts, 3, 13.2)
    values = (CLIENT, "City coverage study", "", "9 February 2026")
    for row, label, value in zip(facts.rows, ("Client", "Project", "Reference", "Date"), values, strict=True):
        row.cells[0].paragraphs[0].add_run(label).font.color.rgb = GREY
        row.cells[1].paragraphs[0].add_run(value).font.bold = True
        for cell in row.cells:
            cell.paragraphs[0].paragraph_format.space_after = Pt(2)
    bound_control(facts.rows[2].cells[1].paragraphs[0], "Reference", "/f:project/f:reference", STORE, REFERENCE)

    document.add_heading("Purpose", 1)
    text = document.add_paragraph("Fennmark Analytics (“the consultant”) will show where ")
    text.add_run("Halden &").italic = True
    text.add_run(" Rowe ").italic = True
    end = text.add_run("Freight")
    end.italic = end.bold = True
    text.add_run(
        " (“the client”) can reach the most people from the fewest sites. The study rests on a "
        "public list of cities with at least 150,000 inhabitants"
    )
    footnote_reference(text, 1)
    text.add_run(" and on nothing that the client has to collect first.")
    remark = document.add_paragraph("The work ends with a recommendation of up to five hub sites; see ")
    field(remark, "REF schedule \\h", "Table 1")
    remark.add_run(".")
    document.add_comment(remark.runs[0], "Five is the number agreed on the call; keep it.", "Ines Calder", "IC")


def scope(document: Any) -> None:
    document.add_heading("Scope", 1)
    document.add_heading("What is included", 2)
    for line in (
        "reading, cleaning and documenting the city data;",
        "an analysis by continent, country and time zone, with its uncertainty stated;",
        "a written report, a presentation and a workbook that the client may change;",
        "one round of corrections within ten working days of delivery.",
    ):
        document.add_paragraph(line, style="List Number")
    document.add_heading("What is not included", 2)
    text = document.add_paragraph(
        "Traffic forecasts, property searches and negotiations with port "
        "authorities. These can be ordered separately at the rates in "
    )
    text._p.append(
        xml(
            '<w:ins w:id="301" w:author="Ines Calder" w:date="2026-02-09T09:30:00Z"><w:r>'
            '<w:t xml:space="preserve">the current edition of </w:t></w:r></w:ins>'
        )
    )
    link = document.part.relate_to("https://fennmark.example/rates", RELATIONSHIP_TYPE.HYPERLINK, is_external=True)
    anchor = xml(
        '<w:hyperlink><w:r><w:rPr><w:color w:val="177E89"/><w:u w:val="single"/></w:rPr>'
        "<w:t>our list of rates</w:t></w:r></w:hyperlink>"
    )
    anchor.set(qn("r:id"), link)
    text._p.append(anchor)
    text.add_run(".")


def duties(document: Any) -> None:
    document.add_heading("What the client provides", 2)
    document.add_paragraph(
        "A list of depots with postal addresses, one person who answers questions within "
        "two working days, and a room for the workshop. Lists that arrive late move the dates "
        "in the plan by the same number of days."
    )
    document.add_heading("People", 2)
    document.add_paragraph(
        "Ines Calder leads the work and is the only contact for changes of scope. Tomas "
        "Reyl prepares the data and the workbook. A change of persons is agreed in writing."
    )
    document.add_heading("Confidence and care", 2)
    document.add_paragraph(
        "Depot addresses are used for this study only, kept encrypted and deleted 90 days "
        "after the hand-over. The public data may be passed on with their source named."
    )


def schedule(document: Any) -> None:
    document.add_heading("Schedule and fees", 1)
    caption = document.add_paragraph("Table ", style="Caption")
    field(caption, "SEQ Table \\* ARABIC", "1")
    bookmark(caption, "schedule", 11)
    caption.add_run(". Deliverables, dates and fees, without value added tax")
    caption.paragraph_format.keep_with_next = True
    table = document.add_table(len(SCHEDULE), 4)
    table.style = document.styles["Fennmark Table"]
    widths(table, 7.0, 2.9, 3.9, 2.4)
    look = table._tbl.tblPr.find(qn("w:tblLook"))
    look.attrib.clear()
    look.set(qn("w:val"), "0460")
    for name, on in (("firstRow", 1), ("lastRow", 1), ("firstColumn", 0), ("noHBand", 1), ("noVBand", 1)):
        look.set(qn("w:" + name), str(on))
    table.rows[0]._tr.get_or_add_trPr().append(xml("<w:tblHeader/>"))
    for row, values in zip(table.rows, SCHEDULE, strict=True):
        for cell, value in zip(row.cells, values, strict=True):
            cell.paragraphs[0].add_run(value)
            cell.paragraphs[0].paragraph_format.space_after = Pt(0)
            cell.paragraphs[0].paragraph_format.keep_with_next = row._tr is not table.rows[-1]._tr
            if cell._tc is row.cells[-1]._tc:
                cell.paragraphs[0].alignment = WD_ALIGN_PARAGRAPH.RIGHT
    after = document.add_paragraph(
        "Half of the total is due on signature, half on hand-over, each within 30 days of the invoice."
    )
    after.paragraph_format.space_before = Pt(9)


def closing(document: Any, cities: Path) -> None:
    document.add_heading("Area of study", 1)
    picture = document.add_paragraph()
    picture.paragraph_format.keep_with_next = True
    flush(
        picture.add_run().add_picture(io.BytesIO(dot_map(cities, -130, -45, 180, 62, 1400)), width=Cm(16.2)),
        "World map made of dots, one for each city of at least 150,000 inhabitants",
    )
    caption = document.add_paragraph("Figure ", style="Caption")
    field(caption, "SEQ Figure \\* ARABIC", "1")
    caption.add_run(". Cities in the data; those above two million inhabitants in orange")
    document.add_heading("Agreement", 1)
    document.add_paragraph(f"Signed for {CLIENT} and for Fennmark Analytics by persons entitled to bind them.")
    table = document.add_table(2, 2)
    for cell, who in zip(table.rows[0].cells, ("For the client", "For the consultant"), strict=True):
        cell.paragraphs[0].add_run(who).font.bold = True
        cell.paragraphs[0].paragraph_format.space_after = Pt(30)
        cell.paragraphs[0].paragraph_format.keep_with_next = True
    for cell in table.rows[1].cells:
        rule(cell.paragraphs[0], "top", "5B6B73", 6, 4)
        cell.paragraphs[0].add_run("Name, place and date").font.color.rgb = GREY


def main(folder: Path) -> None:
    document = docx.Document()
    styles(document)
    numbering(document)
    letterhead(document)
    opening(document)
    scope(document)
    duties(document)
    schedule(document)
    closing(document, folder / "staedte.csv")
    add_footnotes(document, ["GeoNames, extract of cities, licensed CC BY 4.0."])
    item = add_part(
        document.part,
        "/customXml/item2.xml",
        "application/xml",
        RELATIONSHIP_TYPE.CUSTOM_XML,
        f'<project xmlns="urn:fennmark:project"><reference>{REFERENCE}</reference><owner>Ines Calder</owner></project>',
    )
    add_part(
        item,
        "/customXml/itemProps2.xml",
        "application/vnd.openxmlformats-officedocument.customXmlProperties+xml",
        RELATIONSHIP_TYPE.CUSTOM_XML_PROPS,
        '<ds:datastoreItem xmlns:ds="http://schemas.openxmlformats.org/officeDocument/2006/customXml" '
        f'ds:itemID="{STORE}"><ds:schemaRefs>'
        '<ds:schemaRef ds:uri="urn:fennmark:project"/></ds:schemaRefs>'
        "</ds:datastoreItem>",
    )
    core = document.core_properties
    core.title, core.author, core.comments = "Statement of work", "Fennmark Analytics", ""
    core.created = core.modified = WHEN
    core.last_modified_by = "Ines Calder"
    document.save(str(folder / "agreement.docx"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

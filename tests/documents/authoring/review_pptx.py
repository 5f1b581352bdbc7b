"""Write `review.pptx`: a project review in a house style, with much that a rewrite would lose.

In the package: a theme and master of its own (colours, fonts, picture, footer, slide number), layouts
with placeholders, a native chart with its workbook, a native table, a group, speaker notes, a hidden
slide, a transition, alternative texts. The client's name stands on three slides and in one note.
"""

from __future__ import annotations

import datetime as dt
import io
import re
import sys
from pathlib import Path
from typing import Any

from lxml import etree
from pptx import Presentation
from pptx.chart.data import CategoryChartData
from pptx.dml.color import RGBColor
from pptx.enum.chart import XL_CHART_TYPE, XL_LABEL_POSITION, XL_LEGEND_POSITION
from pptx.enum.dml import MSO_THEME_COLOR
from pptx.enum.shapes import MSO_SHAPE
from pptx.enum.text import MSO_ANCHOR, PP_ALIGN
from pptx.oxml import parse_xml
from pptx.oxml.ns import qn
from pptx.util import Cm, Pt

from tests.documents.authoring.artwork import dot_map, mark

Box = tuple[float, float, float, float]

CLIENT = "Halden & Rowe Freight"
MEETING = "12 March 2026"
WIDTH, HEIGHT = Cm(33.867), Cm(19.05)
A = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
COLOURS = {
    "dk2": "0F3D4C",
    "lt2": "E6F0F1",
    "accent1": "177E89",
    "accent2": "E08E45",
    "accent3": "5B6B73",
    "accent4": "8FB8BD",
    "accent5": "0F3D4C",
    "accent6": "C8553D",
    "hlink": "177E89",
    "folHlink": "5B6B73",
}
KEPT = {
    "Title Slide": "Fennmark Title",
    "Title and Content": "Fennmark Text",
    "Two Content": "Fennmark Two",
    "Title Only": "Fennmark Plain",
}

# Placeholder boxes in centimetres: left, top, width, height; by layout and placeholder type.
BOXES: dict[str, dict[str, Box]] = {
    "master": {
        "title": (1.6, 1.0, 28.4, 2.1),
        "body": (1.6, 3.9, 30.6, 12.9),
        "dt": (1.6, 17.75, 5, 0.8),
        "ftr": (7.5, 17.75, 18.8, 0.8),
        "sldNum": (29.2, 17.75, 3, 0.8),
    },
    "Title Slide": {"ctrTitle": (2.2, 9.6, 26, 3.2), "subTitle": (2.2, 13.0, 26, 2.2)},
    "Two Content": {"left": (1.6, 3.9, 14.8, 12.9), "right": (17.4, 3.9, 14.8, 12.9)},
}


def colour_of(code: str) -> RGBColor:
    colour: RGBColor = RGBColor.from_string(code)  # type: ignore[no-untyped-call]
    return colour


def theme(prs: Any) -> None:
    """House colours and fonts in the theme part of the master."""
    part = next(rel.target_part for rel in prs.slide_master.part.rels.values() if rel.reltype.endswith("/theme"))
    text = part.blob.decode()
    for name, colour in COLOURS.items():
        text = re.sub(rf"(<a:{name}>).*?(</a:{name}>)", rf'\1<a:srgbClr val="{colour}"/>\2', text, flags=re.DOTALL)
    text = re.sub(r'(<a:(?:major|minor)Font>\s*<a:latin typeface=)"[^"]*"', r'\1"Calibri"', text)
    part._blob = re.sub(r'(<a:theme [^>]*name=)"[^"]*"', r'\1"Fennmark"', text).encode()


def place(shape: Any, box: Box) -> None:
    shape.left, shape.top, shape.width, shape.height = (Cm(value) for value in box)


def kind(shape: Any) -> str:
    return str(shape.element.xpath(".//p:nvPr/p:ph")[0].get("type", "obj"))


def master(prs: Any) -> None:
    prs.slide_width, prs.slide_height = WIDTH, HEIGHT
    for layout in list(prs.slide_layouts):
        if layout.name not in KEPT:
            prs.slide_layouts.remove(layout)
    root = prs.slide_master
    for shape in root.placeholders:
        place(shape, BOXES["master"][kind(shape)])
    texts = root.element.find(qn("p:txStyles"))
    title = texts.find(qn("p:titleStyle")).find(qn("a:lvl1pPr"))
    title.set("algn", "l")
    title.find(qn("a:defRPr")).set("sz", "3000")
    title.find(qn("a:defRPr")).set("b", "1")
    title.find(qn("a:defRPr")).find(qn("a:solidFill")).find(qn("a:schemeClr")).set("val", "tx2")
    for level, size in (("a:lvl1pPr", "2400"), ("a:lvl2pPr", "2000")):
        style = texts.find(qn("p:bodyStyle")).find(qn(level))
        style.find(qn("a:defRPr")).set("sz", size)
        style.find(qn("a:spcBef")).find(qn("a:spcPct")).set("val", "80000")
    root.placeholders[0].text_frame.vertical_anchor = MSO_ANCHOR.MIDDLE
    for shape in root.placeholders:
        if kind(shape) in {"title", "body"}:
            shape.text_frame.margin_left = 0
    band = root.shapes._spTree
    add_bar(band, (0, 0, 33.867, 0.35), "tx2")
    add_bar(band, (1.6, 3.2, 2.4, 0.12), "accent2")
    add_picture(root, io.BytesIO(mark()), (30.6, 1.25, 1.6, 1.6), "House mark")


def add_bar(tree: Any, box: Box, colour: str) -> None:
    """A plain rectangle in a theme colour, behind the placeholders of a master or layout."""
    left, top, width, height = (int(Cm(value)) for value in box)
    number = 900 + len(tree)
    tree.insert(
        2,
        parse_xml(
            f'<p:sp xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" {A}>'
            "<p:nvSpPr>"
            f'<p:cNvPr id="{number}" name="Bar {number}"/><p:cNvSpPr/>'
            '<p:nvPr userDrawn="1"/></p:nvSpPr><p:spPr>'
            f'<a:xfrm><a:off x="{left}" y="{top}"/>'
            f'<a:ext cx="{width}" cy="{height}"/></a:xfrm>'
            '<a:prstGeom prst="rect"><a:avLst/></a:prstGeom>'
            f'<a:solidFill><a:schemeClr val="{colour}"/></a:solidFill>'
            "<a:ln><a:noFill/></a:ln></p:spPr></p:sp>"
        ),
    )


def add_picture(owner: Any, data: io.BytesIO, box: Box, text: str) -> None:
    """A picture on a master or layout; python-pptx offers that on slides only."""
    _, relation = owner.part.get_or_add_image_part(data)
    left, top, width, height = (int(Cm(value)) for value in box)
    tree = owner.shapes._spTree
    number = 950 + len(tree)
    tree.insert(
        2,
        parse_xml(
            f'<p:pic xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" {A} '
            'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><p:nvPicPr>'
            f'<p:cNvPr id="{number}" name="{text}" descr="{text}"/><p:cNvPicPr/>'
            '<p:nvPr userDrawn="1"/></p:nvPicPr>'
            f'<p:blipFill><a:blip r:embed="{relation}"/><a:stretch><a:fillRect/></a:stretch>'
            "</p:blipFill><p:spPr>"
            f'<a:xfrm><a:off x="{left}" y="{top}"/>'
            f'<a:ext cx="{width}" cy="{height}"/></a:xfrm>'
            '<a:prstGeom prst="rect"><a:avLst/></a:prstGeom></p:spPr></p:pic>'
        ),
    )


def layouts(prs: Any, cities: Path) -> None:
    for layout in prs.slide_layouts:
        sides = iter(("left", "right"))
        for shape in list(layout.placeholders):
            name = kind(shape)
            key = next(sides) if layout.name == "Two Content" and name == "obj" else name
            box = BOXES.get(layout.name, {}).get(key) or BOXES["master"].get("body" if name == "obj" else name)
            if box:
                place(shape, box)
            if layout.name == "Two Content" and name == "obj":
                style = shape.text_frame._txBody.find(qn("a:lstStyle"))
                for child in list(style):  # sizes come from the master
                    style.remove(child)
        if layout.name == "Title Slide":
            layout.element.set("showMasterSp", "0")
            cover_layout(layout, cities)
        layout.name = KEPT[layout.name]


def cover_layout(layout: Any, cities: Path) -> None:
    layout.background.fill.solid()
    layout.background.fill.fore_color.theme_color = MSO_THEME_COLOR.TEXT_2
    add_picture(
        layout,
        io.BytesIO(dot_map(cities, -130, -33, 180, 62, 1600, dark=True)),
        (0, 0, 33.867, 10.38),
        "Cities of the world as dots",
    )
    for shape in layout.placeholders:
        size, colour = {
            "ctrTitle": (40, colour_of("FFFFFF")),
            "subTitle": (20, colour_of("C9E0E2")),
        }.get(kind(shape), (12, None))
        if colour is None:
            shape.element.getparent().remove(shape.element)
            continue
        body = shape.text_frame._txBody
        style = body.find(qn("a:lstStyle"))
        for child in list(style):
            style.remove(child)
        style.append(
            parse_xml(
                f'<a:lvl1pPr {A} marL="0" indent="0" algn="l"><a:buNone/><a:defRPr sz="{size * 100}" '
                f'b="{int(size == 40)}"><a:solidFill><a:srgbClr val="{colour}"/></a:solidFill>'
                "</a:defRPr></a:lvl1pPr>"
            )
        )
        shape.text_frame.vertical_anchor = MSO_ANCHOR.BOTTOM if size == 40 else MSO_ANCHOR.TOP


def slide(prs: Any, layout: str, title: str, notes: str) -> Any:
    """A slide with footer and number, which python-pptx leaves out of new slides."""
    used = next(item for item in prs.slide_layouts if item.name == layout)
    new = prs.slides.add_slide(used)
    new.shapes.title.text = title
    new.notes_slide.notes_text_frame.text = notes
    if layout != "Fennmark Title":
        for shape in used.placeholders:
            if kind(shape) in {"ftr", "sldNum"}:
                copy = parse_xml(etree.tostring(shape.element))
                copy.nvSpPr.cNvPr.set("id", str(new.shapes._next_shape_id))
                new.shapes._spTree.append(copy)
        for shape in new.placeholders:
            if kind(shape) == "ftr":
                shape.text_frame.text = (
                    f"City coverage study · {CLIENT}" if len(prs.slides) == 2 else "City coverage study"
                )
    return new


def bullets(shape: Any, lines: list[str]) -> None:
    frame = shape.text_frame
    for index, line in enumerate(lines):
        paragraph = frame.paragraphs[0] if index == 0 else frame.add_paragraph()
        strong, _, rest = line.partition(": ")
        first = paragraph.add_run()
        first.text, first.font.bold = (strong + ": ", True) if rest else (strong, None)
        if rest:
            paragraph.add_run().text = rest


def cover(prs: Any) -> None:
    new = slide(prs, "Fennmark Title", "City coverage study", "Welcome; the client joins by video.")
    paragraph = new.placeholders[1].text_frame.paragraphs[0]
    for text, bold in (("Project review for ", False), (CLIENT, True), (f" · {MEETING}", False)):
        run = paragraph.add_run()
        run.text, run.font.bold = text, bold
    transition = parse_xml(
        '<p:transition xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
        'spd="med"><p:fade/></p:transition>'
    )
    new.element.find(qn("p:clrMapOvr")).addnext(transition)


def summary(prs: Any) -> None:
    new = slide(prs, "Fennmark Text", "Where we stand", f"Thank {CLIENT} for the early access to depot lists.")
    bullets(
        new.placeholders[1],
        [
            "Data: cities of at least 150,000 inhabitants are cleaned and documented",
            f"Fit: the depots of {CLIENT} are matched to their nearest city",
            "Method: each site is scored by the people within one driving day",
            "Open: two depots have no address that can be located",
            "Next: the shortlist of hub sites, then the workshop in Leith",
        ],
    )


def chart(prs: Any) -> None:
    new = slide(prs, "Fennmark Two", "Effort is on plan, the analysis is ahead", "Hours as booked, rounded.")
    data: Any = CategoryChartData()  # type: ignore[no-untyped-call]
    data.categories = ["Data", "Analysis", "Sites", "Workshop"]
    data.add_series("Planned hours", (42, 68, 54, 20))
    data.add_series("Booked hours", (45, 61, 23, 4))
    frame = new.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, Cm(1.6), Cm(3.9), Cm(17.4), Cm(12.9), data)
    drawn = frame.chart
    drawn.has_legend, drawn.has_title = True, False
    drawn.legend.include_in_layout, drawn.legend.position = False, XL_LEGEND_POSITION.BOTTOM
    drawn.font.size = Pt(14)
    drawn.value_axis.major_gridlines.format.line.color.rgb = colour_of("D3DEE1")
    drawn.value_axis.format.line.fill.background()
    plot = drawn.plots[0]
    plot.gap_width, plot.overlap, plot.has_data_labels = 70, -5, True
    plot.data_labels.position, plot.data_labels.font.size = XL_LABEL_POSITION.OUTSIDE_END, Pt(12)
    for series, colour in zip(plot.series, (MSO_THEME_COLOR.ACCENT_4, MSO_THEME_COLOR.ACCENT_1), strict=True):
        series.format.fill.solid()
        series.format.fill.fore_color.theme_color = colour
    left, right = new.placeholders[1], new.placeholders[2]
    left.element.getparent().remove(left.element)
    place(right, (20.2, 3.9, 12.0, 12.9))
    bullets(
        right,
        [
            "133 of 184 hours are booked",
            "The analysis needed 7 hours less than planned",
            "Sites and workshop have only begun",
            "No change to the agreed fee",
        ],
    )


def table(prs: Any) -> None:
    new = slide(prs, "Fennmark Plain", "Deliverables and dates", "Dates follow the statement of work.")
    rows = [
        ("Deliverable", "Form", "Due", "State"),
        ("City data, cleaned and documented", "Workbook", "16 February 2026", "Delivered"),
        ("Analysis of coverage by continent", "Report", "28 February 2026", "Delivered"),
        ("Recommendations for hub sites", "Presentation", MEETING, "In progress"),
        ("Hand-over workshop, half a day", "On site", "19 March 2026", "Booked"),
    ]
    grid = new.shapes.add_table(len(rows), 4, Cm(1.6), Cm(4.6), Cm(30.6), Cm(10.5)).table
    for column, width in zip(grid.columns, (13.6, 5.4, 6.6, 5.0), strict=True):
        column.width = Cm(width)
    for number, values in enumerate(rows):
        grid.rows[number].height = Cm(2.1)
        for index, value in enumerate(values):
            cell = grid.cell(number, index)
            cell.text, cell.vertical_anchor = value, MSO_ANCHOR.MIDDLE
            cell.margin_left = Cm(0.4)
            cell.text_frame.paragraphs[0].runs[0].font.size = Pt(18)
            cell.text_frame.paragraphs[0].runs[0].font.bold = number == 0 or None


def steps(prs: Any) -> None:
    new = slide(prs, "Fennmark Plain", "How a site is scored", "Walk through the four steps with one example.")
    group = new.shapes.add_group_shape()
    group.name = "Four steps"
    for index, (head, text) in enumerate(
        (
            ("Place", "a site near a city"),
            ("Reach", "cities in a driving day"),
            ("Count", "people, once each"),
            ("Rank", "by people and cost"),
        )
    ):
        box = group.shapes.add_shape(
            MSO_SHAPE.PENTAGON if index < 3 else MSO_SHAPE.RECTANGLE,
            Cm(1.6 + 7.75 * index),
            Cm(6.0),
            Cm(7.3),
            Cm(5.2),
        )
        box.fill.solid()
        box.fill.fore_color.theme_color = MSO_THEME_COLOR.TEXT_2 if index == 3 else MSO_THEME_COLOR.ACCENT_1
        box.line.fill.background()
        box.element.remove(box.element.find(qn("p:style")))  # no shadow, in every application
        box.text_frame.word_wrap, box.text_frame.vertical_anchor = True, MSO_ANCHOR.MIDDLE
        for number, (line, size) in enumerate(((head, 26), (text, 17))):
            paragraph = box.text_frame.paragraphs[0] if number == 0 else box.text_frame.add_paragraph()
            paragraph.alignment = PP_ALIGN.CENTER
            run = paragraph.add_run()
            run.text, run.font.size, run.font.bold = line, Pt(size), number == 0
            run.font.color.theme_color = MSO_THEME_COLOR.BACKGROUND_1
    note = new.shapes.add_textbox(Cm(1.6), Cm(12.6), Cm(30.6), Cm(2)).text_frame
    note.word_wrap, note.margin_left = True, 0
    note.text = "A city within reach of two sites is counted for the nearer one only."
    note.paragraphs[0].runs[0].font.size = Pt(20)


def backup(prs: Any) -> None:
    new = slide(prs, "Fennmark Text", "Backup: sources", "Hidden; show on request only.")
    bullets(new.placeholders[1], ["GeoNames, extract of cities, licensed CC BY 4.0", "Rates of January 2026"])
    new.element.set("show", "0")


def main(folder: Path) -> None:
    prs = Presentation()
    theme(prs)
    master(prs)
    layouts(prs, folder / "staedte.csv")
    for make in (cover, summary, chart, table, steps, backup):
        make(prs)
    core = prs.core_properties
    core.title, core.author, core.last_modified_by = (
        "City coverage study",
        "Fennmark Analytics",
        "Ines Calder",
    )
    core.created = core.modified = dt.datetime(2026, 3, 4, 15, 0)
    prs.save(str(folder / "review.pptx"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

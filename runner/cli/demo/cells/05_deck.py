# Variables may be gone: take the numbers from the file. Each slide is semantic HTML, set as native shapes.
import json

from bs4 import BeautifulSoup
from pptx import Presentation
from pptx.dml.color import RGBColor
from pptx.enum.text import MSO_ANCHOR, PP_ALIGN
from pptx.util import Inches, Pt

with open("/workspace/outputs/summary.json", encoding="utf-8") as file:
    summary = json.load(file)
rows = "".join(f"<tr><td>{c['continent']}</td><td>{c['largest']}</td><td>{c['cities']:,}</td>"
               f"<td>{c['people']:,}</td><td>{c['share']:.1%}</td></tr>" for c in summary["continents"])
slides_html = [
    "<h1>Where the city dwellers are</h1><p>City coverage</p><p>城市覆盖研究</p><p>دراسة تغطية المدن</p>",
    (f"<h2>Findings</h2><li><b>{summary['continents'][0]['share']:.0%}</b>of the people live in Asia</li>"
     f"<li><b>{summary['million_cities']}</b>cities have a million inhabitants or more</li>"
     f"<li><b>{summary['south_share']:.0%}</b>of the people live south of the equator</li>"),
    "<h2>Largest cities, mean latitude</h2><img src='/workspace/outputs/chart.png'>",
    ("<h2>By continent</h2><table><tr><th>Continent</th><th>Largest city</th><th>Cities</th><th>People</th>"
     f"<th>Share</th></tr>{rows}</table>"),
]
prs = Presentation()
prs.slide_width, prs.slide_height = Inches(13.33), Inches(7.5)


def fill(shape, color):
    shape.fill.solid()
    shape.fill.fore_color.rgb = RGBColor.from_string(color)
    return shape


def write(tf, text, size, color, bold=False, align=None):
    p = tf.add_paragraph() if tf.paragraphs[0].runs else tf.paragraphs[0]
    r, p.alignment, p.space_after = p.add_run(), align, Pt(size / 5)
    r.text, r.font.name, r.font.size, r.font.bold = text, "Noto Sans CJK SC", Pt(size), bold
    r.font.color.rgb, tf.word_wrap = RGBColor.from_string(color), True


for html in slides_html:
    slide, soup = prs.slides.add_slide(prs.slide_layouts[6]), BeautifulSoup(html, "html.parser")
    ink, box = "ffffff" if soup.h1 else "0f3d4c", slide.shapes.add_textbox
    fill(box(0, 0, prs.slide_width, Inches(7.5 if soup.h1 else 0.25)), "0f3d4c")
    tf = box(*map(Inches, (0.8, 2.4 if soup.h1 else 0.65, 11.7, 0.8))).text_frame
    for el in soup.find_all(["h1", "h2", "p"]):
        write(tf, el.text, {"h1": 44, "h2": 30, "p": 22}[el.name], ink, el.name != "p")
    for n, li in enumerate(soup.find_all("li")):
        card = fill(box(*map(Inches, (0.8 + 4 * n, 2.4, 3.7, 2.3))), "e6f0f1").text_frame
        write(card, li.b.extract().text, 60, "177e89", True, PP_ALIGN.CENTER)
        write(card, li.text, 20, "1f2937", False, PP_ALIGN.CENTER)
    if soup.img:
        slide.shapes.add_picture(soup.img["src"], Inches(1.1), Inches(1.5), width=Inches(11.2))
    for y, tr in enumerate(soup.find_all("tr")):
        grid = grid if y else slide.shapes.add_table(7, 5, *map(Inches, (0.8, 1.7, 11.7, 4.9))).table
        for x, td in enumerate(tr.find_all(["th", "td"])):
            cell = fill(grid.cell(y, x), "0f3d4c" if y == 0 else "ffffff" if y % 2 else "f1f6f7")
            cell.vertical_anchor, align = MSO_ANCHOR.MIDDLE, PP_ALIGN.RIGHT if x > 1 else None
            write(cell.text_frame, td.text, 18, "1f2937" if y else "ffffff", y == 0, align)
prs.save("/workspace/outputs/deck.pptx")
print("deck.pptx,", len(prs.slides), "slides")

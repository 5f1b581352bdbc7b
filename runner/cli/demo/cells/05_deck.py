# Variables may be gone: take the numbers from the file. Each slide is semantic HTML, set as native shapes.
import pandas as pd
from bs4 import BeautifulSoup
from pptx import Presentation
from pptx.dml.color import RGBColor
from pptx.enum.text import MSO_ANCHOR, PP_ALIGN
from pptx.oxml.ns import qn
from pptx.util import Inches, Pt

summary = pd.read_json("/workspace/outputs/summary.json", typ="series")
rows = "".join(f"<tr><td>{c['continent']}</td><td>{c['largest']}</td><td>{c['cities']:,}</td>"
               f"<td>{c['people']:,}</td><td>{c['share']:.1%}</td></tr>" for c in summary["continents"])
slides_html = [
    "<h1>Where the city dwellers are</h1><p>City coverage study</p><p>城市覆盖研究</p><p>دراسة تغطية المدن</p>",
    (f"<h2>Findings</h2><li><b>{summary['continents'][0]['share']:.0%}</b>of the people in these cities live "
     f"in Asia</li><li><b>{summary['million_cities']}</b>cities have a million inhabitants or more</li>"
     f"<li><b>{summary['south_share']:.0%}</b>of the people live south of the equator</li>"),
    "<h2>Ten cities, mean latitude</h2><img alt='Bars: people in ten cities, mean latitude by continent'>",
    ("<h2>By continent</h2><table><tr><th>Continent</th><th>Largest city</th><th>Cities</th><th>People</th>"
     f"<th>Share</th></tr>{rows}</table>")]
prs = Presentation()
prs.slide_width, prs.slide_height = Inches(13.33), Inches(7.5)

def fill(shape, color):
    shape.fill.solid()
    shape.fill.fore_color.rgb = RGBColor.from_string(color)
    return shape

def write(tf, text, size, color, bold=False, align=PP_ALIGN.LEFT, inset=0):
    p = tf.add_paragraph() if tf.paragraphs[0].runs else tf.paragraphs[0]
    p.alignment, tf.word_wrap, tf.margin_left, tf.margin_right, r = align, True, inset, inset, p.add_run()
    r.text, r.font.name, r.font.size, r.font.bold = text, "Noto Sans CJK SC", Pt(size), bold
    for tag, typeface in (("a:ea", "Noto Sans CJK SC"), ("a:cs", "Noto Sans Arabic")):
        r._r.rPr.append(r._r.makeelement(qn(tag), typeface=typeface))
    r.font.color.rgb = RGBColor.from_string(color)

for html in slides_html:
    slide, soup = prs.slides.add_slide(prs.slide_layouts[5]), BeautifulSoup(html, "html.parser")
    shapes, title, box, cover = slide.shapes, slide.shapes.title, slide.shapes.add_textbox, soup.h1
    fill(slide.background if cover else box(0, 0, prs.slide_width, Inches(0.25)), "0f3d4c")
    title.left, title.top, title.width, title.height = map(Inches, (0.8, 2.1 if cover else 0.55, 11.73, 0.9))
    for n, el in enumerate(soup.find_all(["h1", "h2", "p"])):
        tf = (box(*map(Inches, (0.8, 2.65 + 0.52 * n, 11.73, 0.5))) if el.name == "p" else title).text_frame
        write(tf, el.text, dict(h1=44, h2=30, p=22)[el.name], "ffffff" if cover else "0f3d4c", el.name != "p")
    for n, li in enumerate(soup.find_all("li")):
        card = fill(box(*map(Inches, (0.8 + 4.01 * n, 2.65, 3.71, 2.9))), "e6f0f1").text_frame
        card.vertical_anchor, card.margin_bottom = MSO_ANCHOR.MIDDLE, Pt(16)
        write(card, li.b.extract().text, 60, "177e89", True, PP_ALIGN.CENTER, Pt(16))
        write(card, li.text, 20, "1f2937", False, PP_ALIGN.CENTER, Pt(16))
    if soup.img:
        picture = shapes.add_picture("/workspace/outputs/chart.png", *map(Inches, (1.065, 1.55, 11.2)))
        picture._pic.nvPicPr.cNvPr.set("descr", soup.img["alt"])
    for y, tr in enumerate(soup.find_all("tr")):
        grid = grid if y else shapes.add_table(7, 5, *map(Inches, (0.8, 1.7, 11.73, 4.9))).table
        for x, td in enumerate(tr.find_all(["th", "td"])):
            cell = fill(grid.cell(y, x), "0f3d4c" if y == 0 else "ffffff" if y % 2 else "f1f6f7")
            cell.vertical_anchor, align = MSO_ANCHOR.MIDDLE, PP_ALIGN.RIGHT if x > 1 else PP_ALIGN.LEFT
            write(cell.text_frame, td.text, 18, "1f2937" if y else "ffffff", y == 0, align)
prs.save("/workspace/outputs/deck.pptx")
print("deck.pptx,", len(prs.slides), "slides")

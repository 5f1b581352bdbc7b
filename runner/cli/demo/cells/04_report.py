# The report: semantic HTML, set by WeasyPrint.
from weasyprint import CSS, HTML


def table(frame):
    columns = {"continent": "Continent", "country": "Country", "largest": "Largest city", "cities": "Cities",
               "people": "People (m)", "share": "Share"}
    formats = {"cities": "{:,}".format, "people": lambda n: f"{n / 1e6:,.1f}", "share": "{:.1%}".format}
    frame = frame.assign(**{c: frame[c].map(f) for c, f in formats.items() if c in frame})
    return frame[[c for c in columns if c in frame]].rename(columns=columns).to_html(index=False, border=0)


number, million = f"{summary['cities']:,}", summary["million_cities"]
top, south = summary["continents"][0], f"{summary['south_share']:.0%}"
chinese = (f"本报告统计了全球 {number} 座人口不少于十五万的城市。其中 {million} 座城市的人口超过百万，"
           f"南半球的居民仅占 {south}。数据按行政范围统计，与城市群人口不同。")
arabic = (f"يشمل هذا التقرير {number} مدينة لا يقل عدد سكان كل منها عن 150,000 نسمة. ويتجاوز عدد السكان "
          f"المليون في {million} مدينة، ولا يعيش جنوب خط الاستواء سوى {south} من سكان هذه المدن.")
html = f"""<html lang="en"><title>Where the city dwellers are</title>
<header><p>City coverage study</p><h1>Where the city dwellers are</h1>
<p>{number} cities, {summary['countries']} countries, {summary['people'] / 1e9:.2f} billion people</p>
</header><h2>Findings</h2><ul><li>🌏&ensp;{top['continent']} holds {top['share']:.0%} of the people.</li>
<li>🏙️&ensp;{million} cities have a million inhabitants or more.</li>
<li>🧭&ensp;Only {south} live south of the equator.</li></ul>
<blockquote><p>“What is the city but the people?”</p><footer>Shakespeare, <cite>Coriolanus</cite></footer>
</blockquote>
<h2>By continent</h2>{table(continents.reset_index())}
<h2>Two views</h2><figure><img src="chart.png" alt="People in ten cities; mean latitude by continent">
<figcaption>Left: ten cities that the table also names in local script, one for each country.
Right: mean latitude of city dwellers by continent.</figcaption></figure>
<h2>By country</h2><p>The eighteen countries with the most people in cities of at least 150,000.</p>
{table(countries.head(18).drop(columns="continent"))}
<h2 class="new">Summaries</h2><h3>中文摘要</h3><p lang="zh-Hans">{chinese}</p>
<section lang="ar" dir="rtl"><h3>ملخّص بالعربية</h3><p>{arabic}</p></section>
<h2>Method and limits</h2><ol><li>The table is UTF-16, with decimal commas and dots between thousands.</li>
<li>Rows dropped for a repeated number or an impossible position: none ✅</li>
<li>Mean latitude is weighted by people: it tells where inhabitants are, not cities.</li></ol>
<p>Counts follow administrative borders. A large municipality may look larger than a wider urban area, and
some districts are listed beside the city they belong to, so totals are upper bounds.</p>
<p>Data: GeoNames (geonames.org), CC BY 4.0.</p></html>"""
css = """
@page { size: A4; margin: 22mm 24mm; font: 9pt 'Noto Sans CJK SC'; color: #5b6b73;
        @bottom-left { content: "Where the city dwellers are" }
        @bottom-right { content: counter(page) " / " counter(pages) } }
@page cover { background: #0f3d4c; margin: 0;
              @bottom-left { content: none } @bottom-right { content: none } }
body { font: 10.5pt/1.55 'Noto Sans CJK SC', 'Noto Sans Arabic', 'DejaVu Sans'; color: #1f2937; margin: 0 }
header { page: cover; break-after: page; margin: 95mm 24mm 0; color: #c9e0e2; font-size: 13pt }
h1 { font-size: 29pt; line-height: 1.2; color: white; padding-bottom: 6mm; border-bottom: 3pt solid #e08e45 }
h2, h3 { font-size: 12pt; margin: 12pt 0 4pt; color: #0f3d4c; font-weight: 600; break-after: avoid }
h2 { font-size: 15pt; margin: 20pt 0 6pt } .new { break-before: page } .new, header + h2 { margin-top: 0 }
blockquote { margin: 14pt 0; padding: 6pt 14pt; border-left: 3pt solid #177e89; background: #f1f6f7 }
blockquote p { font-size: 13pt; margin: 6pt 0; font-feature-settings: 'pwid' }
footer, figcaption { font-size: 9pt; color: #5b6b73 } figure { margin: 8pt 0 } img { width: 100% }
table { width: 100%; border-collapse: collapse; font-size: 9.5pt } tr { break-inside: avoid }
th, td { border-bottom: 1px solid #d3dee1; padding: 5pt 8pt; text-align: left } th { background: #e6f0f1 }
td:nth-child(n+3), th:nth-child(n+3) { text-align: right } ul { list-style: none; padding: 0 }"""
document = HTML(string=html, base_url="/workspace/outputs/")
document.write_pdf("/workspace/outputs/report.pdf", stylesheets=[CSS(string=css)])
print("report.pdf,", len(html), "characters of HTML")

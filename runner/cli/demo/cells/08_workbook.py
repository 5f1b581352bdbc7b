# A workbook whose summary is made of formulas over the data sheet, with a native chart.
import pandas as pd
import xlsxwriter

df = pd.read_csv("/workspace/outputs/cities.csv", keep_default_na=False)
last = len(df) + 1
options = {"default_format_properties": {"valign": "vcenter"}}
book = xlsxwriter.Workbook("/workspace/outputs/cities.xlsx", options)
summary, data = book.add_worksheet("Summary"), book.add_worksheet("Cities")
blue = {"bold": True, "font_color": "white", "bg_color": "#0f3d4c"}
head, right, zone_head = (book.add_format(blue | more) for more in ({}, {"align": "right"}, {"indent": 2}))
plain, zone, title = map(book.add_format, ({}, {"indent": 2}, {"bold": True, "font_size": 16}))
local = book.add_format({"font_name": "Noto Sans CJK SC", "font_size": 10, "align": "left"})
whole, share, angle = (book.add_format({"num_format": f}) for f in ("#,##0", "0.0%", '0.00"°";[Red]−0.00"°"'))
total, total_share = (book.add_format({"bold": True, "top": 1, "num_format": f}) for f in ("#,##0", "0%"))
columns = [("City", 24, plain, head), ("Local name", 22, local, head), ("Country", 32, plain, head),
           ("Continent", 15, plain, head), ("People", 14, whole, right), ("Latitude", 12, angle, right),
           ("Longitude", 12, angle, right), ("Time zone", 28, zone, zone_head)]
for sheet in (summary, data):
    sheet.set_default_row(20)
    sheet.set_paper(9)
    sheet.set_footer("&L&A&R&P / &N")
    sheet.fit_to_pages(1, 0)
for i, ((name, width, form, top), key) in enumerate(zip(columns, df.columns, strict=True)):
    data.set_column(i, i, width, form)
    data.write(0, i, name, top)
    data.write_column(1, i, df[key].tolist(), form)
data.freeze_panes(1, 1)
data.autofilter(0, 0, last - 1, len(columns) - 1)
data.conditional_format(f"E2:E{last}", {"type": "data_bar", "bar_color": "#a9cdd1", "bar_solid": True})
data.repeat_rows(0)

summary.hide_gridlines(2)
summary.set_column("A:E", 17, plain)
summary.set_row(0, 30)
summary.write("A1", "Large cities by continent · 各大洲的大城市 · المدن الكبرى", title)
for i, name in enumerate(["Continent", "Cities", "People", "Share", "Mean size"]):
    summary.write(2, i, name, right if i else head)
groups = df.groupby("continent")["people"].agg(["size", "sum"]).sort_values("sum", ascending=False)
people = int(groups["sum"].sum())
for row, (name, n, subtotal) in enumerate(groups.itertuples(), 4):  # last argument: the value shown at once
    summary.write(f"A{row}", name, plain)
    summary.write_formula(f"B{row}", f"=COUNTIF(Cities!D:D,A{row})", whole, n)
    summary.write_formula(f"C{row}", f"=SUMIF(Cities!D:D,A{row},Cities!E:E)", whole, subtotal)
    summary.write_formula(f"D{row}", f"=C{row}/C$10", share, subtotal / people)
    summary.write_formula(f"E{row}", f"=C{row}/B{row}", whole, subtotal / n)
for column, form, value in zip("BCD", (total, total, total_share), (len(df), people, 1), strict=True):
    summary.write_formula(f"{column}10", f"=SUM({column}4:{column}9)", form, value)
summary.write_formula("E10", "=C10/B10", total, people / len(df))
summary.write("A10", "Total", total)
summary.conditional_format("D4:D9", {"type": "2_color_scale", "min_color": "#ffffff", "max_color": "#8fc7c9"})
chart = book.add_chart({"type": "column"})
chart.add_series({"name": "=Summary!$C$3", "categories": "=Summary!$A$4:$A$9", "values": "=Summary!$C$4:$C$9",
                  "fill": {"color": "#177e89"}, "gap": 60})
chart.set_title({"name": "People in large cities, millions", "name_font": {"size": 13}})
chart.set_y_axis({"num_format": "#,##0,,", "major_gridlines": {"visible": 1, "line": {"color": "#d3dee1"}}})
chart.set_legend({"none": True})
summary.insert_chart("A12", chart, {"x_scale": 1.292, "y_scale": 1.2})
book.close()
print("cities.xlsx,", len(df), "rows, total", f"{people:,}")

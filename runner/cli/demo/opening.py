# Runs inside a sandbox, in a conversation of its own: opens each finished file with another library than the
# one that made it, recalculates workbooks, renders pages to pictures, and prints one line of JSON a file.
# The demo puts `expected = [...]` in front of it. Made by → opened by: WeasyPrint → PDFium; python-pptx → LibreOffice
# and the XML; package edit → python-docx and LibreOffice; xlsxwriter → openpyxl and LibreOffice; Pillow → OpenCV.
import json
import pathlib
import re
import subprocess
import time
import zipfile

import cv2
import numpy as np
import pypdfium2

UPLOADS, PAGES = pathlib.Path("/workspace/uploads"), pathlib.Path("/workspace/outputs/pages")
PAGES.mkdir(parents=True, exist_ok=True)


def soffice(kind, *sources):
    """Convert with LibreOffice; one start for all files, since that costs more than the work."""
    target = pathlib.Path("/tmp/opened") / kind.partition(":")[0]
    command = [
        "soffice",
        "--headless",
        "--norestore",
        "--nolockcheck",
        "-env:UserInstallation=file:///tmp/office",
        "--convert-to",
        kind,
        "--outdir",
        str(target),
        *map(str, sources),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=100)
    return target


def pages(pdf, name, most):
    document = pypdfium2.PdfDocument(pdf)
    blank = []
    for number in range(min(len(document), most)):
        picture = document[number].render(scale=1.3).to_pil().convert("RGB")
        picture.save(PAGES / f"{name}-{number + 1}.png")
        if np.asarray(picture).std() < 2:
            blank.append(number + 1)
    text = "\n".join(page.get_textpage().get_text_range() for page in document)
    return len(document), text, blank


def parts(path):
    with zipfile.ZipFile(path) as package:
        assert package.testzip() is None
        return {name: package.read(name) for name in package.namelist()}


def plain(xml):
    runs = re.findall(r"<(?:a|w):t(?: [^>]*)?>([^<]*)</(?:a|w):t>|(</(?:a|w):p>)", xml.decode())
    return "".join(text or "\n" for text, _ in runs).replace("&amp;", "&")


def open_pptx(path, _):
    content = parts(path)
    xml = {name: data for name, data in content.items() if re.match(r"ppt/(slides|notesSlides)/[^/]+\.xml", name)}
    slides = [name for name in xml if name.startswith("ppt/slides/")]
    tables = sum(data.count(b"<a:tbl>") for data in xml.values())
    return PDFS / f"{path.stem}.pdf", "\n".join(map(plain, xml.values())), {"slides": len(slides), "tables": tables}


def open_docx(path, _):
    import docx

    assert docx.Document(str(path)).paragraphs
    return PDFS / f"{path.stem}.pdf", plain(parts(path)["word/document.xml"]), {}


def open_xlsx(path, want):
    import openpyxl

    recalculated = openpyxl.load_workbook(soffice("xlsx:Calc MS Excel 2007 XML", path) / path.name, data_only=True)
    cached = openpyxl.load_workbook(path, data_only=True)
    wanted = want["facts"].get("cells", {})
    first = cached.worksheets[0].title
    cells = {name: recalculated[first][name].value for name in wanted}
    assert all(cells[name] == cached[first][name].value for name in wanted), "cached values are stale"
    charts = sum(len(sheet._charts) for sheet in openpyxl.load_workbook(path).worksheets)
    text = "\n".join(str(row[1]) for row in cached.worksheets[-1].iter_rows(max_row=50, values_only=True))
    return PDFS / f"{path.stem}.pdf", text, {"sheets": cached.sheetnames, "cells": cells, "charts": charts}


def open_picture(path, _):
    picture = cv2.imread(str(path))
    assert picture is not None and picture.std() > 5, "the picture is empty"
    return None, "", {"size": [picture.shape[1], picture.shape[0]]}


OPENERS = {
    ".pdf": lambda path, _: (path, None, {}),
    ".pptx": open_pptx,
    ".docx": open_docx,
    ".xlsx": open_xlsx,
    ".png": open_picture,
    ".jpg": open_picture,
}


def check(want):
    path = UPLOADS / "made" / want["name"]
    problems, count = [], None
    pdf, text, facts = OPENERS[path.suffix](path, want)
    if pdf is not None:
        count, shown, blank = pages(pdf, want["name"], want["render"])
        text = shown if text is None else text
        problems += [f"page {number} is blank" for number in blank]
    if want["pages"] is not None and count != want["pages"]:
        problems.append(f"{count} pages instead of {want['pages']}")
    problems += [f"missing: {piece}" for piece in want["texts"] if piece not in text]
    problems += [f"still there: {piece}" for piece in want["absent"] if piece in text]
    problems += [
        f"{key} is {facts.get(key)}, not {value}" for key, value in want["facts"].items() if facts.get(key) != value
    ]
    if want["original"]:
        before, after = parts(UPLOADS / want["original"]), parts(path)
        changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        if changed != sorted(want["changed_parts"]):
            problems.append(f"changed parts: {changed}")
    return count, problems


names = [want["name"] for want in expected]
PDFS = soffice("pdf", *(UPLOADS / "made" / name for name in names if name.endswith(("pptx", "docx", "xlsx"))))
for want in expected:
    began = time.perf_counter()
    try:
        count, problems = check(want)
    except Exception as error:
        count, problems = None, [f"cannot be opened: {type(error).__name__}: {error}"]
    took = round((time.perf_counter() - began) * 1000)
    print(json.dumps({"name": want["name"], "pages": count, "problems": problems, "ms": took}, ensure_ascii=False))

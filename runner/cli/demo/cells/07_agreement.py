# Two changes in the agreement; every other member of the package is copied byte for byte.
import zipfile

from lxml import etree

SOURCE, TARGET = "/workspace/uploads/agreement.docx", "/workspace/outputs/agreement.docx"
OLD_NAME, NEW_NAME = "Halden & Rowe Freight", "Marlow Bay Logistics"
W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"


def replace(paragraph, old, new):
    """Replace text that may be cut into several runs; the new text takes the first run's formatting."""
    count = 0
    while True:
        texts = list(paragraph.iter(W + "t"))
        start = "".join(t.text or "" for t in texts).find(old)
        if start < 0:
            return count
        end, position, insert = start + len(old), 0, new
        for t in texts:
            text, begin = t.text or "", position
            position += len(text)
            if position > start and begin < end:
                t.text = text[:max(start - begin, 0)] + insert + text[max(end - begin, 0):]
                t.set("{http://www.w3.org/XML/1998/namespace}space", "preserve")
                insert = ""
        count += 1


with zipfile.ZipFile(SOURCE) as source, zipfile.ZipFile(TARGET, "w") as target:
    for item in source.infolist():
        data = source.read(item)
        if item.filename == "word/document.xml":
            root = etree.fromstring(data)
            names = sum(replace(p, OLD_NAME, NEW_NAME) for p in root.iter(W + "p"))
            row = next(r for r in root.iter(W + "tr") if "hub sites" in "".join(r.itertext()))
            dates = replace(row.findall(W + "tc")[2].find(W + "p"), "12 March 2026", "17 March 2026")
            data = etree.tostring(root, xml_declaration=True, encoding="UTF-8", standalone=True)
        target.writestr(item, data)

with zipfile.ZipFile(SOURCE) as a, zipfile.ZipFile(TARGET) as b:
    changed = [name for name in a.namelist() if a.read(name) != b.read(name)]
    assert a.namelist() == b.namelist()
{"client name replaced": names, "date replaced": dates, "changed parts": changed}

# What did the user upload, and how is the table encoded?
import csv
from pathlib import Path

import pandas as pd

uploads = Path("/workspace/uploads")
for path in sorted(uploads.iterdir()):
    print(f"{path.name:<20} {path.stat().st_size:>9,} bytes")

raw = (uploads / "staedte.csv").read_bytes()
boms = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
encoding = next((name for bom, name in boms.items() if raw.startswith(bom)), "utf-8")
text = raw.decode(encoding)
dialect = csv.Sniffer().sniff(text[:4000], delimiters=";,\t|")
print("encoding:", encoding, " separator:", repr(dialect.delimiter), " lines:", text.count("\n"))
print(text.splitlines()[1])

# German notation: 1.234.567 and 52,52437
df = pd.read_csv(uploads / "staedte.csv", encoding=encoding, sep=dialect.delimiter,
                 decimal=",", thousands=".")
print(df.shape, "missing local names:", int(df["Name vor Ort"].isna().sum()))
df.head()

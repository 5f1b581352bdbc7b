"""What the demo runs, and what must come out of it; the facts are those of ``cells/README.md``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
INPUTS = ("staedte.csv", "agreement.docx", "review.pptx", "grace_hopper.jpg")
CRASH_AFTER = "04_report"


@dataclass(frozen=True, slots=True)
class Step:
    """One cell, in the words shown to people, and the files it must make under ``outputs``."""

    cell: str
    title: str
    files: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """The cell as the model would send it."""
        return (HERE / "cells" / f"{self.cell}.py").read_text(encoding="utf-8")


STEPS = (
    Step("01_inspect", "Inspect the uploads"),
    Step("02_analyse", "Analyse with pandas", ("summary.json", "cities.csv")),
    Step("03_chart", "Chart with Chinese and Arabic labels", ("chart.png",)),
    Step("04_report", "PDF report", ("report.pdf",)),
    Step("05_deck", "Deck from semantic HTML", ("deck.pptx",)),
    Step("06_review", "Edit the uploaded deck", ("review.pptx",)),
    Step("07_agreement", "Edit the uploaded Word file", ("agreement.docx",)),
    Step("08_workbook", "Workbook with formulas and a chart", ("cities.xlsx",)),
    Step("09_photo", "Crop and annotate the photo", ("portrait.jpg", "card.png")),
)


@dataclass(frozen=True, slots=True)
class Expected:
    """What another library must find in a finished file. ``texts`` must all occur, ``absent`` must not."""

    name: str
    pages: int | None = None
    render: int = 20
    texts: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    original: str | None = None
    changed_parts: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)


EXPECTED = (
    Expected("chart.png", facts={"size": [2100, 1040]}),
    Expected(
        "report.pdf",
        pages=4,
        texts=("Where the city dwellers are", "Asia holds 61% of the people.", "What is the city but the people?",
               "ten cities that the table also names", "impossible position: none",
               "Democratic Republic of the Congo", "中文摘要", "بالعربية"),
    ),
    Expected(
        "deck.pptx",
        pages=4,
        texts=("City coverage study", "城市覆盖研究", "دراسة", "1,619,841,492"),
        facts={"slides": 4, "tables": 1},
    ),
    Expected(
        "review.pptx",
        pages=5,
        texts=("Marlow Bay Logistics", "17 March 2026"),
        absent=("Halden & Rowe Freight", "12 March 2026"),
        original="review.pptx",
        changed_parts=(
            "ppt/notesSlides/notesSlide2.xml", "ppt/slides/slide1.xml", "ppt/slides/slide2.xml",
            "ppt/slides/slide4.xml",
        ),
        facts={"slides": 6, "tables": 1},
    ),
    Expected(
        "agreement.docx",
        pages=2,
        texts=("Marlow Bay Logistics", "17 March 2026"),
        absent=("Halden", "12 March 2026"),
        original="agreement.docx",
        changed_parts=("word/document.xml",),
    ),
    Expected(
        "cities.xlsx",
        render=2,
        texts=("上海",),
        facts={"sheets": ["Summary", "Cities"], "cells": {"B10": 4028, "C10": 2661757968, "D10": 1}, "charts": 1},
    ),
    Expected("portrait.jpg", facts={"size": [400, 400]}),
    Expected("card.png", facts={"size": [1200, 675]}),
)  # fmt: skip

"""Give Matplotlib fonts for all scripts and a ready font list: prepare.py FOLDER, with MPLCONFIGDIR=FOLDER.

`fallback.py.txt` is added to the end of Matplotlib's font manager, so that it holds in every process,
whatever style or theme is in force. The font list gets further entries under names that plotting code
asks for by habit (SimHei, Arial, ...), each pointing to the installed family that stands for it.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

# Asked-for name -> installed family.
SUBSTITUTES = {
    "SimHei": "Noto Sans CJK SC",
    "Microsoft YaHei": "Noto Sans CJK SC",
    "PingFang SC": "Noto Sans CJK SC",
    "Heiti SC": "Noto Sans CJK SC",
    "STHeiti": "Noto Sans CJK SC",
    "WenQuanYi Micro Hei": "Noto Sans CJK SC",
    "WenQuanYi Zen Hei": "Noto Sans CJK SC",
    "Source Han Sans SC": "Noto Sans CJK SC",
    "Source Han Sans CN": "Noto Sans CJK SC",
    "Noto Sans SC": "Noto Sans CJK SC",
    "Arial Unicode MS": "Noto Sans CJK SC",
    "SimSun": "Noto Serif CJK SC",
    "KaiTi": "Noto Serif CJK SC",
    "FangSong": "Noto Serif CJK SC",
    "STSong": "Noto Serif CJK SC",
    "Noto Serif SC": "Noto Serif CJK SC",
    "Microsoft JhengHei": "Noto Sans CJK TC",
    "Noto Sans TC": "Noto Sans CJK TC",
    "PMingLiU": "Noto Serif CJK TC",
    "MS Gothic": "Noto Sans CJK JP",
    "Yu Gothic": "Noto Sans CJK JP",
    "Meiryo": "Noto Sans CJK JP",
    "Hiragino Sans": "Noto Sans CJK JP",
    "IPAexGothic": "Noto Sans CJK JP",
    "Noto Sans JP": "Noto Sans CJK JP",
    "MS Mincho": "Noto Serif CJK JP",
    "Malgun Gothic": "Noto Sans CJK KR",
    "NanumGothic": "Noto Sans CJK KR",
    "AppleGothic": "Noto Sans CJK KR",
    "Noto Sans KR": "Noto Sans CJK KR",
    "Arial": "Liberation Sans",
    "Helvetica": "Liberation Sans",
    "Times New Roman": "Liberation Serif",
    "Courier New": "Liberation Mono",
    "Calibri": "Carlito",
    "Cambria": "Caladea",
}


MARK = "_foliobox_find_all"


def add_fallback(manager_file: Path, addition: str) -> None:
    """Append the addition to Matplotlib's font manager, once."""
    source = manager_file.read_text(encoding="utf-8")
    if MARK not in source:
        manager_file.write_text(source + addition, encoding="utf-8")


def main(folder: Path) -> None:
    """Extend the font manager, write the font list with substitutes into `folder`."""
    package = importlib.util.find_spec("matplotlib")
    if package is None or package.origin is None:
        raise SystemExit("Matplotlib is not installed")
    addition = (Path(__file__).parent / "fallback.py.txt").read_text(encoding="utf-8")
    add_fallback(Path(package.origin).parent / "font_manager.py", addition)

    # Only now, so that the addition is in force; by name, since type checkers have no Matplotlib to look at.
    font_manager: Any = importlib.import_module("matplotlib.font_manager")
    manager = font_manager.fontManager
    present = {entry.name for entry in manager.ttflist}
    for name, family in SUBSTITUTES.items():
        if name not in present:
            manager.ttflist += [
                dataclasses.replace(entry, name=name) for entry in manager.ttflist if entry.name == family
            ]
    target = folder / f"fontlist-v{font_manager.FontManager.__version__}.json"
    font_manager.json_dump(manager, target)
    print(f"{target.name}: {len(manager.ttflist)} entries")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

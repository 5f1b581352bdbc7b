"""Figures: each shown once, in every script, without building a font list, in scripts started apart too."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from tests.integration.interpreter.jail import Jail

SETUP = "import matplotlib, matplotlib.pyplot as plt\n"

WAYS = {
    "left open": ("plt.plot([1, -2])", 1),
    "last expression": ("f, a = plt.subplots(); a.plot([1]); f", 1),
    "last expression and open": ("f = plt.figure(); f.add_subplot(); f", 1),
    "plt.show": ("plt.plot([1]); plt.show()", 1),
    "plt.show twice": ("plt.plot([1]); plt.show(); plt.show()", 1),
    "fig.show": ("f = plt.figure(); f.add_subplot(); f.show()", 1),
    "display": ("f, a = plt.subplots(); display(f)", 1),
    "two": ("plt.figure(); plt.plot([1]); plt.figure(); plt.plot([2])", 2),
    "in a loop": ("for i in range(3):\n    plt.plot([i]); plt.show()", 3),
    "displayed and closed": ("for i in range(3):\n    f, a = plt.subplots(); display(f); plt.close(f); del f, a", 3),
    "saved and left open": ("plt.plot([1]); plt.savefig('outputs/a.png')", 1),
    "saved and closed": ("plt.plot([1]); plt.savefig('outputs/a.png'); plt.close()", 0),
    "empty": ("plt.figure();", 0),
    "other backend": ("matplotlib.use('Agg'); plt.plot([1]); plt.show()", 1),
    "svg backend": ("matplotlib.use('svg'); plt.plot([1]); plt.show()", 1),
    "inline": ("%matplotlib inline\nplt.plot([1])", 1),
    "pandas": ("import pandas as pd\npd.Series([1, 2]).plot();", 1),
    "reset style": ("matplotlib.rcdefaults(); plt.style.use('ggplot'); plt.plot([1]); plt.show()", 1),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_figure_is_shown_once(jail: Jail, way: str) -> None:
    code, count = WAYS[way]
    ran = jail.ok(SETUP + code)
    assert len(ran.pictures) == count
    for picture in ran.pictures:
        with Image.open(io.BytesIO(picture)) as image:
            assert image.format == "PNG"
    assert ran.text("stderr") == ""
    assert jail.ok("print(plt.get_fignums())").out == "[]"


SCRIPTS = {
    "Chinese": "季度销售额", "Japanese": "売上ひらがなカタカナ", "Korean": "분기별 매출", "Arabic": "المبيعات الفصلية",
    "Hebrew": "מכירות רבעוניות", "Devanagari": "तिमाही बिक्री", "Thai": "ยอดขายรายไตรมาส", "Greek": "Πωλήσεις",
    "Cyrillic": "Продажи", "minus": "−5", "symbols": "→ ✓ € ≤",
}  # fmt: skip
DRAW = f"""
import warnings
warnings.simplefilter('error')
import matplotlib.pyplot as plt
fig, axes = plt.subplots(len({SCRIPTS!r}), 1, figsize=(6, 9))
for ax, (name, text) in zip(axes, {SCRIPTS!r}.items()):
    ax.text(0.5, 0.5, name + ': ' + text, fontsize=16, ha='center', va='center')
    ax.axis('off')
fig.savefig('outputs/scripts.png')
"""


STYLES = (
    "",
    "plt.rcParams['font.family'] = 'serif'",
    "plt.style.use('seaborn-v0_8')",
    "plt.rcParams['font.sans-serif'] = ['SimHei']",
    "plt.rcParams['font.family'] = 'Arial'",
)


@pytest.mark.parametrize("style", STYLES)
def test_no_glyph_is_missing_in_any_script(jail: Jail, style: str) -> None:
    ran = jail.ok(DRAW.replace("fig, axes", f"{style}\nfig, axes", 1))
    assert ran.text("stderr") == ""


def test_scripts_started_apart_draw_the_same(jail: Jail) -> None:
    jail.put("draw.py", DRAW.encode())
    ran = jail.ok("import time, subprocess\nt = time.time()\nprint(subprocess.run(['python', 'draw.py']).returncode)\n")
    assert (ran.out, ran.text("stderr")) == ("0", "")


def test_no_font_list_is_built(jail: Jail) -> None:
    ran = jail.ok("import os, glob\nprint(glob.glob(os.path.expanduser('~/.cache/matplotlib/*')))")
    assert ran.out.count("fontlist-") == 1
    code = "import matplotlib as m, pathlib\nprint([p.is_symlink() for p in pathlib.Path(m.get_cachedir()).iterdir()])"
    assert jail.ok(code).out == "[True]"


def test_minus_signs_are_drawn(jail: Jail) -> None:
    code = """
import matplotlib.pyplot as plt, numpy as np
def ink(text):
    fig = plt.figure(figsize=(1, 1)); fig.text(0.3, 0.5, text, fontsize=30); fig.canvas.draw()
    rows = np.asarray(fig.canvas.buffer_rgba())[..., 0] < 128
    plt.close(fig)
    return rows.any(axis=1).sum()
print(ink('\\u2212') < 12, ink('\\u2212') > 0, plt.rcParams['axes.unicode_minus'])
"""
    assert jail.ok(code).out == "True True True"

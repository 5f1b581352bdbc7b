"""matplotlib in the interpreter: open figures become results and are closed, whatever backend was chosen."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

Publish = Callable[..., Any]
PREBUILT = "/opt/foliobox/matplotlib"
_SETTINGS = """\
backend: agg
font.family: sans-serif
axes.unicode_minus: True
figure.max_open_warning: 0
"""


def prepare_matplotlib(prebuilt: str = PREBUILT) -> None:
    """Give matplotlib, here and in every script, its settings and the font list that was built with the image.

    The list goes where matplotlib looks for it below the home folder; without it the first import takes
    seconds. Fonts for other scripts are fallbacks in the image's own font manager.
    """
    with contextlib.suppress(OSError):
        home = os.path.expanduser("~")
        cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache"), "matplotlib")
        settings = os.path.join(os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"), "matplotlib")
        for folder in (cache, settings):
            os.makedirs(folder, exist_ok=True)
        with open(os.path.join(settings, "matplotlibrc"), "x") as file:
            file.write(_SETTINGS)
    with contextlib.suppress(OSError):
        for name in os.listdir(prebuilt):
            with contextlib.suppress(FileExistsError):
                os.symlink(os.path.join(prebuilt, name), os.path.join(cache, name))


class FigureWatcher:
    """Shows each open figure once, at ``plt.show()`` or at the end of the cell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._shown: Any = weakref.WeakSet()
        shell.display_formatter.formatters["image/png"].for_type_by_name("matplotlib.figure", "Figure", self._png)
        pyplot = sys.modules.get("matplotlib.pyplot")
        figure = sys.modules.get("matplotlib.figure")
        if pyplot is not None and figure is not None:
            pyplot.show = lambda *_, **__: self._show()  # type: ignore[attr-defined]
            figure.Figure.show = lambda figure, *_, **__: self._show_one(figure)

    def _png(self, figure: Any) -> bytes:
        self._shown.add(figure)
        return render(figure)

    def _show(self) -> None:
        """Stands in for ``matplotlib.pyplot.show`` (by a plain function: pyplot sets attributes on it)."""
        self.flush(self._shell.display_pub.publish)

    def _show_one(self, figure: Any) -> None:
        """Stands in for ``Figure.show``."""
        self._publish(figure, self._shell.display_pub.publish)

    def _publish(self, figure: Any, publish: Publish) -> None:
        self._shown.add(figure)
        publish(data={"image/png": render(figure), "text/plain": repr(figure)})

    def flush(self, publish: Publish) -> None:
        """Publish every open figure that was not shown yet, and close them all."""
        helpers = sys.modules.get("matplotlib._pylab_helpers")
        managers = helpers.Gcf.get_all_fig_managers() if helpers is not None else []
        try:
            for manager in managers:
                figure = manager.canvas.figure
                if figure not in self._shown and (figure.axes or figure.texts or figure.images):
                    self._publish(figure, publish)
        finally:
            self._shown.clear()
            if managers and helpers is not None:
                helpers.Gcf.destroy_all()


def render(figure: Any) -> bytes:
    """PNG of a figure with a tight box, at the figure's own density but at most 200 dpi."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight", dpi=min(float(figure.dpi), 200.0))
    return buffer.getvalue()

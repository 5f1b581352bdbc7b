"""matplotlib in the interpreter: open figures become results and are closed; fonts for every script."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

Publish = Callable[..., Any]


class FigureWatcher:
    """Shows each open figure once, at ``plt.show()`` or at the end of the cell, whatever backend was chosen."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._shown: set[int] = set()
        shell.display_formatter.formatters["image/png"].for_type_by_name("matplotlib.figure", "Figure", self._png)
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is not None:
            pyplot.show = self._show  # type: ignore[attr-defined]

    @staticmethod
    def count_only(*_: Any, **__: Any) -> None:
        """A publisher that shows nothing."""

    def _png(self, figure: Any) -> bytes:
        self._shown.add(id(figure))
        return render(figure)

    def _show(self, *_: Any, **__: Any) -> None:
        """Stands in for ``matplotlib.pyplot.show``."""
        self.flush(self._shell.display_pub.publish)

    def flush(self, publish: Publish) -> None:
        """Publish every open figure that was not shown yet, and close them all."""
        helpers = sys.modules.get("matplotlib._pylab_helpers")
        managers = helpers.Gcf.get_all_fig_managers() if helpers is not None else []
        try:
            for manager in managers:
                figure = manager.canvas.figure
                if id(figure) not in self._shown and (figure.axes or figure.texts or figure.images):
                    publish(data={"image/png": render(figure), "text/plain": repr(figure)})
        finally:
            self._shown.clear()
            if managers and helpers is not None:
                helpers.Gcf.destroy_all()


def render(figure: Any) -> bytes:
    """PNG of a figure with a tight box, at the figure's own density but at most 200 dpi."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight", dpi=min(float(figure.dpi), 200.0))
    return buffer.getvalue()

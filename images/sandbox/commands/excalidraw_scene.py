"""Complete an Excalidraw scene that a program wrote: ids, points, sizes of texts, labels of shapes."""

from __future__ import annotations

import unicodedata
from typing import Any

Element = dict[str, Any]
LINE_HEIGHT = 1.25


def completed(data: Any) -> dict[str, Any]:
    """The scene with all that drawing needs; raise ValueError when it is none."""
    if isinstance(data, list):
        data = {"elements": data}
    if not isinstance(data, dict) or not isinstance(data.get("elements"), list):
        raise ValueError("there is no list `elements`")
    state = data.get("appState")
    elements: list[Element] = []
    for number, raw in enumerate(data["elements"]):
        if not isinstance(raw, dict):
            raise ValueError(f"element {number} is not an object")
        # An empty value means the default, as in the editor; only for the end of an arrow it means none.
        element = {key: value for key, value in raw.items() if value is not None or key.endswith("Arrowhead")}
        element.setdefault("id", f"element-{number}")
        elements.append(element)
        elements.extend(finished(element))
    return {**data, "elements": elements, "appState": state if isinstance(state, dict) else {}}


def finished(element: Element) -> list[Element]:
    """Complete one element in place; the elements that its short form stands for besides."""
    kind = element.get("type")
    if kind == "text":
        measure(element)
    elif kind in ("arrow", "line", "freedraw"):
        element["points"] = points_of(element)
        if kind == "arrow":
            element.setdefault("endArrowhead", "arrow")
    label = element.get("label")
    return [labelling(element, label)] if isinstance(label, dict) and label.get("text") else []


def points_of(element: Element) -> list[list[float]]:
    """The points as pairs; a flat list is paired, and none means a straight line across the element's size."""
    points = element.get("points") or []
    if points and all(isinstance(value, (int, float)) for value in points) and len(points) % 2 == 0:
        return [[points[i], points[i + 1]] for i in range(0, len(points), 2)]
    return points or [[0, 0], [element.get("width", 0), element.get("height", 0)]]


def cells(line: str) -> float:
    """A line's width in letters of usual width; ideographs and emoji count double."""
    return sum(2.0 if unicodedata.east_asian_width(letter) in "WF" else 1.0 for letter in line)


def measure(text: Element) -> None:
    """Give a text the size that it roughly takes, where it has none."""
    size = float(text.get("fontSize", 20))
    lines = str(text.get("text", "")).split("\n")
    if not text.get("width"):
        text["width"] = max(cells(line) for line in lines) * size * 0.55
    if not text.get("height"):
        text["height"] = len(lines) * size * float(text.get("lineHeight", LINE_HEIGHT))


def labelling(container: Element, label: Element) -> Element:
    """The text element that a shape's or an arrow's `label` stands for, in its middle."""
    text = {"strokeColor": container.get("strokeColor", "#1e1e1e"), **label, "type": "text"}
    text.setdefault("id", f"{container['id']}-label")
    text.setdefault("textAlign", "center")
    measure(text)
    points = container.get("points")
    far = points[-1] if points else (container.get("width", 0), container.get("height", 0))
    text["x"] = container.get("x", 0) + (far[0] - text["width"]) / 2
    text["y"] = container.get("y", 0) + (far[1] - text["height"]) / 2
    return text

"""Line charts, bars and matrices as SVG: the same text for the same numbers, on a page or as a file of its own.

Colours and sizes are attributes, which the style sheet of the report overrules where light and dark differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from markupsafe import Markup, escape

COLOURS = ("#0b7fc7", "#d55e00", "#0a9a72", "#c765a0", "#c48a00", "#7f6bd6", "#4f9fb8", "#9b7653")
QUIET, INK, LINE = "#a3adb8", "#57606a", "#dfe3e8"
WIDTH, HEIGHT = 560, 330
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 12, 44
NAME = 66
"""Characters of a name that a legend shows; the whole of it stands in the tooltip."""


@dataclass(frozen=True)
class Curve:
    """A line of a chart; a loud one has a colour and stands in the legend."""

    name: str
    values: Sequence[float]
    loud: bool


class _Scale(NamedTuple):
    """Where values lie in the picture."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        """Round values, four to ten of them."""
        rough = (self.high - self.low) / 4
        power = 10.0 ** np.floor(np.log10(rough))
        step = power * max(m for m in (1, 2, 2.5, 5) if m * power <= rough)
        first = np.ceil(self.low / step - 1e-9)
        return [float(step * k) + 0.0 for k in np.arange(first, np.floor(self.high / step + 1e-9) + 1)]  # no -0


def line_chart(curves: Sequence[Curve], x: Sequence[float], x_label: str, y_label: str) -> Markup:
    """Curves over common places ``x``; quiet ones lie behind, in grey."""
    values = np.array([curve.values for curve in curves])
    low, high = float(values.min()), float(values.max())
    margin = (high - low) / 20 or 0.5
    across = _Scale(min(x), max(x), LEFT, WIDTH - RIGHT)
    up = _Scale(low - margin, high + margin, HEIGHT - BOTTOM, TOP)
    loud = [curve for curve in curves if curve.loud]
    parts = [
        *(_grid(LEFT, up(y), WIDTH - RIGHT, up(y)) for y in up.ticks),
        *(_text(LEFT - 8, up(y) + 4, f"{y:.4g}", "end") for y in up.ticks),
        *(_text(across(v), HEIGHT - BOTTOM + 18, f"{v:.4g}", "middle") for v in (x if len(x) <= 12 else across.ticks)),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_label, "middle"),
        _text(13, (TOP + HEIGHT - BOTTOM) / 2, y_label, "middle", turn=True),
        *(_polyline(curve, x, across, up, None) for curve in curves if not curve.loud),
        *(_polyline(curve, x, across, up, number) for number, curve in reversed(list(enumerate(loud)))),
        *(_legend(curve, number) for number, curve in enumerate(loud)),
    ]
    return _svg(HEIGHT + 8 + 18 * len(loud), f"{y_label} by {x_label}", parts)


def bars(names: Sequence[str], values: Sequence[float], label: str) -> Markup:
    """Horizontal bars of shares in [0, 1], each with its name above it and its value at its end."""
    step = 32
    across = _Scale(0.0, 1.0, 8, WIDTH - 60)
    parts = []
    for row, (name, value) in enumerate(zip(names, values, strict=True)):
        top = 8 + row * step
        parts += [
            _text(8, top + 10, f"{row + 1}. {_short(name)}"),
            Markup('<rect x="8" y="{}" width="{}" height="9" fill="{}"><title>{}</title></rect>').format(
                top + 15, _n(across(value) - 8), COLOURS[0], name
            ),
            _text(across(value) + 6, top + 24, f"{value:.4f}"),
        ]
    return _svg(16 + step * len(values), label, parts)


def matrix(values: np.ndarray, label: str) -> Markup:
    """A square matrix of numbers in [−1, 1], by level; blue is 1, red −1, white 0."""
    count = len(values)
    size = (WIDTH - LEFT - RIGHT) / count
    parts = [
        _text(LEFT + size * count / 2, TOP + size * count + 34, "level", "middle"),
        _text(13, TOP + size * count / 2, "level", "middle", turn=True),
    ]
    for row in range(count):
        middle = TOP + size * (row + 0.5) + 4
        parts += [
            _text(LEFT - 8, middle, str(row), "end"),
            _text(LEFT + size * (row + 0.5), TOP + size * count + 16, str(row), "middle"),
        ]
        for column in range(count):
            value = float(values[row, column])
            parts.append(
                Markup('<rect x="{}" y="{}" width="{}" height="{}" fill="{}"/>').format(
                    _n(LEFT + size * column), _n(TOP + size * row), _n(size - 1), _n(size - 1), _shade(value)
                )
            )
            ink = "#ffffff" if abs(value) > 0.65 else "#1b1f24"
            at = _n(LEFT + size * (column + 0.5))
            parts.append(
                Markup('<text x="{}" y="{}" text-anchor="middle" style="fill:{}">{}</text>').format(
                    at, _n(middle), ink, f"{value:.2f}"
                )
            )
    return _svg(TOP + size * count + 44, label, parts)


def _shade(value: float) -> str:
    """White to blue, or to red."""
    end = (11, 95, 165) if value >= 0 else (179, 38, 30)
    share = min(abs(value), 1.0)
    return "#" + "".join(f"{round(255 + (part - 255) * share):02x}" for part in end)


def _polyline(curve: Curve, x: Sequence[float], across: _Scale, up: _Scale, number: int | None) -> Markup:
    points = " ".join(f"{_n(across(a))},{_n(up(b))}" for a, b in zip(x, curve.values, strict=True))
    colour, width = (QUIET, 1) if number is None else (COLOURS[number % len(COLOURS)], 2)
    line = '<polyline points="{}" fill="none" stroke="{}" stroke-width="{}" stroke-linejoin="round">'
    return Markup(line + "<title>{}</title></polyline>").format(points, colour, width, curve.name)


def _legend(curve: Curve, number: int) -> Markup:
    y = HEIGHT + 8 + 18 * number
    mark = '<line x1="{0}" x2="{1}" y1="{2}" y2="{2}" stroke="{3}" stroke-width="3"/>'
    colour = COLOURS[number % len(COLOURS)]
    return Markup(mark).format(LEFT, LEFT + 18, y, colour) + _text(LEFT + 26, y + 4, _short(curve.name))


def _short(name: str) -> str:
    return name if len(name) <= NAME else f"{name[: NAME - 1]}…"


def _grid(x1: float, y1: float, x2: float, y2: float) -> Markup:
    return Markup('<line class="grid" x1="{}" y1="{}" x2="{}" y2="{}" stroke="{}"/>').format(
        _n(x1), _n(y1), _n(x2), _n(y2), LINE
    )


def _text(x: float, y: float, text: str, anchor: str = "start", turn: bool = False) -> Markup:
    turned = Markup(' transform="rotate(-90 {} {})"').format(_n(x), _n(y)) if turn else Markup()
    return Markup('<text x="{}" y="{}" text-anchor="{}" fill="{}"{}>{}</text>').format(
        _n(x), _n(y), anchor, INK, turned, text
    )


def _n(value: float) -> str:
    return f"{value:.1f}"


def _svg(height: float, label: str, parts: Sequence[Markup]) -> Markup:
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" role="img" aria-label="{}"'
    head += ' font-family="sans-serif" font-size="12">'
    return Markup(head).format(WIDTH, _n(height), escape(label)) + Markup("\n").join(parts) + Markup("</svg>")

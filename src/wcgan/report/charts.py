"""Draw a line chart as inline SVG; the style sheet in `html` has the colours."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from markupsafe import Markup

from wcgan.report.html import join, tag
from wcgan.report.numbers import number

COLOURS = 8
DASHES = ("", "7 3", "2 3", "9 3 2 3")
WIDTH, HEIGHT = 420, 250
LEFT, RIGHT, TOP, BOTTOM = 54, 12, 10, 40
MOST_POINTS = 250
MOST_DRAWN = 1e100  # the distance between larger values can overflow
LOG_RATIO = 30
NO_VALUES = "No finite value to draw."

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """The curve of a run, or the mean of several runs with the band that they span."""

    label: str
    style: int
    """Number that sets colour and dashes, the same in all charts."""
    points: tuple[Point, ...]
    """(iteration or time, value); a value that is not finite breaks the curve."""
    low: tuple[Point, ...] = ()
    """Lower edge of the band, at the same x as the points; empty for no band."""
    high: tuple[Point, ...] = ()
    """Upper edge of the band."""
    thin: tuple[tuple[Point, ...], ...] = ()
    """Curves of single runs, where they are not part of the mean."""

    @property
    def finite(self) -> list[Point]:
        """All points that can be drawn."""
        every = (*self.points, *self.low, *self.high, *(point for curve in self.thin for point in curve))
        return [(x, y) for x, y in every if is_drawn(y)]

    @property
    def is_curve(self) -> bool:
        """Whether there is more than one point: a single one is a number, not a chart."""
        return max(map(len, (self.points, *self.thin)), default=0) > 1


@dataclass(frozen=True)
class Axis:
    """Maps values to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def series_to_svg(title: str, series: list[Series], over: str = "iterations") -> Markup:
    """A chart with one curve per series; `over` labels the x axis."""
    finite = [point for s in series for point in s.finite]
    if not finite:
        return tag("p", NO_VALUES, class_="empty")
    xs, ys = zip(*finite, strict=True)
    log = is_logarithmic(series)
    x_axis = Axis(0 if min(xs) >= 0 else min(xs), max(max(xs), 1), LEFT, WIDTH - RIGHT)
    y_axis = Axis(*_padded(min(ys), max(ys), log), HEIGHT - BOTTOM, TOP, log)
    last = "; ".join(f"{s.label} ends at {number(_last(s))}" for s in series if s.points)
    return tag(
        "svg",
        tag("title", f"{title} over {over}. {last}"),
        _grid(x_axis, y_axis, over),
        *(_band(s, x_axis, y_axis) for s in series if s.low),
        *(_curve(s, x_axis, y_axis) for s in series),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        class_="chart",
    )


def is_logarithmic(series: list[Series]) -> bool:
    """Whether the values span so much that a linear axis would flatten the end of the curves."""
    ys = [y for s in series for _, y in s.finite]
    return bool(ys) and min(ys) > 1 / MOST_DRAWN and max(ys) / min(ys) > LOG_RATIO


def series_in_percent(name: str, series: list[Series]) -> list[Series]:
    """The series to draw: accuracies in percent, as in tables; errors are in percent already.

    Example:
        >>> series_in_percent("accuracy", [Series("WC", 0, ((1000, 0.5),))])[0].points
        ((1000, 50.0),)
    """
    if not name.startswith("accuracy"):
        return series

    def scaled(points: tuple[Point, ...]) -> tuple[Point, ...]:
        return tuple((x, 100 * y) for x, y in points)

    return [
        replace(s, points=scaled(s.points), low=scaled(s.low), high=scaled(s.high), thin=tuple(map(scaled, s.thin)))
        for s in series
    ]


def series_to_note(name: str, series: list[Series]) -> str:
    """The unit and the scale of a chart, if they need a word."""
    words = ["%"] if name.startswith(("accuracy", "error")) else []
    words += ["log scale"] if is_logarithmic(series) else []
    return f" ({', '.join(words)})" if words else ""


def swatch(style: int) -> Markup:
    """A short piece of a line, for legends."""
    line = tag("path", d="M1 6H25", **_stroke(style))
    return tag("svg", line, viewBox="0 0 26 12", class_="swatch", aria_hidden="true")


def is_drawn(value: float) -> bool:
    """Whether a value can be drawn."""
    return abs(value) < MOST_DRAWN  # False for NaN


def thinned(points: tuple[Point, ...], most: int = MOST_POINTS) -> tuple[Point, ...]:
    """At most `most` points, each the mean of its neighbours; it is not finite if one of them is not."""
    if len(points) <= most:
        return points
    size = math.ceil(len(points) / most)
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    return tuple((sum(x for x, _ in g) / len(g), sum(y for _, y in g) / len(g)) for g in groups)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """At most `most` round values between two others, 1, 2 or 5 times a power of ten apart.

    Example:
        >>> ticks(0, 1000), ticks(0.13, 0.42)
        ([0.0, 200.0, 400.0, 600.0, 800.0, 1000.0], [0.15, 0.2, 0.25, 0.3, 0.35, 0.4])
    """
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    for step in (factor * power for factor in (1, 2, 5, 10, 20)):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < most:
            break
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten, or the powers alone if there are many.

    Example:
        >>> log_ticks(3, 120), log_ticks(1e-3, 1e5)
        ([5.0, 10.0, 20.0, 50.0, 100.0], [0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0, 10000.0, 100000.0])
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 5), (1, 5), (1,)):
        found = [float(f"{factor}e{p}") for p in powers for factor in factors if low <= factor * 10.0**p <= high]
        if len(found) <= 6:
            break
    return found


def _padded(low: float, high: float, log: bool) -> tuple[float, float]:
    """The range with a margin, which is never empty."""
    if log:
        margin = (high / low) ** 0.05
        return low / margin, high * margin
    margin = 0.06 * (high - low) or max(abs(low) * 0.1, 1e-12)
    return low - margin, high + margin


def _grid(x_axis: Axis, y_axis: Axis, over: str) -> Markup:
    parts = []
    for value in log_ticks(y_axis.low, y_axis.high) if y_axis.log else ticks(y_axis.low, y_axis.high):
        y = y_axis(value)
        parts.append(tag("path", d=f"M{LEFT} {y:.1f}H{WIDTH - RIGHT}", class_="grid"))
        parts.append(tag("text", _short(value), x=LEFT - 7, y=f"{y + 4:.1f}", text_anchor="end"))
    for value in ticks(x_axis.low, x_axis.high, 4):
        x = x_axis(value)
        anchor = "end" if x > WIDTH - RIGHT - 12 else "middle"
        parts.append(tag("path", d=f"M{x:.1f} {HEIGHT - BOTTOM}v4", class_="axis"))
        parts.append(tag("text", _short(value), x=f"{x:.1f}", y=HEIGHT - BOTTOM + 17, text_anchor=anchor))
    parts.append(tag("path", d=f"M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}", class_="axis"))
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(tag("text", over, x=middle, y=HEIGHT - 6, text_anchor="middle", class_="label"))
    return join(parts)


def _curve(series: Series, x_axis: Axis, y_axis: Axis) -> Markup:
    parts: list[Markup] = []
    dot = f"dot c{series.style % COLOURS}"
    for kind, points in (*(("thin", points) for points in series.thin), ("line", series.points)):
        path, drawn = _path(thinned(points), x_axis, y_axis)
        if path:
            parts.append(tag("path", d=path, **_stroke(series.style, kind)))
        if len(points) <= 30:
            size = 2.5 if kind == "line" else 1.5
            parts += [tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=size, class_=dot) for x, y in drawn]
    return tag("g", tag("title", series.label), *parts)


def _path(points: tuple[Point, ...], x_axis: Axis, y_axis: Axis) -> tuple[str, list[Point]]:
    """A line with a gap at each value that is not finite -> the path, and the points in pixels."""
    path, pen_down, drawn = [], False, []
    for x, y in points:
        if is_drawn(y):
            drawn.append((x_axis(x), y_axis(y)))
            path.append(f"{'L' if pen_down else 'M'}{drawn[-1][0]:.1f} {drawn[-1][1]:.1f}")
        pen_down = is_drawn(y)
    return "".join(path), drawn


def _band(series: Series, x_axis: Axis, y_axis: Axis) -> Markup:
    """The area between the edges, split at values that are not finite."""
    pieces: list[list[tuple[float, float, float]]] = [[]]
    for (x, low), (_, high) in zip(thinned(series.low), thinned(series.high), strict=True):
        if math.isfinite(low) and math.isfinite(high):
            pieces[-1].append((x_axis(x), y_axis(low), y_axis(high)))
        else:
            pieces.append([])
    outlines = [
        [*((x, low) for x, low, _ in piece), *((x, high) for x, _, high in reversed(piece))] for piece in pieces
    ]
    path = "".join("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in outline) + "Z" for outline in outlines if outline)
    return tag("path", d=path, class_=f"band c{series.style % COLOURS}")


def _last(series: Series) -> float:
    """The last value: a single run may continue after the others."""
    return max((series.points[-1], *(curve[-1] for curve in series.thin)), key=lambda point: point[0])[1]


def _stroke(style: int, kind: str = "line") -> dict[str, str | None]:
    """Colour and dashes change together, so that curves can be told apart without colour."""
    dash = DASHES[(style + style // COLOURS) % len(DASHES)]
    return {"class_": f"{kind} c{style % COLOURS}", "stroke_dasharray": dash or None}


def _short(value: float) -> str:
    """Label of a tick: 20000 -> 20k.

    Example:
        >>> [_short(v) for v in (0, 0.25, -1.5, 1500, 20_000, 3e6)]
        ['0', '0.25', '\u22121.5', '1500', '20k', '3M']
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= (size if size > 1e3 else 1e4) and value % (size / 10) == 0:
            return _short(value / size) + unit
    return f"{value:.6g}".replace("-", "\u2212", 1) if value < 0 else f"{value:.6g}"

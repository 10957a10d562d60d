"""Format numbers, and make texts from traces safe to show: bounded, hidden characters visible."""

from __future__ import annotations

from datetime import UTC, datetime

from ragmeter.core.metric_specs import MetricSpec

THIN = "\u202f"  # narrow no-break space between a number and its unit
DASH = "–"


def format_value(number: float, spec: MetricSpec | None) -> str:
    """Format a value of a metric with its unit; without a spec as a plain number."""
    before, digits, unit = _digits(number, spec)
    return f"{before}{digits}{unit}"


def format_trace_value(number: float, spec: MetricSpec | None) -> str:
    """Format the value of one trace: a ratio of one trace is a yes or a no."""
    if spec is not None and spec.kind == "ratio" and number in (0, 1):
        return "yes" if number else "no"
    return format_value(number, spec)


def format_interval(lower: float, upper: float, spec: MetricSpec | None) -> str:
    """Format an interval with its unit once, as in `88.0–93.9 %`."""
    before, low, _ = _digits(lower, spec)
    _, high, unit = _digits(upper, spec)
    return f"{before}{low}{DASH}{high}{unit}"


def format_bounds(spec: MetricSpec) -> str:
    """Format the range of a metric's values: `0–1`, empty where it is a share or has no end."""
    return "" if spec.kind == "ratio" or spec.high is None else f"{spec.low:g}{DASH}{spec.high:g}"


def format_difference(number: float, spec: MetricSpec, unit: bool = False) -> str:
    """Format a difference with its sign; of shares in percentage points."""
    if spec.kind == "ratio":
        text = f"{100 * number:+.1f}" + (f"{THIN}points" if unit else "")
    else:
        text = f"{number:+.3f}" if spec.high is not None else f"{number:+.3g}"
    return text.replace("-", "−")


def format_share(share: float) -> str:
    """Format a share of traffic in percent, with one decimal below 10 %."""
    return f"{100 * share:.1f}{THIN}%" if 0 < share < 0.1 else f"{100 * share:.0f}{THIN}%"


def format_percent(share: float | None) -> str:
    """Format a share in percent with one decimal, a dash for None."""
    return "—" if share is None else f"{100 * share:.1f}{THIN}%"


def format_seconds(number: float) -> str:
    """Format a duration with two to three digits: 45 ms, 2.41 s, 12.3 s, 3 min 20 s."""
    if number < 0.9995:
        text = f"{1000 * number:.0f}" if number >= 0.01 else f"{1000 * number:.2g}"
        return f"{text}{THIN}ms"
    if number < 9.995:
        return f"{number:.2f}{THIN}s"
    if number < 99.95:
        return f"{number:.1f}{THIN}s"
    return format_age(number)


def format_seconds_interval(lower: float | None, upper: float | None) -> str:
    """Format an interval of durations: `1.55–2.41 s`, `900 ms–1.20 s`, or `≥ 3.5 s`."""
    if lower is None or upper is None:
        if lower is None:
            return "" if upper is None else f"≤{THIN}{format_seconds(upper)}"
        return f"≥{THIN}{format_seconds(lower)}"
    low, high = format_seconds(lower), format_seconds(upper)
    digits, _, unit = low.rpartition(THIN)
    if high.endswith(f"{THIN}{unit}") and " " not in low + high:
        return f"{digits}{DASH}{high}"
    return f"{low}{DASH}{high}"


def format_age(number: float) -> str:
    """Format a long duration in its two largest units."""
    whole = max(0, round(number))
    for size, unit, smaller, small in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size}{THIN}{unit}" + (f" {rest}{THIN}{small}" if rest else "")
    return f"{whole}{THIN}s"


def format_count(number: float) -> str:
    """Format a count; a weighted count has one decimal while it is small."""
    whole = abs(number - round(number)) < 0.05 or abs(number) >= 100
    return f"{number:,.0f}" if whole else f"{number:,.1f}"


def format_answers(number: float) -> str:
    """Format a number of answers in words: `14 answers`."""
    text = format_count(round(number))
    return f"{text} answer{'' if text == '1' else 's'}"


def format_time(timestamp: float | None) -> str:
    """Format a Unix time in UTC; a dash for None and for times outside the calendar."""
    return _format_utc(timestamp, "%Y-%m-%d %H:%M:%S UTC")


def format_moment(timestamp: float | None, now: float | None) -> str:
    """Format a Unix time in UTC to the minute, with the date unless it is less than a day ago."""
    near = timestamp is not None and now is not None and abs(now - timestamp) < 86_400
    return _format_utc(timestamp, "%H:%M UTC" if near else "%Y-%m-%d %H:%M UTC")


def format_clock(timestamp: float, span: float = 0.0) -> str:
    """Format a Unix time in UTC for charts: hour and minute, with the day beyond a day."""
    return _format_utc(timestamp, "%d %b %H:%M" if span > 86_400 else "%H:%M")


def _format_utc(timestamp: float | None, form: str) -> str:
    try:
        return "—" if timestamp is None else datetime.fromtimestamp(timestamp, UTC).strftime(form)
    except (OverflowError, OSError, ValueError):
        return "—"


def _digits(number: float, spec: MetricSpec | None) -> tuple[str, str, str]:
    """Return the sign of the currency, the digits and the unit."""
    if spec is None:
        return "", f"{number:,.4g}", ""
    if spec.kind == "ratio":
        percent = 100 * number
        # An upper limit of 0.04 % must not read as "never".
        small = 0.001 <= abs(percent) < 0.05
        return "", f"{percent:.1g}" if small else f"{percent:.1f}", f"{THIN}%"
    if spec.name.endswith("_usd"):
        return "$", f"{number:.4f}" if abs(number) < 1 else f"{number:,.2f}", ""
    if spec.high is None:
        return "", f"{number:,.0f}" if abs(number) >= 100 else f"{number:.1f}", ""
    return "", f"{number:.2f}", ""

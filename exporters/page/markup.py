"""Escaped HTML elements, and the one style sheet of all pages.

HTML that is escaped unless it says that it is HTML.

`el` builds elements; a child that is not `Markup` is text and is escaped, so that forgetting to
escape is not possible. Text from traces is bounded by `clip`, and what would not be seen on a
page (control characters, bidirectional overrides, invisible tags) is shown as `⟦U+202E⟧`.

The one style block of every page, and its hash for the Content-Security-Policy.

Blue and vermilion, which colour-blind people tell apart, and never colour alone: severity also
has a shape and a word.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from html import escape
from typing import Union


class Markup(str):
    """Text that is HTML already. Only `el` and `join` make it."""

    __slots__ = ()


Child = Union[str, None, Iterable["Child"]]  # noqa: UP007 - a recursive alias needs the name

VOID = frozenset({"meta", "link", "br", "hr", "path", "line", "circle", "rect", "polyline"})

# Control characters but tab and line feed; bidi marks, embeddings, overrides and isolates;
# zero-width space and BOM; line separators; lone surrogates; the invisible tag characters, which
# can hide whole instructions in an answer. Joiners (U+200C, U+200D) stay: scripts need them.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """The text with every hidden character written out."""
    return _HIDDEN.sub(lambda found: f"⟦U+{ord(found.group()):04X}⟧", text)


def clip(text: str, limit: int) -> str:
    """At most `limit` characters, then how many more there are."""
    if len(text) <= limit:
        return text
    return f"{text[:limit].rstrip()}… (+{len(text) - limit:,} characters)"


def one_line(text: str, limit: int) -> str:
    """White space run together, cut to `limit` characters with an ellipsis."""
    # Twice the limit is enough to fill it and keeps the work small for a huge text.
    flat = " ".join(text[: 2 * limit + 64].split())
    cut = len(flat) > limit or len(text) > 2 * limit + 64
    return f"{flat[:limit].rstrip()}…" if cut else flat


def el(name: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Markup:
    """An element. `class_` gives `class`, `aria_label` gives `aria-label`; None and False leave
    an attribute out, True writes it without a value.
    """
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        parts.append(f" {key}" if value is True else f' {key}="{escape(visible(str(value)))}"')
    if name in VOID:
        if children:
            raise ValueError(f"<{name}> takes no children")
        parts.append("/>")  # HTML ignores the slash; inside an SVG it is what closes the element
    else:
        parts += (">", join(*children), f"</{name}>")
    return Markup("".join(parts))


def join(*children: Child) -> Markup:
    """Children one after the other; text is escaped."""
    return Markup("".join(_flat(children)))


def _flat(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if child is None:
            continue
        if isinstance(child, Markup):
            yield child
        elif isinstance(child, str):
            yield escape(visible(child))
        else:
            yield from _flat(child)


CSS = """
:root{color-scheme:light dark;--bg:#fafaf8;--panel:#fff;--ink:#1a1e23;--soft:#58616c;--rule:#d5d9dd;
--hair:#e9ebed;--accent:#0a5a94;--band:#0a5a9426;--crit:#b02f06;--warn:#7d5a00;--good:#22684c;
--mark:#f2f4f5}
@media (prefers-color-scheme:dark){:root{--bg:#121519;--panel:#181c21;--ink:#e4e7ea;--soft:#9aa4af;
--rule:#353c44;--hair:#262c33;--accent:#6cb6ee;--band:#6cb6ee33;--crit:#ff8a5c;--warn:#e3b94a;
--good:#73c8a3;--mark:#20252b}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--bg);color:var(--ink);font:14px/1.45 system-ui,-apple-system,
"Segoe UI",Roboto,"Helvetica Neue","Noto Sans","DejaVu Sans",sans-serif;
font-variant-numeric:tabular-nums;overflow-wrap:break-word}
.page{max-width:1240px;margin:0 auto;padding:0 24px 56px}
a{color:var(--accent);text-decoration-thickness:1px;text-underline-offset:2px}
a:hover{text-decoration-thickness:2px}
:focus-visible{outline:2px solid var(--accent);outline-offset:2px;border-radius:2px}
h1,h2,h3,p{margin:0}
h2{font-size:19px;font-weight:650;letter-spacing:-.01em;overflow-wrap:anywhere}
h2 a{color:inherit;text-decoration-color:var(--rule)}
h3{font-size:13px;font-weight:650;margin:26px 0 8px}
h3 small,h2 small{font-weight:400;color:var(--soft);font-size:13px;letter-spacing:0}
code,.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;
font-size:.92em;overflow-wrap:anywhere}
.soft{color:var(--soft)}
.skip{position:absolute;left:-999px}
.skip:focus{left:8px;top:8px;background:var(--panel);padding:4px 8px}
.top{display:flex;flex-wrap:wrap;align-items:center;gap:8px 28px;padding:18px 0 14px;
border-bottom:2px solid var(--ink)}
.brand{display:flex;align-items:center;gap:9px;font-size:18px;font-weight:700;letter-spacing:-.02em;
color:inherit;text-decoration:none}
.brand svg{display:block}
.brand path{fill:none;stroke:currentColor;stroke-width:1.6;stroke-linecap:round}
.brand .needle{stroke:var(--crit);stroke-width:2}
.facts{display:flex;flex-wrap:wrap;gap:4px 26px;margin:0;flex:1;justify-content:flex-end}
.facts div{display:flex;gap:7px;align-items:baseline}
.facts dt{color:var(--soft);font-size:12.5px}
.facts dd{margin:0;font-weight:600}
.ok{color:var(--good)}.bad{color:var(--crit)}
.problems{margin:14px 0 0;padding:9px 14px;border:1px solid var(--crit);border-left-width:4px;
border-radius:3px;overflow-wrap:anywhere}
.problems ul{margin:4px 0 0;padding-left:20px}
section{margin-top:30px}
.alerts{display:grid;gap:8px;margin-top:10px}
.alert>*{min-width:0}
.alert{display:grid;grid-template-columns:minmax(0,1fr) auto;gap:2px 24px;background:var(--panel);
border:1px solid var(--rule);border-left:4px solid var(--soft);border-radius:3px;padding:9px 14px}
.alert.critical{border-left-color:var(--crit)}.alert.warning{border-left-color:var(--warn)}
.alert .what{overflow-wrap:anywhere}
.alert .sev{font-weight:650;margin-right:8px;white-space:nowrap}
.critical .sev{color:var(--crit)}.warning .sev{color:var(--warn)}
.alert .rule{font-weight:650;margin-right:8px}
.alert .num{text-align:right;white-space:nowrap}
.alert .num b{font-size:17px;font-weight:650}
.alert .said{grid-column:1/-1}
.alert .more{grid-column:1/-1;color:var(--soft);font-size:12.5px;overflow-wrap:anywhere}
.quiet{padding:9px 14px;border:1px solid var(--rule);border-radius:3px;margin-top:10px;
background:var(--panel)}
.box{overflow-x:auto;background:var(--panel);border:1px solid var(--rule);border-radius:3px;
margin-top:8px}
table{border-collapse:collapse;width:100%}
th,td{padding:5px 12px;text-align:left;vertical-align:top;border-top:1px solid var(--hair)}
thead th{color:var(--soft);font-weight:500;font-size:12.5px;border-top:0;
vertical-align:bottom;white-space:nowrap}
thead tr:last-child th{border-bottom:1px solid var(--rule)}
thead .span{text-align:center;border-bottom:1px solid var(--hair)}
tbody tr:first-child>*{border-top:0}
tbody+tbody tr:first-child>*{border-top:1px solid var(--rule)}
tbody th{font-weight:500}
th[scope=rowgroup]{color:var(--soft);font-size:12px;padding-top:9px;padding-bottom:2px}
th[scope=rowgroup]+*,tr.group+tr>*{border-top:0}
.n{text-align:right;white-space:nowrap}
td.n b{font-weight:650;font-size:14.5px}
td.n small,td small,th small{display:block;color:var(--soft);font-size:11.5px;font-weight:400;
line-height:1.3}
.states{font-size:12px;color:var(--soft);min-width:150px;padding-top:7px}
.note{font-size:12.5px;margin-top:8px;overflow-wrap:anywhere}
.note b{font-weight:500}
.states b{color:var(--ink);font-weight:500}
tbody tr:not(.group):hover>*{background:var(--mark)}
.mark{white-space:nowrap;font-weight:600}
.mark.critical{color:var(--crit)}.mark.warning{color:var(--warn)}
.edge{border-left:1px solid var(--hair)}
.name{white-space:nowrap}
.long{min-width:130px;max-width:260px;overflow-wrap:anywhere;white-space:normal}
.segment{min-width:200px}
.spark{display:block}
.spark .axis{stroke:var(--hair);stroke-width:1}
.spark .band{fill:var(--band)}
.spark .whisker{stroke:var(--band);stroke-width:3}
.spark .trace{fill:none;stroke:var(--accent);stroke-width:1.4;stroke-linejoin:round}
.spark .dot{fill:var(--accent)}
.spark .scale{fill:var(--soft);font-size:9.5px}
details{border-top:1px solid var(--hair)}
details:first-of-type{border-top:0}
summary{cursor:pointer;padding:6px 12px}
summary:hover{background:var(--mark)}
.worst{background:var(--panel);border:1px solid var(--rule);border-radius:3px;margin-top:8px}
.worst>details>summary{font-weight:500}
.worst>details>summary small{color:var(--soft);font-weight:400;font-size:12.5px;margin-left:6px}
.worst details details{margin-left:22px}
.case{padding:2px 12px 12px 26px;display:grid;gap:8px;max-width:86ch}
.line{display:inline-flex;gap:14px;width:calc(100% - 20px);vertical-align:top}
.line b{min-width:58px;text-align:right;font-weight:600;flex:none}
.line .q{flex:1;min-width:0;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.line .t{color:var(--soft);font-size:12px;flex:none}
.text{white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:plaintext;margin:0}
.label{color:var(--soft);font-size:12px;display:block}
.passage{border-left:2px solid var(--rule);padding-left:11px}
.two{display:grid;grid-template-columns:minmax(0,1fr) minmax(300px,380px);gap:12px 40px}
.two h3:first-child{margin-top:18px}
.answer{background:var(--panel);border:1px solid var(--rule);border-radius:3px;padding:12px 16px;
font-size:15px;line-height:1.55}
.cards{display:grid;gap:14px}
.pairs{display:grid;grid-template-columns:auto minmax(0,1fr);gap:3px 18px;margin:8px 0 0}
.pairs dt{color:var(--soft)}.pairs dd{margin:0;overflow-wrap:anywhere}
.pairs dd.n{text-align:left}
footer{margin-top:44px;padding-top:14px;border-top:1px solid var(--rule);color:var(--soft);
font-size:12.5px;display:grid;gap:8px;max-width:100ch}
footer b{color:var(--ink);font-weight:600}
@media (max-width:760px){.page{padding:0 14px 40px}.top h1{flex-basis:100%}
.facts{justify-content:flex-start}
.two{grid-template-columns:minmax(0,1fr)}.alert{grid-template-columns:minmax(0,1fr)}
.alert .num{text-align:left;white-space:normal}th,td{padding:5px 9px}
.stick th[scope=row],.stick thead th:first-child{position:sticky;left:0;background:var(--panel);
z-index:1;min-width:0;max-width:140px;white-space:normal;box-shadow:1px 0 0 var(--hair)}
.line{flex-wrap:wrap;gap:0 10px}.line .q{flex-basis:60%;white-space:normal;overflow-wrap:anywhere}
.line b{min-width:0}.worst details details{margin-left:10px}.case{padding-left:14px}}
@media print{:root{color-scheme:light;--bg:#fff;--panel:#fff;--ink:#000;--soft:#444;--rule:#999;
--hair:#ddd;--accent:#003f6b;--band:#003f6b2e;--crit:#8a2400;--warn:#5c4200;--good:#0f4a33}
body{font-size:10pt}.page{max-width:none;padding:0}.box{overflow:visible}
table{font-size:8.5pt}th,td{padding:3px 6px}td.n b{font-size:9pt}.long{min-width:80px}
section,tr,.alert{break-inside:avoid-page}section.service{break-inside:auto}a{color:inherit}}
"""

CSS_HASH = "sha256-" + b64encode(sha256(CSS.encode("utf-8")).digest()).decode("ascii")

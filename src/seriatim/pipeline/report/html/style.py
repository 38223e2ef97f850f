"""The look of a report: two palettes and one small style sheet. No font, script or image is loaded from anywhere.

The series are Okabe and Ito's colours, which people with any kind of colour blindness can tell apart, darkened or
lightened until they stand out from the paper by 3 : 1 or more; words stand out by 4.5 : 1 or more (a test computes it).
"""

PALETTES: dict[str, tuple[str, str]] = {  # light, dark
    "ink": ("#1c2024", "#e7e9ec"),
    "muted": ("#5a6270", "#a3abb8"),
    "rule": ("#d5d9df", "#3a4049"),
    "paper": ("#ffffff", "#1b1e23"),
    "ground": ("#f5f6f8", "#131519"),
    "wrong": ("#b3261e", "#ff8a80"),
    "right": ("#1a6b3a", "#6fd093"),
    "doubt": ("#7a5900", "#e6be45"),
    "series-1": ("#0072b2", "#5fb6ea"),
    "series-2": ("#c85200", "#ff9157"),
    "series-3": ("#008560", "#33c49a"),
    "series-4": ("#a64d86", "#e293c4"),
    "series-5": ("#a87000", "#efb430"),
    "series-6": ("#2487b5", "#9db2ff"),
    "series-7": ("#6b6256", "#c4b8a8"),
}
LIGHT, DARK = ({tone: colours[place] for tone, colours in PALETTES.items()} for place in (0, 1))


def _variables(palette: dict[str, str]) -> str:
    return "".join(f"--{tone}:{colour};" for tone, colour in palette.items())


TONES = "\n".join(f".{tone}{{--tone:var(--{tone})}}" for tone in LIGHT)
CSS = f"""\
:root{{color-scheme:light dark;{_variables(LIGHT)}}}
@media (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}
{TONES}
*{{box-sizing:border-box}}
html{{-webkit-text-size-adjust:100%;text-size-adjust:100%}}
body{{margin:0;background:var(--ground);color:var(--ink);
 font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}}
header,main,footer{{max-width:1120px;margin:0 auto;padding:0 24px}}
header{{padding-top:40px}}
footer{{padding:24px;color:var(--muted);font-size:13px}}
.brand{{color:var(--muted);font-size:13px;letter-spacing:.08em;text-transform:uppercase;margin:0}}
h1{{font-size:30px;line-height:1.2;margin:4px 0 8px;overflow-wrap:anywhere}}
h2{{font-size:22px;line-height:1.25;margin:0 0 4px;overflow-wrap:anywhere}}
h3{{font-size:17px;margin:32px 0 8px}}
h4{{font-size:15px;margin:20px 0 6px}}
p{{margin:8px 0;max-width:76ch}}
a{{color:var(--series-1)}}
.quiet{{color:var(--muted)}}
section.source{{background:var(--paper);border:1px solid var(--rule);border-radius:10px;padding:24px;margin:24px 0}}
nav ul{{list-style:none;padding:0;margin:16px 0;display:grid;gap:8px}}
nav li{{background:var(--paper);border:1px solid var(--rule);border-radius:10px;padding:10px 16px;
 display:flex;flex-wrap:wrap;gap:4px 16px;align-items:baseline}}
nav li a{{font-weight:600;overflow-wrap:anywhere}}
.banner{{border-left:5px solid var(--tone);background:color-mix(in srgb,var(--tone) 9%,transparent);
 border-radius:4px;padding:10px 16px;margin:16px 0;max-width:none}}
.banner strong{{color:var(--tone)}}
.answer{{color:var(--tone);font-weight:600;white-space:nowrap}}
dl.tiles{{display:grid;grid-template-columns:repeat(auto-fit,minmax(132px,1fr));gap:10px;margin:16px 0}}
dl.tiles div{{border:1px solid var(--rule);border-radius:8px;padding:8px 12px}}
dl.tiles dt{{color:var(--muted);font-size:13px}}
dl.tiles dd{{margin:0;font-size:20px;font-weight:600;font-variant-numeric:tabular-nums}}
dl.tiles small{{display:block;font-size:13px;line-height:1.35;font-weight:400;color:var(--muted)}}
.figures{{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,420px),1fr));gap:16px;align-items:start}}
.figures{{margin:12px 0}}
figure{{margin:0;border:1px solid var(--rule);border-radius:8px;padding:12px;min-width:0}}
figure.wide{{grid-column:1/-1}}
figure h4{{margin:0 0 8px}}
h4 .quiet{{font-weight:400;font-size:13px}}
figcaption{{font-size:14px;margin-top:6px;overflow-wrap:anywhere}}
svg{{display:block;width:100%;height:auto;margin:0 auto}}
.scroll{{overflow-x:auto}}
.scroll svg{{width:auto;height:auto;max-width:none!important}}
svg .line{{stroke:var(--tone);fill:none;stroke-linecap:round;stroke-linejoin:round}}
svg .fill{{fill:var(--tone)}}
svg .hollow{{fill:var(--paper);stroke:var(--tone);stroke-width:1.5}}
svg .text{{fill:var(--tone);font-family:inherit;paint-order:stroke;stroke:var(--paper);stroke-width:3px;
 stroke-linejoin:round}}
table{{border-collapse:collapse;font-size:14px;width:100%;font-variant-numeric:tabular-nums}}
caption{{text-align:left;font-weight:600;padding:0 0 6px}}
th,td{{text-align:left;vertical-align:top;padding:5px 12px 5px 0;border-bottom:1px solid var(--rule);
 overflow-wrap:anywhere;unicode-bidi:isolate}}
thead th{{color:var(--muted);font-weight:600;font-size:13px;white-space:nowrap}}
tbody th{{font-weight:600;min-width:8em}}
th.number,td.number{{text-align:right;white-space:nowrap}}
th.name{{white-space:nowrap}}
th:last-child,td:last-child{{padding-right:0}}
td.bar{{width:34%;min-width:90px;vertical-align:middle}}
td.bar span{{display:block;height:9px;border-radius:2px;background:var(--tone);min-width:1px}}
code,.row{{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:13px}}
.row{{margin:2px 0;overflow-wrap:anywhere;max-width:none}}
details{{margin:8px 0}}
summary{{cursor:pointer;color:var(--muted);font-size:14px}}
:focus-visible{{outline:2px solid var(--series-1);outline-offset:2px}}
@media (max-width:640px){{
 header,main,footer{{padding-left:12px;padding-right:12px}}
 header{{padding-top:20px}}
 section.source{{padding:12px}}
 figure{{padding:8px}}
 h1{{font-size:24px}}
 td.promise,th.promise{{display:none}}
 th.name{{white-space:normal;overflow-wrap:normal}}
}}
@media print{{
 :root{{color-scheme:light;{_variables(LIGHT)}--ground:#fff}}
 body{{font-size:11pt}}
 section.source{{border:0;padding:0}}
 figure,tr,.banner{{break-inside:avoid}}
 h2,h3,h4{{break-after:avoid}}
 details::details-content{{content-visibility:visible;block-size:auto}}
 summary{{list-style:none}}
 .scroll{{overflow:visible}}
}}
"""

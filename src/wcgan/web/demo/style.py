"""What the page's style sheet adds to Gradio's: the chart, the table, room above pictures."""

SHEET = """
:root { --c0: #0064b0; --c1: #c04a00; }
.gradio-container { --line: var(--border-color-primary); }
.dark { --c0: #6cb8ff; --c1: #ff9d5c; }
.facts { color: var(--body-text-color-subdued); }
figure { margin: 0; max-width: 34rem; }
.chart { display: block; width: 100%; height: auto; overflow: visible; }
.chart text { font-size: 13px; fill: var(--body-text-color-subdued); }
.chart .grid, .chart .axis { fill: none; stroke: var(--line); }
.chart .axis { stroke: var(--body-text-color-subdued); }
.chart .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.chart .line.c0 { stroke: var(--c0); }
.chart .line.c1 { stroke: var(--c1); }
.chart .dot.c0 { fill: var(--c0); }
.chart .dot.c1 { fill: var(--c1); }
.key { margin-left: .8rem; padding-left: .4rem; border-left: .8rem solid; }
.key.c0 { border-color: var(--c0); }
.key.c1 { border-color: var(--c1); }
.picture .image-frame { padding-top: 2.2rem; }
#nearest table { width: auto; border: 0; }
#nearest caption { text-align: left; white-space: nowrap; padding-bottom: .3rem; }
#nearest :is(tr, th, td) { border: 0; }
#nearest :is(th, td) { text-align: left; padding: .2rem 1.2rem .2rem 0; border-bottom: 1px solid var(--line); }
#nearest :is(th, td).number { text-align: right; font-variant-numeric: tabular-nums; }
"""

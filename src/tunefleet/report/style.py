"""The style sheet of the page: one column, tabular figures, light and dark, fit for paper."""

CSS = """
:root {
  color-scheme: light dark;
  --ground: #fbfbf9; --card: #ffffff; --ink: #1d2327; --soft: #5d6870; --rule: #e2e4e1;
  --accent: #0f6b6b; --accent-soft: #d5e9e7; --plain: #a9b2b6; --good: #1d7044;
  --good-soft: #dff1e5; --warn: #8a5a00; --warn-soft: #fbeed2;
  --source: #d98a00; --limit: #7a5195;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #15191c; --card: #1c2125; --ink: #e4e7e6; --soft: #9aa5aa; --rule: #30373c;
    --accent: #5cc2bb; --accent-soft: #1f4443; --plain: #67737a; --good: #7ecb9a;
    --good-soft: #1c3a29; --warn: #e3b562; --warn-soft: #3e3118;
    --source: #e8a33d; --limit: #b89bd6;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; padding: 2.5rem 1.25rem 4rem; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  font-variant-numeric: tabular-nums lining-nums;
}
main { max-width: 62rem; margin: 0 auto; }
header p { margin: 0; color: var(--soft); overflow-wrap: anywhere; }
.kicker { font-size: .8rem; letter-spacing: .06em; text-transform: uppercase; }
h1 { margin: .1rem 0 .2rem; font-size: 2rem; line-height: 1.2; font-weight: 650;
  overflow-wrap: anywhere; }
h2 { margin: 0 0 .8rem; font-size: 1.05rem; font-weight: 650; }
h2 small { font-weight: 400; color: var(--soft); font-size: .85rem; margin-left: .5rem; }
section { margin-top: 1.25rem; padding: 1.25rem 1.4rem; background: var(--card);
  border: 1px solid var(--rule); border-radius: 8px; }
.headline { display: flex; flex-wrap: wrap; gap: 1rem 2.5rem; align-items: flex-end;
  margin-bottom: 1.1rem; }
.figure b { display: block; font-size: 2rem; line-height: 1.15; font-weight: 650; }
.figure b i { font-style: normal; font-size: 1rem; font-weight: 400; color: var(--soft);
  margin-left: .2em; }
.figure span { display: block; color: var(--soft); font-size: .85rem; }
.figure.main b { color: var(--accent); }
.arrow { align-self: center; color: var(--soft); font-size: 1.5rem; }
section > :first-child { margin-top: 0; }
section > :last-child { margin-bottom: 0; }
.badge { display: inline-block; padding: .2rem .7rem; border-radius: 1rem; font-size: .85rem;
  background: var(--warn-soft); color: var(--warn); }
.badge.good { background: var(--good-soft); color: var(--good); }
.chart { display: block; width: 100%; height: auto; }
.chart text { fill: var(--soft); font-size: 12.5px; }
.chart text.value { fill: var(--ink); }
.chart .rule { stroke: var(--rule); fill: none; }
.chart .axis { stroke: var(--plain); fill: none; }
.chart .line { stroke: var(--accent); stroke-width: 2; fill: none; stroke-linejoin: round; }
.chart .dot { fill: var(--accent); fill-opacity: 0; }
.chart .dot:hover { fill-opacity: 1; }
.chart .wait { fill: var(--rule); fill-opacity: .45; }
.chart .target { stroke: var(--warn); stroke-dasharray: 5 4; fill: none; }
.chart .roof { stroke: var(--limit); stroke-width: 1.5; fill: none; }
.chart .untuned { fill: var(--plain); }
.chart .tuned { fill: var(--accent); }
.chart .point { fill: var(--accent); fill-opacity: .6; }
.chart .point.estimated { fill: none; stroke: var(--plain); stroke-width: 1.4; }
.chart .whisker { stroke: var(--ink); stroke-width: 1.2; fill: none; }
.paper { overflow-x: auto; background: #fff; border-radius: 4px; }
.paper svg { display: block; width: 100%; min-width: 52rem; height: auto; }
.bars { display: grid; gap: .35rem; }
.bars > div { display: grid; grid-template-columns: 13rem 1fr 15rem; gap: .9rem;
  align-items: center; }
.bars .name { text-align: right; overflow-wrap: anywhere; }
.bars .value { font-size: .9rem; color: var(--soft); }
.bars .track { position: relative; display: block; height: 1.05rem; }
.bars .bar { display: block; height: 100%; min-width: 1px; border-radius: 2px;
  background: var(--plain); }
.bars .source { background: var(--source); }
.bars .tuned { background: var(--accent); }
.bars .whisker { position: absolute; top: 30%; height: 40%; border: solid var(--ink);
  border-width: 0 1px; background: linear-gradient(var(--ink), var(--ink)) center/100% 1px
  no-repeat; }
.bars .whisker.open { border-right-width: 0; }
.bars .cut { position: absolute; top: -2px; bottom: -2px; right: 12%; width: 7px;
  background: var(--card); transform: skewX(-18deg); }
.wide { overflow-x: auto; }
.wide > .chart { min-width: 40rem; }
h3 { margin: .8rem 0 .3rem; font-size: .9rem; font-weight: 600; color: var(--soft); }
pre { margin: 0; padding: .7rem .9rem; overflow-x: auto; background: var(--ground);
  border: 1px solid var(--rule); border-radius: 6px; font-size: .85rem; line-height: 1.45; }
a { color: var(--accent); }
table.live th { cursor: pointer; }
table.live th:hover, table.live th:focus-visible { color: var(--ink); }
th[aria-sort=descending]::after { content: " \\2193"; }
th[aria-sort=ascending]::after { content: " \\2191"; }
table { width: 100%; border-collapse: collapse; font-size: .87rem; line-height: 1.35; }
th { padding: 0 .5rem .4rem; text-align: right; font-weight: 600; color: var(--soft);
  border-bottom: 1px solid var(--plain); white-space: nowrap; }
td { padding: .38rem .5rem; text-align: right; border-bottom: 1px solid var(--rule);
  white-space: nowrap; vertical-align: top; }
tr:last-child td { border-bottom: 0; }
th:first-child, td:first-child { padding-left: 0; }
th:last-child, td:last-child { padding-right: 0; }
th.words, td.words { text-align: left; white-space: normal; overflow-wrap: anywhere; }
td.words { min-width: 14rem; }
th.source, td.source { text-align: left; }
td small { display: block; color: var(--soft); font-size: .78rem; }
td i { font-style: normal; color: var(--soft); }
td.bar { min-width: 5.4rem; }
.meter { display: block; height: 4px; margin-top: 3px; border-radius: 2px;
  background: var(--rule); }
.meter > span { display: block; height: 100%; border-radius: 2px; background: var(--accent); }
.meter.peak > span { background: var(--limit); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.4rem; margin: 0;
  font-size: .9rem; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
.prose { margin: 0; max-width: 46rem; color: var(--soft); font-size: .9rem; }
footer { margin-top: 1.5rem; color: var(--soft); font-size: .8rem; overflow-wrap: anywhere; }
@media (max-width: 44rem) {
  body { padding: 1.25rem .7rem 2rem; }
  section { padding: 1rem .9rem; }
  .headline { gap: .8rem 1.1rem; }
  .figure b { font-size: 1.55rem; }
  .bars { gap: .8rem; }
  .bars > div { grid-template-columns: 1fr auto; gap: .15rem .9rem; }
  .bars .name { text-align: left; }
  .bars .track { grid-column: 1 / -1; grid-row: 2; }
  dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: .5rem; }
}
@media print {
  :root { color-scheme: light; --ground: #fff; --card: #fff; --ink: #000; --soft: #444;
    --rule: #ddd; --accent: #0f6b6b; --plain: #999; }
  html { font-size: 10px; }
  main { max-width: none; }
  body { padding: 0; font-size: 10px; }
  th, td { padding-left: .35rem; padding-right: .35rem; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  section { break-inside: avoid; border: 0; padding: .4rem 0; }
  section.long { break-inside: auto; }
  tr { break-inside: avoid; }
  thead { display: table-header-group; }
}
"""

"""The style sheet of the page: one column, tabular figures, light and dark, fit for paper."""

CSS = """
:root {
  color-scheme: light dark;
  --ground: #fbfbf9; --card: #ffffff; --ink: #1d2327; --soft: #5d6870; --rule: #e2e4e1;
  --accent: #0f6b6b; --accent-soft: #d5e9e7; --plain: #a9b2b6; --good: #1d7044;
  --good-soft: #dff1e5; --warn: #8a5a00; --warn-soft: #fbeed2;
  --s0: #5b7a99; --s1: #8fa9bf; --s2: #7b6fa3; --s3: #c98f4e; --s4: #0f8b8d; --s5: #b65d6a;
  --s6: #6f9457; --s7: #a0837a; --s8: #bcb37a; --s9: #d4a5b5;
  --s10: #b9bfc2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #15191c; --card: #1c2125; --ink: #e4e7e6; --soft: #9aa5aa; --rule: #30373c;
    --accent: #5cc2bb; --accent-soft: #1f4443; --plain: #67737a; --good: #7ecb9a;
    --good-soft: #1c3a29; --warn: #e3b562; --warn-soft: #3e3118;
    --s0: #7694b1; --s1: #536b80; --s2: #9a8ec4; --s3: #d29a5b; --s4: #3fa9a8; --s5: #c87682;
    --s6: #86ad6c; --s7: #b09389; --s8: #a49c66; --s9: #8f6676;
    --s10: #5d666b;
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
.chart .untuned { fill: var(--plain); }
.chart .tuned { fill: var(--accent); }
.chart .point { fill: var(--accent); fill-opacity: .6; }
.chart .point.estimated { fill: none; stroke: var(--plain); stroke-width: 1.4; }
.chart .whisker { stroke: var(--ink); stroke-width: 1.2; fill: none; }
.paper { overflow-x: auto; background: #fff; border-radius: 4px; }
.paper svg { display: block; width: 100%; min-width: 52rem; height: auto; }
.stack { display: block; width: 100%; height: 22px; border-radius: 4px; }
.legend { display: grid; grid-template-columns: repeat(auto-fill, minmax(20rem, 1fr));
  gap: .25rem 2rem; margin: .9rem 0 0; padding: 0; list-style: none; font-size: .9rem; }
.legend li { display: grid; grid-template-columns: auto 1fr auto 4rem; gap: .6rem;
  align-items: center; }
.legend li span:nth-child(n+3) { text-align: right; }
.legend .share { color: var(--soft); }
.key { width: .75rem; height: .75rem; border-radius: 2px; }
.s0 { fill: var(--s0); background: var(--s0); } .s1 { fill: var(--s1); background: var(--s1); }
.s2 { fill: var(--s2); background: var(--s2); } .s3 { fill: var(--s3); background: var(--s3); }
.s4 { fill: var(--s4); background: var(--s4); } .s5 { fill: var(--s5); background: var(--s5); }
.s6 { fill: var(--s6); background: var(--s6); } .s7 { fill: var(--s7); background: var(--s7); }
.s8 { fill: var(--s8); background: var(--s8); } .s9 { fill: var(--s9); background: var(--s9); }
.s10 { fill: var(--s10); background: var(--s10); }
.wide { overflow-x: auto; }
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
.meter.peak > span { background: var(--s3); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.4rem; margin: 0;
  font-size: .9rem; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
.prose { margin: 0; max-width: 46rem; color: var(--soft); font-size: .9rem; }
footer { margin-top: 1.5rem; color: var(--soft); font-size: .8rem; overflow-wrap: anywhere; }
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

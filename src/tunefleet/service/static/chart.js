// Curves of jobs, drawn by uPlot; the page has them as tables too.
"use strict";

const HEIGHT = 320;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// The best so far of each job at every x of any of them; null before its first.
function columns(curves, axis) {
  const xs = [...new Set(curves.flatMap((curve) => curve.map((sample) => sample[axis])))].sort((a, b) => a - b);
  const rows = curves.map((curve) => {
    let next = 0, best = null;
    return xs.map((x) => {
      while (next < curve.length && curve[next][axis] <= x) best = curve[next++].latency_ms;
      return curve.length && x > curve[curve.length - 1][axis] ? null : best;
    });
  });
  return [xs, ...rows];
}

// The forecast of one job, as a band from its last sample to the end of its budget.
function ahead(forecasts, axis, data, series) {
  const [forecast] = forecasts, last = data[0].length - 1;
  if (forecasts.length !== 1 || !forecast || forecast[axis] <= data[0][last]) return [];
  const before = data[0].map((x, at) => at === last ? data[1][last] : null);
  data[0].push(forecast[axis]);
  data[1].push(null);
  const line = { stroke: colour("--line-3"), dash: [3, 3], width: 1, points: { show: false }, value: (plot, value) => value == null ? "–" : `${value.toPrecision(3)} ms` };
  for (const [part, label] of [["high_ms", "90 %"], ["low_ms", "10 %"]]) {
    data.push([...before, forecast[part]]);
    series.push({ ...line, label });
  }
  return [{ series: [2, 3], fill: colour("--busy-soft") }];
}

function draw(chart, state) {
  const axis = chart.querySelector("[name=axis]:checked").value;
  const isLog = chart.querySelector("[name=log]").checked;
  const place = chart.querySelector(".plot");
  const names = JSON.parse(chart.dataset.names);
  const data = columns(state.curves, axis);
  const series = names.map((label, index) => ({
    label, stroke: colour(`--line-${index + 1}`), width: 2, paths: uPlot.paths.stepped({ align: 1 }),
    points: { show: data[0].length < 60 }, value: (plot, value) => value == null ? "–" : `${value.toPrecision(3)} ms`,
  }));
  const bands = ahead(state.forecasts, axis, data, series);
  const target = Number(chart.dataset.target);
  if (target) {
    data.push(data[0].map(() => target));
    series.push({ label: "agreed", stroke: colour("--line-2"), dash: [6, 4], width: 1.5, points: { show: false } });
  }
  const lines = { stroke: colour("--soft"), grid: { stroke: colour("--rule"), width: 1 }, ticks: { stroke: colour("--rule") } };
  if (state.plot) state.plot.destroy();
  state.plot = new uPlot({
    width: place.clientWidth, height: HEIGHT,
    scales: { x: { time: false }, y: isLog ? { distr: 3 } : {} },
    axes: [{ ...lines, label: axis === "trials" ? "trials" : "seconds of the search" }, { ...lines, label: "ms", size: 60 }],
    bands,
    series: [{ label: axis === "trials" ? "trials" : "seconds" }, ...series],
  }, data, place);
}

async function load(chart, state) {
  const paths = chart.dataset.curves.trim().split(/\s+/);
  const values = await Promise.all(paths.map((path) => call("GET", path)));
  state.curves = values.map((value) => value.samples);
  state.forecasts = values.map((value) => value.forecast);
  if (state.curves.some((curve) => curve.length)) draw(chart, state);
}

const drawn = new WeakMap();

function show() {
  const chart = document.getElementById("chart");
  if (!chart) return;
  let state = drawn.get(chart);
  if (!state) {
    state = { curves: [], forecasts: [], plot: null };
    drawn.set(chart, state);
    const again = () => { if (state.curves.length) draw(chart, state); };
    chart.addEventListener("change", again);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
    new ResizeObserver(() => {
      const width = chart.querySelector(".plot").clientWidth;
      if (state.plot && state.plot.width !== width) state.plot.setSize({ width, height: HEIGHT });
    }).observe(chart);
  }
  load(chart, state).catch((error) => notify(error.message));
}

show();
document.addEventListener("htmx:after:swap", show);

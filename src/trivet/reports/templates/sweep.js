// Draws the parallel coordinates and the history of a sweep.
(() => {
  "use strict";
  const { axis, label, layout, draw } = Plots;
  const { parallel, history } = Page.data;
  // The name of a setting under that of its section.
  const lines = (name) => {
    const at = name.lastIndexOf(".") + 1;
    return at ? `${label(name.slice(0, at), 16)}<br>${label(name.slice(at), 16)}` : label(name, 16);
  };
  if (parallel) {
    const last = parallel.axes.length - 1;
    const traces = parallel.lines.map(({ trial, value, best, height, y, texts }) => ({
      type: "scatter", mode: "lines+markers", x: y.map((_, k) => k), y, connectgaps: false, opacity: best ? 1 : 0.2 + 0.6 * height,
      line: { color: best ? "#E69F00" : "#0072B2", width: best ? 4 : 1.5 }, marker: { size: best ? 8 : 5 },
      text: y.map((_, k) => `trial ${trial}: ${label(value)} %<br>${k < last ? label(texts[k], 60) : ""}`), hovertemplate: "%{text}<extra></extra>",
    }));
    const shapes = parallel.axes.map((_, k) => ({ type: "line", layer: "below", x0: k, x1: k, y0: 0, y1: 1, line: { color: "#8a96a5", width: 1 } }));
    const annotations = parallel.axes.flatMap(({ ticks }, k) => ticks.map(([y, text]) => ({
      x: k, y, text: label(text, 18), showarrow: false, xanchor: k === last ? "right" : "left", xshift: k === last ? -8 : 8, yshift: 8, font: { size: 11, color: "#5b6675" },
    })));
    const names = { tickmode: "array", tickangle: 0, tickvals: parallel.axes.map((_, k) => k), ticktext: parallel.axes.map(({ name }) => lines(name)), range: [-0.15, last + 0.15], showgrid: false };
    draw(document.getElementById("parallel-plot"), traces, layout({
      xaxis: axis("", names), yaxis: axis("", { visible: false, range: [-0.06, 1.12] }), shapes, annotations, showlegend: false, hovermode: "closest",
    }));
  }
  if (history) {
    const { measure, x, y, trial, best, pruned } = history;
    const said = (numbers) => numbers.map((one) => `trial ${one}`);
    const traces = [
      { type: "scatter", mode: "lines", name: "best so far", x, y: best, line: { color: "#E69F00", width: 3, shape: "hv" }, hoverinfo: "skip" },
      { type: "scatter", mode: "markers", name: "complete", x, y, text: said(trial), marker: { color: "#0072B2", size: 8 }, hovertemplate: "%{text}: %{y:.1f} %<extra></extra>" },
    ];
    if (pruned.x.length) {
      traces.push({ type: "scatter", mode: "markers", name: "pruned, at its last look", x: pruned.x, y: pruned.y, text: said(pruned.trial), marker: { color: "#8a96a5", size: 8, symbol: "x-thin-open" }, hovertemplate: "%{text}: %{y:.1f} %<extra></extra>" });
    }
    draw(document.getElementById("history-plot"), traces, layout({ xaxis: axis("trials told", { rangemode: "tozero" }), yaxis: axis(`${measure} on validation, %`), hovermode: "closest" }));
  }
})();

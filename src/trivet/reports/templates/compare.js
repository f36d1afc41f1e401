// Draws the curves of compared runs, a line for each; the legend of all plots stands above them.
(() => {
  "use strict";
  const { axis, label, layout, draw } = Plots;
  (Page.data.lines || []).forEach(({ limits, lines }, k) => {
    const traces = lines.map(({ name, colour, dash, x, y }) => ({
      type: "scatter", mode: x.length < 3 ? "lines+markers" : "lines", name: label(name), x, y, line: { color: colour, dash, width: 2 }, hovertemplate: "%{y:.4g}",
    }));
    const vertical = limits ? { autorangeoptions: { clipmin: limits[0] - 0.03, clipmax: limits[1] + 0.03 } } : { rangemode: "tozero" };
    draw(document.querySelector(`[data-lines="${k}"]`), traces, layout({ xaxis: axis("step"), yaxis: axis("", vertical), hovermode: "x unified", showlegend: false }));
  });
})();

// Draws the figures of an evaluation; texts are made inert before they come here.
(() => {
  "use strict";
  const { figures, styles } = Page.data;
  const [DARK, SOFT] = ["#1c2430", "#5b6675"];
  const faint = (colour, opacity) => `rgba(${[1, 3, 5].map((k) => Number.parseInt(colour.slice(k, k + 2), 16)).join(",")},${opacity})`;
  // Kind of a trace -> its looks, by the colour, the symbol and the dash of an embedding.
  const LOOKS = {
    band: ([colour]) => ({ mode: "lines", fill: "toself", fillcolor: faint(colour, 0.16), line: { width: 0 } }),
    curve: ([color, symbol, dash]) => ({ mode: "lines+markers", line: { color, dash, width: 2 }, marker: { symbol, size: 8 } }),
    marks: ([color, symbol]) => ({ mode: "markers", marker: { color, symbol, size: 9, line: { color: "#fff", width: 0.8 } } }),
    queries: ([colour]) => ({ mode: "lines", line: { color: faint(colour, 0.4), width: 7 } }),
    classes: ([color]) => ({ mode: "lines", line: { color, width: 1.6 } }),
    steps: ([color, , dash]) => ({ mode: "lines", line: { color, dash, width: 2, shape: "hv" }, fill: "tozeroy", fillcolor: faint(color, 0.16) }),
    chance: () => ({ mode: "lines", line: { color: SOFT, dash: "dash", width: 1.5 } }),
    upright: () => ({ mode: "lines", line: { color: DARK, dash: "dot", width: 2 } }),
  };
  const axis = (text, more) => ({
    title: { text, standoff: 8, font: { size: 12 } }, gridcolor: "#e8ebee", zeroline: false, linecolor: "#8a96a5", automargin: true, ...more,
  });
  const ticks = (places, texts) => ({ tickvals: places, ticktext: texts });

  figures.forEach(({ traces, x, y, rows, at }, k) => {
    const count = rows.length;
    const stripes = rows.map((_, row) => row).filter((row) => row % 2).map((row) => ({
      type: "rect", xref: "paper", x0: 0, x1: 1, y0: row - 0.5, y1: row + 0.5, fillcolor: "#f5f6f8", line: { width: 0 }, layer: "below",
    }));
    const upright = at === null ? [] : [{ type: "line", x0: at, x1: at, yref: "paper", y0: 0, y1: 1, line: { color: SOFT, dash: "dash", width: 1.5 } }];
    const down = y.range ? { range: y.range } : { rangemode: "tozero" };
    const inRows = { ...ticks(rows.map((_, row) => row), rows), range: [count - 0.5, -0.5], showgrid: false };
    Paper.draw(document.querySelector(`[data-figure="${k}"]`), traces.map(({ kind, of, hover, ...more }) => ({
      type: "scatter", ...LOOKS[kind](styles[of]), ...more, ...(hover.length ? { hoverinfo: "text", hovertext: hover } : { hoverinfo: "skip" }),
    })), {
      plot_bgcolor: "#fff", margin: { l: 52, r: 14, t: count ? 34 : 12, b: 46 }, showlegend: false, hovermode: "closest", shapes: [...stripes, ...upright],
      xaxis: axis(x.title, {
        ...(x.range && { range: x.range }), ...(x.ticks && { type: "log", ...ticks(x.ticks, x.ticks.map(String)) }),
        ...(x.zero && { zeroline: true, zerolinecolor: DARK, zerolinewidth: 2 }),
      }),
      yaxis: axis(y.title, count ? inRows : down),
    });
  });
})();

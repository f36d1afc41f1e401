// Draws figures that were laid out in Python; texts are made inert before they come here.
(() => {
  "use strict";
  const { figures } = JSON.parse(document.getElementById("plots").textContent);
  const touch = window.matchMedia("(pointer: coarse)").matches;
  const font = { family: getComputedStyle(document.body).fontFamily, size: 13, color: "#1c2430" };
  // Only these buttons, by name: plotly's own choice has one that sends the data away.
  const buttons = [["toImage"], ["zoom2d", "pan2d", "resetScale2d"]];
  const config = { responsive: true, displaylogo: false, modeBarButtons: buttons, showSendToCloud: false,
    plotlyServerURL: "" };
  figures.forEach(({ traces, layout }, k) => Plotly.newPlot(document.querySelector(`[data-figure="${k}"]`), traces,
    { ...layout, font, hoverlabel: { font, align: "left" }, dragmode: touch ? false : "zoom" }, config));
})();

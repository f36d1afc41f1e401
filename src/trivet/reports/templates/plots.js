// Draws the maps, scatters and curves of a page, and lends the other scripts what they share.
const Plots = (() => {
  "use strict";
  // Okabe and Ito's colours; dark on white first.
  const COLOURS = ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#333333", "#F0E442"];
  const SYMBOLS = ["circle", "triangle-up", "square", "diamond", "cross", "x", "star", "triangle-down"];
  const DASHES = ["solid", "dash", "dot", "dashdot"];
  const MOST_IN_LEGEND = 12;
  const MOST_ELEMENTS = 2000; // of more points a map is a canvas
  const { data } = Page;
  const tip = document.getElementById("tip");

  // Plotly reads some HTML, links too, in every text it draws.
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const shorten = (text, length) => {
    const letters = Array.from(String(text));
    return letters.length > length ? letters.slice(0, length - 1).join("") + "…" : String(text);
  };
  const label = (text, length = 28) => plain(shorten(text, length));

  const count = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, "\u202f");

  function axis(title, more = {}) {
    return { title: { text: plain(title), standoff: 8, font: { size: 12 } }, gridcolor: "#e8ebee", zeroline: false, linecolor: "#8a96a5", automargin: true, ...more };
  }

  function layout(more) {
    return {
      plot_bgcolor: "#fff", margin: { l: 52, r: 14, t: 12, b: 46 },
      legend: { orientation: "h", x: 0, y: 1.02, xanchor: "left", yanchor: "bottom" }, ...more,
    };
  }

  function showTip(event, number, lines) {
    tip.replaceChildren();
    if (number !== null) {
      const picture = document.createElement("img");
      Page.show(picture, number);
      tip.append(picture);
    }
    for (const line of lines) {
      const row = document.createElement("div");
      row.textContent = shorten(line, 300);
      tip.append(row);
    }
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = event.clientX + 16 + box.width > window.innerWidth ? event.clientX - 16 - box.width : event.clientX + 16;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 12, window.innerHeight - box.height - 4))}px`;
  }

  function hideTip() {
    tip.hidden = true;
  }

  const draw = (element, traces, design, describe) => Paper.draw(element, traces, design, () => listen(element, describe));

  function listen(element, describe) {
    for (const name of ["plotly_hover", "plotly_click", "plotly_unhover"]) element.removeAllListeners(name);
    if (!describe) return;
    const show = ({ event, points: [point] }) => {
      // A finger gives a click only, and its place in a list of touches.
      if (point && point.customdata !== undefined) showTip((event.changedTouches || [event])[0], ...describe(point.customdata));
    };
    element.on("plotly_hover", show);
    element.on("plotly_click", show);
    element.on("plotly_unhover", hideTip);
  }

  // Groups: [{name, colour, symbol, members}]; one dot per member, a legend where it can still be read.
  function drawMap(element, places, groups, describe) {
    const legend = groups.length <= MOST_IN_LEGEND;
    if (places.length > MOST_ELEMENTS) {
      Paper.forget(element);
      Dots.draw(element, places, groups, legend, (event, i) => showTip(event, ...describe(i)), hideTip);
      return;
    }
    Dots.forget(element);
    const traces = groups.map((group) => ({
      type: "scatter", mode: "markers", name: label(group.name), customdata: group.members, hoverinfo: "none",
      x: group.members.map((i) => places[i][0]), y: group.members.map((i) => places[i][1]), showlegend: legend,
      marker: { color: group.colour, symbol: group.symbol, size: 8, opacity: 0.8, line: { color: "#fff", width: 0.6 } },
    }));
    const bare = { showticklabels: false, zeroline: false, gridcolor: "#eef0f3", showline: true, mirror: true, linecolor: "#cfd5db" };
    draw(element, traces, layout({
      xaxis: bare, yaxis: { ...bare, scaleanchor: "x" }, hovermode: "closest", margin: { l: 8, r: 8, t: 12, b: 8 },
      legend: { orientation: "h", x: 0, y: -0.02, xanchor: "left", yanchor: "top", itemsizing: "constant" },
    }), describe);
  }

  function members(classes) {
    const found = new Map();
    classes.forEach((c, i) => (found.has(c) ? found.get(c).push(i) : found.set(c, [i])));
    return [...found].sort(([a], [b]) => a - b);
  }

  // A drop-down per choice; `show` runs with the chosen values, later choices may depend on earlier ones.
  function controls(box, titles, options, show) {
    const selects = titles.map((title) => {
      const holder = document.createElement("label");
      const select = document.createElement("select");
      holder.append(title, select);
      box.append(holder);
      return select;
    });
    const update = (from) => {
      const chosen = [];
      selects.forEach((select, k) => {
        if (k >= from) {
          const kept = select.value;
          const { names, first } = options(chosen)[k];
          select.replaceChildren(...names.map((name) => new Option(shorten(name, 60), name)));
          select.value = names.includes(kept) ? kept : first;
          select.parentElement.hidden = names.length < 2;
        }
        chosen.push(select.value);
      });
      show(...chosen);
    };
    selects.forEach((select, k) => select.addEventListener("change", () => update(k + 1)));
    update(0);
  }

  // Marks: events at a step.
  function drawCurve(element, { title, step, series, limits, marks = [], band = {}, band_title = "" }) {
    const edge = { type: "scatter", mode: "lines", x: step, line: { width: 0 }, hoverinfo: "skip" };
    const shaded = band.low ? [{ ...edge, y: band.low, showlegend: false },
      { ...edge, y: band.high, name: band_title, fill: "tonexty", fillcolor: "rgba(0, 114, 178, 0.15)" }] : [];
    const traces = Object.entries(series).map(([name, values], k) => ({
      type: "scatter", mode: step.length < 40 ? "lines+markers" : "lines", name: label(name), x: step, y: values,
      line: { color: COLOURS[k % COLOURS.length], dash: DASHES[k % DASHES.length], width: 2 }, marker: { symbol: SYMBOLS[k % SYMBOLS.length], size: 7 },
      hovertemplate: "%{y:.4g}",
    }));
    const vertical = limits ? { autorangeoptions: { clipmin: limits[0] - 0.03, clipmax: limits[1] + 0.03 } } : { rangemode: "tozero" };
    const ink = "#D55E00";
    draw(element, [...shaded, ...traces], layout({ xaxis: axis("step"), yaxis: axis("", vertical), hovermode: "x unified", showlegend: shaded.length + traces.length > 1,
      legend: { orientation: "h", x: 0, y: -0.24, xanchor: "left", yanchor: "top" }, // above, the buttons would hide it
      shapes: marks.map((mark) => ({ type: "line", x0: mark.step, x1: mark.step, yref: "paper", y0: 0, y1: 1, line: { color: ink, dash: "dot", width: 1.5 } })),
      annotations: marks.map((mark) => ({
        x: mark.step, xanchor: "right", yref: "paper", y: 1, yanchor: "top", text: label(mark.text, 40), textangle: -90, showarrow: false, font: { size: 11, color: ink },
      })),
    }));
  }

  function drawMaps(maps) {
    const element = document.getElementById("map-plot");
    const options = ([split]) => {
      const part = maps[split] || {};
      const levels = Object.keys(part.levels || {});
      const readable = levels.filter((level) => part.levels[level].names.length <= MOST_IN_LEGEND);
      const coordinates = Object.keys(part.coordinates || {});
      return [
        { names: Object.keys(maps), first: Object.keys(maps)[0] },
        { names: coordinates, first: coordinates[coordinates.length - 1] },
        { names: levels, first: readable.length ? readable[readable.length - 1] : levels[0] },
      ];
    };
    controls(document.getElementById("map-controls"), [data.of || "Split", "Coordinates", "Colour by"], options, (split, coordinate, level) => {
      const part = maps[split];
      const places = part.coordinates[coordinate] || [];
      const { names, classes } = part.levels[level] || { names: ["item"], classes: places.map(() => 0) };
      const groups = members(classes).map(([c, dots]) => ({
        name: names[c], members: dots, colour: COLOURS[c % COLOURS.length], symbol: SYMBOLS[Math.floor(c / COLOURS.length) % SYMBOLS.length],
      }));
      document.getElementById("map-hint").textContent =
        `${count(places.length)} items, ${count(groups.length)} classes` + (groups.length > MOST_IN_LEGEND ? "; too many for a legend, and colours repeat: hover over a dot to read its class" : "");
      drawMap(element, places, groups, (i) => [
        part.thumbnails[i], [...Object.entries(part.levels).map(([at, found]) => `${at}: ${found.names[found.classes[i]]}`), part.ids[i]],
      ]);
    });
  }

  function drawScatter(scatter) {
    const element = document.getElementById("scatter-plot");
    const options = ([split]) => {
      const levels = Object.keys(scatter[split] || {});
      return [{ names: Object.keys(scatter), first: Object.keys(scatter)[0] }, { names: levels, first: levels[levels.length - 1] }];
    };
    controls(document.getElementById("scatter-controls"), [data.of || "Split", "Class level"], options, (split, level) => {
      const { s_ap, s_an, ids } = scatter[split][level] || { s_ap: [], s_an: [], ids: [] };
      const all = s_ap.concat(s_an);
      const room = 0.03 * (Math.max(1, ...all) - Math.min(1, ...all)) + 0.005;
      const low = Math.min(1, ...all) - room;
      const high = Math.max(1, ...all) + room;
      const dots = ids.map((_, i) => i);
      const marks = (name, chosen, colour, symbol) => ({
        type: "scatter", mode: "markers", name, x: chosen.map((i) => s_ap[i]), y: chosen.map((i) => s_an[i]), customdata: chosen, hoverinfo: "none",
        marker: { color: colour, symbol, size: 7, opacity: 0.65, line: { color: "#fff", width: 0.5 } },
      });
      const traces = [
        { type: "scatter", mode: "lines", x: [low, high], y: [low, high], line: { color: "#5b6675", dash: "dash", width: 1.5 }, hoverinfo: "skip", showlegend: false },
        marks("right: same class closer", dots.filter((i) => s_an[i] <= s_ap[i]), COLOURS[0], "circle"),
        marks("wrong: another class closer", dots.filter((i) => s_an[i] > s_ap[i]), COLOURS[3], "triangle-up"),
      ];
      const square = { range: [low, high], constrain: "domain" };
      draw(element, traces, layout({
        xaxis: axis("similarity to nearest same-class item", square),
        yaxis: axis("similarity to nearest other-class item", { ...square, scaleanchor: "x" }), hovermode: "closest",
        legend: { orientation: "h", x: 0, y: -0.12, xanchor: "left", yanchor: "top" },
      }), (i) => [null, [ids[i], `same class: ${s_ap[i].toFixed(3)}`, `other class: ${s_an[i].toFixed(3)}`]]);
    });
  }

  (data.curves || []).forEach((curve, k) => drawCurve(document.querySelector(`[data-curve="${k}"]`), curve));
  if (Object.keys(data.maps || {}).length) drawMaps(data.maps);
  if (Object.keys(data.scatter || {}).length) drawScatter(data.scatter);
  (data.panels || []).forEach((panel, k) => drawMap(document.querySelector(`[data-panel="${k}"]`), panel.points,
    members(panel.classes).map(([c, dots]) => ({
      name: panel.names[c], members: dots, colour: COLOURS[c % COLOURS.length], symbol: SYMBOLS[panel.shapes[c]],
    })),
    (i) => [panel.thumbnails[i], [panel.names[panel.classes[i]]]]));
  window.addEventListener("scroll", hideTip, { passive: true });
  return { data, COLOURS, SYMBOLS, DASHES, label, count, axis, layout, draw };
})();

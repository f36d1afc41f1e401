// Distances, spectra, training at a chosen moment, and the table of classes.
(() => {
  "use strict";
  const { data, COLOURS, SYMBOLS, DASHES, label, count, axis, layout, draw } = Plots;
  const [INK, SOFT, WITHIN, BETWEEN] = ["#1c2430", "#5b6675", COLOURS[0], COLOURS[3]];
  const FAINT = { [WITHIN]: "rgba(0,114,178,0.16)", [BETWEEN]: "rgba(213,94,0,0.12)" };
  // Under the title of the axis; a narrow legend takes more rows, and the plot above it is lower.
  const below = (element) => ({ orientation: "h", x: 0, y: element.clientWidth < 440 ? -0.32 : -0.22, xanchor: "left", yanchor: "top" });
  const cents = (shares) => shares.map((share) => (share === null ? null : 100 * share));
  const round = (value, digits = 3) => (Number.isFinite(value) ? String(Number(value.toPrecision(digits))) : "–");

  // One outline of a histogram; its bins are named when pointed at.
  function outline(name, edges, shares, line, fill, height = 1) {
    const y = cents(shares);
    return {
      type: "scatter", mode: "lines", name, x: edges, y: [...y, y[y.length - 1]].map((share) => height * share), line: { ...line, shape: "hv" }, hoverinfo: "text",
      hovertext: y.map((share, k) => `${name}: ${round(share)} % from ${round(edges[k])} to ${round(edges[k + 1])}`),
      ...(fill ? { fill: "tozeroy", fillcolor: fill } : {}),
    };
  }

  // As high as the first two, which are the ones meant: of what is one point, a single bin holds all.
  function drawDistances(element, range, series, unit, leading = series.length, height = "pairs, per cent") {
    const top = 1.12 * Math.max(...series.slice(0, leading).flatMap(({ y }) => y));
    draw(element, series, layout({
      xaxis: axis(`distance, in ${unit}`, { range }),
      yaxis: axis(height, { range: [0, top || 1] }), legend: below(element), hovermode: "closest", margin: { l: 52, r: 14, t: 16, b: 46 },
    }));
  }

  function histogram(element, { edges, within, between, reference_within, reference_between }) {
    const thin = (colour) => ({ color: colour, dash: "dot", width: 1.5 });
    drawDistances(element, [edges[0], edges[edges.length - 1]], [
      within && outline("within classes", edges, within, { color: WITHIN, width: 2 }, FAINT[WITHIN]),
      between && outline("between classes", edges, between, { color: BETWEEN, dash: "dash", width: 2 }, FAINT[BETWEEN]),
      reference_within && outline("reference, within", edges, reference_within, thin(WITHIN)),
      reference_between && outline("reference, between", edges, reference_between, thin(BETWEEN)),
    ].filter(Boolean), "mean distances", 2);
  }

  function spectrumLine(name, values, k, more = {}) {
    return {
      type: "scatter", mode: values.length > 40 ? "lines" : "lines+markers", name, x: values.map((_, i) => i + 1), y: cents(values).map((y) => y || null),
      line: { color: COLOURS[k % COLOURS.length], dash: DASHES[k % DASHES.length], width: 2 }, marker: { symbol: SYMBOLS[k % SYMBOLS.length], size: 6 },
      hovertemplate: "%{y:.3g} %", ...more,
    };
  }

  function drawSpectra(element, traces) {
    const most = Math.max(...traces.flatMap(({ y }) => y.filter(Number.isFinite)));
    const least = Math.min(...traces.flatMap(({ y }) => y.filter(Number.isFinite)));
    // What lies five decades below the first is rounding.
    const range = [Math.log10(Math.max(least, most * 1e-5)) - 0.1, Math.log10(most) + 0.1];
    const decades = Array.from({ length: Math.ceil(range[1]) - Math.floor(range[0]) + 1 }, (_, k) => 10 ** (Math.floor(range[0]) + k));
    const steps = range[1] - range[0] > 3.5 ? [1] : range[1] - range[0] > 0.7 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9];
    const tickvals = decades.flatMap((ten) => steps.map((step) => step * ten));
    draw(element, traces, layout({
      xaxis: axis("singular value, largest first"), yaxis: axis("share of their sum, %", { type: "log", range, tickvals, ticktext: tickvals.map((tick) => String(Number(tick.toPrecision(2)))) }),
      legend: below(element), hovermode: "x unified", showlegend: traces.length > 1, margin: { l: 52, r: 14, t: 16, b: 46 },
    }));
  }

  const each = (selector, show) => document.querySelectorAll(selector).forEach(show);
  each("[data-distances]", (element) => histogram(element, data.distances[element.dataset.distances]));
  each("[data-spectrum]", (element) => {
    const { values, reference } = data.spectra[element.dataset.spectrum];
    drawSpectra(element, [
      spectrumLine("this embedding", values, 0),
      ...(reference ? [spectrumLine("reference", reference, 0, { mode: "lines", line: { color: SOFT, dash: "dot", width: 1.5 } })] : []),
    ]);
  });
  each("[data-overlay]", (element) => {
    const part = element.dataset.overlay;
    if (part === "spectrum") {
      const lines = data.spectra.map((one, k) => one && (one.values || []).some((value) => value > 0) && spectrumLine(label(data.embeddings[k]), one.values, k)).filter(Boolean);
      if (lines.length) drawSpectra(element, lines);
      element.closest("figure").hidden = !lines.length;
      return;
    }
    const lines = data.distances.map((one, k) => one && one[part] && outline(
      label(data.embeddings[k]), one.edges, one[part], { color: COLOURS[k % COLOURS.length], dash: DASHES[k % DASHES.length], width: 2 },
    )).filter(Boolean);
    const ends = data.distances.filter(Boolean).flatMap(({ edges }) => [edges[0], edges[edges.length - 1]]);
    element.closest("figure").hidden = !lines.length;
    if (lines.length) drawDistances(element, [Math.min(...ends), Math.max(...ends)], lines, "mean distances");
  });

  // Shafts and heads of the arrows as one line; a cell is the longest that one may be.
  function arrows({ s_ap, s_an, change_ap, change_an }) {
    const places = s_an.flatMap((y, i) => s_ap.map((x, j) => [x, y, change_ap[i][j], change_an[i][j]])).filter((one) => one.every(Number.isFinite));
    const lengths = places.map(([, , dx, dy]) => Math.hypot(dx, dy)).sort((a, b) => a - b);
    const long = lengths[Math.floor(0.95 * (lengths.length - 1))] || lengths[lengths.length - 1];
    const cell = Math.min(Math.abs(s_ap[1] - s_ap[0]), Math.abs(s_an[1] - s_an[0]));
    const [x, y] = [[], []];
    for (const [left, low, dx, dy] of places) {
      const far = Math.hypot(dx, dy);
      if (!(far > 0.02 * long)) continue;
      const size = 0.85 * cell * Math.min(1, far / long);
      const [ux, uy] = [(size * dx) / far, (size * dy) / far];
      const [tipX, tipY] = [left + ux / 2, low + uy / 2];
      x.push(left - ux / 2, tipX, null, tipX - 0.35 * ux - 0.2 * uy, tipX, tipX - 0.35 * ux + 0.2 * uy, null);
      y.push(low - uy / 2, tipY, null, tipY - 0.35 * uy + 0.2 * ux, tipY, tipY - 0.35 * uy - 0.2 * ux, null);
    }
    return { type: "scatter", mode: "lines", x, y, line: { color: "#8a96a5", width: 1 }, hoverinfo: "skip", showlegend: false };
  }

  const CURVES = [["recall@1", "recall@1, per cent", 100], ["class_spread", "class spread", 1], ["mean_distance", "mean distance", 1], ["effective_rank", "effective rank", 1]];

  function training({ edges, moments, field }) {
    const [slider, said, play, motion] = ["history-step", "history-said", "history-play", "history-field"].map((id) => document.getElementById(id));
    const [scatter, distances, curves] = ["history-scatter", "history-distances", "history-curves"].map((id) => document.getElementById(id));
    const pairs = moments.map(({ s_ap, s_an }) => (s_ap || []).map((ap, i) => [ap, s_an[i]]).filter((pair) => pair.every(Number.isFinite)));
    const all = pairs.flat(2);
    const least = Math.min(1, ...all);
    const room = 0.04 * (1 - least) + 0.005;
    const square = { range: [least - room, 1 + room], constrain: "domain" };
    const flow = field && arrows(field);
    const steps = moments.map(({ step }) => step);

    function marks(name, chosen, colour, symbol) {
      return {
        type: "scatter", mode: "markers", name, x: chosen.map(([ap]) => ap), y: chosen.map(([, an]) => an), hovertemplate: "same class %{x:.3f}<br>other class %{y:.3f}<extra></extra>",
        marker: { color: colour, symbol, size: 7, opacity: 0.7, line: { color: "#fff", width: 0.5 } },
      };
    }

    // In the mean distance of its own moment, and as a density: a step at which all was small would be a single bin.
    function outlines(k, names, lines, fills) {
      const { within, between, mean_distance: mean } = moments[k];
      const scale = (moments[0].mean_distance || 1) / (mean || 1);
      const own = edges.map((edge) => scale * edge);
      const last = Math.max(...[within, between].map((shares) => shares.findLastIndex((share) => share > 0)));
      const traces = [[within, WITHIN], [between, BETWEEN]].map(([shares, color], i) => (
        outline(names[i], own.slice(0, last + 2), shares.slice(0, last + 1), { color, ...lines[i] }, fills[color], 0.01 / (own[1] - own[0]))));
      return { traces, top: own[last + 1] || 1 };
    }

    function show(k) {
      const moment = moments[k];
      const wrong = pairs[k].filter(([ap, an]) => an > ap);
      draw(scatter, [
        ...(flow && motion.checked ? [flow] : []),
        { type: "scatter", mode: "lines", x: square.range, y: square.range, line: { color: SOFT, dash: "dash", width: 1.5 }, hoverinfo: "skip", showlegend: false },
        marks("right: same class closer", pairs[k].filter(([ap, an]) => an <= ap), COLOURS[0], "circle"),
        marks("wrong: another class closer", wrong, COLOURS[3], "triangle-up"),
      ], layout({
        xaxis: axis("similarity to nearest same-class item", square), yaxis: axis("similarity to nearest other-class item", { ...square, scaleanchor: "x" }),
        hovermode: "closest", legend: { ...below(scatter), y: -0.16 },
      }));
      if (distances && moment.within.length) {
        const shown = [outlines(k, ["within classes", "between classes"], [{ width: 2 }, { dash: "dash", width: 2 }], FAINT)];
        const before = [`within, step ${steps[0]}`, `between, step ${steps[0]}`];
        if (k && moments[0].within.length) shown.push(outlines(0, before, [{ dash: "dot", width: 1.5 }, { dash: "dot", width: 1.5 }], {}));
        const end = Math.max(...shown.map(({ top }) => top));
        drawDistances(distances, [0, end], shown.flatMap(({ traces }) => traces), "mean distances of its own step", 4, "density of pairs");
      }
      if (curves) drawCurves(k);
      const words = [`step ${moment.step}`, `${wrong.length} of ${pairs[k].length} wrong`];
      for (const [name, title, unit] of CURVES) if (Number.isFinite(moment[name])) words.push(`${title.replace(", per cent", "")} ${round(unit * moment[name])}${unit === 100 ? " %" : ""}`);
      said.textContent = words.join(" · ");
      slider.setAttribute("aria-valuetext", `step ${moment.step}`);
    }

    // Small plots one above the other; moments stand evenly, since they lie closer at the start of training.
    function drawCurves(k) {
      const known = CURVES.filter(([name]) => moments.some((moment) => Number.isFinite(moment[name])));
      const design = { annotations: [], shapes: [{ type: "line", x0: k, x1: k, yref: "paper", y0: 0, y1: 1, line: { color: INK, width: 1.5, dash: "dot" } }] };
      const traces = known.map(([name, title, unit], row) => {
        const low = 1 - (row + 1) / known.length;
        const suffix = row ? row + 1 : "";
        design[`yaxis${suffix}`] = axis("", { domain: [low, low + 0.7 / known.length], rangemode: "tozero", nticks: 4 });
        design.annotations.push({ text: title, x: 0, xref: "paper", xanchor: "left", y: low + 0.72 / known.length, yref: "paper", yanchor: "bottom", showarrow: false, font: { size: 12 } });
        return {
          type: "scatter", mode: "lines+markers", name: title, x: moments.map((_, i) => i), y: moments.map((moment) => (Number.isFinite(moment[name]) ? unit * moment[name] : null)),
          yaxis: `y${suffix}`, line: { color: COLOURS[0], width: 2 }, marker: { size: moments.map((_, i) => (i === k ? 10 : 6)) }, hovertemplate: "%{y:.3g}<extra></extra>", showlegend: false,
        };
      });
      // On a narrow page only every second step has room for its number.
      const ticks = steps.map((_, i) => i).filter((i) => curves.clientWidth > 40 * steps.length || (steps.length - 1 - i) % 2 === 0);
      const last = known.length > 1 ? `y${known.length}` : "y";
      draw(curves, traces, layout({
        ...design, xaxis: axis("step", { tickvals: ticks, ticktext: ticks.map((i) => String(steps[i])), anchor: last, range: [-0.3, steps.length - 0.7] }),
        hovermode: "x", margin: { l: 52, r: 14, t: 4, b: 46 },
      }));
    }

    let waiting = false;
    const update = () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        show(Number(slider.value));
      });
    };
    slider.addEventListener("input", update);
    if (motion) motion.addEventListener("change", update);

    let timer = 0;
    const playing = (on) => {
      clearInterval(timer);
      timer = on ? setInterval(() => {
        slider.value = String(Number(slider.value) + 1);
        update();
        if (Number(slider.value) === moments.length - 1) playing(false);
      }, 700) : 0;
      play.textContent = on ? "Stop" : "Play";
      play.setAttribute("aria-pressed", String(on));
    };
    play.addEventListener("click", () => {
      const on = !timer;
      if (on && Number(slider.value) === moments.length - 1) {
        slider.value = "0";
        update();
      }
      playing(on);
    });
    slider.addEventListener("pointerdown", () => playing(false));
    // A browser may bring back where the slider was when the page was left.
    show(Number(slider.value));
  }

  if (data.history && document.getElementById("history-step")) training(data.history);

  // Sorts and searches the rows as they are shown; what is not known stays at the end.
  function table(holder) {
    const [input, found, more] = [holder.querySelector("input"), holder.querySelector(".found"), holder.querySelector(".more")];
    const body = holder.querySelector("tbody");
    const rows = [...body.rows].map((row) => {
      const texts = [...row.cells].map((cell) => cell.textContent);
      return { row, name: texts[0].toLowerCase(), texts, numbers: texts.map((text) => Number.parseFloat(text.replace(/\s/g, ""))) };
    });
    const few = rows.filter(({ row }) => !row.hidden).length;
    let whole = few === rows.length;
    const collator = new Intl.Collator(undefined, { numeric: true });

    function refresh() {
      const words = input.value.trim().toLowerCase();
      let [matching, shown] = [0, 0];
      for (const { row, name } of rows) {
        const fits = name.includes(words);
        matching += fits;
        row.hidden = !fits || (!whole && shown >= few);
        shown += !row.hidden;
      }
      found.textContent = (shown < matching ? `${shown} of ` : "") + `${count(matching)} class${matching === 1 ? "" : "es"}${words ? " found" : ""}`;
      if (more) more.hidden = whole || shown === matching;
    }

    const heads = [...holder.querySelectorAll("thead th")];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const way = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      const text = column === 0;
      rows.sort((a, b) => {
        if (text) return way * collator.compare(a.texts[0], b.texts[0]);
        const [left, right] = [a.numbers[column], b.numbers[column]];
        if (Number.isNaN(left) || Number.isNaN(right)) return Number.isNaN(left) - Number.isNaN(right);
        return way * (left - right);
      });
      heads.forEach((one) => one.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
      body.append(...rows.map(({ row }) => row));
      refresh();
    }));
    input.addEventListener("input", refresh);
    input.disabled = false;
    if (more) more.addEventListener("click", () => { whole = true; refresh(); heads[0].querySelector("button").focus(); });
  }

  each("[data-table]", table);
})();

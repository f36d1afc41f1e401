// What all plots share: colours for light and dark paper, the page's own fonts, and the width of a printed page.
const Paper = (() => {
  "use strict";
  // Plots are written in the colours of white paper; these take their place in the dark.
  const DARK = {
    "#fff": "#161c24", "#1c2430": "#e4e9ef", "#5b6675": "#a3b0bf", "#e8ebee": "#2a333e", "#eef0f3": "#262e38", "#cfd5db": "#3d4856",
    "#8a96a5": "#7b8897", "#333333": "#c3cbd5", "#f5f6f8": "#1d2530", "#0072B2": "#2f93d1", "rgba(255,255,255,0.85)": "rgba(22,28,36,0.85)",
    "rgba(0,114,178,0.16)": "rgba(47,147,209,0.24)", "rgba(213,94,0,0.12)": "rgba(213,94,0,0.22)",
  };
  const FONT = { family: getComputedStyle(document.body).fontFamily, size: 13, color: "#1c2430" };
  // Only these buttons, by name: plotly's own choice has one that sends the data away.
  const BUTTONS = [["toImage"], ["zoom2d", "pan2d", "resetScale2d"]];
  const CONFIG = { responsive: true, displaylogo: false, modeBarButtons: BUTTONS, showSendToCloud: false, plotlyServerURL: "" };
  const TOUCH = window.matchMedia("(pointer: coarse)").matches;
  const scheme = window.matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Map(); // element -> its traces and layout in light colours
  const waiting = new Map(); // element -> what draws it
  const others = [];
  let printing = false;
  let closed = []; // details that are open only on a printed page

  const dark = () => scheme.matches && !printing;
  const colour = (light) => (dark() && DARK[light]) || light;

  // Long series of numbers hold no colour and are not copied.
  function themed(value) {
    if (!dark()) return value;
    if (typeof value === "string") return DARK[value] || value;
    if (Array.isArray(value)) return typeof value[0] === "object" && value[0] !== null && !Array.isArray(value[0]) ? value.map(themed) : value;
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, themed(item)]));
  }

  // What lies in closed details is drawn when they are opened, and `then` follows.
  const closedIn = (element) => element.closest("details:not([open])") !== null;

  function draw(element, traces, design, then = () => {}) {
    if (closedIn(element)) {
      waiting.set(element, () => draw(element, traces, design, then));
      return;
    }
    waiting.delete(element);
    drawn.set(element, [traces, design]);
    const layout = {
      paper_bgcolor: "rgba(0,0,0,0)", modebar: { bgcolor: "rgba(255,255,255,0.85)", color: "#5b6675", activecolor: "#0072B2" },
      font: FONT, hoverlabel: { font: FONT, bgcolor: "#fff", bordercolor: "#8a96a5", align: "left" },
      dragmode: TOUCH ? false : "zoom", // a finger on a plot scrolls the page
      ...design,
    };
    // There the buttons are always shown, and they stand above the plot.
    if (TOUCH && layout.margin) layout.margin = { ...layout.margin, t: Math.max(layout.margin.t, 36) };
    Plotly.react(element, themed(traces), themed(layout), CONFIG);
    then();
  }

  const drawWaiting = () => [...waiting.values()].forEach((drawNow) => drawNow());
  document.addEventListener("toggle", drawWaiting, true);

  function forget(element) {
    if (drawn.delete(element)) Plotly.purge(element);
  }

  function again() {
    for (const [element, [traces, design]] of drawn) draw(element, traces, design);
    for (const redraw of others) redraw();
  }

  scheme.addEventListener("change", again);
  // Paper is white and has one width (style.css), whatever the window had.
  const resize = (width) => [...drawn.keys()].forEach((element) => Plotly.relayout(element, width(element)));
  window.addEventListener("beforeprint", () => {
    printing = true;
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((part) => { part.open = true; });
    drawWaiting();
    if (scheme.matches) again();
    resize((element) => ({ autosize: false, width: element.closest(".thirds") ? 300 : element.closest(".plots") ? 480 : 780 }));
  });
  window.addEventListener("afterprint", () => {
    printing = false;
    closed.forEach((part) => { part.open = false; });
    resize(() => ({ autosize: true, width: null }));
    if (scheme.matches) again();
  });
  return { draw, forget, colour, whenColoursChange: (redraw) => others.push(redraw) };
})();

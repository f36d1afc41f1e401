// A map of more points than a browser can hold as elements: drawn on a canvas, read by pointing, moved by finger, mouse or keys.
const Dots = (() => {
  "use strict";
  const SHAPES = {
    circle: (p, r) => p.arc(0, 0, r, 0, 7),
    square: (p, r) => p.rect(-r, -r, 2 * r, 2 * r),
    diamond: (p, r) => polygon(p, [[0, -1.3 * r], [1.3 * r, 0], [0, 1.3 * r], [-1.3 * r, 0]]),
    "triangle-up": (p, r) => polygon(p, [[0, -1.2 * r], [1.2 * r, r], [-1.2 * r, r]]),
    "triangle-down": (p, r) => polygon(p, [[0, 1.2 * r], [1.2 * r, -r], [-1.2 * r, -r]]),
    cross: (p, r) => { p.rect(-r, -r / 3, 2 * r, r / 1.5); p.rect(-r / 3, -r, r / 1.5, 2 * r); },
    x: (p, r) => { p.rotate(Math.PI / 4); p.rect(-1.2 * r, -r / 3, 2.4 * r, r / 1.5); p.rect(-r / 3, -1.2 * r, r / 1.5, 2.4 * r); },
    star: (p, r) => polygon(p, Array.from({ length: 10 }, (_, k) => [
      (k % 2 ? 0.5 : 1.3) * r * Math.sin((Math.PI * k) / 5), -(k % 2 ? 0.5 : 1.3) * r * Math.cos((Math.PI * k) / 5),
    ])),
  };

  function polygon(p, corners) {
    corners.forEach(([x, y], k) => (k ? p.lineTo(x, y) : p.moveTo(x, y)));
    p.closePath();
  }

  // One small picture per group, stamped at every point of it.
  function stamp({ colour, symbol }, radius, scale) {
    const picture = document.createElement("canvas");
    const side = Math.ceil(3.2 * radius * scale);
    picture.width = picture.height = side;
    const p = picture.getContext("2d");
    p.translate(side / 2, side / 2);
    p.scale(scale, scale);
    p.beginPath();
    SHAPES[symbol](p, radius);
    p.globalAlpha = 0.8;
    p.fillStyle = Paper.colour(colour);
    p.fill("nonzero");
    return picture;
  }

  function button(text, title, press) {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.title = title;
    made.setAttribute("aria-label", title);
    made.addEventListener("click", press);
    return made;
  }

  const redraws = new Map(); // element -> how to draw it again

  // Groups as in drawMap; `tell(event, i)` shows a point, `hush()` takes that away.
  function draw(element, places, groups, legend, tell, hush) {
    const canvas = document.createElement("canvas");
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `Map of ${places.length} items in ${groups.length} classes. Arrow keys move it, plus and minus zoom, 0 shows all.`);
    const group = new Array(places.length).fill(-1);
    groups.forEach(({ members }, g) => members.forEach((i) => (group[i] = g)));
    const known = places.map((place, i) => i).filter((i) => group[i] >= 0 && Number.isFinite(places[i][0]) && Number.isFinite(places[i][1]));
    const ends = (axis) => known.reduce(([low, high], i) => [Math.min(low, places[i][axis]), Math.max(high, places[i][axis])], [Infinity, -Infinity]);
    const [[left, right], [low, high]] = [ends(0), ends(1)];
    let view;
    const all = () => { view = { x: (left + right) / 2, y: (low + high) / 2, zoom: 1 }; };
    all();

    const unit = () => (0.94 * view.zoom * Math.min(canvas.clientWidth / (right - left || 1), canvas.clientHeight / (high - low || 1)));
    const at = (i) => {
      const u = unit();
      return [canvas.clientWidth / 2 + u * (places[i][0] - view.x), canvas.clientHeight / 2 - u * (places[i][1] - view.y)];
    };

    function paint() {
      if (!canvas.clientWidth) return;
      const scale = window.devicePixelRatio || 1;
      canvas.width = Math.round(canvas.clientWidth * scale);
      canvas.height = Math.round(canvas.clientHeight * scale);
      const radius = Math.min(5, 2.6 * Math.sqrt(view.zoom));
      const stamps = groups.map((one) => stamp(one, radius, scale));
      const p = canvas.getContext("2d");
      // In the order of the items: class by class, the last class would hide the others.
      for (const i of known) {
        const [x, y] = at(i);
        const picture = stamps[group[i]];
        p.drawImage(picture, Math.round(x * scale - picture.width / 2), Math.round(y * scale - picture.height / 2));
      }
      keys.forEach((key, g) => key.replaceChildren(stamp(groups[g], 5, 2)));
    }

    function nearest(event) {
      const box = canvas.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left, event.clientY - box.top];
      let [best, least] = [-1, 14 * 14];
      for (const i of known) {
        const [px, py] = at(i);
        const far = (px - x) ** 2 + (py - y) ** 2;
        if (far < least) [best, least] = [i, far];
      }
      return best;
    }

    const show = (event) => {
      const i = nearest(event);
      if (i < 0) hush();
      else tell(event, i);
    };
    const zoom = (factor) => { view.zoom = Math.min(200, Math.max(0.5, view.zoom * factor)); paint(); };
    const move = (dx, dy) => { const u = unit(); view.x -= dx / u; view.y += dy / u; paint(); };
    let grip = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "touch") grip = [event.clientX, event.clientY]; // a finger on a plot scrolls the page
    });
    canvas.addEventListener("pointermove", (event) => {
      if (grip === null) return show(event);
      hush();
      move(event.clientX - grip[0], event.clientY - grip[1]);
      grip = [event.clientX, event.clientY];
      return undefined;
    });
    for (const name of ["pointerup", "pointerleave"]) canvas.addEventListener(name, () => { grip = null; });
    canvas.addEventListener("pointerleave", hush);
    canvas.addEventListener("click", show);
    const KEYS = {
      "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), 0: () => { all(); paint(); },
      ArrowLeft: () => move(50, 0), ArrowRight: () => move(-50, 0), ArrowUp: () => move(0, 50), ArrowDown: () => move(0, -50),
    };
    canvas.addEventListener("keydown", (event) => {
      if (!KEYS[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      KEYS[event.key]();
    });

    const bar = document.createElement("div");
    bar.className = "dots-buttons";
    bar.append(button("+", "Zoom in", KEYS["+"]), button("−", "Zoom out", KEYS["-"]), button("All", "Show all", KEYS[0]));
    const list = document.createElement("ul");
    list.className = "dots-legend";
    const keys = !legend ? [] : groups.map(({ name }) => {
      const entry = document.createElement("li");
      const key = document.createElement("span");
      const word = document.createElement("span");
      word.textContent = name;
      entry.append(key, word);
      list.append(entry);
      return key;
    });
    element.classList.add("dots");
    element.replaceChildren(canvas, bar, list);
    redraws.set(element, paint);
    paint();
  }

  function forget(element) {
    if (!redraws.delete(element)) return;
    element.classList.remove("dots");
    element.replaceChildren();
  }

  const again = () => redraws.forEach((paint) => paint());
  window.addEventListener("resize", again);
  Paper.whenColoursChange(again);
  return { draw, forget };
})();

// Shows the suspects one at a time, takes the decisions on them, keeps these in the browser and makes a file of them.
(() => {
  "use strict";
  const list = document.getElementById("list");
  if (!list) return;
  const { key, names, tags, items, suspects, wrong } = Page.data;
  const element = (id) => document.getElementById(id);
  const [byLabel, byProposed, kind, state, order] = ["label", "proposed", "kind", "state", "order"].map(element);
  const [keep, relabel, drop, undo, other, keys] = ["keep", "relabel", "drop", "undo", "other", "keys"].map(element);
  const collator = new Intl.Collator(undefined, { numeric: true });
  const known = new Set(names);
  const allowed = (to) => known.has(to) || (tags.length > 0 && to.split(";").every((tag) => tags.includes(tag.trim())));
  const ROWS = 20; // of a page of the list
  const STORE = `trivet-audit:${key}`;
  const KEYS = "trivet-audit-keys";

  const id = (i) => items[i][0];
  const label = (i) => names[items[i][1]];
  const proposed = (i) => names[suspects[i][0]];
  // The class that a button offers; null where it is the item's own.
  const offered = (i) => (names[suspects[i][1]] === label(i) ? null : names[suspects[i][1]]);
  const missing = (i) => suspects[i][9];
  const giving = (i) => (missing(i) ? "add" : "relabel");
  // Whether that is only what most neighbours have.
  const likeNeighbours = (i) => offered(i) !== null && offered(i) !== proposed(i);

  const decisions = new Map(); // number of the item -> [decision, new label]
  const history = []; // of each step what it changed: [number of the item, what was decided before]
  let [ordered, place, kept] = [[], 0, true];

  // What is kept in the browser.
  function stored(name) {
    try { return localStorage.getItem(name); } catch { return null; }
  }
  function store(name, value) {
    try {
      if (value === null) localStorage.removeItem(name); else localStorage.setItem(name, value);
      return true;
    } catch { return false; }
  }
  function save() {
    kept = store(STORE, decisions.size ? JSON.stringify([...decisions].map(([i, one]) => [i, ...one])) : null);
  }
  // Why an item cannot be decided on so; empty if it can.
  function fault(i, decision, to) {
    if (decision !== giving(i)) return decision === "keep" || (decision === "drop" && !missing(i)) ? "" : "no such decision";
    return to === label(i) ? "it has this label already" : allowed(to) ? "" : tags.length ? "no tag has this name" : "no class has this name";
  }
  function load() {
    try {
      for (const [i, decision, to] of JSON.parse(stored(STORE)) ?? []) if (i in suspects && !fault(i, decision, to)) decisions.set(i, [decision, to]);
    } catch { /* not what this page wrote */ }
  }

  const make = (tag, name, text) => {
    const made = document.createElement(tag);
    if (name) made.className = name;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const picture = (number) => {
    const made = make("img", "thumb");
    Page.show(made, number);
    return made;
  };
  const count = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, "\u202f");
  const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
  const say = (text) => { element("said").textContent = text; };
  const words = (i) => (decisions.get(i) ?? []).filter(Boolean).join(" ");

  function tally() {
    const done = decisions.size;
    element("found").textContent = `${count(done)} of ${count(suspects.length)} decided${ordered.length < suspects.length ? ` · ${count(ordered.length)} shown` : ""}`;
    element("bar").style.width = `${(100 * done) / suspects.length}%`;
    undo.disabled = !history.length;
    element("forget").disabled = !done;
    const download = element("download");
    download.disabled = !done;
    download.classList.toggle("ready", done > 0);
  }

  function row(i, at) {
    const button = make("button");
    button.type = "button";
    const face = list.classList.contains("pictures") ? [items[i][2] === null ? make("span") : picture(items[i][2])] : [];
    const text = items[i][3];
    const cut = make("span", "cut name", text === null ? id(i) : text.slice(0, 120));
    cut.title = id(i);
    const classes = make("span", "classes cut name", proposed(i) === label(i) ? label(i) : `${label(i)} → ${proposed(i)}`);
    button.append(...face, cut, classes, make("span", "percent", `${suspects[i][2]} %`), make("span", "as cut name", words(i)));
    button.addEventListener("click", () => go(at));
    const line = make("li");
    line.append(button);
    return line;
  }
  function page() {
    const start = ROWS * Math.floor(place / ROWS);
    list.replaceChildren(...ordered.slice(start, start + ROWS).map((i, more) => row(i, start + more)));
    const stop = Math.min(start + ROWS, ordered.length);
    element("part").textContent = ordered.length ? `${count(start + 1)} to ${count(stop)} of ${count(ordered.length)}` : "no items";
    element("back").disabled = start === 0;
    element("forth").disabled = stop === ordered.length;
    list.dataset.start = start;
  }
  // Of the rows of the page, those of an item, or the current one.
  function mark() {
    const start = Number(list.dataset.start);
    [...list.children].forEach((line, more) => {
      const button = line.firstElementChild;
      if (start + more === place) button.setAttribute("aria-current", "true"); else button.removeAttribute("aria-current");
      button.lastElementChild.textContent = words(ordered[start + more]);
    });
  }

  function neighbour(own, [j, near]) {
    const same = items[j][1] === (missing(own) ? suspects[own][0] : items[own][1]);
    const made = make("li", `item ${same ? "right" : "wrong"}`);
    if (items[j][2] !== null) made.append(picture(items[j][2]));
    made.append(make("span", `mark ${same ? "right" : "wrong"}`, same ? "✓ " : "✗ "), make("span", "class name", label(j)));
    made.append(make("span", "similarity", ` ${near}`));
    if (items[j][3] !== null) made.append(make("p", "words name", items[j][3]));
    made.title = id(j);
    return made;
  }
  function card() {
    const i = ordered[place];
    element("card").classList.toggle("blank", i === undefined);
    if (i === undefined) return;
    const [, , cents, evidence, duplicate, twin, twinLabel, outlier, near] = suspects[i];
    const [, , image, text] = items[i];
    const [face, read] = [element("picture"), element("words")];
    face.hidden = image === null;
    if (image !== null) Page.show(face, image);
    read.hidden = text === null;
    read.textContent = text ?? "";
    element("id").textContent = id(i);
    element("chance").style.width = `${parseFloat(cents.replace(">", "")) || 0}%`;
    element("percent").textContent = `${cents} % ${missing(i) ? "missing" : wrong}`;
    element("evidence").replaceChildren(...evidence.map((one) => make("li", "name", one)));
    const flags = [];
    if (duplicate !== null) flags.push(`${duplicate} duplicate of ${twin}, ${twinLabel === "other" ? "which has another label" : "with the same label"}`);
    if (outlier) flags.push("outlier: far from all others");
    element("flags").replaceChildren(...flags.map((one) => make("span", "name", one)));
    element("near").classList.toggle("pictures", near.some(([j]) => items[j][2] !== null));
    element("near").replaceChildren(...near.map((one) => neighbour(i, one)));
    const [decision, to] = decisions.get(i) ?? ["", ""];
    keep.querySelector("b").textContent = label(i);
    const offer = offered(i);
    element("giving").textContent = giving(i);
    relabel.querySelector("b").textContent = offer ?? "(no other label is proposed)";
    element("like").hidden = !likeNeighbours(i);
    relabel.disabled = offer === null;
    [drop.disabled, other.disabled] = [missing(i), missing(i)];
    keep.setAttribute("aria-pressed", String(decision === "keep"));
    drop.setAttribute("aria-pressed", String(decision === "drop"));
    relabel.setAttribute("aria-pressed", String(decision === giving(i) && to === offer));
    other.value = decision === giving(i) && to !== offer ? to : "";
    check("");
    element("previous").disabled = place === 0;
    element("next").disabled = place === ordered.length - 1;
  }
  function check(text) {
    element("fault").textContent = text;
    other.setAttribute("aria-invalid", String(text !== ""));
  }

  function go(to) {
    const start = Number(list.dataset.start);
    place = Math.max(0, Math.min(to, ordered.length - 1));
    if (!(start <= place && place < start + ROWS)) page();
    card();
    mark();
  }
  // Not at each decision: what is being decided on stays where it is.
  function filter() {
    const flagged = { same: (i) => suspects[i][6] === "same", other: (i) => suspects[i][6] === "other", outlier: (i) => suspects[i][7], missing, listed: (i) => !missing(i) };
    const fits = (i) =>
      (!byLabel.value || label(i) === byLabel.value) && (!byProposed.value || proposed(i) === byProposed.value) &&
      (!kind.value || flagged[kind.value](i)) && (!state.value || decisions.has(i) === (state.value === "done"));
    ordered = [...suspects.keys()].filter(fits);
    const by = { label, proposed, id }[order.value];
    if (by) ordered.sort((a, b) => collator.compare(by(a), by(b)) || a - b);
    place = 0;
    page();
    card();
    mark();
    tally();
  }

  function set(changes) {
    for (const [i, one] of changes) if (one === undefined) decisions.delete(i); else decisions.set(i, one);
    save();
  }
  function change(changes) {
    history.push(changes.map(([i]) => [i, decisions.get(i)]));
    set(changes);
  }
  function decide(decision, to = "") {
    const i = ordered[place];
    if (i === undefined) return;
    const why = fault(i, decision, to);
    if (why) { check(why); return; }
    change([[i, [decision, to]]]);
    const last = place === ordered.length - 1;
    go(place + 1);
    tally();
    const next = ordered[place];
    say(`${id(i)}: ${words(i)}.${last ? " This was the last item." : ` Next: ${id(next)}, labelled ${label(next)}, ${offered(next) === null ? "no other label proposed" : `${likeNeighbours(next) ? "most neighbours have" : "proposed"} ${offered(next)}`}.`}${kept ? "" : " This browser keeps nothing: download the decisions before you leave."}`);
  }
  function back() {
    const changes = history.pop();
    if (!changes) return;
    set(changes);
    const at = ordered.indexOf(changes[0][0]);
    go(changes.length === 1 && at >= 0 ? at : place);
    tally();
    say(changes.length === 1 ? `Undone: ${id(changes[0][0])} is ${words(changes[0][0]) || "undecided"} again.` : `Undone: ${counted(changes.length, "decision")}.`);
  }

  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  function csv() {
    // A missing pair that stays out needs no decision: its id is that of a row, on which another decision may be.
    const made = [...decisions.keys()].filter((i) => !missing(i) || decisions.get(i)[0] === "add");
    const rows = made.sort((a, b) => a - b).map((i) => [id(i), ...decisions.get(i)]);
    return [["id", "decision", "label"], ...rows].map((one) => one.map(quoted).join(",")).join("\n") + "\n";
  }
  function parsed(text) {
    const [rows, field] = [[[]], /("(?:[^"]|"")*"|[^,\r\n]*)(,|\r\n|\r|\n|$)/y];
    while (field.lastIndex < text.length) {
      const [, value, end] = field.exec(text) ?? [];
      if (end === undefined) throw new Error("a quotation mark is not closed");
      rows.at(-1).push(value.startsWith('"') ? value.slice(1, -1).replaceAll('""', '"') : value);
      if (end !== ",") rows.push([]);
      else if (field.lastIndex === text.length) rows.at(-1).push("");
    }
    return rows.filter((one) => one.length && one.join("") !== "");
  }
  function read(text) {
    const [head, ...rows] = parsed(text.replace(/^\ufeff/, ""));
    const [which, what, to] = ["id", "decision", "label"].map((name) => (head ?? []).indexOf(name));
    if (which < 0 || what < 0) throw new Error("it needs the columns id, decision and label in its first line");
    const name = (row, decision, label) => JSON.stringify(decision === "add" ? [row, label] : [row]);
    const number = new Map(suspects.map((_, i) => [name(id(i), missing(i) ? "add" : "", proposed(i)), i]));
    const [changes, absent, faulty] = [new Map(), [], []];
    for (const one of rows) {
      const decision = (one[what] ?? "").trim();
      if (!decision) continue;
      const label = ["relabel", "add"].includes(decision) ? one[to] ?? "" : "";
      const i = number.get(name(one[which], decision, label));
      if (i === undefined) absent.push(one[which]);
      else if (fault(i, decision, label)) faulty.push(one[which]);
      else changes.set(i, [decision, label]);
    }
    if (changes.size) change([...changes]);
    const left = [[absent, "of items that are not on this page"], [faulty, "that cannot be applied"]].filter(([one]) => one.length);
    say([`${counted(changes.size, "decision")} imported`, ...left.map(([one, why]) => `${one.length} left out ${why} (first: ${one[0]})`)].join("; ") + ".");
  }

  element("import").addEventListener("change", async ({ target }) => {
    const [file] = target.files;
    if (!file) return;
    try { read(await file.text()); } catch (error) { say(`${file.name} is no decision file: ${error.message}.`); }
    target.value = "";
    filter();
  });
  element("download").addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
    link.download = "decisions.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    kept = true;
  });
  element("forget").addEventListener("click", () => {
    const { size } = decisions;
    change([...decisions.keys()].map((i) => [i, undefined]));
    filter();
    say(`${counted(size, "decision")} forgotten; undo brings back what was decided as long as this page is open.`);
  });
  window.addEventListener("beforeunload", (event) => {
    if (!kept && decisions.size) event.preventDefault();
  });

  const acts = {
    k: () => decide("keep"),
    r: () => { if (!relabel.disabled) decide(giving(ordered[place]), offered(ordered[place])); },
    d: () => { if (!drop.disabled) decide("drop"); },
    u: back,
    n: () => go(place + 1),
    p: () => go(place - 1),
    l: () => other.focus(),
  };
  acts.arrowright = acts.n;
  acts.arrowleft = acts.p;
  for (const [name, act] of [["keep", "k"], ["relabel", "r"], ["drop", "d"], ["undo", "u"], ["next", "n"], ["previous", "p"]]) {
    element(name).addEventListener("click", acts[act]);
  }
  other.addEventListener("keydown", (event) => {
    if (event.key === "Enter") { event.preventDefault(); decide(giving(ordered[place]), other.value); }
    if (event.key === "Escape") other.blur();
  });
  other.addEventListener("change", () => { if (other.value && known.has(other.value)) decide(giving(ordered[place]), other.value); });
  element("back").addEventListener("click", () => go(Number(list.dataset.start) - ROWS));
  element("forth").addEventListener("click", () => go(Number(list.dataset.start) + ROWS));
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input:not([type=checkbox]), select, textarea");
    if (!keys.checked || typing || event.altKey || event.ctrlKey || event.metaKey) return;
    const act = acts[event.key.toLowerCase()];
    if (!act) return;
    event.preventDefault();
    act();
  });
  keys.checked = stored(KEYS) !== "off";
  const switched = () => document.body.classList.toggle("keyless", !keys.checked);
  keys.addEventListener("change", () => { store(KEYS, keys.checked ? null : "off"); switched(); });
  switched();

  for (const control of [byLabel, byProposed, kind, state, order]) {
    control.disabled = false;
    control.addEventListener("change", filter);
  }
  load();
  filter();
  if (decisions.size) say(`Kept in this browser: ${counted(decisions.size, "decision")}.`);
})();

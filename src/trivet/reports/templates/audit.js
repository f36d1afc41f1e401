// Filters and orders the suspects, and makes a file of the decisions on them.
(() => {
  "use strict";
  const list = document.getElementById("list");
  if (!list) return;
  const { items, names } = Page.data;
  const known = new Set(names);
  const [byClass, order, state, found, download] = ["class", "order", "state", "found", "download"].map((id) => document.getElementById(id));
  const collator = new Intl.Collator(undefined, { numeric: true });

  const cards = [...list.children].map((card, place) => {
    const [fields, label, said] = ["fieldset", "input[list]", ".wrong-label"].map((part) => card.querySelector(part));
    const choice = () => card.querySelector("input[type=radio]:checked").value;
    return { card, place, item: items[place], fields, label, said, choice, fault: "" };
  });
  const STEP = 20; // cards that are shown at first, and more at each press
  const more = document.getElementById("more");
  let [most, ordered, unsaved] = [STEP, cards, false];

  // What is wrong with the new label of an item that is to be relabelled.
  function check(one) {
    const label = one.label.value;
    one.fault = one.choice() !== "relabel" ? "" : label === one.item.label ? "it has this label already" : !known.has(label) ? "no class has this name" : "";
    one.label.setAttribute("aria-invalid", String(one.fault !== ""));
    one.said.textContent = one.fault;
    one.card.classList.toggle("decided", one.choice() !== "");
  }

  // Not at each decision: what is being decided on stays where it is.
  function filter() {
    let [matching, shown] = [0, 0];
    for (const { card, item, choice } of ordered) {
      const meant = !byClass.value || item.label === byClass.value || item.proposed === byClass.value;
      const fits = meant && (state.value === "" || (choice() !== "") === (state.value === "done"));
      matching += fits;
      card.hidden = !fits || shown >= most;
      shown += !card.hidden;
    }
    more.hidden = shown === matching;
    more.textContent = `Show ${Math.min(STEP, matching - shown)} more of ${matching - shown}`;
    tally();
  }

  function tally() {
    const shown = cards.filter(({ card }) => !card.hidden).length;
    const [decided, faulty] = [cards.filter(({ choice }) => choice() !== "").length, cards.filter(({ fault }) => fault).length];
    found.textContent = [
      ...(shown < cards.length ? [`${shown} shown`] : []), `${decided} of ${cards.length} decided`, ...(faulty ? [`${faulty} to correct`] : []),
    ].join(" · ");
    download.disabled = !decided || faulty > 0;
    download.classList.toggle("ready", !download.disabled);
  }

  function sort() {
    const key = order.value;
    ordered = [...cards].sort((a, b) => (key === "suspect" ? 0 : collator.compare(a.item[key], b.item[key])) || a.place - b.place);
    list.append(...ordered.map(({ card }) => card));
    filter();
  }

  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  function csv() {
    const rows = cards.filter(({ choice }) => choice() !== "").map(({ item, choice, label }) => [item.id, choice(), choice() === "relabel" ? label.value : ""]);
    return [["id", "decision", "label"], ...rows].map((row) => row.map(quoted).join(",")).join("\n") + "\n";
  }

  download.addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
    link.download = "decisions.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    unsaved = false;
  });
  window.addEventListener("beforeunload", (event) => {
    if (unsaved) event.preventDefault();
  });
  for (const one of cards) {
    one.fields.disabled = false;
    one.fields.addEventListener("input", (event) => {
      // Who types a label wants it.
      if (event.target === one.label) one.fields.querySelector("[value=relabel]").checked = true;
      unsaved = true;
      check(one);
      tally();
    });
    check(one);  // a browser may bring back what was decided when the page was left
  }
  for (const [control, act] of [[byClass, filter], [state, filter], [order, sort]]) {
    control.disabled = false;
    control.addEventListener("change", () => { most = STEP; act(); });
  }
  more.addEventListener("click", () => { most += STEP; filter(); });
  sort();
})();

// Draws figures that were laid out in Python; texts are made inert before they come here.
(() => {
  "use strict";
  const { figures } = JSON.parse(document.getElementById("plots").textContent);
  figures.forEach(({ traces, layout }, k) => Paper.draw(document.querySelector(`[data-figure="${k}"]`), traces, layout));
})();

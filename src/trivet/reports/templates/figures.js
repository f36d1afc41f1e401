// Draws figures that were laid out in Python; texts are made inert before they come here.
(() => {
  "use strict";
  Page.data.figures.forEach(({ traces, layout }, k) => Paper.draw(document.querySelector(`[data-figure="${k}"]`), traces, layout));
})();

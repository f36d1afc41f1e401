// The data of the page, and its pictures, which it holds once and names by number.
const Page = (() => {
  "use strict";
  const data = JSON.parse(document.getElementById("plots").textContent);

  // Blurring an 8 x 8 picture hides what the network saw.
  function show(element, number) {
    element.onload = () => element.classList.toggle("pixels", element.naturalWidth > 0 && element.naturalWidth <= 32);
    element.alt = "";
    element.src = data.pictures[number];
  }

  document.querySelectorAll("img[data-picture]").forEach((element) => show(element, element.dataset.picture));
  return { data, show };
})();

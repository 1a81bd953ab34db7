// Runs before the first paint: follows the light or dark mode of the system, and marks that
// scripts are enabled.
(function () {
  "use strict";
  var root = document.documentElement;
  var dark = window.matchMedia("(prefers-color-scheme: dark)");
  function follow() { root.setAttribute("data-bs-theme", dark.matches ? "dark" : "light"); }
  follow();
  dark.addEventListener("change", follow);
  root.classList.add("js");
})();

// Runs before the first paint: follows the system's light or dark, and says that scripts run.
(function () {
  "use strict";
  var root = document.documentElement;
  var dark = window.matchMedia("(prefers-color-scheme: dark)");
  function follow() { root.setAttribute("data-bs-theme", dark.matches ? "dark" : "light"); }
  follow();
  dark.addEventListener("change", follow);
  root.classList.add("js");
})();

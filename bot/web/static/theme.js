// Runs before the first paint: follows the light or dark mode of the system, marks that scripts are
// enabled, and sends the server the time zone, so that calendars and charts have the reader's days.
(function () {
  "use strict";
  var root = document.documentElement;
  var dark = window.matchMedia("(prefers-color-scheme: dark)");
  function follow() { root.setAttribute("data-bs-theme", dark.matches ? "dark" : "light"); }
  follow();
  dark.addEventListener("change", follow);
  root.classList.add("js");
  document.cookie = "keyturn-zone=" + Intl.DateTimeFormat().resolvedOptions().timeZone +
    "; path=/; max-age=31536000; samesite=lax" + (window.location.protocol === "https:" ? "; secure" : "");
})();

// Runs before the first paint: sets the chosen theme, or that of the system, marks that scripts are
// enabled, and sends the server the time zone, so that calendars and charts have the reader's days.
(function () {
  "use strict";
  var root = document.documentElement;
  var dark = window.matchMedia("(prefers-color-scheme: dark)");
  function follow() {
    var theme = null;
    try { theme = window.localStorage.getItem("keyturn-theme"); } catch (error) { /* Storage is disabled. */ }
    root.dataset.theme = theme === "light" || theme === "dark" ? theme : "system";
    root.setAttribute("data-bs-theme", theme === "light" || theme === "dark" ? theme : dark.matches ? "dark" : "light");
  }
  follow();
  dark.addEventListener("change", follow);
  window.addEventListener("storage", follow);
  document.addEventListener("keyturn:theme", follow);
  root.classList.add("js");
  document.cookie = "keyturn-zone=" + Intl.DateTimeFormat().resolvedOptions().timeZone +
    "; path=/; max-age=31536000; samesite=lax" + (window.location.protocol === "https:" ? "; secure" : "");
})();

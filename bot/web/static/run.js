// The page of a run: shows one part at a time, links to lines of output, and searches output.
// Without JavaScript all parts are shown, one below the other.
(function () {
  "use strict";
  var shown = "";

  function getTarget() { return document.getElementById(decodeURIComponent(window.location.hash.slice(1))); }

  function showPanel() {
    var panel = document.getElementById(shown) || document.querySelector(".kt-panel");
    document.querySelectorAll(".kt-panel").forEach(function (one) { one.classList.toggle("kt-shown", one === panel); });
    document.querySelectorAll(".kt-tabs a").forEach(function (link) {
      if (link.hash === "#" + panel.id) { link.setAttribute("aria-current", "true"); } else { link.removeAttribute("aria-current"); }
    });
  }

  function markLine() {
    var target = getTarget();
    document.querySelectorAll(".kt-line.kt-linked").forEach(function (line) { line.classList.remove("kt-linked"); });
    if (target && target.matches(".kt-line")) { target.classList.add("kt-linked"); }
  }

  function follow() {
    var target = getTarget(), panel = target && target.closest(".kt-panel");
    if (!panel) { return; }
    shown = panel.id;
    showPanel();
    markLine();
    if (target === panel) { return; }
    for (var one = target.closest("details"); one; one = one.parentElement.closest("details")) { one.open = true; }
    target.scrollIntoView({ block: "center" });
  }

  document.addEventListener("click", function (event) {
    var link = event.target.closest(".kt-tabs a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) { return; }
    event.preventDefault();
    window.history.replaceState(null, "", link.hash);
    follow();
  });
  window.addEventListener("hashchange", follow);
  // After a swap, htmx sets the classes that the server sent.
  document.addEventListener("htmx:afterSettle", function () { showPanel(); markLine(); joinLines(); });

  // The numbers of an output's lines are one stop of the Tab key: arrow keys move among them.
  function joinLines() {
    document.querySelectorAll(".kt-lines").forEach(function (lines) {
      lines.querySelectorAll(".kt-line > a").forEach(function (link, index) { link.tabIndex = index ? -1 : 0; });
    });
  }
  joinLines();
  var STEPS = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity };
  document.addEventListener("keydown", function (event) {
    var link = event.target.closest(".kt-line > a"), step = STEPS[event.key];
    if (!link || !step || event.ctrlKey || event.metaKey || event.altKey) { return; }
    var links = Array.from(link.closest(".kt-lines").querySelectorAll(".kt-line > a"));
    var next = links[Math.min(Math.max(links.indexOf(link) + step, 0), links.length - 1)];
    event.preventDefault();
    link.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });

  // Searching: the lines that contain the text are marked, and Enter goes to the next one.
  function search(form, step) {
    var text = form.elements.filter.value.trim().toLowerCase();
    var lines = Array.from(document.getElementById(form.dataset.search).children);
    var matches = lines.filter(function (line) {
      var found = text !== "" && line.textContent.toLowerCase().indexOf(text) >= 0;
      line.classList.toggle("kt-match", found);
      return found;
    });
    var at = matches.length ? ((Number(form.dataset.at) || 0) + step) % matches.length : 0;
    form.dataset.at = step ? at : 0;
    form.querySelector("[data-count]").textContent = text ? (matches.length ? at + 1 + " of " + matches.length : "No matches") : "";
    if (matches.length) { matches[step ? at : 0].scrollIntoView({ block: "nearest" }); }
  }
  document.addEventListener("input", function (event) {
    var form = event.target.closest("form[data-search]");
    if (form) { form.dataset.at = 0; search(form, 0); }
  });
  document.addEventListener("submit", function (event) {
    if (event.target.dataset.search) { event.preventDefault(); search(event.target, 1); }
  });

  follow();
})();

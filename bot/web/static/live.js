// Live updates of the page of a run: a stream of events with the output of hosts. Output is
// inserted as text, never as markup. Without a stream the page polls every two seconds.
(function () {
  "use strict";

  var box = document.getElementById("live-output");
  if (!box) { return; }
  var list = document.getElementById("live-output-list");
  var template = document.getElementById("live-output-template");
  var status = document.getElementById("live-status");
  var maxLines = Number(box.dataset.maxLines);
  var position = "";
  var source = null;
  var pollTimer = 0;
  var hasEnded = false;
  var outputs = new Map();

  // Reuse the text node: a new one would make the browser recompute the styles of the whole page.
  function setText(element, text) {
    if (element.firstChild) { element.firstChild.data = text; } else { element.textContent = text; }
  }

  // --- The part of the page that the server renders ---

  // The stream updates the table of hosts, so that a long table is not rendered with every update.
  function hostsCard() { return document.getElementById("hosts-card"); }
  function isStreaming() { return source !== null && source.readyState === EventSource.OPEN; }

  // Without a stream, rendering a long table takes a while, so refresh less often.
  var refreshedAt = 0;
  var refreshTimer = 0;
  function refresh() {
    var live = document.getElementById("live");
    // Only the page of an ended run has no address to refresh from.
    if (!live || !live.hasAttribute("hx-get")) { window.clearInterval(pollTimer); return; }
    var gap = hostsCard() && !isStreaming() ? 5000 : 500;
    window.clearTimeout(refreshTimer);
    refreshTimer = window.setTimeout(function () {
      refreshedAt = Date.now();
      window.htmx.trigger("#live", "updated");
    }, Math.max(0, refreshedAt + gap - Date.now()));
  }

  document.addEventListener("htmx:configRequest", function (event) {
    if (event.target.id === "live" && hostsCard() && isStreaming()) {
      event.detail.parameters.streamed = hostsCard().dataset.phase;
    }
  });

  function updateHosts(data) {
    var fanout = document.getElementById("fanout");
    if (fanout) { fanout.innerHTML = data.chart; }
    data.rows.forEach(function (row) {
      var line = document.getElementById("child-" + row.id);
      if (!line) { return; }
      line.querySelector("[data-state]").innerHTML = row.badge;
      var summary = line.querySelector("[data-summary]");
      summary.innerHTML = row.summary;
      summary.parentNode.classList.toggle("kt-none", summary.textContent === "–");
    });
    if (hostsCard()) { hostsCard().dispatchEvent(new Event("keyturn:inserted", { bubbles: true })); }
    var summary = fanout && fanout.querySelector("strong");
    if (summary) { document.getElementById("announce").textContent = summary.textContent; }
  }

  // --- Live output ---

  // Show the newest lines until the user scrolls up.
  list.querySelectorAll("pre").forEach(function (pre) { pre.scrollTop = pre.scrollHeight; });

  function formatLineCount(number) { return number.toLocaleString("en-GB") + (number === 1 ? " line" : " lines"); }

  function getOutput(one) {
    var output = outputs.get(one.key);
    if (output) { return output; }
    var details = document.getElementById("live-output-" + one.key);
    var wasOpen = details !== null && details.open;
    if (!details) {
      details = template.content.firstElementChild.cloneNode(true);
      details.id = "live-output-" + one.key;
      details.querySelector("[data-host]").textContent = one.host;
      details.querySelector("[data-n]").textContent = "step " + one.n;
      details.querySelector("pre").setAttribute("aria-label", "Live output of " + one.host + ", step " + one.n);
      details.open = outputs.size < 5 && maxLines > 100;
      list.appendChild(details);
    }
    output = { details: details, pre: details.querySelector("pre"), lines: [], total: 0, changed: true, wasOpen: wasOpen };
    details.addEventListener("toggle", function () { output.changed = true; scheduleRender(); });
    outputs.set(one.key, output);
    return output;
  }

  function addOutput(updates) {
    updates.forEach(function (one) {
      var here = getOutput(one);
      if (one.is_new) { here.lines = []; }
      if (one.omitted) { here.lines.push("[\u2026 " + formatLineCount(one.omitted) + " omitted; the full output appears with the step \u2026]"); }
      here.lines.push.apply(here.lines, one.lines);
      here.lines.splice(0, Math.max(0, here.lines.length - maxLines));
      here.total = one.total;
      here.changed = true;
    });
    scheduleRender();
  }

  function removeOutputs(keys) {
    keys.forEach(function (key) {
      var here = outputs.get(key);
      var details = here ? here.details : document.getElementById("live-output-" + key);
      if (details) { details.remove(); }
      outputs.delete(key);
    });
    box.hidden = list.childElementCount === 0;
    if (!hostsCard()) { refresh(); }
  }

  // Render at most four times a second, and only what is visible.
  var renderTimer = 0;
  function scheduleRender() {
    if (renderTimer) { return; }
    renderTimer = window.setTimeout(function () { renderTimer = 0; window.requestAnimationFrame(render); }, 250);
  }

  function hasSelection(pre) {
    var selection = document.getSelection();
    return selection && !selection.isCollapsed && pre.contains(selection.anchorNode);
  }

  // First measure all outputs, then write, then scroll. Mixing these would lay out the page per host.
  function render() {
    var changed = [];
    outputs.forEach(function (here) {
      if (!here.changed) { return; }
      var pre = here.pre, open = here.details.open;
      here.updates = open && !hasSelection(pre);
      here.follows = here.updates && (!here.wasOpen || pre.scrollHeight - pre.clientHeight - pre.scrollTop < 8);
      here.wasOpen = open;
      here.changed = open && !here.updates;
      changed.push(here);
    });
    changed.forEach(function (here) {
      setText(here.details.querySelector("[data-total]"), formatLineCount(here.total));
      setText(here.details.querySelector("[data-last]"), here.details.open ? "" : here.lines[here.lines.length - 1] || "");
      if (here.updates) { setText(here.pre, here.lines.join("\n")); }
    });
    changed.forEach(function (here) { if (here.follows) { here.pre.scrollTop = here.pre.scrollHeight; } });
    box.hidden = list.childElementCount === 0;
  }

  // --- The stream ---

  function poll(text) {
    status.textContent = text;
    if (!pollTimer && !hasEnded) { pollTimer = window.setInterval(refresh, 2000); }
  }

  function close() {
    if (source) { source.close(); source = null; }
  }

  function open() {
    if (source || hasEnded || !window.EventSource) { return; }
    source = new EventSource(box.dataset.stream + (position ? "?after=" + position : ""));
    on("updated", refresh);
    on("children", updateHosts);
    on("output", addOutput);
    on("output_ended", removeOutputs);
    on("access_ended", function () { document.dispatchEvent(new Event("keyturn:access-ended")); });
    on("no_slot", function () { close(); poll("Refreshing every 2 s: too many live pages are open"); });
    // The stream says it once, and a refresh can be lost: try until the page shows the end.
    on("run_ended", function () {
      hasEnded = true;
      close();
      box.hidden = status.hidden = true;
      window.clearInterval(pollTimer);
      pollTimer = window.setInterval(refresh, 2000);
      refresh();
    });
    source.onopen = function () {
      status.textContent = "Live";
      window.clearInterval(pollTimer);
      pollTimer = 0;
    };
    source.onerror = function () {
      // The browser reconnects by itself, unless the server refused.
      if (source && source.readyState === EventSource.CLOSED) { close(); window.setTimeout(open, 10000); }
      poll("Live updates interrupted. Reconnecting\u2026");
    };
  }

  function on(name, act) {
    source.addEventListener(name, function (event) {
      if (event.lastEventId) { position = event.lastEventId; }
      act(event.data ? JSON.parse(event.data) : null);
    });
  }

  // Browsers limit the connections per server, so hidden pages close theirs.
  var closeTimer = 0;
  document.addEventListener("visibilitychange", function () {
    window.clearTimeout(closeTimer);
    if (document.hidden) { closeTimer = window.setTimeout(close, 20000); } else { open(); refresh(); }
  });

  // Update elapsed times every second.
  var startTimes = new WeakMap();
  function formatSpan(seconds) {
    var hours = Math.floor(seconds / 3600), minutes = Math.floor(seconds / 60) % 60;
    if (hours) { return hours + " h " + minutes + " min"; }
    return minutes ? minutes + " min " + seconds % 60 + " s" : seconds + " s";
  }
  window.setInterval(function () {
    document.querySelectorAll("[data-elapsed]").forEach(function (clock) {
      if (!startTimes.has(clock)) { startTimes.set(clock, Date.now() - 1000 * Number(clock.dataset.elapsed)); }
      setText(clock, formatSpan(Math.floor((Date.now() - startTimes.get(clock)) / 1000)));
    });
  }, 1000);

  open();
  if (!window.EventSource) { poll("Refreshing every 2 s"); }
})();

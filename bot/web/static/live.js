// A run's page while something happens: the stream of events, and what hosts say as they say it.
// Nothing a host says is ever markup here. A page that cannot stream looks again every two seconds.
(function () {
  "use strict";

  var box = document.getElementById("said");
  if (!box) { return; }
  var list = document.getElementById("said-lines");
  var pattern = document.getElementById("said-one");
  var standing = document.getElementById("standing");
  var most = Number(box.dataset.most);
  var position = "";
  var source = null;
  var polling = 0;
  var over = false;
  var said = new Map();

  // Words in the place of words: a new text node would have the whole page's styles looked up anew.
  function tell(place, words) {
    if (place.firstChild) { place.firstChild.data = words; } else { place.textContent = words; }
  }

  // --- The part of the page that the server draws ---

  // Of its hosts the stream tells: many of them are not drawn anew with all the rest.
  function hosts() { return document.getElementById("hosts-card"); }
  function streaming() { return source !== null && source.readyState === EventSource.OPEN; }

  // Without a stream they are, and that takes a while.
  var asked = 0;
  var waiting = 0;
  function refresh() {
    var live = document.getElementById("live");
    if (!live || !live.hasAttribute("hx-get")) { return; }
    var gap = hosts() && !streaming() ? 5000 : 500;
    window.clearTimeout(waiting);
    waiting = window.setTimeout(function () {
      asked = Date.now();
      window.htmx.trigger("#live", "moved");
    }, Math.max(0, asked + gap - Date.now()));
  }

  document.addEventListener("htmx:configRequest", function (event) {
    if (event.target.id === "live" && hosts() && streaming()) {
      event.detail.parameters.streamed = hosts().dataset.drawn;
    }
  });

  function replaceHosts(told) {
    var fan = document.getElementById("fan");
    if (fan) { fan.innerHTML = told.drawn; }
    told.rows.forEach(function (row) {
      var line = document.getElementById("part-" + row.id);
      if (!line) { return; }
      line.querySelector("[data-state]").innerHTML = row.badge;
      line.querySelector("[data-summary]").innerHTML = row.summary;
    });
    var words = fan && fan.querySelector("strong");
    if (words) { document.getElementById("announce").textContent = words.textContent; }
  }

  // --- What hosts say ---

  // The newest is in sight, until somebody scrolls away from it.
  list.querySelectorAll("pre").forEach(function (pre) { pre.scrollTop = pre.scrollHeight; });

  function count(number) { return number.toLocaleString("en-GB") + (number === 1 ? " line" : " lines"); }

  function place(one) {
    var known = said.get(one.key);
    if (known) { return known; }
    var details = document.getElementById("said-" + one.key);
    var drawn = details !== null && details.open;
    if (!details) {
      details = pattern.content.firstElementChild.cloneNode(true);
      details.id = "said-" + one.key;
      details.querySelector("[data-host]").textContent = one.host;
      details.querySelector("[data-n]").textContent = "step " + one.n;
      details.querySelector("pre").setAttribute("aria-label", "What " + one.host + " says in step " + one.n);
      details.open = said.size < 5 && most > 100;
      list.appendChild(details);
    }
    known = { details: details, pre: details.querySelector("pre"), lines: [], total: 0, dirty: true, seen: drawn };
    details.addEventListener("toggle", function () { known.dirty = true; paintSoon(); });
    said.set(one.key, known);
    return known;
  }

  function hear(news) {
    news.forEach(function (one) {
      var here = place(one);
      if (one.anew) { here.lines = []; }
      if (one.left_out) { here.lines.push("[\u2026 " + count(one.left_out) + " left out here; the rest is in the output \u2026]"); }
      here.lines.push.apply(here.lines, one.lines);
      here.lines.splice(0, Math.max(0, here.lines.length - most));
      here.total = one.total;
      here.dirty = true;
    });
    paintSoon();
  }

  function fallSilent(keys) {
    keys.forEach(function (key) {
      var here = said.get(key);
      var details = here ? here.details : document.getElementById("said-" + key);
      if (details) { details.remove(); }
      said.delete(key);
    });
    box.hidden = list.childElementCount === 0;
    if (!hosts()) { refresh(); }
  }

  // At most four times a second, however fast hosts speak; and only what somebody can see.
  var painting = 0;
  function paintSoon() {
    if (painting) { return; }
    painting = window.setTimeout(function () { painting = 0; window.requestAnimationFrame(paint); }, 250);
  }

  function isRead(pre) {
    var chosen = document.getSelection();
    return chosen && !chosen.isCollapsed && pre.contains(chosen.anchorNode);
  }

  // All is measured first, then written, then scrolled: in turns, each host would lay out the page anew.
  function paint() {
    var due = [];
    said.forEach(function (here) {
      if (!here.dirty) { return; }
      var pre = here.pre, open = here.details.open;
      here.moves = open && !isRead(pre);
      here.below = here.moves && (!here.seen || pre.scrollHeight - pre.clientHeight - pre.scrollTop < 8);
      here.seen = open;
      here.dirty = open && !here.moves;
      due.push(here);
    });
    due.forEach(function (here) {
      tell(here.details.querySelector("[data-total]"), count(here.total));
      tell(here.details.querySelector("[data-last]"), here.details.open ? "" : here.lines[here.lines.length - 1] || "");
      if (here.moves) { tell(here.pre, here.lines.join("\n")); }
    });
    due.forEach(function (here) { if (here.below) { here.pre.scrollTop = here.pre.scrollHeight; } });
    box.hidden = list.childElementCount === 0;
  }

  // --- The stream ---

  function poll(words) {
    standing.textContent = words;
    if (!polling && !over) { polling = window.setInterval(refresh, 2000); }
  }

  function close() {
    if (source) { source.close(); source = null; }
  }

  function open() {
    if (source || over || !window.EventSource) { return; }
    source = new EventSource(box.dataset.stream + (position ? "?after=" + position : ""));
    on("moved", refresh);
    on("parts", replaceHosts);
    on("said", hear);
    on("silent", fallSilent);
    on("gone", function () { window.location.reload(); });
    on("full", function () { close(); poll("Too many watch: this page looks again by itself"); });
    on("over", function () { over = true; close(); box.hidden = standing.hidden = true; window.clearInterval(polling); refresh(); });
    source.onopen = function () {
      standing.textContent = "Live";
      window.clearInterval(polling);
      polling = 0;
    };
    source.onerror = function () {
      // A browser tries again by itself, unless it was told no.
      if (source && source.readyState === EventSource.CLOSED) { close(); window.setTimeout(open, 10000); }
      poll("Not live at the moment");
    };
  }

  function on(name, act) {
    source.addEventListener(name, function (event) {
      if (event.lastEventId) { position = event.lastEventId; }
      act(event.data ? JSON.parse(event.data) : null);
    });
  }

  // A browser opens few connections to one place: pages that nobody looks at give theirs back.
  var leaving = 0;
  document.addEventListener("visibilitychange", function () {
    window.clearTimeout(leaving);
    if (document.hidden) { leaving = window.setTimeout(close, 20000); } else { open(); refresh(); }
  });

  // What has a time that runs goes on between two looks.
  var since = new WeakMap();
  function span(seconds) {
    var hours = Math.floor(seconds / 3600), minutes = Math.floor(seconds / 60) % 60;
    if (hours) { return hours + " h " + minutes + " min"; }
    return minutes ? minutes + " min " + seconds % 60 + " s" : seconds + " s";
  }
  window.setInterval(function () {
    document.querySelectorAll("[data-elapsed]").forEach(function (clock) {
      if (!since.has(clock)) { since.set(clock, Date.now() - 1000 * Number(clock.dataset.elapsed)); }
      tell(clock, span(Math.floor((Date.now() - since.get(clock)) / 1000)));
    });
  }, 1000);

  open();
  if (!window.EventSource) { poll("Not live here: this page looks again by itself"); }
})();

// Optional improvements of pages: local times, copy buttons, and live updates that keep what the
// user has opened or typed. Every page works without JavaScript.
(function () {
  "use strict";

  var todayFormat = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  var thisYearFormat = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  var otherFormat = new Intl.DateTimeFormat(undefined, { year: "numeric", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

  // A time such as 2026-12-01T18:00Z, without seconds, is of a text that has none.
  function formatLocalTime(text) {
    var at = new Date(text), now = new Date();
    if (text.length > 17 && at.toDateString() === now.toDateString()) { return todayFormat.format(at); }
    return (at.getFullYear() === now.getFullYear() ? thisYearFormat : otherFormat).format(at);
  }

  // "2 h ago", or "in 3 d"; the exact time after a month.
  function formatRelativeTime(text) {
    var seconds = (new Date(text) - Date.now()) / 1000, span = Math.abs(seconds);
    if (span < 60) { return seconds > 0 ? "in 1 min" : "just now"; }
    if (span > 30 * 86400) { return formatLocalTime(text); }
    var number = span < 3600 ? Math.floor(span / 60) + " min" : span < 86400 ? Math.floor(span / 3600) + " h" : Math.floor(span / 86400) + " d";
    return seconds > 0 ? "in " + number : number + " ago";
  }
  function showRelativeTimes() {
    document.querySelectorAll("time[data-relative]").forEach(function (time) {
      var text = formatRelativeTime(time.dateTime);
      if (time.textContent !== text) { time.textContent = text; }
    });
  }
  window.setInterval(showRelativeTimes, 30000);

  function showLocalTimes(root) {
    root.querySelectorAll("svg title").forEach(function (title) {
      title.textContent = title.textContent.replace(/(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC/g, function (_, day, time) {
        return formatLocalTime(day + "T" + time + "Z");
      });
    });
    root.querySelectorAll("time[data-local-time]").forEach(function (time) {
      var local = formatLocalTime(time.dateTime);
      if (time.dataset.localTime === "relative") {
        time.title = local + " (" + time.title + ")";
        time.dataset.relative = "";
      } else {
        time.textContent = local;
      }
      time.removeAttribute("data-local-time");
    });
    showRelativeTimes();
  }

  function showCopyButtons(root) {
    if (!navigator.clipboard) { return; }
    root.querySelectorAll("[data-copy]").forEach(function (button) { button.hidden = false; });
  }

  function announce(text) {
    var status = document.getElementById("announce");
    if (text && status.textContent !== text) { status.textContent = text; }
  }

  // On a narrow screen, filters are folded until they are opened, unless one is invalid.
  if (window.matchMedia("(max-width: 991.98px)").matches) {
    document.querySelectorAll("details[data-fold]:not(:has([aria-invalid]))").forEach(function (details) { details.open = false; });
  }

  function enhance(root) {
    showLocalTimes(root);
    showCopyButtons(root);
  }
  document.addEventListener("keyturn:inserted", function (event) { enhance(event.target); });

  document.addEventListener("click", function (event) {
    var button = event.target.closest("[data-copy]");
    if (!button) { return; }
    var text = document.getElementById(button.dataset.copy).textContent;
    navigator.clipboard.writeText(text).then(function () {
      button.classList.add("kt-copied");
      button.title = "Copied";
      announce("Copied");
      window.setTimeout(function () { button.classList.remove("kt-copied"); button.title = "Copy"; }, 1500);
    });
  });

  // Do not submit a form twice.
  document.addEventListener("submit", function (event) {
    if (event.defaultPrevented || event.target.method !== "post") { return; }
    if (event.target.dataset.sent) { event.preventDefault(); return; }
    event.target.dataset.sent = "yes";
  });
  window.addEventListener("pageshow", function () {
    document.querySelectorAll("form[data-sent]").forEach(function (form) { delete form.dataset.sent; });
  });

  function listTimeFields(form) { return Array.from(form.querySelectorAll("[data-time]")); }

  // Leave empty filters out of the address.
  document.addEventListener("htmx:configRequest", function (event) {
    var parameters = event.detail.parameters;
    Object.keys(parameters).forEach(function (name) { if (parameters[name] === "") { delete parameters[name]; } });
    var zoneField = event.detail.elt.querySelector("[data-time-zone]");
    if (zoneField && !listTimeFields(zoneField.form).some(function (time) { return time.value; })) { delete parameters.zone; }
  });

  // Keep what is open, scrolled and focused when a part of the page is updated.
  var kept = null;
  // New entries are added at the top, so count from the bottom.
  function listDetails(root) { return Array.from(root.querySelectorAll("details")).reverse(); }
  document.addEventListener("htmx:beforeSwap", function (event) {
    var target = event.detail.target, focused = document.activeElement;
    if (!target.matches("#live, [data-live]")) { return; }
    kept = { open: new Map(), scrolled: new Map(), href: null, title: document.title };
    listDetails(target).forEach(function (details, index) { kept.open.set(details.id || index, details.open); });
    target.querySelectorAll("[id]").forEach(function (one) { if (one.scrollTop) { kept.scrolled.set(one.id, one.scrollTop); } });
    if (target.contains(focused) && !focused.id) { kept.href = focused.getAttribute("href"); }
  });
  document.addEventListener("htmx:afterSwap", function (event) {
    var target = document.getElementById(event.detail.target.id);
    if (!target) { return; }
    if (kept && target.matches("#live, [data-live]")) {
      listDetails(target).forEach(function (details, index) {
        var key = details.id || index;
        if (kept.open.has(key)) { details.open = kept.open.get(key); }
      });
      kept.scrolled.forEach(function (top, id) {
        var one = document.getElementById(id);
        if (one) { one.scrollTop = top; }
      });
      var link = kept.href && target.querySelector('a[href="' + kept.href.replace(/["\\]/g, "\\$&") + '"]');
      if (link) { link.focus({ preventScroll: true }); }
      kept = null;
      showTitle(target.dataset.title || title);
    }
    enhance(target);
    announce(target.dataset.announce);
  });

  // --- Live lists, and the number of runs that await the reader ---

  var title = document.title;
  var waiting = 0;
  function showTitle(text) {
    title = text;
    document.title = (waiting ? "(" + waiting + ") " : "") + title;
    document.querySelectorAll("[data-waiting]").forEach(function (count) {
      count.hidden = !waiting;
      count.textContent = waiting;
      count.setAttribute("aria-label", waiting + (waiting === 1 ? " run needs" : " runs need") + " your action");
    });
  }

  // Text that is typed or selected in a list is left alone until the next change.
  function isInUse(region) {
    var focused = document.activeElement, selection = document.getSelection();
    return region.contains(focused) && focused.matches("input, select, textarea")
      || selection && !selection.isCollapsed && region.contains(selection.anchorNode);
  }
  // All open pages together load few lists a second: each waits for a random part of the time that it is given.
  var refreshTimer = 0, refreshedAt = 0, spread = 0;
  function refreshLists() {
    if (refreshTimer) { return; }
    refreshTimer = window.setTimeout(function () {
      refreshTimer = 0;
      document.querySelectorAll("[data-live]").forEach(function (region) {
        if (isInUse(region)) { refreshLists(); return; }
        refreshedAt = Date.now();
        window.htmx.ajax("GET", window.location.pathname + window.location.search, {
          target: "#" + region.id, select: "#" + region.id, swap: "outerHTML", headers: { "X-Keyturn-Live": "yes" }
        });
      });
    }, Math.max(250, refreshedAt + 3000 - Date.now()) + Math.random() * spread);
  }

  var changes = null, isFirstChange = true;
  function followChanges() {
    if (changes || !document.body.dataset.stream || !window.EventSource) { return; }
    changes = new EventSource(document.body.dataset.stream);
    changes.addEventListener("changed", function (event) {
      var state = JSON.parse(event.data);
      waiting = state.waiting;
      spread = 1000 * state.within;
      showTitle(title);
      if (!isFirstChange) { refreshLists(); }
      isFirstChange = false;
    });
    changes.addEventListener("no_slot", function (event) {
      stopFollowing();
      if (document.querySelector("[data-live]")) { showNotice(JSON.parse(event.data)); }
    });
    changes.addEventListener("access_ended", reload);
  }
  function showNotice(text) {
    var lost = document.getElementById("lost");
    if (lost) { lost.querySelector("span").textContent = text; lost.hidden = false; }
  }
  function stopFollowing() { if (changes) { changes.close(); changes = null; } }
  // Browsers limit the connections per server, so hidden pages close theirs after a while.
  var hideTimer = 0;
  document.addEventListener("visibilitychange", function () {
    window.clearTimeout(hideTimer);
    if (document.hidden) { hideTimer = window.setTimeout(stopFollowing, 20000); } else { followChanges(); }
  });
  followChanges();

  // Close the account menu on Escape and on a click outside it.
  document.addEventListener("click", function (event) {
    document.querySelectorAll("details.kt-account[open]").forEach(function (menu) {
      if (!menu.contains(event.target)) { menu.open = false; }
    });
  });
  document.addEventListener("keydown", function (event) {
    var menu = document.querySelector("details.kt-account[open]");
    if (menu && event.key === "Escape") { menu.open = false; menu.querySelector("summary").focus(); }
  });

  document.addEventListener("htmx:afterRequest", function (event) {
    var lost = document.getElementById("lost");
    if (lost) { lost.hidden = event.detail.xhr.status > 0 && event.detail.xhr.status < 500; }
    if (event.detail.xhr.status === 401) { reload(); }
  });

  var zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  document.querySelectorAll("[data-zone]").forEach(function (label) {
    label.textContent = "Times shown in " + zone;
  });

  // Typed times are in the displayed time zone, unless the page already names another.
  document.querySelectorAll("[data-time-zone]").forEach(function (zoneField) {
    if (!listTimeFields(zoneField.form).some(function (time) { return time.value; })) { zoneField.value = zone; }
    zoneField.form.querySelectorAll("[data-time-zone-name]").forEach(function (label) {
      label.textContent = zoneField.value || "UTC";
    });
  });

  // Show UTC beside local times for people who cannot hover; the choice is stored.
  function storedSetting(name, value) {
    try {
      if (value !== undefined) { window.localStorage.setItem(name, value); }
      return window.localStorage.getItem(name);
    } catch (error) { return value || null; }
  }
  // What was typed is in the form again after sign-in, which may be in another tab. The page that asks
  // to sign in has what was sent; a page that is loaded again for it stores what was not sent yet.
  function storeTyped(path, values) {
    storedSetting("keyturn-typed", JSON.stringify({ path: path, at: Date.now(), values: values }));
  }
  function isTyped(field) { return /^(text|textarea)$/.test(field.type) && field.value && field.value !== field.defaultValue; }
  function reload() {
    var form = Array.from(document.forms).find(function (one) { return one.method === "post" && Array.from(one.elements).some(isTyped); });
    if (form) {
      var values = {};
      Array.from(form.elements).filter(isTyped).forEach(function (field) { values[field.name] = field.value; });
      storeTyped(form.getAttribute("action"), values);
    }
    window.location.reload();
  }
  function restoreTyped() {
    var typed = document.querySelector("[data-typed]"), kept = JSON.parse(storedSetting("keyturn-typed") || "null");
    if (typed) {
      var values = {};
      typed.querySelectorAll("[data-name]").forEach(function (one) { values[one.dataset.name] = one.textContent; });
      storeTyped(typed.dataset.typed, values);
    } else if (kept) {
      var form = Array.from(document.forms).find(function (one) { return one.getAttribute("action") === kept.path; });
      var isOld = Date.now() - kept.at > 600000;
      if (form || isOld) { storedSetting("keyturn-typed", ""); }
      if (form && !isOld) { fillForm(form, kept.values); }
    }
  }
  function fillForm(form, values) {
    Object.keys(values).forEach(function (name) {
      var field = form.elements.namedItem(name);
      if (field && !/^(hidden|checkbox)$/.test(field.type)) { field.value = values[name]; }
    });
    for (var one = form.closest("details"); one; one = one.parentElement.closest("details")) { one.open = true; }
  }
  restoreTyped();
  document.addEventListener("keyturn:access-ended", reload);

  function showUtc(shown) {
    document.documentElement.classList.toggle("kt-utc", shown);
    document.querySelectorAll("[data-utc]").forEach(function (button) {
      button.hidden = zone === "UTC";
      button.setAttribute("aria-pressed", String(shown));
    });
  }
  document.addEventListener("click", function (event) {
    if (!event.target.closest("[data-utc]")) { return; }
    var shown = !document.documentElement.classList.contains("kt-utc");
    storedSetting("keyturn-utc", shown ? "yes" : "no");
    showUtc(shown);
  });
  showUtc(storedSetting("keyturn-utc") === "yes");

  // --- Theme ---

  function showTheme() {
    document.querySelectorAll("button[data-theme]").forEach(function (button) {
      button.setAttribute("aria-pressed", String(button.dataset.theme === document.documentElement.dataset.theme));
    });
  }
  document.addEventListener("click", function (event) {
    var button = event.target.closest("button[data-theme]");
    if (!button) { return; }
    storedSetting("keyturn-theme", button.dataset.theme);
    document.dispatchEvent(new Event("keyturn:theme"));
    showTheme();
  });
  showTheme();

  // --- Keyboard shortcuts ---

  var shortcuts = document.getElementById("shortcuts");
  var singleKeys = document.getElementById("shortcuts-on");
  var PAGES = { h: "/", r: "/runs", o: "/hosts", c: "/changelog" };
  var goesAt = 0;

  function openSearch() { var field = document.getElementById("search"); field.focus(); field.select(); }

  // Focus the next or previous row of the lists of a page.
  function move(step) {
    var rows = Array.from(document.querySelectorAll("main a.kt-title, main .kt-log summary")).filter(function (row) { return row.checkVisibility(); });
    var at = rows.indexOf(document.activeElement);
    var row = rows[at < 0 ? 0 : Math.min(Math.max(at + step, 0), rows.length - 1)];
    if (row) { row.focus(); row.scrollIntoView({ block: "nearest" }); }
  }

  function press(key) {
    if (Date.now() - goesAt < 1500 && PAGES[key]) { window.location.assign(PAGES[key]); return true; }
    goesAt = key === "g" ? Date.now() : 0;
    if (key === "j" || key === "k") { move(key === "j" ? 1 : -1); return true; }
    if (key === "/") { openSearch(); return true; }
    if (key === "?") { shortcuts.showModal(); return true; }
    if (key === "o" && document.activeElement.closest("main a, main summary")) { document.activeElement.click(); return true; }
    return false;
  }

  if (shortcuts) {
    singleKeys.checked = storedSetting("keyturn-keys") !== "no";
    singleKeys.addEventListener("change", function () { storedSetting("keyturn-keys", singleKeys.checked ? "yes" : "no"); });
    document.querySelector("[data-shortcuts]").addEventListener("click", function () { shortcuts.showModal(); });
    document.addEventListener("keydown", function (event) {
      if (event.defaultPrevented || event.isComposing || shortcuts.open) { return; }
      var isSearch = event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey;
      if (isSearch) { openSearch(); event.preventDefault(); return; }
      if (event.ctrlKey || event.metaKey || event.altKey || !singleKeys.checked || event.target.closest("input, select, textarea, [contenteditable]")) { return; }
      if (press(event.key)) { event.preventDefault(); }
    });
  }
  enhance(document);
})();

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

  function showLocalTimes(root) {
    root.querySelectorAll("svg title").forEach(function (title) {
      title.textContent = title.textContent.replace(/(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC/g, function (_, day, time) {
        return formatLocalTime(day + "T" + time + "Z");
      });
    });
    root.querySelectorAll("time[data-local-time]").forEach(function (time) {
      time.textContent = formatLocalTime(time.dateTime);
      time.removeAttribute("data-local-time");
    });
  }

  function showCopyButtons(root) {
    if (!navigator.clipboard) { return; }
    root.querySelectorAll("[data-copy]").forEach(function (button) { button.hidden = false; });
  }

  function announce(text) {
    var status = document.getElementById("announce");
    if (text && status.textContent !== text) { status.textContent = text; }
  }

  // On a narrow screen, filters are folded until they are opened.
  if (window.matchMedia("(max-width: 991.98px)").matches) {
    document.querySelectorAll("details[data-fold]").forEach(function (details) { details.open = false; });
  }

  function enhance(root) {
    showLocalTimes(root);
    showCopyButtons(root);
  }

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
  var refreshTimer = 0, refreshedAt = 0;
  function refreshLists() {
    window.clearTimeout(refreshTimer);
    refreshTimer = window.setTimeout(function () {
      document.querySelectorAll("[data-live]").forEach(function (region) {
        if (isInUse(region)) { refreshLists(); return; }
        refreshedAt = Date.now();
        window.htmx.ajax("GET", window.location.pathname + window.location.search, {
          target: "#" + region.id, select: "#" + region.id, swap: "outerHTML", headers: { "X-Keyturn-Live": "yes" }
        });
      });
    }, Math.max(250, refreshedAt + 3000 - Date.now()));
  }

  var changes = null, isFirstChange = true;
  function followChanges() {
    if (changes || !document.body.dataset.stream || !window.EventSource) { return; }
    changes = new EventSource(document.body.dataset.stream);
    changes.addEventListener("changed", function (event) {
      waiting = JSON.parse(event.data).waiting;
      showTitle(title);
      if (!isFirstChange) { refreshLists(); }
      isFirstChange = false;
    });
    changes.addEventListener("no_slot", stopFollowing);
    changes.addEventListener("access_ended", function () { window.location.reload(); });
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
    if (event.detail.xhr.status === 401) { window.location.reload(); }
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
  enhance(document);
})();

// What pages gain from scripts: the reader's own zone, copying, and a live page that is left in peace
// where somebody reads or types. Everything can be read without.
(function () {
  "use strict";

  var near = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  var far = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  var farther = new Intl.DateTimeFormat(undefined, { year: "numeric", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

  function inOwnZone(at) {
    var now = new Date();
    if (at.toDateString() === now.toDateString()) { return near.format(at); }
    return (at.getFullYear() === now.getFullYear() ? far : farther).format(at);
  }

  function localise(root) {
    root.querySelectorAll("time[data-moment]").forEach(function (time) {
      time.textContent = inOwnZone(new Date(time.dateTime));
      time.removeAttribute("data-moment");
    });
  }

  function offerCopies(root) {
    if (!navigator.clipboard) { return; }
    root.querySelectorAll("[data-copy]").forEach(function (button) { button.hidden = false; });
  }

  function say(words) {
    var place = document.getElementById("announce");
    if (words && place.textContent !== words) { place.textContent = words; }
  }

  function dress(root) {
    localise(root);
    offerCopies(root);
  }

  document.addEventListener("click", function (event) {
    var button = event.target.closest("[data-copy]");
    if (!button) { return; }
    var text = document.getElementById(button.dataset.copy).textContent;
    navigator.clipboard.writeText(text).then(function () {
      button.classList.add("kt-copied");
      button.title = "Copied";
      say("Copied");
      window.setTimeout(function () { button.classList.remove("kt-copied"); button.title = "Copy"; }, 1500);
    });
  });

  // A second press of a button must not send a form twice.
  document.addEventListener("submit", function (event) {
    if (event.defaultPrevented || event.target.method !== "post") { return; }
    if (event.target.dataset.sent) { event.preventDefault(); return; }
    event.target.dataset.sent = "yes";
  });
  window.addEventListener("pageshow", function () {
    document.querySelectorAll("form[data-sent]").forEach(function (form) { delete form.dataset.sent; });
  });

  function timesIn(form) { return Array.from(form.querySelectorAll("[data-time]")); }

  // Filters that say nothing stay out of the address.
  document.addEventListener("htmx:configRequest", function (event) {
    var parameters = event.detail.parameters;
    Object.keys(parameters).forEach(function (name) { if (parameters[name] === "") { delete parameters[name]; } });
    var own = event.detail.elt.querySelector("[data-own-zone]");
    if (own && !timesIn(own.form).some(function (time) { return time.value; })) { delete parameters.zone; }
  });

  // What was unfolded or scrolled stays so when the page moves.
  var kept = [];
  document.addEventListener("htmx:beforeSwap", function (event) {
    if (event.detail.target.id !== "live") { return; }
    kept = Array.from(document.querySelectorAll("#live details")).map(function (part) { return part.open; });
    kept.reverse();
  });
  document.addEventListener("htmx:afterSwap", function (event) {
    var target = document.getElementById(event.detail.target.id);
    if (!target) { return; }
    if (target.id === "live") {
      // Newer entries come in on top, so the old ones are counted from below.
      var parts = Array.from(target.querySelectorAll("details")).reverse();
      kept.forEach(function (open, index) { if (parts[index]) { parts[index].open = open; } });
      document.title = target.dataset.title;
    }
    dress(target);
    say(target.dataset.announce);
  });

  // A menu closes as people expect: by Escape, and by a click beside it.
  document.addEventListener("click", function (event) {
    document.querySelectorAll("details.kt-me[open]").forEach(function (menu) {
      if (!menu.contains(event.target)) { menu.open = false; }
    });
  });
  document.addEventListener("keydown", function (event) {
    var menu = document.querySelector("details.kt-me[open]");
    if (menu && event.key === "Escape") { menu.open = false; menu.querySelector("summary").focus(); }
  });

  document.addEventListener("htmx:afterRequest", function (event) {
    var lost = document.getElementById("lost");
    // An answer may come when the page is already being left.
    if (lost) { lost.hidden = event.detail.xhr.status > 0 && event.detail.xhr.status < 500; }
    if (event.detail.xhr.status === 401) { window.location.reload(); }
  });

  var zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  document.querySelectorAll("[data-zone]").forEach(function (place) {
    place.textContent = "Times are " + zone;
  });

  // Times are typed in the zone in which they are shown, except where the page says another already.
  document.querySelectorAll("[data-own-zone]").forEach(function (own) {
    if (!timesIn(own.form).some(function (time) { return time.value; })) { own.value = zone; }
    own.form.querySelectorAll("[data-typed-in]").forEach(function (place) {
      place.textContent = own.value || "UTC";
    });
  });

  // The same in UTC is one press away, for whoever has no mouse to hover with; and it stays so.
  function memory(name, value) {
    try {
      if (value !== undefined) { window.localStorage.setItem(name, value); }
      return window.localStorage.getItem(name);
    } catch (refused) { return value || null; }
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
    memory("keyturn-utc", shown ? "yes" : "no");
    showUtc(shown);
  });
  showUtc(memory("keyturn-utc") === "yes");
  dress(document);
})();

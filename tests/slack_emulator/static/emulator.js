// Keeps the page up to date and sends its forms without a reload. Every page works without it.
(() => {
  const body = document.body;
  const base = body.dataset.base;
  let sequence = Number(body.dataset.sequence);
  const sources = new Map();

  // ---- Bringing the page up to date: only what differs from the last page is replaced.

  const remember = (root) => {
    root.querySelectorAll("[data-region]").forEach((part) => sources.set(part.dataset.region, part.innerHTML));
    root.querySelectorAll("[data-keyed] > [id]").forEach((part) => sources.set(part.id, part.outerHTML));
  };

  const nearEnd = (log) => log.scrollHeight - log.scrollTop - log.clientHeight < 80;

  const replaceKeyed = (old, fresh) => {
    const stick = nearEnd(old);
    const kept = new Set();
    let place = old.firstElementChild;
    for (const child of fresh.children) {
      const html = child.outerHTML;
      let mine = document.getElementById(child.id);
      kept.add(child.id);
      if (!mine || sources.get(child.id) !== html) {
        const made = document.importNode(child, true);
        if (mine) {
          const focused = mine.contains(document.activeElement) ? document.activeElement.id : "";
          if (mine === place) place = made;
          mine.replaceWith(made);
          if (focused) document.getElementById(focused)?.focus();
        }
        mine = made;
      }
      if (mine === place) place = place.nextElementSibling;
      else old.insertBefore(mine, place);
    }
    for (const child of [...old.children]) if (!kept.has(child.id)) child.remove();
    if (stick) old.scrollTop = old.scrollHeight;
  };

  const typedValues = (root) => {
    const typed = new Map();
    root.querySelectorAll("input[name], textarea[name], select[name]").forEach((field) => {
      if (field.type === "hidden") return;
      const key = field.name + (field.type === "checkbox" || field.type === "radio" ? "=" + field.value : "");
      typed.set(key, field.type === "checkbox" || field.type === "radio" ? field.checked : field.value);
    });
    return typed;
  };

  const restore = (root, typed) => {
    root.querySelectorAll("input[name], textarea[name], select[name]").forEach((field) => {
      if (field.type === "hidden") return;
      const ticked = field.type === "checkbox" || field.type === "radio";
      const key = field.name + (ticked ? "=" + field.value : "");
      if (!typed.has(key)) return;
      if (ticked) field.checked = typed.get(key);
      else if (field.tagName !== "SELECT" || [...field.options].some((one) => one.value === typed.get(key))) field.value = typed.get(key);
    });
  };

  const replaceRegion = (old, fresh) => {
    const name = old.dataset.region;
    if (sources.get(name) === fresh.innerHTML) return;
    const opened = [...old.querySelectorAll("details")].map((one) => one.open);
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const sameForm = old.querySelector("form")?.id === fresh.querySelector("form")?.id;
    const typed = name === "rail" || !sameForm ? new Map() : typedValues(old);
    const scroll = old.scrollTop;
    old.replaceChildren(...document.importNode(fresh, true).childNodes);
    if (name === "rail") old.querySelectorAll("details").forEach((one, index) => { one.open = opened[index] ?? false; });
    restore(old, typed);
    old.scrollTop = scroll;
    if (focused?.id) document.getElementById(focused.id)?.focus();
    document.dispatchEvent(new CustomEvent("drawn"));
    if (name === "modal") showModal();
  };

  const apply = (html, url) => {
    const page = new DOMParser().parseFromString(html, "text/html");
    if (!page.body.dataset.sequence) return say("The emulator did not answer as expected: reload the page.");
    if (Number(page.body.dataset.sequence) < sequence && url === location.href) return undefined;
    if (url !== location.href || !!page.querySelector(".thread") !== !!document.querySelector(".thread")) {
      location.assign(url);
      return undefined;
    }
    sequence = Number(page.body.dataset.sequence);
    document.title = page.title;
    document.querySelectorAll("[data-region]").forEach((old) => {
      const fresh = page.querySelector(`[data-region="${old.dataset.region}"]`);
      if (fresh) replaceRegion(old, fresh);
    });
    document.querySelectorAll("[data-keyed]").forEach((old) => {
      const fresh = page.querySelector(`[data-keyed="${old.dataset.keyed}"]`);
      if (fresh) replaceKeyed(old, fresh);
    });
    const banner = document.querySelector("[data-empty]");
    if (banner && !page.querySelector("[data-empty]")) banner.remove();
    remember(page);
    return undefined;
  };

  const refresh = async () => {
    try {
      const answer = await fetch(location.href, { headers: { "X-Refresh": "1" } });
      if (answer.ok) apply(await answer.text(), location.href);
    } catch { /* the stream below says when the server is back */ }
  };

  // ---- The stream of changes.

  let due = 0;
  const soon = () => { clearTimeout(due); due = setTimeout(refresh, 40); };
  const follow = () => {
    const stream = new EventSource(`${base}/events?after=${sequence}`);
    stream.onmessage = soon;
    addEventListener("pagehide", () => stream.close(), { once: true });
  };
  addEventListener("pageshow", (event) => { if (event.persisted) { follow(); soon(); } });

  // ---- Forms.

  const toast = document.getElementById("toast");
  let fading = 0;
  const say = (words) => {
    toast.textContent = words;
    toast.hidden = false;
    clearTimeout(fading);
    fading = setTimeout(() => { toast.hidden = true; }, 5000);
  };

  const ask = (from) => new Promise((resolve) => {
    const dialog = document.getElementById("confirm");
    dialog.querySelector("#confirm-title").textContent = from.dataset.confirmTitle;
    dialog.querySelector("#confirm-text").textContent = from.dataset.confirm;
    dialog.querySelector("#confirm-no").textContent = from.dataset.confirmNo;
    const yes = dialog.querySelector("#confirm-yes");
    yes.textContent = from.dataset.confirmYes;
    yes.className = from.dataset.confirmStyle === "danger" ? "button button-solid-danger" : "button button-primary";
    dialog.returnValue = "";
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
    dialog.showModal();
  });

  const send = async (form, entries, busy) => {
    const data = new URLSearchParams(new FormData(form));
    for (const [name, value] of Object.entries(entries)) data.set(name, value);
    busy?.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(form.action, { method: "POST", body: data, headers: { "X-Refresh": "1" } });
      if (!answer.ok) say("The emulator refused that: reload the page and try again.");
      else apply(await answer.text(), answer.url);
      return answer.ok;
    } catch {
      say("The emulator cannot be reached: is the service running?");
      return false;
    } finally {
      busy?.removeAttribute("aria-busy");
    }
  };

  const press = async (form, from, entries) => {
    if (from?.dataset.confirm !== undefined && !(await ask(from))) return;
    await send(form, { ...entries, confirmed: "yes" }, from);
  };

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!(form instanceof HTMLFormElement) || !form.hasAttribute("data-live")) return;
    event.preventDefault();
    const from = event.submitter;
    if (form.dataset.composer) { speak(form); return; }
    press(form, from, from?.name ? { [from.name]: from.value } : {});
    from?.closest("details.overflow")?.removeAttribute("open");
  });

  // The menu of the last message opens below the edge of the list.
  document.addEventListener("toggle", (event) => {
    const opened = event.target;
    if (opened.open && opened.matches?.("details.overflow")) opened.querySelector(".menu")?.scrollIntoView({ block: "nearest" });
  }, true);

  // The app is told of a choice at once, and of a typed line when Enter is pressed in it.
  const tell = (field) => {
    if (field.dataset?.act && field.form) press(field.form, field, { press: field.dataset.act });
  };
  document.addEventListener("change", (event) => { if (event.target.type !== "text") tell(event.target); });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.target.type !== "text" || !event.target.dataset.act) return;
    event.preventDefault();
    tell(event.target);
  });

  document.addEventListener("click", (event) => {
    const linked = event.target.closest?.("[data-press]");
    if (linked?.closest("form")) send(linked.closest("form"), { press: linked.dataset.press, confirmed: "yes" });
  });

  // ---- The composer.

  const past = JSON.parse(sessionStorage.getItem("emulator-past") || "[]");
  let recalled = past.length;

  const speak = async (form) => {
    const box = form.querySelector("textarea");
    const typed = box.value.trim();
    if (!typed) return;
    past.push(typed);
    recalled = past.length;
    sessionStorage.setItem("emulator-past", JSON.stringify(past.slice(-50)));
    const sending = send(form, {}, form.querySelector("button"));
    box.value = "";
    hint(form);
    const log = form.previousElementSibling?.closest(".log") || form.parentElement.querySelector(".log");
    if (log) log.scrollTop = log.scrollHeight;
    if (!(await sending) && !box.value) box.value = typed;
  };

  const hint = (form) => {
    const list = form.querySelector(".hints");
    const typed = form.querySelector("textarea").value;
    let any = false;
    for (const row of list.children) {
      const name = row.dataset.command;
      const fits = typed.startsWith("/") && (name.startsWith(typed) || typed.startsWith(name + " "));
      row.hidden = !fits;
      any ||= fits;
    }
    list.hidden = !any;
  };

  const recall = (box, step) => {
    recalled = Math.min(Math.max(recalled + step, 0), past.length);
    box.value = past[recalled] ?? "";
    box.setSelectionRange(box.value.length, box.value.length);
  };

  document.querySelectorAll("form[data-composer]").forEach((form) => {
    const box = form.querySelector("textarea");
    box.addEventListener("input", () => hint(form));
    box.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); form.requestSubmit(); }
      else if (event.key === "ArrowUp" && !box.value.slice(0, box.selectionStart).includes("\n")) { event.preventDefault(); recall(box, -1); }
      else if (event.key === "ArrowDown" && recalled < past.length) { event.preventDefault(); recall(box, 1); }
      else if (event.key === "Tab" && !event.shiftKey && /^\/\S*$/.test(box.value)) {
        const first = [...form.querySelectorAll(".hints li")].find((row) => !row.hidden);
        if (first) { event.preventDefault(); box.value = first.dataset.command + " "; hint(form); }
      } else if (event.key === "Escape") form.querySelector(".hints").hidden = true;
    });
    form.querySelector(".hints").addEventListener("click", (event) => {
      const row = event.target.closest("li");
      if (row) { box.value = row.dataset.command + " "; box.focus(); hint(form); }
    });
  });

  // ---- Modal, theme, first view.

  const modal = document.getElementById("modal");
  const showModal = () => {
    const wanted = !!modal.querySelector("form");
    if (modal.open) modal.close();
    if (!wanted) return;
    modal.showModal();
    const wrong = modal.querySelector('[aria-invalid="true"]:not(.holder)');
    (wrong ?? modal.querySelector("[autofocus], .body input:not([type=hidden]), .body textarea, .body select:not(.holder)") ?? modal).focus();
  };
  modal.addEventListener("cancel", (event) => {
    event.preventDefault();
    modal.querySelector('footer [value="back"]')?.click();
  });

  const toggle = document.querySelector("[data-theme-toggle]");
  if (toggle) toggle.hidden = false;
  document.addEventListener("click", (event) => {
    if (!event.target.closest?.("[data-theme-toggle]")) return;
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("emulator-theme", root.dataset.theme); } catch { /* it lasts for this page then */ }
  });

  // The toggle is drawn hidden for pages without scripts; regions drawn anew need it shown again.
  document.addEventListener("drawn", () => { const again = document.querySelector("[data-theme-toggle]"); if (again) again.hidden = false; });

  remember(document);
  document.querySelectorAll(".log").forEach((log) => { log.scrollTop = log.scrollHeight; });
  showModal();
  if (!modal.open) document.querySelector(".thread textarea, main textarea")?.focus({ preventScroll: true });
  follow();
})();

// Selects whose options the app suggests: a search box with a list that follows what is typed.
(() => {
  let count = 0;

  const enhance = (combo) => {
    if (combo.dataset.ready) return;
    combo.dataset.ready = "yes";
    const search = combo.querySelector(".combo-search");
    const holder = combo.querySelector("select.holder");
    const ticks = combo.querySelector(".ticks");
    const list = document.createElement("ul");
    list.className = "combo-list";
    list.id = `combo-${++count}`;
    list.setAttribute("role", "listbox");
    list.hidden = true;
    combo.append(list);
    search.setAttribute("role", "combobox");
    search.setAttribute("aria-expanded", "false");
    search.setAttribute("aria-controls", list.id);
    search.setAttribute("aria-autocomplete", "list");
    let asked = 0;
    let timer = 0;
    let at = -1;

    const show = (open) => {
      list.hidden = !open;
      search.setAttribute("aria-expanded", String(open));
      if (!open) { at = -1; search.removeAttribute("aria-activedescendant"); }
    };

    const note = (words) => {
      const row = document.createElement("li");
      row.className = "note";
      row.textContent = words;
      list.replaceChildren(row);
      show(true);
    };

    const choose = (option) => {
      if (ticks) addTick(option);
      else {
        if (![...holder.options].some((one) => one.value === option.value)) holder.add(new Option(option.text, option.value));
        holder.value = option.value;
        search.value = option.text;
        holder.dispatchEvent(new Event("change", { bubbles: true }));
      }
      show(false);
    };

    const addTick = (option) => {
      const name = `v/${combo.dataset.suggest}`;
      const there = [...ticks.querySelectorAll("input")].find((one) => one.value === option.value);
      if (there) there.checked = true;
      else {
        const label = document.createElement("label");
        label.className = "tick";
        const box = Object.assign(document.createElement("input"), { type: "checkbox", name, value: option.value, checked: true });
        const words = document.createElement("span");
        words.textContent = option.text;
        label.append(box, words);
        ticks.append(label);
      }
      search.value = "";
    };

    const draw = (options) => {
      if (!options.length) return note("Nothing found");
      list.replaceChildren(...options.map((option, index) => {
        const row = document.createElement("li");
        row.id = `${list.id}-${index}`;
        row.setAttribute("role", "option");
        row.setAttribute("aria-selected", "false");
        row.textContent = option.text;
        row.addEventListener("mousedown", (event) => { event.preventDefault(); choose(option); });
        row.choose = () => choose(option);
        return row;
      }));
      at = -1;
      show(true);
      return undefined;
    };

    const find = async () => {
      const typed = search.value.trim();
      if (typed.length < Number(combo.dataset.least)) return note(`Type ${combo.dataset.least} letters or more`);
      const mine = ++asked;
      const data = new URLSearchParams(new FormData(search.form));
      data.set("where", combo.dataset.suggest);
      data.set("typed", typed);
      const { base, user } = document.body.dataset;
      try {
        const answer = await fetch(`${base}/as/${user}/suggest`, { method: "POST", body: data });
        const said = await answer.json();
        if (mine === asked && document.activeElement === search) draw(said.options);
      } catch {
        note("The app did not answer");
      }
      return undefined;
    };

    const move = (step) => {
      const rows = [...list.querySelectorAll("[role=option]")];
      if (!rows.length) return;
      rows[at]?.setAttribute("aria-selected", "false");
      at = (at + step + rows.length) % rows.length;
      rows[at].setAttribute("aria-selected", "true");
      rows[at].scrollIntoView({ block: "nearest" });
      search.setAttribute("aria-activedescendant", rows[at].id);
    };

    search.addEventListener("input", () => {
      if (holder) holder.value = "";
      clearTimeout(timer);
      timer = setTimeout(find, 150);
    });
    search.addEventListener("focus", () => { if (Number(combo.dataset.least) === 0) { search.select(); find(); } });
    search.addEventListener("blur", () => show(false));
    search.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        if (list.hidden) find(); else move(event.key === "ArrowDown" ? 1 : -1);
      } else if (event.key === "Enter") {
        event.preventDefault();
        list.querySelectorAll("[role=option]")[Math.max(at, 0)]?.choose();
      } else if (event.key === "Escape" && !list.hidden) {
        event.preventDefault();
        event.stopPropagation();
        show(false);
      }
    });
  };

  const all = () => document.querySelectorAll(".combo").forEach(enhance);
  document.addEventListener("drawn", all);
  all();
})();

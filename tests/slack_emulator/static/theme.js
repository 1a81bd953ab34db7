// Sets what must be there before the first paint: the chosen theme, and that scripts run.
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  try {
    const kept = localStorage.getItem("emulator-theme");
    if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  } catch { /* storage may be forbidden; the system's theme serves then */ }
})();

// A click on a slice shows its frame on every engine; a second click, or Escape, shows all again.
(() => {
  const clear = (chart) => chart.querySelectorAll(".dimmed").forEach((s) => s.classList.remove("dimmed"));
  for (const chart of document.querySelectorAll(".gantt")) {
    let shown = null;
    chart.addEventListener("click", (event) => {
      const slice = event.target.closest(".slice");
      const frame = slice ? slice.dataset.f : null;
      clear(chart);
      shown = frame === shown ? null : frame;
      if (shown !== null)
        for (const other of chart.querySelectorAll(".slice"))
          if (other.dataset.f !== shown) other.classList.add("dimmed");
    });
    chart.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { clear(chart); shown = null; }
    });
  }
})();

"use strict";
(() => {
  const keyOf = (row, column) => row.cells[column].dataset.key ?? row.cells[column].textContent.trim();

  // Numbers as numbers, texts as texts; what could not be had stays at the end either way.
  const compare = (one, other, sign) => {
    if (one === "" || other === "") return (one === "") - (other === "");
    const difference = Number(one) - Number(other);
    return sign * (Number.isNaN(difference) ? one.localeCompare(other, "en", { numeric: true }) : difference);
  };

  const sortable = (table) => {
    const body = table.tBodies[0];
    const recorded = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      head.setAttribute("aria-sort", "none");
      const first = head.dataset.best === "high" ? "descending" : "ascending";
      const second = first === "ascending" ? "descending" : "ascending";
      const next = { none: first, [first]: second, [second]: "none" };
      button.addEventListener("click", () => {
        const order = next[head.getAttribute("aria-sort")];
        heads.forEach((other) => other.setAttribute("aria-sort", other === head ? order : "none"));
        const sign = order === "ascending" ? 1 : -1;
        const rows = [...recorded];
        if (order !== "none") rows.sort((a, b) => compare(keyOf(a, column), keyOf(b, column), sign));
        body.append(...rows);
      });
    });
  };
  document.querySelectorAll("table[data-sortable]").forEach(sortable);
  window.addEventListener("beforeprint", () => document.getElementById("all")?.setAttribute("open", ""));

  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const toggle = document.createElement("button");
  toggle.type = "button";
  const name = () => { toggle.textContent = isDark() ? "Light colours" : "Dark colours"; };
  toggle.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    name();
  });
  system.addEventListener("change", name);
  name();
  document.getElementById("tools").append(toggle);
})();

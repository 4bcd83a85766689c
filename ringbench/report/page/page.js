"use strict";
// Tables: a click on a heading sorts by it, and lists choose rows. All of it also reads without this script.
for (const table of document.querySelectorAll("table.data")) {
  const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  const shown = (row, at) => row.cells[at].textContent;
  const value = (row, at) => row.cells[at].dataset.v ?? shown(row, at);
  const number = (text) => (/^[[+\-]?[\d.]/.test(text) ? parseFloat(text.replace(/^[[+]/, "")) : NaN);
  const absent = (text) => text === "-" || text === "";
  const compare = (one, other) => {
    const [a, b] = [number(one), number(other)];
    if (Number.isNaN(a) || Number.isNaN(b)) return one.localeCompare(other);
    return a - b;
  };
  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sorted = [...rows].sort((one, other) => {
        const [a, b] = [value(one, at), value(other, at)];
        if (absent(a) || absent(b)) return absent(a) - absent(b); // what has no value is last either way
        return down ? compare(b, a) : compare(a, b);
      });
      body.append(...sorted);
      stripe();
    });
  });
  const bar = document.createElement("div"), count = document.createElement("output"), chosen = new Map();
  const stripe = () => {
    let seen = 0;
    for (const row of body.rows) {
      row.hidden = [...chosen].some(([at, wanted]) => wanted !== "" && shown(row, at) !== wanted);
      if (!row.hidden) row.className = seen++ % 2 ? "even" : "odd";
    }
    count.textContent = `${seen} of ${rows.length} rows`;
  };
  bar.className = "filters";
  heads.forEach((head, at) => {
    const values = head.dataset.f ? [...new Set(rows.map((row) => shown(row, at)))] : [];
    if (values.length < 2) return;
    const label = document.createElement("label"), list = document.createElement("select");
    list.append(new Option("all", ""), ...values.sort(compare).map((text) => new Option(text, text)));
    list.name = head.dataset.f;
    list.addEventListener("change", () => { chosen.set(at, list.value); stripe(); });
    label.append(head.dataset.f, list);
    bar.append(label);
  });
  if (bar.childNodes.length) {
    bar.append(count);
    table.parentNode.before(bar);
  }
  stripe();
}
// Figures: what stands at a value, where one points at it or touches it.
const tip = document.createElement("div");
tip.id = "tip";
tip.hidden = true;
document.body.append(tip);
document.addEventListener("pointerover", (event) => {
  const spot = event.target.closest("circle.h");
  tip.hidden = !spot;
  if (!spot) return;
  const title = spot.querySelector("title");
  if (title) { // which the browser would show once more, a second later
    spot.dataset.tip = title.textContent;
    title.remove();
  }
  tip.textContent = spot.dataset.tip;
  const right = window.innerWidth - tip.offsetWidth - 8, low = window.innerHeight - tip.offsetHeight - 8;
  tip.style.left = `${Math.max(0, Math.min(event.clientX + 14, right))}px`;
  tip.style.top = `${Math.max(0, Math.min(event.clientY + 14, low))}px`;
});
// On paper nothing stays folded.
addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
});

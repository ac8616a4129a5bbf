"use strict";
// Filters the rows of variants, and offers what they show as CSV. The tables stand in the page without this.
const form = document.querySelector("form"), rows = [...document.querySelectorAll("#variants tbody tr")];

function fits(row) {
  const { text, model, status } = form.elements, words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
  return (!model.value || row.dataset.model === model.value) && (!status.value || row.dataset.status === status.value)
    && words.every((word) => row.textContent.toLowerCase().includes(word));
}

function filter() {
  for (const row of rows) row.hidden = !fits(row);
  document.getElementById("shown").textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
}

function csv() {
  const quoted = (cell) => `"${cell.textContent.replaceAll('"', '""')}"`;
  const lines = [document.querySelector("#variants thead tr"), ...rows.filter((row) => !row.hidden)];
  const text = lines.map((row) => [...row.cells].map(quoted).join(",")).join("\r\n") + "\r\n";
  const link = Object.assign(document.createElement("a"), { download: "variants.csv", href: URL.createObjectURL(new Blob([text], { type: "text/csv" })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

form.addEventListener("input", filter);
form.addEventListener("submit", (event) => { event.preventDefault(); csv(); });
for (const cell of document.querySelectorAll("td[data-model]")) {
  cell.style.cursor = "pointer";
  cell.addEventListener("click", () => {
    form.elements.model.value = cell.dataset.model;
    form.elements.text.value = cell.dataset.operation || "";
    form.elements.status.value = "";
    filter();
    form.scrollIntoView();
  });
}
filter();

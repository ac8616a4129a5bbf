// On a phone the rows of a table stand below each other: each cell says of which column it is. A picture leads to itself, where it can be enlarged.
addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("table.docutils")) {
    const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.cells].forEach((cell, k) => {
        if (k && heads[k] && heads.length > 2) cell.dataset.column = heads[k];
      });
    }
  }
  for (const image of document.querySelectorAll("article img")) {
    if (image.closest("a")) continue;
    const link = Object.assign(document.createElement("a"), { href: image.src, title: "Enlarge" });
    link.className = "picture";
    image.replaceWith(link);
    link.append(image);
  }
});

// The page: unpacks its data, fills the panes, and keeps them together.

async function unpacked() {
  const bytes = Uint8Array.from(atob(document.getElementById("data").textContent), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
}

const element = (id) => document.getElementById(id);
const words = (head) => ["does", "bound by", "pass", "remark"].includes(head);
const option = (value, text) => Object.assign(document.createElement("option"), { value, textContent: text });

/** A click on the head of a column puts rows into its order, the largest first; the next click the other way round. */
function sortable(table) {
  const [head, ...rows] = table.rows, value = (row, k) => row.cells[k].textContent, number = (text) => parseFloat(text.replace(/,/g, ""));
  [...head.cells].forEach((cell, k) => {
    cell.setAttribute("aria-sort", "none");
    cell.title = "Sort";
    cell.addEventListener("click", () => {
      const numbers = rows.some((row) => !Number.isNaN(number(value(row, k)))), up = cell.getAttribute("aria-sort") === (numbers ? "descending" : "none");
      for (const each of head.cells) each.setAttribute("aria-sort", "none");
      cell.setAttribute("aria-sort", up ? "ascending" : "descending");
      const by = (a, b) => numbers ? (number(value(a, k)) || 0) - (number(value(b, k)) || 0) : value(a, k).localeCompare(value(b, k));
      table.append(...[...rows].sort((a, b) => (up ? by(a, b) : by(b, a))));
    });
  });
}

class Page {
  constructor(data) {
    this.data = data;
    this.choice = new Choice(data.places);
    this.panes = {};
    for (const name of ["source", "graph", "level", "assembly"]) {
      const root = element("pane-" + name), head = document.createElement("div");
      head.className = "head";
      const select = document.createElement("select");
      select.setAttribute("aria-label", name);
      head.append(name, select);
      root.append(head);
      const lines = new Lines(root, this.choice, name);
      this.panes[name] = { select, lines };
      select.addEventListener("change", () => this.fill(name));
    }
    this.widths = new Widths(element("panes"), [...document.querySelectorAll(".pane")]);
    this.program = 0;
    data.runs.forEach((run, k) => element("program").append(option(k, `${k}: ${run.cycles.toLocaleString()} cycles`)));
    element("program").parentElement.hidden = data.runs.length < 2;
    element("program").addEventListener("change", (e) => this.show(+e.target.value));
    element("clear").addEventListener("click", () => this.choice.clear());
    element("search").addEventListener("input", () => this.search());
    element("search").addEventListener("keydown", (e) => { if (e.key === "Enter") this.next(); });
    addEventListener("keydown", (e) => { if (e.key === "Escape") { element("search").value = ""; this.search(); this.choice.clear(); } });
    this.prompt = element("chosen").textContent;
    this.choice.listeners.push(() => { element("chosen").textContent = this.choice.describe() || this.prompt; });
    this.drawers = {};
    document.querySelectorAll("#tabs [role=tab]").forEach((tab) => tab.addEventListener("click", () => this.open(tab.dataset.tab)));
    const cycles = data.runs.reduce((sum, run) => sum + run.cycles, 0);
    const before = data.before ? `; before: ${data.before.runs.reduce((sum, run) => sum + run.cycles, 0).toLocaleString()} cycles` : "";
    element("summary").textContent = `${cycles.toLocaleString()} cycles on ${data.target}${before}`;
    this.show(0);
  }

  views(kind) { return this.data.views.filter((v) => v.program === this.program && v.kind === kind); }

  show(program) {
    this.program = program;
    this.choice.clear();
    const costs = this.run ? new Costs(this.run, this.data.names) : null;
    for (const { lines } of Object.values(this.panes)) lines.costs = costs?.groups.size ? costs : null;
    const of = { source: this.data.sources, graph: this.views("graph"), level: this.views("level"), assembly: this.views("assembly") };
    for (const [name, items] of Object.entries(of)) {
      this.panes[name].items = items;
      this.panes[name].select.replaceChildren(...items.map((item, k) => option(k, name === "source" ? item.name.split("/").slice(-2).join("/") : item.name)));
      this.fill(name);
    }
    this.drawers = {};
    this.open(this.tab || "timeline");
  }

  fill(name) {
    const { select, lines, items } = this.panes[name], item = items[+select.value];
    if (!item) lines.set([{ text: "(nothing here)", places: [] }]);
    else if (name === "source") {
      lines.set(item.lines.map((text, k) => ({ text, places: item.places[k + 1] || [], no: k + 1 })));
      lines.to(Math.min(...Object.keys(item.places)) - 1);
    }
    else {
      const found = item.lines.map((n, k) => ({ text: this.data.lines[n][0], places: this.data.lines[n][1], no: k + 1 }));
      lines.set(found);
      if (name !== "level") lines.to(found.findIndex(({ places }) => places.length));  // arguments come before
    }
    if (this.choice.kept) lines.reveal();
    if (element("search").value) this.search();
  }

  search() {
    const text = element("search").value.toLowerCase();
    const hits = Object.entries(this.panes).map(([name, pane]) => [name, pane.lines.search(text)]);
    element("hits").textContent = text ? hits.map(([name, n]) => `${name} ${n}`).join(", ") : "";
    this.at = 0;
  }

  /** The next hit of every pane. */
  next() {
    this.at++;
    for (const { lines } of Object.values(this.panes)) {
      const hits = [...lines.hits];
      if (hits.length) lines.to(hits[this.at % hits.length]);
    }
  }

  open(tab) {
    this.tab = tab;
    document.querySelectorAll("#tabs [role=tab]").forEach((t) => t.setAttribute("aria-selected", t.dataset.tab === tab));
    if (!this.drawers[tab]) {
      this.drawers[tab] = Object.assign(document.createElement("div"), { className: "drawn", id: "drawer-" + tab });
      this.drawers[tab].style.height = "100%";
    }
    element("drawer").replaceChildren(this.drawers[tab]);
    if (!this.drawers[tab].childElementCount) this["draw_" + tab](this.drawers[tab]);
  }

  get run() { return this.data.runs[this.program]; }

  draw_timeline(root) {
    const { run } = this, names = this.data.names, rows = [...new Set(run.slices.map((s) => s[0]))];
    const order = rows.sort((a, b) => run.rows.indexOf(names[a]) - run.rows.indexOf(names[b]));
    const note = run.left_out ? `${run.left_out.toLocaleString()} slices are left out` : `${run.slices.length.toLocaleString()} slices`;
    new Timeline(root, this.choice, names, element("tip")).set(run.slices, run.cycles, (s) => order.indexOf(s[0]), order.map((r) => names[r]), note);
  }

  draw_lx(root) { new Scratchpad(root, this.choice, this.data.names, element("tip")).set(this.run); }
  draw_roofline(root) { new Roofline(root).set(this.run.kernels); }

  draw_kernels(root) {
    const units = [...new Set(this.run.kernels.flatMap((k) => Object.keys(k.busy)))], was = this.data.before?.runs[this.program];
    const before = new Map((was?.kernels || []).map((k) => [k.name, k.cycles]));
    const head = ["kernel", "does", "cores", "cycles", ...(was ? ["before"] : []), "us", "bytes read", "written", "bound by", "fewer cycles without it", "of its roof", ...units.map((u) => u + " busy")];
    const percent = (x) => (100 * x).toFixed(0) + " %";
    const rows = this.run.kernels.map((k) => [
      k.name, k.does, k.cores, k.cycles.toLocaleString(), ...(was ? [before.has(k.name) ? before.get(k.name).toLocaleString() : "-"] : []), k.us, k.read.toLocaleString(), k.written.toLocaleString(),
      k.bound, percent(k.saves), percent(k.share), ...units.map((u) => (u in k.busy ? percent(k.busy[u]) : "-")),
    ]);
    const table = this.table(head, rows, this.run.kernels.map((k) => k.places));
    sortable(table);
    root.append(table);
  }

  draw_remarks(root) {
    const found = this.data.remarks.filter((r) => r.program === this.program);
    root.append(this.table(["about", "pass", "remark"], found.map((r) => [r.kind, r.pass, r.text]), found.map((r) => r.places)));
  }

  table(head, rows, places) {
    const table = document.createElement("table"), row = (cells, tag) => {
      const made = document.createElement("tr");
      made.append(...cells.map((text, k) => Object.assign(document.createElement(tag), { textContent: text, className: k && words(head[k]) ? "text" : "" })));
      return made;
    };
    table.append(row(head, "th"));
    const made = rows.map((cells) => row(cells, "td"));
    table.append(...made);
    made.forEach((tr, k) => {
      if (!places[k].length) return;
      tr.classList.add("linked");
      tr.addEventListener("mouseover", () => this.choice.show(places[k], false));
      tr.addEventListener("click", () => this.choice.show(places[k], true));
    });
    table.addEventListener("mouseleave", () => this.choice.leave());
    this.choice.listeners.push(() => made.forEach((tr, k) => {
      const look = this.choice.look(places[k]);
      tr.classList.toggle("same", look === "same");
      tr.classList.toggle("near", look === "near");
    }));
    return table;
  }

  draw_compare(root) {
    root.style.display = "flex";
    root.style.flexDirection = "column";
    const views = this.data.views.filter((v) => v.program === this.program && v.kind !== "graph");
    const bar = document.createElement("div"), count = document.createElement("span");
    bar.className = "bar";
    const [from, to] = ["from", "to"].map((name) => {
      const select = document.createElement("select");
      select.setAttribute("aria-label", name);
      select.append(...views.map((v, k) => option(k, v.name)));
      bar.append(name, select);
      return select;
    });
    bar.append(count);
    root.append(bar);
    const lines = new Lines(root, this.choice, "compare");
    const draw = () => {
      // values are numbered anew by each pass: lines that differ by these alone are the same
      const [a, b] = [from, to].map((s) => views[+s.value].lines.map((n) => this.data.lines[n][0].replace(/%[\w#]+/g, "%")));
      const all = difference(a, b), shown = [];
      all.forEach(([mark, , x, y], k) => {
        const close = all.slice(Math.max(0, k - 3), k + 4).some(([m]) => m);
        if (close) {
          const [view, at] = y === null ? [views[+from.value], x] : [views[+to.value], y];
          const [text, places] = this.data.lines[view.lines[at]];
          shown.push({ text: `${mark === "added" ? "+" : mark === "removed" ? "-" : " "} ${text}`, places, no: at + 1, mark });
        } else if (shown.length && shown[shown.length - 1].mark !== "gap") shown.push({ text: "  …", places: [], mark: "gap" });
      });
      const added = all.filter(([m]) => m === "added").length, removed = all.filter(([m]) => m === "removed").length;
      count.textContent = `${added.toLocaleString()} lines are new, ${removed.toLocaleString()} are gone`;
      lines.set(shown.length ? shown : [{ text: "both are equal", places: [] }]);
    };
    from.value = Math.max(0, views.findIndex((v) => v.kind === "before") >= 0 ? views.findIndex((v) => v.kind === "before") : 0);
    to.value = views.findIndex((v) => v.kind === "before") >= 0 ? 0 : Math.min(1, views.length - 1);
    from.addEventListener("change", draw);
    to.addEventListener("change", draw);
    draw();
  }
}

unpacked().then((data) => { window.page = new Page(data); document.body.dataset.ready = "yes"; });

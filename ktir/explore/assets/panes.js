// What is chosen, and lists of lines that draw only what is in sight.

const HEIGHT = 18;

/** Draw again when an element has another size, in a frame of its own. */
function resized(root, draw) { new ResizeObserver(() => requestAnimationFrame(draw)).observe(root); }

/** What lights up: places that are chosen, and the lines of the source that they are on. */
class Choice {
  constructor(places) {
    const lines = new Map();
    this.lineOf = places.map(([file, line, name]) => {
      const key = file + "\n" + (file ? line : name);
      if (!lines.has(key)) lines.set(key, lines.size);
      return lines.get(key);
    });
    this.places = places;
    this.same = new Set();
    this.near = new Set();
    this.kept = null;
    this.listeners = [];
  }

  /** Light up what comes from these places; `keep`: until something else is clicked. */
  show(places, keep, from) {
    if (this.kept && !keep) return;
    if (keep) this.kept = places.length ? places : null;
    this.same = new Set(places);
    this.near = new Set(places.map((p) => this.lineOf[p]));
    for (const listener of this.listeners) listener(keep, from);
  }

  leave() { if (!this.kept) this.show([], false); }
  clear() { this.kept = null; this.show([], true); }

  /** How something that comes from `places` looks: "same", "near" or "". */
  look(places) {
    let near = false;
    for (const p of places) {
      if (this.same.has(p)) return "same";
      near ||= this.near.has(this.lineOf[p]);
    }
    return near ? "near" : "";
  }

  describe() {
    return [...this.same].slice(0, 4).map((p) => {
      const [file, line, name] = this.places[p];
      return file ? `${file.split("/").pop()}:${line}${name ? " " + name : ""}` : name;
    }).join(", ") + (this.same.size > 4 ? ` and ${this.same.size - 4} more` : "");
  }
}

/** For how long units work for what comes from places; a slice of several of them counts once. */
class Costs {
  constructor(run, names) {
    this.cycles = Math.max(run.cycles, 1);
    const groups = new Map();
    this.groups = new Map();
    for (const [row, begin, end, , wait, places] of run.slices) {
      const unit = names[row];
      if (wait || !places.length || !/^[A-Z]+$/.test(unit)) continue;
      const key = places.join();
      if (!groups.has(key)) groups.set(key, { places, units: {} });
      const { units } = groups.get(key);
      units[unit] = (units[unit] || 0) + end - begin;
    }
    for (const group of groups.values()) {
      for (const p of group.places) this.groups.set(p, [...(this.groups.get(p) || []), group]);
    }
    this.known = new Map();
  }

  /** The unit that works longest for them, its cycles, and their share of the program's; null where no unit does. */
  of(places) {
    const key = places.join();
    if (!this.known.has(key)) {
      const sums = {};
      for (const { units } of new Set(places.flatMap((p) => this.groups.get(p) || []))) {
        for (const [unit, n] of Object.entries(units)) sums[unit] = (sums[unit] || 0) + n;
      }
      const [unit, cycles] = Object.entries(sums).reduce((a, b) => (b[1] > a[1] ? b : a), ["", 0]);
      this.known.set(key, cycles ? { unit, cycles, share: cycles / this.cycles } : null);
    }
    return this.known.get(key);
  }
}

/** A list of lines {text, places, no, mark}. */
class Lines {
  constructor(root, choice, name) {
    this.choice = choice;
    this.name = name;
    this.lines = [];
    this.costs = null;
    this.costly = false;
    this.hits = new Set();
    this.scroll = document.createElement("div");
    this.scroll.className = "scroll";
    this.scroll.tabIndex = 0;
    this.space = document.createElement("div");
    this.body = document.createElement("div");
    this.body.className = "lines";
    this.scroll.append(this.space, this.body);
    root.append(this.scroll);
    this.scroll.addEventListener("scroll", () => this.draw());
    resized(this.scroll, () => this.draw());
    this.body.addEventListener("mouseover", (e) => this.point(e, false));
    this.body.addEventListener("click", (e) => this.point(e, true));
    this.scroll.addEventListener("mouseleave", () => choice.leave());
    choice.listeners.push((keep, from) => {
      if (keep && from !== this && choice.same.size) this.reveal();
      this.draw();
    });
  }

  set(lines) {
    this.lines = lines;
    this.space.style.height = lines.length * HEIGHT + "px";
    this.scroll.style.setProperty("--digits", String(Math.max(1, ...[lines.length, lines[lines.length - 1]?.no ?? 0])).length);
    this.costly = this.costs && lines.some(({ places }) => places.length && this.costs.of(places));
    this.scroll.scrollTop = 0;
    this.draw();
  }

  point(event, keep) {
    const row = event.target.closest(".line");
    if (!row || (keep && String(getSelection()))) return;
    const { places } = this.lines[+row.dataset.n];
    if (places.length || keep) this.choice.show(places, keep, this);
  }

  /** Scroll to the first line that is lit, unless one is in sight. */
  reveal() {
    const from = Math.floor(this.scroll.scrollTop / HEIGHT), until = from + this.scroll.clientHeight / HEIGHT - 1;
    let first = -1;
    for (const look of ["same", "near"]) {
      for (let k = 0; k < this.lines.length; k++) {
        if (this.choice.look(this.lines[k].places) !== look) continue;
        if (k >= from && k < until) return;
        if (first < 0) first = k;
      }
      if (first >= 0) break;
    }
    if (first >= 0) this.scroll.scrollTop = Math.max(0, (first - 3) * HEIGHT);
  }

  to(line) { this.scroll.scrollTop = Math.max(0, (line - 5) * HEIGHT); }

  draw() {
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / HEIGHT) - 4);
    const last = Math.min(this.lines.length, first + Math.ceil(this.scroll.clientHeight / HEIGHT) + 8);
    const rows = [];
    for (let k = first; k < last; k++) {
      const { text, places, no, mark } = this.lines[k];
      const row = document.createElement("span");
      row.className = ["line", places.length ? "linked" : "", mark || "", this.hits.has(k) ? "hit" : this.choice.look(places)].join(" ");
      row.dataset.n = k;
      const number = document.createElement("span");
      number.className = "no";
      number.textContent = no ?? "";
      row.append(number, ...this.cost(places), text);
      rows.push(row);
    }
    this.body.style.top = first * HEIGHT + "px";
    this.body.replaceChildren(...rows);
  }

  /** What stands before a line: the unit that works longest for it, and how much of the program's time that is. */
  cost(places) {
    if (!this.costly) return [];
    const made = document.createElement("span"), found = places.length ? this.costs.of(places) : null;
    made.className = "cost";
    if (found) {
      const share = 100 * found.share;
      made.textContent = `${found.unit} ${share < 9.95 ? share.toFixed(1) : share.toFixed(0)}%`;
      made.title = `${found.unit} works ${found.cycles.toLocaleString()} of ${this.costs.cycles.toLocaleString()} cycles for this`;
      made.style.setProperty("--share", `${Math.min(share, 100)}%`);
    }
    return [made];
  }

  search(text) {
    this.hits = new Set();
    if (text) this.lines.forEach((line, k) => { if (line.text.toLowerCase().includes(text)) this.hits.add(k); });
    if (this.hits.size) this.to(Math.min(...this.hits));
    this.draw();
    return this.hits.size;
  }
}

/** Panes side by side: each can be made wider by its button, and the borders between them dragged. */
class Widths {
  constructor(root, panes) {
    this.root = root;
    this.panes = panes;
    this.shares = panes.map(() => 1);
    panes.forEach((pane, k) => {
      const button = Object.assign(document.createElement("button"), { className: "wider", textContent: "\u2194", title: "Wider, and back" });
      button.setAttribute("aria-pressed", "false");
      button.addEventListener("click", () => this.toggle(k));
      pane.querySelector(".head").append(button);
      if (k === panes.length - 1) return;
      const grip = Object.assign(document.createElement("div"), { className: "grip", title: "Drag" });
      grip.addEventListener("pointerdown", (e) => this.drag(e, k));
      pane.append(grip);
    });
    this.lay();
  }

  lay() {
    this.root.style.setProperty("--panes", this.shares.map((share) => `minmax(0, ${share}fr)`).join(" "));
    this.panes.forEach((pane, k) => pane.querySelector(".wider").setAttribute("aria-pressed", String(this.shares[k] > 1.5)));
  }

  /** One pane has half of the width, or all have the same. */
  toggle(which) {
    const wide = this.shares[which] > 1.5;
    this.shares = this.panes.map((_, k) => (!wide && k === which ? this.panes.length - 1 : 1));
    this.lay();
  }

  /** Two neighbours share what they have in another way. */
  drag(e, left) {
    e.preventDefault();
    const widths = this.panes.map((pane) => pane.clientWidth), both = widths[left] + widths[left + 1], least = Math.min(80, both / 2);
    const unit = this.shares.reduce((a, b) => a + b) / widths.reduce((a, b) => a + b);
    const move = (m) => {
      const width = Math.max(least, Math.min(widths[left] + m.clientX - e.clientX, both - least));
      this.shares = widths.map((w, k) => unit * (k === left ? width : k === left + 1 ? both - width : w));
      this.lay();
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", () => removeEventListener("pointermove", move), { once: true });
  }
}

/** The difference of two lists of numbers: [mark, number, index in either] for each line, by the longest common part (Myers). */
function difference(a, b) {
  let start = 0, enda = a.length, endb = b.length;
  while (start < enda && start < endb && a[start] === b[start]) start++;
  while (enda > start && endb > start && a[enda - 1] === b[endb - 1]) { enda--; endb--; }
  const x = a.slice(start, enda), y = b.slice(start, endb), most = Math.min(x.length + y.length, 3000);
  const out = [];
  for (let k = 0; k < start; k++) out.push(["", a[k], k, k]);
  const trace = [];
  let v = new Map([[1, 0]]), found = false;
  for (let d = 0; d <= most && !found; d++) {
    trace.push(new Map(v));
    for (let k = -d; k <= d; k += 2) {
      let i = k === -d || (k !== d && (v.get(k - 1) ?? -1) < (v.get(k + 1) ?? -1)) ? v.get(k + 1) ?? 0 : (v.get(k - 1) ?? 0) + 1;
      let j = i - k;
      while (i < x.length && j < y.length && x[i] === y[j]) { i++; j++; }
      v.set(k, i);
      if (i >= x.length && j >= y.length) { found = true; break; }
    }
  }
  const middle = [];
  if (found) {
    let i = x.length, j = y.length;
    for (let d = trace.length - 1; d >= 0; d--) {
      const past = trace[d], k = i - j;
      const before = k === -d || (k !== d && (past.get(k - 1) ?? -1) < (past.get(k + 1) ?? -1)) ? k + 1 : k - 1;
      const from = past.get(before) ?? 0, at = from - before;
      while (i > from && j > at) { i--; j--; middle.push(["", x[i], start + i, start + j]); }
      if (d > 0) middle.push(i === from ? ["added", y[j - 1], null, start + j - 1] : ["removed", x[i - 1], start + i - 1, null]);
      i = from;
      j = at;
    }
    middle.reverse();
  } else {  // too much differs for lines to be matched
    x.forEach((n, k) => middle.push(["removed", n, start + k, null]));
    y.forEach((n, k) => middle.push(["added", n, null, start + k]));
  }
  out.push(...middle);
  for (let k = 0; k < a.length - enda; k++) out.push(["", a[enda + k], enda + k, endb + k]);
  return out;
}

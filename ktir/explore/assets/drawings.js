// Pictures on a canvas: what units do when, what lies in the scratchpad when, the roofline.

const INK = { work: "#3b7dd8", copy: "#2a9d6f", kernel: "#7a5cc4", wait: "#c9ced6", lx: "#3b7dd8", other: "#8b97a5" };
const shade = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Put a tip beside the pointer. */
function beside(tip, e) {
  tip.style.left = Math.min(e.clientX + 12, innerWidth - 320) + "px";
  tip.style.top = e.clientY + 14 + "px";
}

/** What a colour means. */
function key(text, colour) {
  const made = document.createElement("small"), box = document.createElement("i");
  box.className = "key";
  box.style.background = colour;
  made.append(box, text);
  return made;
}

/** Slices in rows over cycles: drag or wheel to move and zoom. */
class Timeline {
  constructor(root, choice, names, tip) {
    Object.assign(this, { choice, names, tip });
    this.bar = document.createElement("div");
    this.bar.className = "bar";
    this.canvas = document.createElement("canvas");
    root.append(this.bar, this.canvas);
    const all = document.createElement("button");
    all.textContent = "whole run";
    all.addEventListener("click", () => this.zoom(0, this.end));
    this.told = document.createElement("span");
    this.bar.append(all, ...[["works", INK.work], ["copies", INK.copy], ["waits", INK.wait]].map(([text, colour]) => key(text, colour)), this.told);
    this.canvas.tabIndex = 0;
    this.canvas.addEventListener("wheel", (e) => this.wheel(e), { passive: false });
    this.canvas.addEventListener("pointerdown", (e) => this.drag(e));
    this.canvas.addEventListener("pointermove", (e) => this.point(e, false));
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; choice.leave(); });
    this.canvas.addEventListener("click", (e) => { if (!this.moved) this.point(e, true); });
    choice.listeners.push(() => this.draw());
    resized(root, () => this.draw());
    this.root = root;
    this.left = 110;
  }

  /** slices: [row, begin, end, name, wait, places]; heights: of each row in units, or null where all are alike. */
  set(slices, end, rowOf, rows, note) {
    Object.assign(this, { slices, end: Math.max(end, 1), rowOf, rows });
    this.sorted = rows.map((_, r) => slices.filter((s) => rowOf(s) === r).sort((a, b) => a[1] - b[1]));
    this.note = note;
    this.zoom(0, this.end);
  }

  zoom(from, until) {
    const least = Math.min(20, this.end);
    this.from = Math.max(0, Math.min(from, this.end - least));
    this.until = Math.min(this.end, Math.max(until, this.from + least));
    this.draw();
  }

  x(cycle) { return this.left + ((cycle - this.from) / (this.until - this.from)) * (this.width - this.left - 8); }
  cycle(x) { return this.from + ((x - this.left) / (this.width - this.left - 8)) * (this.until - this.from); }

  wheel(e) {
    e.preventDefault();
    const span = this.until - this.from;
    if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
      const by = ((e.deltaX || e.deltaY) / this.width) * span;
      if (this.from + by >= 0 && this.until + by <= this.end) this.zoom(this.from + by, this.until + by);
      return;
    }
    const at = this.cycle(e.offsetX), factor = e.deltaY > 0 ? 1.25 : 0.8;
    this.zoom(at - (at - this.from) * factor, at + (this.until - at) * factor);
  }

  drag(e) {
    const { from, until } = this, begin = e.offsetX;
    this.moved = false;
    const move = (m) => {
      if (Math.abs(m.offsetX - begin) > 3) this.moved = true;
      const by = ((begin - m.offsetX) / (this.width - this.left)) * (until - from), kept = Math.max(-from, Math.min(by, this.end - until));
      if (this.moved) this.zoom(from + kept, until + kept);
    };
    this.canvas.addEventListener("pointermove", move);
    addEventListener("pointerup", () => this.canvas.removeEventListener("pointermove", move), { once: true });
  }

  at(e) {
    const row = Math.floor((e.offsetY - 4) / this.height), cycle = this.cycle(e.offsetX);
    if (row < 0 || row >= this.rows.length || e.offsetX < this.left) return null;
    const slack = (this.until - this.from) / this.width;
    return this.sorted[row].findLast((s) => s[1] <= cycle + slack && s[2] >= cycle - slack) || null;
  }

  point(e, keep) {
    const slice = this.at(e);
    this.tip.hidden = !slice;
    if (!slice) { if (keep) this.choice.clear(); return; }
    const [, begin, end, name, , places] = slice;
    const from = places.map((p) => this.choice.places[p]).map(([f, l]) => `${f.split("/").pop()}:${l}`);
    this.tip.textContent = `${this.names[name]}\n${(end - begin).toLocaleString()} cycles, ${begin.toLocaleString()} to ${end.toLocaleString()}` + (from.length ? `\n${from.join(", ")}` : "");
    beside(this.tip, e);
    if (places.length) this.choice.show(places, keep, this);
  }

  draw() {
    if (!this.rows || !this.root.clientWidth || this.root.hidden) return;
    this.width = this.root.clientWidth;
    this.height = Math.max(14, Math.min(26, (this.root.clientHeight - 66) / this.rows.length));
    const c = sized(this.canvas, this.width, this.rows.length * this.height + 26);
    c.textBaseline = "middle";
    const text = shade("--text"), faint = shade("--faint"), lit = this.choice.same.size > 0;
    this.sorted.forEach((slices, r) => {
      const y = 4 + r * this.height;
      c.fillStyle = text;
      c.fillText(this.rows[r], 6, y + this.height / 2, this.left - 12);
      let drawn = -1;
      for (const s of slices) {
        if (s[2] < this.from || s[1] > this.until) continue;
        const x = Math.max(this.left, this.x(s[1])), end = Math.min(this.width - 8, this.x(s[2]));
        const look = lit ? this.choice.look(s[5]) : "";
        if (end - x < 0.4 && Math.floor(end) === drawn && !look) continue;  // nothing more of it would be seen
        drawn = Math.floor(end);
        const name = this.names[s[3]];
        c.globalAlpha = lit && look !== "same" ? (look ? 0.6 : 0.25) : s[4] ? 0.6 : 1;
        c.fillStyle = s[4] ? INK.wait : this.rows[r].includes("kernel") ? INK.kernel : name.startsWith("Memcpy") ? INK.copy : INK.work;
        c.fillRect(x, y + 1, Math.max(end - x - 0.3, 0.6), this.height - 3);
        if (end - x > 44) {
          c.globalAlpha = 1;
          c.fillStyle = s[4] ? "#39424e" : "#ffffff";
          c.save();
          c.beginPath();
          c.rect(x, y, end - x - 3, this.height);
          c.clip();
          c.fillText(name, x + 4, y + this.height / 2);
          c.restore();
        }
      }
      c.globalAlpha = 1;
    });
    const y = 4 + this.rows.length * this.height;
    c.fillStyle = faint;
    for (let k = 0; k <= 4; k++) {
      const cycle = this.from + (k / 4) * (this.until - this.from);
      c.textAlign = k === 0 ? "left" : k === 4 ? "right" : "center";
      c.fillText(Math.round(cycle).toLocaleString(), this.x(cycle), y + 10);
      c.textAlign = "left";
    }
    this.told.textContent = `${this.note}; cycles ${Math.round(this.from).toLocaleString()} to ${Math.round(this.until).toLocaleString()} of ${this.end.toLocaleString()}. Wheel: zoom, drag: move.`;
  }
}

/** What lies in LX of core 0: addresses upwards, cycles to the right, so that each life is a box. */
class Scratchpad {
  constructor(root, choice, names, tip) {
    Object.assign(this, { root, choice, names, tip });
    this.bar = document.createElement("div");
    this.bar.className = "bar";
    this.canvas = document.createElement("canvas");
    root.append(this.bar, this.canvas);
    this.canvas.addEventListener("pointermove", (e) => this.point(e, false));
    this.canvas.addEventListener("click", (e) => this.point(e, true));
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; choice.leave(); });
    choice.listeners.push(() => this.draw());
    resized(root, () => this.draw());
  }

  set(run) {
    this.cycles = Math.max(run.cycles, 1);
    this.lives = run.lives.map((s) => [...this.names[s[0]].split(",").map(Number), ...s.slice(1)]);
    this.kernels = run.kernels.map(((at) => (k) => (at += k.cycles))(0));
    this.parts = this.used();
    const most = Math.max(1, ...this.lives.map((s) => s[1] + 1));
    this.bar.textContent = `core 0: ${this.lives.length.toLocaleString()} values in ${(most * 128).toLocaleString()} bytes; from the cycle in which each is written to its last read. Addresses that nobody uses are left out; lines are ends of kernels`;
    this.draw();
  }

  /** Ranges of sticks that are used, and where each is drawn: [first, last, from, until], of all together 1. */
  used() {
    const parts = [];
    for (const [first, last] of [...this.lives].sort((a, b) => a[0] - b[0])) {
      const before = parts[parts.length - 1];
      if (before && first <= before[1] + 1 + (before[1] - parts[0][0]) / 50) before[1] = Math.max(before[1], last);
      else parts.push([first, last]);
    }
    const gap = parts.length > 1 ? Math.min(0.03, 0.3 / (parts.length - 1)) : 0, sticks = parts.reduce((sum, [first, last]) => sum + last + 1 - first, 0);
    let at = 0;
    return parts.map(([first, last]) => {
      const until = at + ((last + 1 - first) / sticks) * (1 - gap * (parts.length - 1)), part = [first, last, at, until];
      at = until + gap;
      return part;
    });
  }

  y(stick) {
    const [first, last, from, until] = this.parts.findLast(([first]) => first <= stick) || this.parts[0];
    return 6 + (this.high - 30) * (1 - (from + ((stick - first) / (last + 1 - first)) * (until - from)));
  }

  box([first, last, begin, end]) {
    const w = this.width - 80, low = this.y(first), each = low - this.y(first + 0.5);
    const top = this.y(last + 0.5) - each;
    return [70 + (begin / this.cycles) * w, top, Math.max(((end - begin) / this.cycles) * w, 1), Math.max(low - top, 1)];
  }

  point(e, keep) {
    const found = this.lives.findLast((life) => {
      const [x, y, w, h] = this.box(life);
      return e.offsetX >= x && e.offsetX <= x + w && e.offsetY >= y && e.offsetY <= y + h;
    });
    this.tip.hidden = !found;
    if (!found) { if (keep) this.choice.clear(); return; }
    const [first, last, begin, end, name, , places] = found;
    this.tip.textContent = `${this.names[name]}\nbytes ${(first * 128).toLocaleString()} to ${((last + 1) * 128).toLocaleString()}, cycles ${begin.toLocaleString()} to ${end.toLocaleString()}`;
    beside(this.tip, e);
    if (places.length) this.choice.show(places, keep, this);
  }

  draw() {
    if (!this.lives || !this.root.clientWidth || this.root.hidden) return;
    this.width = this.root.clientWidth;
    this.high = Math.max(150, this.root.clientHeight - 40);
    const c = sized(this.canvas, this.width, this.high);
    const lit = this.choice.same.size > 0;
    for (const life of this.lives) {
      const look = lit ? this.choice.look(life[6]) : "";
      c.globalAlpha = lit ? (look === "same" ? 1 : look ? 0.6 : 0.2) : 0.75;
      c.fillStyle = this.names[life[4]].includes("load") ? INK.copy : INK.work;
      const [x, y, w, h] = this.box(life);
      c.fillRect(x, y, w, h);
      c.strokeStyle = shade("--ground");
      if (h > 3 && w > 3) c.strokeRect(x, y, w, h);
    }
    c.globalAlpha = 1;
    c.fillStyle = c.strokeStyle = shade("--faint");
    c.globalAlpha = 0.4;
    for (const end of this.kernels) c.fillRect(70 + (end / this.cycles) * (this.width - 80), 6, 0.5, this.high - 30);
    c.globalAlpha = 1;
    let free = Infinity;
    const mark = (stick, y) => {
      if (free - y < 12) return;
      free = y;
      c.textAlign = "right";
      c.fillText((stick * 128).toLocaleString(), 64, y + (y > this.high - 36 ? -2 : 4));
    };
    for (const [first, last] of this.parts) {
      mark(first, this.y(first));
      mark(last + 1, this.y(last + 0.5) - (this.y(first) - this.y(first + 0.5)));
    }
    for (let k = 0; k <= 4; k++) {
      c.textAlign = k === 4 ? "right" : "left";
      c.fillText(Math.round((k / 4) * this.cycles).toLocaleString(), 70 + (k / 4) * (this.width - 80), this.high - 10);
    }
  }
}

/** Kernels under the roof of the machine, both axes by powers of ten. */
class Roofline {
  constructor(root) {
    this.root = root;
    this.canvas = document.createElement("canvas");
    root.append(this.canvas);
    resized(root, () => this.draw());
  }

  set(kernels) { this.kernels = kernels.filter((k) => k.intensity > 0 && k.attained > 0); this.draw(); }

  draw() {
    if (!this.kernels || !this.root.clientWidth || this.root.hidden) return;
    const width = this.root.clientWidth, high = Math.max(180, this.root.clientHeight - 12);
    const c = sized(this.canvas, width, high), text = shade("--text"), faint = shade("--faint");
    if (!this.kernels.length) { c.fillStyle = faint; c.fillText("no kernel computes", 20, 30); return; }
    const xs = this.kernels.map((k) => Math.log10(k.intensity)), peak = Math.max(...this.kernels.map((k) => k.peak));
    const knee = Math.log10(peak / this.kernels[0].bandwidth);
    const low = Math.floor(Math.min(...xs, knee - 1)), top = Math.ceil(Math.max(...xs, knee + 1));
    const bottom = Math.floor(Math.min(...this.kernels.map((k) => Math.log10(k.attained)), Math.log10(peak) - 3)), roof = Math.log10(peak) + 0.3;
    const x = (v) => 70 + ((v - low) / (top - low)) * (width - 100), y = (v) => 10 + ((roof - v) / (roof - bottom)) * (high - 50);
    c.strokeStyle = text;
    for (const p of new Set(this.kernels.map((k) => k.peak))) {
      const at = Math.log10(p / this.kernels[0].bandwidth);
      c.beginPath();
      c.moveTo(x(low), y(low + Math.log10(this.kernels[0].bandwidth)));
      c.lineTo(x(at), y(Math.log10(p)));
      c.lineTo(x(top), y(Math.log10(p)));
      c.stroke();
      c.fillStyle = faint;
      c.textAlign = "right";
      c.fillText(`${Math.round(p).toLocaleString()} GFLOP/s`, x(top), y(Math.log10(p)) - 5);
    }
    c.textAlign = "center";
    for (let v = low; v <= top; v++) c.fillText(`${10 ** v}`, x(v), high - 24);
    c.fillText("operations per byte of memory", (70 + width) / 2, high - 8);
    c.textAlign = "right";
    for (let v = bottom; v <= Math.floor(roof); v++) c.fillText(`${10 ** v}`, 62, y(v) + 4);
    const dots = this.kernels.map((k, n) => ({ x: x(xs[n]), y: y(Math.log10(k.attained)) })), taken = dots.map((d) => ({ x: d.x - 5, y: d.y - 5, w: 10, h: 10 }));
    const apart = (a, b) => a.x + a.w <= b.x || b.x + b.w <= a.x || a.y + a.h <= b.y || b.y + b.h <= a.y;
    this.kernels.forEach((k, n) => {
      const { x: px, y: py } = dots[n], w = c.measureText(k.name).width, h = 13;
      c.fillStyle = k.bound.startsWith("memory") ? INK.copy : INK.work;
      c.beginPath();
      c.arc(px, py, 4, 0, 7);
      c.fill();
      const places = [[px + 7, py - h / 2], [px - 7 - w, py - h / 2], [px - w / 2, py - 7 - h], [px - w / 2, py + 7]].map(([x, y]) => ({ x, y, w, h }));
      const free = places.find((l) => l.x > 70 && l.x + w < width && l.y > 0 && l.y + h < high - 34 && taken.every((t) => apart(l, t)));
      if (!free) return;  // its row in the table of kernels has the same figures
      taken.push(free);
      c.textAlign = "left";
      c.strokeStyle = shade("--ground");  // where a label lies over the roof
      c.lineWidth = 3;
      c.strokeText(k.name, free.x, free.y + 10);
      c.fillStyle = text;
      c.fillText(k.name, free.x, free.y + 10);
    });
  }
}

function sized(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.width = width + "px";
  canvas.style.height = height + "px";
  const c = canvas.getContext("2d");
  c.scale(ratio, ratio);
  c.font = "11px system-ui, sans-serif";
  return c;
}

// What a person does on a page, by events; what is there then is written into the document.

const seen = {}, errors = [];
addEventListener("error", (e) => errors.push(e.message));
addEventListener("unhandledrejection", (e) => errors.push(String(e.reason)));
console.error = (...all) => errors.push(all.join(" "));
const later = () => new Promise((done) => setTimeout(done, 60));
const rows = (pane, look) => [...document.querySelectorAll(`#pane-${pane} .line.${look}`)].map((r) => r.lastChild.textContent);
const press = (what, type = "click") => what.dispatchEvent(new MouseEvent(type, { bubbles: true }));
const find = (pane, text) => [...document.querySelectorAll(`#pane-${pane} .line`)].find((r) => r.textContent.includes(text));
const tab = (name) => press(document.querySelector(`[data-tab=${name}]`));
async function all() {
  while (!document.body.dataset.ready) await later();
  await later();
  seen.summary = document.getElementById("summary").textContent;
  press(find("source", "torch.softmax"), "mouseover"); await later();
  seen.pointed = [rows("source", "same"), rows("graph", "same").length];
  seen.cost = find("source", "torch.softmax").querySelector(".cost").title;
  press(find("source", "self.b(h)")); await later();
  seen.clicked = [rows("source", "same"), rows("graph", "same"), rows("level", "same").length, document.getElementById("chosen").textContent];
  seen.costs = ["source", "graph", "level", "assembly"].map((pane) => [...document.querySelectorAll(`#pane-${pane} .line .cost`)].map((c) => c.textContent));
  seen.assembly = rows("assembly", "same").concat(rows("assembly", "near")).length;
  press(find("source", "torch.relu"), "mouseover"); await later();
  seen.kept = rows("source", "same");
  press(document.getElementById("clear")); await later();
  seen.cleared = document.querySelectorAll(".line.same").length;
  const level = document.querySelector("#pane-level select");
  level.value = [...level.options].findIndex((o) => o.textContent === "ktir-tile");
  level.dispatchEvent(new Event("change")); await later();
  seen.level = document.querySelector("#pane-level .line").textContent;
  const search = document.getElementById("search");
  search.value = "softmax"; search.dispatchEvent(new Event("input")); await later();
  seen.searched = [document.getElementById("hits").textContent, rows("source", "hit")];
  document.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true })); await later();
  seen.escaped = [search.value, document.querySelectorAll(".line.hit").length];
  const canvas = document.querySelector("#drawer-timeline canvas"), box = canvas.getBoundingClientRect();
  canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -1, clientX: box.left + 400, clientY: box.top + 40, bubbles: true, cancelable: true })); await later();
  seen.zoomed = document.querySelector("#drawer-timeline .bar span").textContent;
  press(document.querySelector("#drawer-timeline .bar button")); await later();
  seen.whole = document.querySelector("#drawer-timeline .bar span").textContent;
  const row = page.data.runs[0].slices.findIndex((s) => s[5].length);
  const at = (x) => new PointerEvent("click", { clientX: box.left + x, clientY: box.top + 4 + 1.5 * ((box.height - 26) / 7), bubbles: true });
  for (let x = 115; x < box.width && !page.choice.kept; x += 4) canvas.dispatchEvent(at(x));
  await later();
  seen.slice = [document.getElementById("tip").textContent, document.querySelectorAll("#pane-level .line.near, #pane-level .line.same").length];
  press(document.getElementById("clear"));
  for (const name of ["lx", "roofline", "kernels", "remarks", "compare"]) {
    tab(name); await later();
    const drawer = document.getElementById("drawer-" + name), c = drawer.querySelector("canvas");
    const ink = c ? new Set(c.getContext("2d").getImageData(0, 0, c.width, c.height).data).size : 0;
    seen[name] = [drawer.querySelector(".bar span")?.textContent ?? drawer.textContent.slice(0, 200), drawer.querySelectorAll("tr").length, ink];
  }
  const [from, to] = document.querySelectorAll("#drawer-compare select");
  to.value = from.value; to.dispatchEvent(new Event("change")); await later();
  seen.equal = document.querySelector("#drawer-compare .line").textContent;
  tab("kernels"); await later();
  press(document.querySelector("#drawer-kernels tr.linked")); await later();
  seen.kernel = rows("source", "near").concat(rows("source", "same"));
  const order = () => [...document.querySelectorAll("#drawer-kernels tr")].slice(1).map((r) => r.cells[0].textContent);
  const head = [...document.querySelectorAll("#drawer-kernels th")].find((h) => h.textContent === "cycles");
  press(head); await later();
  seen.longest = order();
  press(head); await later();
  seen.shortest = order();
  const widths = () => [...document.querySelectorAll(".pane")].map((p) => p.getBoundingClientRect().width);
  const wider = document.querySelector("#pane-level .wider"), grip = document.querySelector("#pane-source .grip");
  seen.widths = [widths()];
  press(wider); await later();
  seen.widths.push(widths());
  press(wider); await later();
  seen.widths.push(widths());
  const pull = (what, type, x) => what.dispatchEvent(new PointerEvent(type, { clientX: x, bubbles: true, cancelable: true }));
  pull(grip, "pointerdown", 100); pull(window, "pointermove", 150); pull(window, "pointerup", 150); pull(window, "pointermove", 300); await later();
  seen.widths.push(widths());
  seen.gutters = [...document.querySelectorAll(".pane")].map((pane) => {
    const text = document.createRange();
    text.selectNodeContents(pane.querySelector(".line").lastChild);
    return text.getBoundingClientRect().left - pane.getBoundingClientRect().left + pane.querySelector(".scroll").scrollLeft;
  });
}
all().catch((e) => errors.push(String(e))).then(() => {
  const out = document.createElement("pre");
  out.id = "seen";
  out.textContent = JSON.stringify({ seen, errors });
  document.body.append(out);
});

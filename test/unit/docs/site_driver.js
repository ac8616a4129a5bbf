// Loads the pages of the site one after the other, as wide as each of `widths`, and reports what sticks out; then searches, and looks at both themes.
const {pages, widths, words} = JOB;
const seen = {wide: [], cut: [], broken: [], errors: [], searched: {}, themes: {}, looked: 0};
const frame = document.createElement("iframe");
document.body.append(frame);
const wait = ms => new Promise(done => setTimeout(done, ms));

async function open(page, width) {
  frame.style.width = width + "px";
  frame.style.height = "900px";
  await new Promise(done => { frame.onload = done; frame.src = page; });
  frame.contentWindow.onerror = message => { seen.errors.push(`${page}: ${message}`); };
  return frame.contentDocument;
}

function named(element) {
  return `${element.tagName.toLowerCase()} '${(element.textContent || element.src || "").trim().slice(0, 40)}'`;
}

// Short words of tables that go on in the next line: numbers and names in columns that are too narrow.
function cut(page, width, doc) {
  const text = doc.createRange(), walker = doc.createTreeWalker(doc.querySelector("article"), NodeFilter.SHOW_TEXT);
  let words = 0;
  for (let node = walker.nextNode(); node && words < 1500; node = walker.nextNode()) {
    if (!node.parentElement.closest("td, th")) continue;
    for (const word of node.data.matchAll(/[\w.,]+/g)) {
      if (word[0].length > 14 || /[^\s\w.,]/.test(node.data[word.index - 1] ?? " ") || /[^\s\w.,]/.test(node.data[word.index + word[0].length] ?? " ")) continue;
      text.setStart(node, word.index);
      text.setEnd(node, word.index + word[0].length);
      words++;
      const tops = new Set([...text.getClientRects()].map(box => Math.round(box.top)));
      if (tops.size > 1) seen.cut.push(`${page} at ${width}: '${word[0]}'`);
    }
  }
}

function look(page, width) {
  const doc = frame.contentDocument, top = doc.scrollingElement;
  if (top.scrollWidth > width) seen.wide.push(`${page} at ${width}: the page is ${top.scrollWidth} wide`);
  for (const element of doc.querySelectorAll("article *")) {
    const right = element.getBoundingClientRect().right, block = element.matches("pre, .table-wrapper");
    const inside = block ? element.scrollWidth - element.clientWidth : 0;
    if (right > width + 1 || inside > 1) seen.wide.push(`${page} at ${width}: ${named(element)} sticks out by ${Math.max(right - width, inside)}`);
    seen.looked += element.matches("pre, table, img");
  }
  cut(page, width, doc);
  for (const image of doc.images) if (image.complete && !image.naturalWidth) seen.broken.push(`${page}: ${image.src}`);
}

function channels(colour) { return colour.match(/[\d.]+/g).slice(0, 3).map(Number); }
function luminance(colour) {
  const linear = channels(colour).map(c => c / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}
function contrast(a, b) {
  const [dark, light] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (light + 0.05) / (dark + 0.05);
}

async function themes(page) {
  const doc = await open(page, 1280), style = element => frame.contentWindow.getComputedStyle(element);
  for (const theme of ["light", "dark"]) {
    doc.body.dataset.theme = theme;
    await wait(300);
    const ground = style(doc.body).backgroundColor, code = doc.querySelector("article .highlight");
    const worst = Math.min(...[...code.querySelectorAll("pre, pre span")].map(e => contrast(style(e).color, style(code).backgroundColor)));
    seen.themes[theme] = {ground, text: contrast(style(doc.querySelector("article p")).color, ground), code: worst};
  }
}

async function search(word) {
  const doc = await open(`search.html?q=${word}`, 1280);
  for (let tries = 0; tries < 100 && !doc.querySelector(".search-summary")?.textContent.includes("finished"); tries++) await wait(50);
  seen.searched[word] = [...doc.querySelectorAll("#search-results li a")].map(a => a.textContent);
}

(async () => {
  try {
    for (const width of widths) for (const page of pages) { await open(page, width); look(page, width); }
    for (const word of words) await search(word);
    await themes("tutorials/first-model.html");
  } catch (error) { seen.errors.push(String(error.stack)); }
  await fetch("/seen", {method: "POST", body: JSON.stringify(seen)});
})();

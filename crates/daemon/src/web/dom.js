// Elements, and numbers as people read them.

/** An element with attributes and children. Text is text: nothing from outside becomes markup. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

/** The same for an element of SVG. */
export function svg(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Sets the text of an element if it differs, so that a screen reader is not told the same again. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Makes the children of `parent` those of `items`: an element is made once for each key, and then updated, so that focus
 * and selection stay.
 */
export function keyed(parent, items, keyOf, make, update) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const counts = new Map();
  items.forEach((item, place) => {
    const name = String(keyOf(item));
    const before = counts.get(name) ?? 0;
    counts.set(name, before + 1);
    // Items can be alike, such as a warning that is given twice.
    const key = before ? `${name}/${before}` : name;
    let child = old.get(key);
    if (!child) {
      child = make(item);
      child.dataset.key = key;
    }
    old.delete(key);
    if (parent.children[place] !== child) parent.insertBefore(child, parent.children[place] ?? null);
    update(child, item);
  });
  for (const child of old.values()) child.remove();
}

export function bytes(number) {
  if (number === null || number === undefined) return "–";
  for (const [unit, size] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (number >= size) return `${(number / size).toPrecision(3)} ${unit}`;
  }
  return `${number} B`;
}

export const rate = (number) => `${bytes(number)}/s`;

export const count = (number) => number.toLocaleString("en").replaceAll(",", " ");

export function time(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const whole = Math.floor(seconds);
  const two = (number) => String(number).padStart(2, "0");
  const [days, hours] = [Math.floor(whole / 86400), Math.floor((whole % 86400) / 3600)];
  const clock = `${two(hours)}:${two(Math.floor((whole % 3600) / 60))}:${two(whole % 60)}`;
  return days ? `${days} d ${clock}` : clock;
}

/** A time of a document, to the second. */
export const when = (text) => text.slice(0, 19).replace("T", " ");

export const nameOf = (scan) => (scan ? `${scan.session}_${scan.scan}` : "");

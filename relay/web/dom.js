// The only way this page makes elements. Texts become text nodes, never markup: there is
// no innerHTML anywhere, and the page's policy (trusted types) would refuse it.

const SVG = "http://www.w3.org/2000/svg";

// el("div.card", {title: "x", onclick: f}, "text", child, …)
export function el(spec, props, ...children) {
  const [tag, ...classes] = spec.split(".");
  return fill(document.createElement(tag), classes, props, children);
}

// svg is el for the elements of a picture.
export function svg(spec, props, ...children) {
  const [tag, ...classes] = spec.split(".");
  return fill(document.createElementNS(SVG, tag), classes, props, children);
}

function fill(node, classes, props, children) {
  if (classes.length) node.setAttribute("class", classes.join(" "));
  for (const [name, value] of Object.entries(props ?? {})) set(node, name, value);
  node.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

// set takes handlers as functions, booleans as present or absent, everything else as text.
export function set(node, name, value) {
  if (typeof value === "function") node.addEventListener(name.replace(/^on/, ""), value);
  else if (name.startsWith("on")) throw new Error("a handler is a function: " + name);
  else if (value === false || value === null || value === undefined) node.removeAttribute(name);
  else {
    const text = value === true ? "" : String(value);
    if (node.getAttribute(name) !== text) node.setAttribute(name, text);
  }
  return node;
}

// text sets a node's text where it differs: nothing is painted again for nothing.
export function text(node, value) {
  if (node.textContent !== value) node.textContent = value;
  return node;
}

// sync makes parent's children be those of list, in order, and moves as little as it can, so
// that what has the focus or is being filled in stays.
export function sync(parent, list) {
  const want = list.filter(Boolean);
  const keep = new Set(want);
  for (const c of [...parent.childNodes]) if (!keep.has(c)) c.remove();
  let at = parent.firstChild;
  for (const c of want) {
    if (c === at) at = at.nextSibling;
    else parent.insertBefore(c, at);
  }
}

// Keyed keeps one view for each key of a list: make builds it, update brings it up to date.
export class Keyed {
  constructor(parent, key, make) {
    Object.assign(this, { parent, key, make, views: new Map() });
  }

  show(list) {
    const views = new Map();
    for (const item of list) {
      const key = this.key(item);
      if (views.has(key)) continue;
      const view = this.views.get(key) ?? this.make(item);
      view.update(item);
      views.set(key, view);
    }
    this.views = views;
    sync(this.parent, [...views.values()].map((v) => v.node));
  }
}

// Changes of files, as lines with + and −.

import { el } from "./dom.js";
import { line, visible } from "./format.js";

const most = 400; // lines

// diffOf shows what a tool would change, where its input has a form that is known; else null.
export function diffOf(input) {
  if (!input || typeof input !== "object") return null;
  if (typeof input.old_string === "string" && typeof input.new_string === "string") {
    return block(input.file_path, [...marked("-", input.old_string), ...marked("+", input.new_string)]);
  }
  if (Array.isArray(input.edits) && input.edits.every((e) => typeof e?.old_string === "string")) {
    return block(input.file_path, input.edits.flatMap((e) => [...marked("-", e.old_string), ...marked("+", String(e.new_string ?? ""))]));
  }
  if (typeof input.content === "string" && typeof input.file_path === "string") return block(input.file_path, marked("+", input.content));
  const changes = Array.isArray(input) ? input : input.changes;
  if (Array.isArray(changes) && changes.length > 0 && changes.every((c) => typeof c?.path === "string" && typeof c?.diff === "string")) {
    return el("div", {}, changes.slice(0, 50).map((c) => block(c.path, c.kind?.type === "add" && !c.diff.startsWith("@@") ? marked("+", c.diff) : c.diff.split("\n"))));
  }
  return null;
}

const marked = (sign, s) => s.split("\n").map((l) => sign + " " + l);

function block(path, lines) {
  const left = lines.length - most;
  return el("figure.diff", {},
    path ? el("figcaption", {}, line(path, 300)) : "",
    el("pre.code", {}, lines.slice(0, most).map((l) => el(l.startsWith("+") ? "span.add" : l.startsWith("-") ? "span.del" : "span", {}, visible(l) + "\n")),
      left > 0 ? el("span.dim", {}, `… ${left} more lines`) : ""));
}

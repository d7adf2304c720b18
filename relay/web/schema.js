// Forms of MCP servers: the flat JSON schemas that an elicitation may have.

import { el } from "./dom.js";
import { line, pretty, visible } from "./format.js";
import { longText } from "./blockviews.js";

// schemaForm makes a form of what an elicitation asks for. values gives {answers} or {trouble}.
export function schemaForm(id, input) {
  const schema = input?.requestedSchema ?? input;
  const properties = schema?.properties;
  if (!properties || typeof properties !== "object") {
    const url = typeof input?.url === "string" ? el("p", {}, "It wants you to open, by yourself and if you trust it: ", el("code", {}, visible(input.url))) : "";
    return { empty: true, node: el("div", {}, url, input && !url ? longText(pretty(input)) : ""), values: () => ({ answers: {} }) };
  }
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const fields = Object.entries(properties).map(([name, p], i) => field(`${id}-f${i}`, name, p ?? {}, required.has(name)));
  return {
    empty: fields.length === 0,
    node: el("div", {}, fields.map((f) => f.node)),
    values() {
      const answers = {};
      for (const f of fields) {
        const { value, trouble } = f.value();
        if (trouble) return { trouble };
        if (value !== undefined) answers[f.name] = value;
      }
      return { answers };
    },
  };
}

const numeric = (v) => (typeof v === "number" ? v : undefined);

// plain is a suggested text that is what it looks like; any other is shown, and not filled in.
const plain = (s) => typeof s === "string" && visible(s) === s;

function field(id, name, p, required) {
  const label = line(typeof p.title === "string" ? p.title : name, 120);
  const odd = typeof p.default === "string" && !plain(p.default) ? ` Suggested: ${visible(p.default)}` : "";
  const help = typeof p.description === "string" || odd ? el("span.dim", {}, visible(p.description ?? "") + odd) : "";
  const wrap = (control) => el("div.field", {}, el("label", { for: id }, label, required ? el("span.must", { title: "needed" }, " *") : ""), control, help);
  const missing = { trouble: `“${label}” is needed.` };

  const list = optionsOf(p);
  if (list) {
    const select = el("select", { id }, required ? "" : el("option", { value: "" }, "–"), list.map((o, i) => el("option", { value: String(i) }, visible(o.label))));
    const at = list.findIndex((o) => o.value === p.default);
    if (at >= 0) select.value = String(at);
    return { name, node: wrap(select), value: () => (select.value === "" ? (required ? missing : {}) : { value: list[Number(select.value)].value }) };
  }
  if (p.type === "array" && optionsOf(p.items ?? {})) {
    const boxes = optionsOf(p.items).map((o, i) => ({ o, input: el("input", { type: "checkbox", id: `${id}-${i}` }) }));
    const node = el("fieldset.question", {}, el("legend", {}, label), boxes.map(({ o, input }) => el("label.option", {}, input, visible(o.label))), help);
    return { name, node, value: () => {
      const chosen = boxes.filter((b) => b.input.checked).map((b) => b.o.value);
      return chosen.length ? { value: chosen } : required ? missing : {};
    } };
  }
  if (p.type === "boolean") {
    const box = el("input", { type: "checkbox", id });
    box.checked = p.default === true;
    return { name, node: el("div.field", {}, el("label.option", { for: id }, box, label), help), value: () => ({ value: box.checked }) };
  }
  if (p.type === "number" || p.type === "integer") {
    const input = el("input", { type: "number", id, step: p.type === "integer" ? "1" : "any", min: numeric(p.minimum), max: numeric(p.maximum), value: numeric(p.default) });
    return { name, node: wrap(input), value: () => {
      if (input.value.trim() === "") return required ? missing : {};
      const n = Number(input.value);
      return input.checkValidity() && Number.isFinite(n) ? { value: n } : { trouble: `“${label}” must be ${p.type === "integer" ? "a whole number" : "a number"} in its range.` };
    } };
  }
  const types = { email: "email", uri: "url", date: "date" };
  const input = el("input", { type: types[p.format] ?? "text", id, maxlength: p.maxLength, value: plain(p.default) ? p.default : undefined, autocomplete: "off" });
  return { name, node: wrap(input), value: () => {
    if (input.value === "") return required ? missing : {};
    return input.checkValidity() ? { value: input.value } : { trouble: `“${label}”: ${input.validationMessage}` };
  } };
}

// optionsOf lists the values that a field may have, where it says so.
function optionsOf(p) {
  if (Array.isArray(p.enum)) return p.enum.map((value, i) => ({ value, label: String(p.enumNames?.[i] ?? value) }));
  const list = Array.isArray(p.oneOf) ? p.oneOf : Array.isArray(p.anyOf) ? p.anyOf : null;
  if (list?.length && list.every((o) => o && "const" in o)) return list.map((o) => ({ value: o.const, label: String(o.title ?? o.const) }));
  return null;
}

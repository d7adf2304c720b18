// Blocks on the screen. Everything an agent said is a text node; long or folded parts are made when
// they are opened.

import { el, set, text } from "./dom.js";
import { bytes, clockTime, duration, fullTime, line, pretty, visible, words } from "./format.js";
import { diffOf } from "./diff.js";

const shown = 12_000; // characters of a text, before one asks for more
const step = 64_000;

export class BlockView {
  constructor(block, names) {
    Object.assign(this, { block, names });
    this.node = el(`div.block.b-${block.kind}`, { "data-seq": block.seq });
    if (block.by) {
      this.node.classList.add("sub");
      this.node.append(el("span.by", { title: line(block.by, 100) }, line(names.nameOf(block.by), 60)));
    }
    this[block.kind]?.();
    this.update();
  }

  update() {
    this["show_" + this.block.kind]?.(this.block);
  }

  time() {
    return el("time.at", { title: fullTime(this.block.at) }, clockTime(this.block.at));
  }

  // Texts of the agent, of the user, and prompts to sub-agents.
  text() {
    const who = { agent: "agent", user: "user", prompt: "prompt to the sub-agent" }[this.block.who];
    this.node.classList.add("from-" + this.block.who);
    this.said = el("div.said", { dir: "auto" });
    if (this.block.who === "prompt") this.node.append(folded("prompt", line(this.block.text, 100), () => longText(this.block.text)));
    else this.node.append(el("div.head", {}, el("span.who", {}, who), this.time()), this.said);
  }

  show_text(b) {
    if (b.who === "prompt") return;
    this.node.classList.toggle("draft", b.draft);
    if (b.draft) {
      // A growing text is appended to, never set anew.
      if (!this.grows || this.done > b.text.length || !b.text.startsWith(this.prefix)) {
        this.grows = document.createTextNode("");
        this.done = 0;
        this.said.replaceChildren(this.grows);
      }
      this.grows.appendData(visible(b.text.slice(this.done)));
      this.done = b.text.length;
      this.prefix = b.text.slice(0, 64);
      return;
    }
    if (this.whole === b.text) return;
    this.whole = b.text;
    this.said.replaceChildren(...prose(b.text));
  }

  tool() {
    this.mark = el("span.mark", { role: "img" });
    this.name = el("span.tool-name");
    this.title = el("code.tool-title");
    this.took = el("span.took");
    this.inside = el("div.inside");
    this.fold = el("details", { ontoggle: () => this.openTool() },
      el("summary", {}, this.mark, this.name, this.title, this.took), this.inside);
    this.node.append(this.fold);
  }

  show_tool(b) {
    const [shape, label] = { running: ["◐", "running"], done: ["✓", "done"], failed: ["✕", "failed"], none: ["·", "no result came"] }[b.state] ?? ["·", b.state];
    text(this.mark, shape);
    set(this.mark, "aria-label", label);
    set(this.mark, "class", "mark " + b.state);
    text(this.name, line(b.name, 60));
    text(this.title, line(b.title, 160));
    text(this.took, b.endedAt > b.at ? duration(b.endedAt - b.at) : "");
    if (this.fold.open) this.openTool();
  }

  openTool() {
    const b = this.block;
    if (!this.fold.open) return this.inside.replaceChildren();
    if (this.seen?.output === b.output && this.seen?.input === b.input && this.inside.firstChild) return;
    this.seen = { output: b.output, input: b.input };
    const parts = [];
    if (b.input !== undefined) parts.push(el("h4", {}, "input"), diffOf(b.input) ?? longText(pretty(b.input)));
    if (b.output) parts.push(el("h4", {}, b.state === "running" ? "output so far" : "result"), longText(b.output));
    else if (b.state === "running") parts.push(el("p.dim", {}, "No result yet."));
    else parts.push(el("p.dim", {}, b.state === "none" ? "No result came." : "The result is empty."));
    this.inside.replaceChildren(...parts);
  }

  thought() {
    this.node.append(el("span.dim", { title: "Reasoning is left out of this page and of the workflow events" }, "reasoned (left out)"));
  }

  note() {
    const b = this.block;
    this.node.classList.add("n-" + b.level);
    this.node.append(this.time(), el("span.note-text", {}, line(b.text, 300)), b.detail ? el("span.detail", {}, " " + line(b.detail, 400)) : "");
  }

  gap() {
    this.node.append(el("strong", {}, this.block.head ?? "Gap."), " " + visible(this.block.text));
  }

  turn() {
    const b = this.block;
    if (b.bad) this.node.classList.add("bad");
    this.node.append(el("div.rule", {}, el("span", {}, b.facts.map((f) => line(f, 80)).join(" · "))));
    if (b.text) this.node.append(el("div.said", { dir: "auto" }, ...prose(b.text)));
  }

  lines() {
    this.head = el("summary", {}, "");
    this.pre = el("div");
    this.node.append(el("details", { ontoggle: (e) => (this.open = e.target.open, this.show_lines(this.block)) }, this.head, this.pre));
  }

  show_lines(b) {
    const size = b.count > 1 ? `${b.count} lines` : bytes(b.text.length);
    text(this.head, `${line(b.what, 120)} · ${size}${b.count === 1 ? " · " + line(b.text, 100) : ""}`);
    this.pre.replaceChildren(this.open ? longText(b.text) : "");
  }

  ask() {
    this.said = el("span");
    this.link = el("button.quiet", { type: "button", onclick: () => this.names.goToAsk(this.block.ask) }, "answer");
    this.node.append(this.time(), el("span.shape", { "aria-hidden": "true" }, "?"), this.said, this.link);
  }

  show_ask(b) {
    const how = howDecided(b.decision, b.chosen ? `: ${line(b.chosen, 160)}` : "", b.reason, b.outcome).join(", ");
    text(this.said, `${line(b.ask, 20)} ${line(b.tool, 60)} ${line(b.title, 160)} — ${b.state === "open" ? "open" : how || words(b.state)}`);
    this.link.hidden = b.state !== "open";
    this.node.classList.toggle("open", b.state === "open");
  }

  command() {
    this.said = el("span");
    this.node.append(this.time(), el("span.shape", { "aria-hidden": "true" }, "»"), this.said);
  }

  show_command(b) {
    const facts = b.facts.map((f) => words(f.fact) + (f.reason ? ` (${line(f.reason, 120)})` : ""));
    text(this.said, `${words(b.name)}: ${facts.join(" → ")}`);
  }
}

// howDecided says how an ask was decided and ended, nothing of it twice. more stands behind the decision.
export function howDecided(decision, more, reason, outcome) {
  const did = decision === "answer" || (decision === "allow" && outcome === "answered") ? "answered" : words(decision ?? "");
  const rest = [reason, outcome].filter((w) => w && w !== "none" && !(did && w === "answered") && w !== did).map(words);
  return [...new Set([did && did + more, ...rest])].filter(Boolean);
}

// prose is a text with its fenced code set apart. That is all that is read into it: nothing in it
// becomes a link or markup.
export function prose(s) {
  if (s.length > shown) return [longText(s, "div.plain")];
  const parts = s.split(/^```[^\n]*$/m);
  return parts.map((p, i) => (i % 2 ? el("pre.code", {}, visible(p.replace(/^\n|\n$/g, ""))) : document.createTextNode(visible(i ? p.replace(/^\n/, "") : p).replace(/\n+$/, i < parts.length - 1 ? "\n" : ""))));
}

// longText shows the beginning of a text, and more of it on demand.
export function longText(s, tag = "pre.code") {
  const body = document.createTextNode(visible(s.slice(0, shown)));
  const node = el(tag, { dir: "auto" }, body);
  let at = shown;
  if (s.length <= at) return node;
  const more = el("button.quiet", { type: "button", onclick: () => {
    body.appendData(visible(s.slice(at, at + step)));
    at += step;
    if (at >= s.length) more.remove();
    else label();
  } });
  const label = () => text(more, `show more (${bytes(s.length - at)} left)`);
  label();
  return el("div", {}, node, more);
}

function folded(name, summary, make) {
  const inside = el("div.inside");
  return el("details", { ontoggle: (e) => inside.replaceChildren(e.target.open ? make() : "") },
    el("summary", {}, el("span.tool-name", {}, name), el("span.tool-title", {}, summary)), inside);
}

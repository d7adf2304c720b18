// What a person tells the agent, and what becomes of it, fact by fact.

import { el, Keyed, set, text } from "./dom.js";
import * as api from "./api.js";
import { clockTime, line, words } from "./format.js";

const final = new Set(["settled", "no_effect", "refused", "expired", "unknown"]);
const shownMost = 12;

export class Commands {
  constructor(run, page) {
    Object.assign(this, { run, page, given: new Map(), known: [] });
    this.list = el("ol.commands");
    this.none = el("p.dim", {}, "Nothing was commanded.");
    this.node = el("section.card", { "aria-labelledby": "commands-title" }, el("h2", { id: "commands-title" }, "Commands"), this.none, this.list);
    this.rows = new Keyed(this.list, (c) => c.id, () => new CommandRow());
    this.interrupt = this.interruptForm();
    this.composer = this.composerForm();
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
  }

  // give sends a command under an id of our own, so that trying again does not do it twice.
  async give(name, path, body) {
    const id = crypto.randomUUID?.() ?? `page-${Date.now()}-${Math.random().toString(36).slice(2)}`;
    const now = api.now();
    this.given.set(id, { id, name, state: "sending", facts: [], at: now });
    this.show();
    try {
      await api.post(path, { id, ...body });
      Object.assign(this.given.get(id), { state: "accepted", facts: [{ fact: "accepted", at: now }] });
      this.poll();
      return true;
    } catch (e) {
      Object.assign(this.given.get(id), { state: "refused", facts: [{ fact: "refused", reason: api.explain(e), at: now }], over: true });
      if (e.status === 401 || e.status === 403) this.page.login();
      return false;
    } finally {
      this.show();
    }
  }

  stopTask(task) {
    return this.give("stop_task", api.path`/v1/runs/${this.run}/stop_task`, { task });
  }

  // state takes what the run's state knows of commands, heard what the stream just told.
  state(commands) {
    this.known = commands ?? [];
    this.show();
  }

  heard(fact) {
    const g = this.given.get(fact.command);
    if (!g || g.facts.some((f) => f.fact === fact.fact && f.seq === fact.seq)) return;
    g.facts.push(fact);
    g.state = fact.fact;
    this.show();
  }

  // poll asks the relay for what it alone can tell: that no answer came in time.
  poll() {
    clearTimeout(this.timer);
    const open = [...this.given.values()].filter((g) => !g.over && g.state !== "sending");
    if (open.length === 0 || this.closed) return;
    this.timer = setTimeout(async () => {
      for (const g of open) {
        try {
          const doc = await api.get(api.path`/v1/commands/${g.id}`);
          Object.assign(g, { state: doc.state, facts: doc.facts, over: doc.final });
        } catch { /* the next time */ }
      }
      if (this.closed) return;
      this.show();
      this.poll();
    }, open.some((g) => api.now() - g.at < 15_000) ? 700 : 3000);
  }

  show() {
    const all = new Map(this.known.map((c) => [c.id, c]));
    for (const [id, g] of this.given) {
      const k = all.get(id);
      all.set(id, k && k.facts.length > g.facts.length ? { ...k, facts: [...g.facts.filter((f) => f.fact === "accepted" && !k.facts.some((x) => x.fact === "accepted")), ...k.facts] } : g);
    }
    const list = [...all.values()].slice(-shownMost).reverse();
    this.rows.show(list);
    this.none.hidden = list.length > 0;
  }

  // rights says what can be given: by the run's state, the agent's abilities, the token.
  rights({ over, abilities }) {
    const can = (name) => !over && api.may("command") && (!abilities?.length || abilities.includes(name));
    const why = (name) => (over ? "The run has ended" : !api.may("command") ? "Commands need a token with the scope command: log in" : can(name) ? null : "This agent does not know it");
    set(this.interruptButton, "disabled", !can("interrupt"));
    set(this.interruptButton, "title", why("interrupt"));
    set(this.send, "disabled", !can("message"));
    set(this.input, "disabled", !can("message"));
    set(this.input, "placeholder", can("message") ? "Send the agent a message …" : why("message"));
    this.composer.hidden = over;
    this.canStop = can("stop_task");
    if (over) this.panel.hidden = true;
  }

  interruptForm() {
    this.reason = el("input", { type: "text", id: "reason", autocomplete: "off", placeholder: "optional, is recorded" });
    this.keep = el("input", { type: "checkbox" });
    this.escalate = el("input", { type: "checkbox" });
    this.panel = el("form.panel.card", { hidden: true, onsubmit: (e) => this.doInterrupt(e), onkeydown: (e) => e.key === "Escape" && this.toggle(false) },
      el("div.field", {}, el("label", { for: "reason" }, "Why"), this.reason),
      el("label.check", {}, this.keep, "stop the tasks only, let the turn go on"),
      el("label.check", {}, this.escalate, "if that is not enough, go on to signals until the agent is gone"),
      el("div.buttons", {}, el("button.danger", { type: "submit" }, "Interrupt now"), el("button", { type: "button", onclick: () => this.toggle(false) }, "Cancel")));
    this.interruptButton = el("button.danger", { type: "button", "aria-expanded": "false", onclick: () => this.toggle(this.panel.hidden) }, "Interrupt …");
    return el("div.interrupt", {}, this.interruptButton, this.panel);
  }

  toggle(open) {
    this.panel.hidden = !open;
    set(this.interruptButton, "aria-expanded", String(open));
    (open ? this.reason : this.interruptButton).focus();
  }

  async doInterrupt(e) {
    e.preventDefault();
    const body = {};
    if (this.reason.value.trim()) body.reason = this.reason.value.trim();
    if (this.keep.checked) body.turn = "keep";
    if (this.escalate.checked) body.escalate = true;
    this.toggle(false);
    await this.give("interrupt", api.path`/v1/runs/${this.run}/interrupt`, body);
    this.node.scrollIntoView({ block: "nearest" });
  }

  composerForm() {
    this.input = el("textarea", { rows: 1, "aria-label": "Message to the agent", onkeydown: (e) => {
      if (e.key === "Enter" && !e.shiftKey && !e.isComposing) this.doMessage(e);
    } });
    this.send = el("button.primary", { type: "submit" }, "Send");
    return el("form.composer", { onsubmit: (e) => this.doMessage(e) }, this.input, this.send);
  }

  async doMessage(e) {
    e.preventDefault();
    const content = this.input.value;
    if (content.trim() === "" || this.send.disabled) return;
    this.input.value = "";
    if (!(await this.give("message", api.path`/v1/runs/${this.run}/commands`, { name: "message", args: { content } }))) this.input.value ||= content;
  }
}

class CommandRow {
  constructor() {
    this.name = el("strong");
    this.state = el("span.state");
    this.facts = el("ol.facts");
    this.node = el("li.command", {}, el("div", {}, this.name, this.state), this.facts);
    this.rows = new Keyed(this.facts, (f) => `${f.fact} ${f.seq ?? ""} ${f.at ?? ""}`, () => new FactRow());
  }

  update(c) {
    const ask = c.name === "answer" ? /-(a\d+)-\d+$/.exec(c.id)?.[1] ?? "" : "";
    text(this.name, `${words(c.name)} ${ask}`.trim());
    text(this.state, words(c.state === "sent_not_acked" ? "written, no answer of the agent yet" : c.state));
    set(this.node, "data-command", c.id);
    set(this.node, "class", "command " + (final.has(c.state) ? "final f-" + c.state : "open"));
    this.rows.show(c.facts);
  }
}

class FactRow {
  constructor() {
    this.name = el("span.fact");
    this.time = el("time");
    this.why = el("span.reason");
    this.node = el("li", {}, this.name, this.time, this.why);
  }

  update(f) {
    set(this.node, "class", "f-" + (final.has(f.fact) || ["accepted", "written", "acked"].includes(f.fact) ? f.fact : "other"));
    text(this.name, words(f.fact));
    text(this.time, clockTime(f.at));
    text(this.why, line(f.reason ?? f.detail?.reason ?? "", 300));
  }
}

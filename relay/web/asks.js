// What the agent waits for, as forms. A form is made once for each ask, so that what somebody has
// typed stays while the run goes on around it.

import { el, Keyed, set, text } from "./dom.js";
import * as api from "./api.js";
import { howDecided, longText, prose } from "./blockviews.js";
import { diffOf } from "./diff.js";
import { clockTime, count, line, pretty, since, visible, when, words } from "./format.js";
import { schemaForm } from "./schema.js";

export class Asks {
  constructor(run, page, taskName) {
    Object.assign(this, { run, page, taskName });
    this.cards = el("div.ask-cards");
    this.past = el("ul.past");
    this.count = el("summary");
    this.history = el("details.history", { hidden: true }, this.count, this.past);
    this.title = el("h2", { id: "asks-title" });
    this.node = el("section.asks", { "aria-labelledby": "asks-title", hidden: true }, this.title, this.cards, this.history);
    this.open = new Keyed(this.cards, (a) => a.id, (a) => new AskCard(this, a));
    this.closed = new Keyed(this.past, (a) => a.id, () => new PastAsk());
  }

  show(asks, doc) {
    const open = asks.filter((a) => a.state === "open" || a.state === "answered");
    const past = asks.filter((a) => !open.includes(a)).reverse().slice(0, 50);
    this.alive = doc.alive;
    this.open.show(open);
    this.closed.show(past);
    const waiting = open.filter((a) => a.state === "open" && !a.decided).length;
    text(this.title, waiting ? `Waiting for a person: ${whatFor(open)}` : open.length ? "Answered, on its way" : "Asks");
    text(this.count, `${count(past.length, "ask")} before`);
    this.history.hidden = past.length === 0;
    this.node.hidden = open.length === 0 && past.length === 0;
    this.node.classList.toggle("waiting", waiting > 0);
    return waiting;
  }

  rights() {
    for (const v of this.open.views.values()) v.rights();
  }

  focus(id) {
    this.open.views.get(id)?.focus();
  }

  answer(ask, body) {
    return api.post(api.path`/v1/runs/${this.run}/asks/${ask}`, body);
  }
}

// whatFor counts what is asked: 2 approvals, 1 question
function whatFor(open) {
  const undecided = open.filter((a) => a.state === "open" && !a.decided);
  const approvals = undecided.filter((a) => a.class === "approval").length;
  return [approvals && count(approvals, "approval"), undecided.length > approvals && count(undecided.length - approvals, "question")].filter(Boolean).join(", ");
}

const kinds = {
  permission: "wants to use", plan: "has a plan", question: "asks", elicitation: "asks for", command: "wants to run",
  file_change: "wants to change files", permissions: "wants more permissions",
};

class AskCard {
  constructor(asks, ask) {
    Object.assign(this, { asks, ask });
    this.waited = el("span.dim");
    this.head = el("div.ask-head", {}, el("span.badge.s-waiting", {}, el("span.shape", { "aria-hidden": "true" }, "?"), line(ask.id, 20)),
      el("strong", {}, kinds[ask.kind] ?? words(ask.kind)), ask.tool && ask.kind !== "question" ? el("code", {}, line(ask.tool, 80)) : "",
      ask.task ? el("span.dim", {}, "in " + line(asks.taskName(ask.task), 60)) : "", this.waited);
    this.fate = el("p.fate", { role: "status" });
    this.trouble = el("p.trouble", { role: "alert" });
    this.form = el("form", { onsubmit: (e) => e.preventDefault(), oninput: () => text(this.trouble, "") });
    this.node = el("article.ask.card", { id: "ask-" + ask.id, "aria-label": `ask ${line(ask.id, 20)}` }, this.head, el("div.ask-body", {}, ...whatIsAsked(ask)), this.form, this.fate, this.trouble);
    this.build();
  }

  build() {
    const a = this.ask;
    const f = a.form ?? {};
    this.message = el("textarea", { rows: 2, placeholder: "Why not, and what to do instead (the agent reads it)", "aria-label": "Message for the agent" });
    this.endTurn = el("input", { type: "checkbox", id: `end-${a.id}` });
    const no = el("div.no", { hidden: true }, this.message,
      el("label.check", {}, this.endTurn, "and end the turn"),
      el("div.buttons", {}, this.button("danger", "Deny", () => this.deny()), el("button", { type: "button", onclick: () => (no.hidden = true) }, "Back")));
    const deny = el("button", { type: "button", onclick: () => {
      no.hidden = !no.hidden;
      if (!no.hidden) this.message.focus();
    } }, a.class === "approval" || a.kind === "plan" ? "Deny …" : "Decline …");
    this.no = no;

    const yes = [];
    if (a.ambiguous) yes.push(el("p.dim", {}, "The request says one thing twice: only the agent's own host can answer it."));
    else if ((f.questions ?? []).some((q) => q.secret)) yes.push(el("p.dim", {}, "It asks for a secret, and answers are recorded: only the agent's own host can answer it. It can be declined here."));
    else if (a.kind === "question") yes.push(this.questions(f.questions ?? []));
    else if (a.kind === "elicitation" && a.class === "question") yes.push(this.elicitation(f));
    else yes.push(this.approval(a, f));
    this.form.append(...yes);
    const last = this.form.querySelector(".buttons") ?? this.form.appendChild(el("div.buttons"));
    if (!a.ambiguous) last.append(deny);
    this.form.append(no);
    this.rights();
  }

  button(look, label, act) {
    return el(`button.${look}`, { type: "button", "data-act": true, onclick: act }, label);
  }

  approval(a, f) {
    const buttons = el("div.buttons", {}, this.button("primary", a.kind === "plan" ? "Approve the plan" : "Allow", () => this.send({ decision: "allow" })));
    if (f.session) buttons.append(this.button("plain", "Allow for the session", () => this.send({ decision: "allow", session: true })));
    const choices = (f.choices ?? []).filter((c) => c !== "accept" && c !== "decline" && c !== "acceptForSession");
    const own = choices.length ? el("details.own", {}, el("summary", {}, "In the agent's own form"),
      ...choices.map((c) => this.button("plain", line(typeof c === "string" ? c : JSON.stringify(c), 200), () => this.send({ decision: "vendor", vendor: c })))) : "";
    return el("div", {}, buttons, own);
  }

  questions(list) {
    const fields = list.map((q, i) => new QuestionField(`${this.ask.id}-${i}`, q));
    const send = () => {
      const answers = {};
      for (const f of fields) {
        const v = f.value();
        if (v === null) {
          text(this.trouble, "Every question needs an answer.");
          return f.focus();
        }
        answers[f.q.id] = v;
      }
      this.send({ decision: "answer", answers });
    };
    return el("div", {}, fields.map((f) => f.node), el("div.buttons", {}, this.button("primary", "Answer", send)));
  }

  elicitation(f) {
    const form = schemaForm(this.ask.id, f.input);
    const send = () => {
      const { answers, trouble } = form.values();
      if (trouble) return void text(this.trouble, trouble);
      this.send(Object.keys(answers).length ? { decision: "answer", answers } : { decision: "allow" });
    };
    return el("div", {}, form.node, el("div.buttons", {}, this.button("primary", form.empty ? "Accept" : "Send", send)));
  }

  deny() {
    const message = this.message.value.trim();
    this.send({ decision: "deny", ...(message ? { message } : {}), ...(this.endTurn.checked ? { interrupt: true } : {}) });
  }

  async send(body) {
    if (this.sending) return;
    this.sending = true;
    text(this.trouble, "");
    this.rights();
    text(this.fate, "Sending …");
    try {
      const done = await this.asks.answer(this.ask.id, body);
      this.sent = done.decision ?? body.decision;
      text(this.fate, fate(this.ask, this.sent, this.asks.alive));
    } catch (e) {
      text(this.fate, "");
      text(this.trouble, api.explain(e));
      if (e.status === 401 || e.status === 403) this.asks.page.login();
    } finally {
      this.sending = false;
      this.rights();
    }
  }

  // rights turns the buttons off where they would be refused.
  rights() {
    const can = api.may("answer") && !this.sending && !this.over();
    for (const b of this.node.querySelectorAll("[data-act]")) b.disabled = !can;
    set(this.form, "title", api.may("answer") ? null : "Answering needs a token with the scope answer: log in");
  }

  over() {
    return this.sent !== undefined || this.ask.state !== "open" || Boolean(this.ask.decided);
  }

  update(a) {
    const before = this.ask;
    this.ask = a;
    // An answer that never reached the agent leaves the ask open for another.
    if (this.sent && before.decided && a.state === "open" && !a.decided) this.sent = undefined;
    const opened = when(a.opened_at);
    text(this.waited, Number.isNaN(opened) ? "" : `for ${since(api.now() - opened)}${a.repeats ? `, asked ${a.repeats + 1} times` : ""}`);
    if (this.over()) {
      text(this.fate, fate(a, this.sent, this.asks.alive));
      this.form.hidden = true;
    } else {
      this.form.hidden = false;
      if (!this.sending && !api.may("answer")) text(this.fate, "Log in to answer.");
      else if (!this.sending) text(this.fate, "");
    }
    this.rights();
  }

  focus() {
    this.node.scrollIntoView({ block: "center" });
    (this.form.querySelector("input:not([type=hidden]), button:not([disabled])") ?? this.node).focus();
  }
}

// fate says how far an answer has come.
function fate(a, sent, alive) {
  const d = a.decided;
  const what = words(d?.decision ?? sent ?? "answer");
  const by = d?.by === "host" ? " by the agent's own host" : d?.by === "policy" ? ` by the policy${d.rule ? ` (${line(d.rule, 60)})` : ""}` : "";
  if (a.state === "answered" || a.written) return `Decided: ${what}${by}. It is on the agent's stdin; its effect is not seen yet.`;
  return `Decided: ${what}${by}. On its way to the agent${alive === false ? ", whose edge is away" : ""} …`;
}

// whatIsAsked shows the request itself.
function whatIsAsked(a) {
  const f = a.form ?? {};
  const parts = [];
  if (a.kind === "plan") parts.push(el("div.said.plan", { dir: "auto" }, ...prose(a.title ?? "")));
  else if (a.kind === "elicitation" && a.title) parts.push(el("p", { dir: "auto" }, visible(a.title)));
  else if (a.kind !== "question" && a.title) parts.push(el("pre.code.ask-title", { dir: "auto" }, visible(a.title)));
  if (f.message && f.message !== a.title) parts.push(el("p", { dir: "auto" }, visible(f.message)));
  const diff = diffOf(f.input);
  if (diff) parts.push(diff);
  else if (f.input !== undefined && a.kind !== "question" && a.kind !== "plan" && !(a.kind === "elicitation" && a.class === "question") && says(f.input, a.title)) {
    parts.push(el("details.input", {}, el("summary", {}, "The whole request"), longText(pretty(f.input))));
  }
  if (f.input_left_out) parts.push(el("p.dim", {}, "The request is too long to be shown here; the transcript has it."));
  return parts;
}

// says reports whether an input has more than the title tells.
function says(input, title) {
  return !(input && typeof input === "object" && Object.keys(input).length === 1 && Object.values(input)[0] === title);
}

class QuestionField {
  constructor(id, q) {
    this.q = q;
    this.inputs = (q.options ?? []).map((o, i) => {
      const input = el("input", { type: q.multi ? "checkbox" : "radio", name: id, id: `${id}-${i}` });
      return { input, label: o.label, node: el("label.option", { for: `${id}-${i}` }, input, el("span", {}, el("strong", {}, visible(o.label)), o.description ? el("span.dim", {}, " " + visible(o.description)) : "")) };
    });
    const free = q.other || this.inputs.length === 0;
    this.other = free ? el("input", { type: "text", id: `${id}-other`, autocomplete: "off", oninput: () => this.otherTyped() }) : null;
    this.node = el("fieldset.question", {},
      el("legend", {}, q.header ? el("span.tag", {}, line(q.header, 60)) : "", visible(q.text || q.id), q.multi ? el("span.dim", {}, " (several may be chosen)") : ""),
      this.inputs.map((o) => o.node),
      this.other ? el("div.field", {}, el("label", { for: `${id}-other` }, this.inputs.length ? "Or in your own words" : "Answer"), this.other) : "");
  }

  otherTyped() {
    if (!this.q.multi && this.other.value) for (const o of this.inputs) o.input.checked = false;
  }

  value() {
    const chosen = this.inputs.filter((o) => o.input.checked).map((o) => o.label);
    const own = this.other?.value.trim();
    if (this.q.multi) {
      if (own) chosen.push(own);
      return chosen.length ? chosen : null;
    }
    return own || chosen[0] || null;
  }

  focus() {
    (this.inputs[0]?.input ?? this.other)?.focus();
  }
}

class PastAsk {
  constructor() {
    this.node = el("li");
  }

  update(a) {
    const by = { bus: "through cbcast", host: "by the agent's own host", policy: "by the policy" }[a.decided?.by] ?? "";
    const how = howDecided(a.decided?.decision, by && " " + by, a.closed?.reason ?? a.state, a.outcome).join(" · ");
    const s = `${clockTime(a.opened_at)}  ${line(a.id, 20)}  ${a.tool ? line(a.tool, 60) : words(a.kind)}  ${line(a.title, 120)} — ${how}`;
    text(this.node, s);
  }
}

// The workflow as a picture: turns, tasks, their phases and agents as bars on one time axis. Rows can
// be walked with the arrow keys; what is under the pointer or has the focus is told below in words.

import { el, set, svg, text } from "./dom.js";
import * as api from "./api.js";
import { clockOf } from "./clock.js";
import { clockTime, compact, count, duration, fullTime, line, when, words } from "./format.js";

const axis = 22;
const many = 36; // rows, from where on they are drawn lower

export class Timeline {
  constructor() {
    this.picture = svg("svg.picture", { role: "list", "aria-label": "Timeline" });
    this.axis = svg("svg.axis", { "aria-hidden": "true", height: axis });
    this.frame = el("div.timeline-frame", {}, this.axis, this.picture);
    this.detail = el("div.detail", { role: "status" }, el("span.dim", {}, "Point at a row, or walk the rows with ↑ and ↓, to read what it is."));
    this.summary = el("span.dim");
    this.clock = el("span.dim.clock", { title: "Agents tell times of their own clock. Where it is not that of the machine that recorded the run, as in a replay, their bars begin with their task and keep their lengths." });
    this.node = el("section.card.timeline", { "aria-labelledby": "timeline-title", hidden: true },
      el("div.card-head", {}, el("h2", { id: "timeline-title" }, "Timeline"), this.summary, this.clock), this.frame, this.detail);
    this.rows = new Map();
    this.back = svg("g");
    this.front = svg("g");
    this.picture.append(this.back, this.front);
    this.picture.addEventListener("keydown", (e) => this.key(e));
    this.size = new ResizeObserver(() => this.draw());
    this.size.observe(this.frame);
    this.watchTime = setInterval(() => this.live && !document.hidden && this.draw(), 1000);
  }

  close() {
    this.size.disconnect();
    clearInterval(this.watchTime);
  }

  show(state) {
    this.state = state;
    this.list = rowsOf(state);
    this.node.hidden = this.list.length === 0;
    this.live = !state.exit && !state.lost;
    const agents = this.list.filter((r) => r.kind === "agent");
    const of = (word, k) => {
      const n = agents.filter((r) => r.look.split(" ").includes(k)).length;
      return n ? `${n} ${word}` : "";
    };
    text(this.summary, agents.length ? [count(agents.length, "agent"), of("running", "run"), of("done", "done"), of("failed", "bad")].filter(Boolean).join(" · ") : "");
    const off = Math.max(0, ...agents.map((r) => Math.abs(r.by)));
    text(this.clock, off ? `agents' clock differs by ${duration(off)}` : "");
    this.draw();
  }

  draw() {
    const width = Math.floor(this.frame.clientWidth);
    if (!this.list || width < 120 || this.node.hidden) return;
    const now = this.live ? api.now() : NaN;
    const span = spanOf(this.list, now, this.state);
    const label = Math.round(Math.min(230, Math.max(96, width * 0.26)));
    const right = 10;
    const scale = (t) => label + ((t - span.from) / (span.to - span.from)) * (width - label - right);
    const low = this.list.length > many;
    let y = 0;
    const views = new Map();
    for (const r of this.list) {
      const v = this.rows.get(r.key) ?? new Row(this);
      const h = r.kind === "phase" ? 20 : r.kind === "agent" && low ? 15 : 21;
      v.draw(r, { y, h, label, width, right, scale, now, low });
      views.set(r.key, v);
      y += h;
    }
    for (const [key, v] of this.rows) if (!views.has(key)) v.node.remove();
    this.rows = views;
    let at = this.front.firstChild;
    for (const v of views.values()) {
      if (v.node === at) at = at.nextSibling;
      else this.front.insertBefore(v.node, at);
    }
    set(this.picture, "width", width);
    set(this.picture, "height", y + 4);
    this.drawAxis(span, scale, y, now, label);
    if (![...views.values()].some((v) => v.node.getAttribute("tabindex") === "0")) {
      const first = views.values().next().value;
      if (first) set(first.node, "tabindex", 0);
    }
    if (this.told && views.has(this.told)) this.tell(views.get(this.told).row);
  }

  drawAxis(span, scale, bottom, now, label) {
    const step = stepOf(span.to - span.from, (scale(span.to) - label) / 90);
    const parts = [];
    const ticks = [];
    for (let t = 0; span.from + t <= span.to; t += step) {
      const x = Math.round(scale(span.from + t)) + 0.5;
      parts.push(svg("line.grid", { x1: x, x2: x, y1: 0, y2: bottom }));
      ticks.push(svg("text.tick", { x: x + 3, y: 13 }, t === 0 ? clockTime(span.from) : "+" + duration(t)));
    }
    if (!Number.isNaN(now)) {
      const x = scale(now);
      parts.push(svg("line.now", { x1: x, x2: x, y1: 0, y2: bottom }));
    }
    set(this.axis, "width", scale(span.to) + 10);
    this.axis.replaceChildren(...ticks);
    this.back.replaceChildren(...parts);
  }

  key(e) {
    const list = [...this.rows.values()];
    const i = list.findIndex((v) => v.node === document.activeElement);
    const to = { ArrowDown: i + 1, ArrowUp: i - 1, Home: 0, End: list.length - 1, PageDown: i + 10, PageUp: i - 10 }[e.key];
    if (i < 0 || to === undefined) return;
    e.preventDefault();
    const next = list[Math.max(0, Math.min(list.length - 1, to))];
    set(list[i].node, "tabindex", -1);
    set(next.node, "tabindex", 0);
    next.node.focus();
  }

  tell(r) {
    this.told = r.key;
    this.detail.replaceChildren(el("strong", {}, r.name), ...r.facts(api.now()).map(([k, v]) => el("span.fact", {}, el("span.dim", {}, k + " "), v)));
  }
}

class Row {
  constructor(timeline) {
    this.name = svg("text");
    this.clip = svg("svg", { x: 0 }, this.name);
    this.bar = svg("rect", { rx: 3 });
    this.end = svg("text.after");
    this.hit = svg("rect.hit", { x: 0 });
    this.node = svg("g.row", { role: "listitem", tabindex: -1, onpointerenter: () => timeline.tell(this.row), onfocus: () => timeline.tell(this.row), onclick: () => this.node.focus() },
      this.hit, this.clip, this.bar, this.end);
  }

  draw(r, { y, h, label, width, scale, now, low, right }) {
    this.row = r;
    set(this.node, "class", `row k-${r.kind} ${r.look.split(" ").map((l) => "l-" + l).join(" ")}${low && r.kind === "agent" ? " low" : ""}`);
    set(this.node, "aria-label", [r.name, ...r.facts(now).map((f) => f.join(" "))].join(", "));
    set(this.node, "transform", `translate(0 ${y})`);
    set(this.hit, "width", width);
    set(this.hit, "height", h);
    set(this.clip, "width", r.kind === "phase" ? width : label - 8);
    set(this.clip, "height", h);
    set(this.name, "x", { turn: 4, task: 4, ask: 4, phase: 12, step: 12, agent: 20 }[r.kind]);
    set(this.name, "y", h / 2 + (low && r.kind === "agent" ? 3.5 : 4));
    text(this.name, r.name);
    const from = r.from;
    const to = Number.isNaN(r.to) ? now : r.to;
    const bars = from > 0 && r.kind !== "phase" && r.kind !== "step";
    set(this.bar, "visibility", bars ? null : "hidden");
    let x = label;
    if (bars) {
      x = Math.max(label, scale(from));
      const w = Math.max(3, Math.min(width - right - x, (Number.isNaN(to) ? x : scale(to)) - x));
      set(this.bar, "x", x);
      set(this.bar, "y", r.kind === "agent" ? 2 : 4);
      set(this.bar, "width", w);
      set(this.bar, "height", h - (r.kind === "agent" ? 4 : 8));
      x += w;
    }
    // What fits behind the bar stands there, else before it.
    const s = r.after;
    const room = width - right - x;
    const need = s.length * 6 + 8;
    text(this.end, room >= need || !bars || x - need < label ? s : "");
    set(this.end, "x", x + 5);
    set(this.end, "y", h / 2 + (low ? 3.5 : 4));
    if (bars && room < need) {
      const inside = scale(Math.max(from, 0));
      text(this.end, inside - need >= label ? s : "");
      set(this.end, "x", inside - need + 4);
    }
  }
}

// rowsOf makes the rows of a run's state.
export function rowsOf(state) {
  const rows = [];
  const over = when(state.ended_at ?? state.lost?.at);
  const turns = state.turns ?? [];
  for (const t of turns) {
    const plan = t.phases ?? [];
    if (turns.length > 1 || plan.length > 0 || t.agents?.length || (state.tasks ?? []).length > 0) rows.push(turnRow(t, over));
    plan.forEach((p, i) => rows.push(stepRow(t, p, i)));
    const clock = clockOf(t.agents ?? [], when(t.started_at), t.state === "done" ? when(t.ended_at) : shut(over));
    for (const a of t.agents ?? []) rows.push(agentRow(`turn ${t.n}`, a, t, over, clock));
  }
  for (const t of state.tasks ?? []) {
    rows.push(taskRow(t, over));
    const agents = t.agents ?? [];
    const clock = clockOf(agents, when(t.started_at), t.ended_at ? when(t.ended_at) : shut(over));
    const titles = [...(t.phases ?? []).map((p) => p.title), ...agents.map((a) => a.phase ?? "")];
    for (const [i, title] of [...new Set(titles)].entries()) {
      const inPhase = agents.filter((a) => (a.phase ?? "") === title);
      if (title) rows.push(phaseRow(t, title, i, inPhase));
      for (const a of inPhase) rows.push(agentRow(t.id, a, t, over, clock));
    }
  }
  for (const a of state.asks ?? []) if (rows.length) rows.push(askRow(a, over));
  return rows;
}

// shut is when what has no end of its own ends at the latest.
const shut = (over) => (Number.isNaN(over) ? api.now() : over);

const looks = {
  completed: "done", success: "done", done: "done", failed: "bad", error: "bad", killed: "bad", stopped: "cut", interrupted: "cut", denied: "bad",
  incomplete: "cut", unknown: "none", not_reported: "none", ended: "none", pending: "wait", paused: "wait", running: "run", start: "run", progress: "run", open: "run",
};

const look = (s) => looks[s] ?? "none";

const took = (from, to) => (from > 0 && to >= from ? duration(to - from) : "");

function turnRow(t, over) {
  const from = when(t.started_at);
  const to = t.state === "done" ? when(t.ended_at) : over;
  const verdict = t.verdict?.verdict ?? t.state;
  return {
    key: "turn " + t.n, kind: "turn", look: look(verdict), name: `turn ${t.n}`, from, to, after: took(from, to),
    facts: (now) => pairs(["state", words(verdict)], ["took", took(from, Number.isNaN(to) ? now : to)], ["results", t.results], ["tokens", tokens(t.tokens)]),
  };
}

function stepRow(t, p, i) {
  return {
    key: `step ${t.n} ${i}`, kind: "step", look: { completed: "done", inProgress: "run" }[p.status] ?? "wait",
    name: `${{ completed: "✓", inProgress: "◐" }[p.status] ?? "○"} ${line(p.title, 80)}`, from: 0, to: NaN, after: "",
    facts: () => pairs(["step", words(p.status || "pending")]),
  };
}

function taskRow(t, over) {
  const from = when(t.started_at);
  const to = t.ended_at ? when(t.ended_at) : t.status === "running" || t.status === "pending" ? over : when(t.ended_at) || over;
  return {
    key: "task " + t.id, kind: "task", look: look(t.status), name: line(t.label || t.name || t.description || t.type || t.id, 80), from, to,
    after: [took(from, to), t.status === "completed" || t.status === "running" ? "" : words(t.status)].filter(Boolean).join(" "),
    facts: (now) => pairs(["task", words(t.type || "")], ["status", words(t.status) + (t.by ? ` by ${words(t.by)}` : "")], ["took", took(from, Number.isNaN(to) ? now : to)], ["tokens", t.usage ? compact(t.usage.total_tokens) : ""], ["error", line(t.error ?? "", 200)], ["", line(t.summary ?? "", 200)]),
  };
}

function phaseRow(t, title, i, agents) {
  const done = agents.filter((a) => a.state === "done").length;
  return {
    key: `phase ${t.id} ${i}`, kind: "phase", look: agents.length && done === agents.length ? "done" : agents.length ? "run" : "wait",
    name: `${line(title, 80)}${agents.length ? `  ${done}/${agents.length}` : ""}`, from: 0, to: NaN, after: "", facts: () => pairs(["phase", `${done} of ${count(agents.length, "agent")} done`]),
  };
}

function agentRow(owner, a, task, over, clock) {
  const odd = a.started_ms > 0 && !clock.knows(a);
  const from = a.started_ms > 0 && !odd ? a.started_ms + clock.by : NaN;
  const open = a.state === "start" || a.state === "progress";
  const end = task.ended_at ? when(task.ended_at) : over;
  const to = a.ended_ms > 0 ? a.ended_ms + clock.by : a.duration_ms > 0 && !open ? from + a.duration_ms : open ? end : Number.isNaN(end) ? from : end;
  const tries = a.attempt > 1 ? `attempt ${a.attempt}` : "";
  return {
    key: `agent ${owner} ${a.key}`, kind: "agent", look: (a.cached ? "cached " : "") + look(a.state) + (tries ? " again" : ""), name: line(a.label || a.agent_id || a.key, 80), from, to, by: from > 0 ? clock.by : 0,
    after: [took(from, to) || (from > 0 ? "" : !odd ? "not started" : a.cached ? "" : "its clock is wrong"), tries, a.cached ? "cached" : "", look(a.state) === "bad" ? "failed" : a.state === "not_reported" ? "end not reported" : ""].filter(Boolean).join(" · "),
    facts: (now) => pairs(["agent", words(a.state)], ["phase", line(a.phase ?? "", 80)], ["attempt", a.attempt > 1 ? a.attempt : ""], ["took", took(from, Number.isNaN(to) ? now : to)], ["by its clock", from > 0 && clock.by ? fullTime(a.started_ms) : ""], ["model", line(a.model ?? "", 60)],
      ["tokens", a.tokens ? compact(a.tokens) : ""], ["tools", a.tool_calls || ""], ["last tool", line(a.last_tool ?? "", 60)], ["error", line(a.error ?? "", 300)], ["said", line(a.result_preview ?? "", 300)]),
  };
}

function askRow(a, over) {
  const from = when(a.opened_at);
  const to = a.closed ? when(a.closed.at) : a.state === "closed" ? from : over;
  return {
    key: "ask " + a.id, kind: "ask", look: a.state === "open" ? "wait" : a.outcome === "denied" ? "bad" : "done", name: `? ${line(a.id, 12)} ${line(a.tool || a.kind, 40)}`, from, to, after: took(from, to),
    facts: (now) => pairs(["ask", words(a.state)], ["waited", took(from, Number.isNaN(to) ? now : to)], ["decided", words(a.decided?.decision ?? "")], ["", line(a.title ?? "", 200)]),
  };
}

const pairs = (...list) => list.filter(([, v]) => v !== "" && v !== undefined && v !== null).map(([k, v]) => [k, String(v)]);

const tokens = (t) => (t && (t.input || t.output) ? `${compact(t.input + t.cache_read + t.cache_create)} in, ${compact(t.output)} out` : "");

function spanOf(rows, now, state) {
  let from = Infinity;
  let to = Number.isNaN(now) ? -Infinity : now;
  for (const r of rows) {
    if (r.from > 0) from = Math.min(from, r.from);
    if (r.to > 0) to = Math.max(to, r.to);
    else if (r.from > 0) to = Math.max(to, r.from);
  }
  if (!Number.isFinite(from)) from = when(state.started_at) || now || 0;
  if (!(to > from)) to = from + 1000;
  return { from, to: to + (to - from) * 0.02 };
}

// stepOf chooses a round step between ticks.
function stepOf(span, ticks) {
  const least = span / Math.max(1, ticks);
  const nice = [100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 900_000, 1_800_000, 3_600_000, 7_200_000, 14_400_000, 21_600_000, 43_200_000, 86_400_000];
  return nice.find((n) => n >= least) ?? Math.ceil(least / 86_400_000) * 86_400_000;
}

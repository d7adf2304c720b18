// From events to what a person reads: texts, tool calls with their results, asks, facts. Pure; the
// views are in blockviews.js. An event may be applied again: each block knows up to where it has been
// told, so that a part of a run that is read twice says nothing twice.

import { line, pretty } from "./format.js";
import { claude } from "./claude.js";
import { codex } from "./codex.js";
import { fact } from "./facts.js";

// A text that grows is cut past this; the events have it whole.
const longest = 1 << 20;

export class Builder {
  // changed is called with each block that is new or says more.
  constructor(changed = () => {}) {
    this.changed = changed;
    this.blocks = [];
    this.tools = new Map(); // by call
    this.drafts = new Map(); // texts that are being written
    this.begun = new Set(); // keys of texts whose beginning was seen, and nothing else yet
    this.asks = new Map();
    this.commands = new Map();
    this.orphans = new Map(); // results whose call is not here
    this.loose = new Map(); // what calls that are not here said while they ran
    this.uuids = new Set();
    this.over = false; // the agent has left
    this.n = 0;
    this.turn = 0;
  }

  apply(e) {
    this.e = e;
    this.turn++;
    if (e.dialect === "edge" || e.dialect === "relay") return fact(this, e);
    if (e.frames.length === 0) return this.raw(e);
    for (const f of e.frames) {
      if (f.jsonrpc || f.method || e.dialect === "codex") codex(this, e, f);
      else claude(this, e, f);
    }
  }

  // add appends a block. by is the sub-agent or task that it belongs to.
  add(kind, fields, by = this.e.parent || "") {
    const b = { kind, id: ++this.n, seq: this.e.seq, upto: this.e.seq, turn: this.turn, at: this.e.at, by, ...fields };
    this.blocks.push(b);
    this.changed(b);
    return b;
  }

  // fresh reports whether b has not heard this event before, and notes that it has.
  fresh(b) {
    if (b.upto >= this.e.seq) return b.turn === this.turn;
    b.upto = this.e.seq;
    b.turn = this.turn;
    return true;
  }

  // tell changes a block once for each event.
  tell(b, change) {
    if (!this.fresh(b)) return;
    change(b);
    this.changed(b);
  }

  last() {
    return this.blocks[this.blocks.length - 1];
  }

  // text that is whole. key names the draft that it completes.
  text(who, s, by, key) {
    const draft = key && this.drafts.get(key);
    if (draft) {
      this.drafts.delete(key);
      this.begun.delete(key);
      draft.upto = this.e.seq;
      draft.text = s;
      draft.draft = false;
      draft.whole = true;
      this.changed(draft);
      return draft;
    }
    if (s.trim() === "") return null;
    return this.add("text", { who, text: s, draft: false, whole: true }, by);
  }

  // grow appends to a text that is being written. A headless one began before what was read.
  grow(key, s, by) {
    if (!s) return;
    let b = this.drafts.get(key);
    if (!b) {
      b = this.add("text", { who: "agent", text: "", draft: true, key, headless: !this.begun.delete(key) }, by);
      this.drafts.set(key, b);
    }
    this.tell(b, () => {
      if (b.text.length < longest) b.text += s;
    });
  }

  // begin says that the text of key begins here.
  begin(key) {
    this.drafts.delete(key);
    this.begun.add(key);
  }

  // settle leaves drafts as they are: nothing more comes.
  settle(fits = () => true) {
    for (const [key, b] of this.drafts) {
      if (!fits(key)) continue;
      b.draft = false;
      this.drafts.delete(key);
      this.changed(b);
    }
  }

  tool(call, fields, by) {
    const known = this.tools.get(call);
    if (known) {
      Object.assign(known, fields);
      known.upto = Math.max(known.upto, this.e.seq);
      this.changed(known);
      return known;
    }
    const b = this.add("tool", { call, name: "", input: undefined, state: "running", output: "", ...fields }, by);
    if (call) this.tools.set(call, b);
    return b;
  }

  toolResult(call, output, failed, by) {
    const b = this.tools.get(call);
    if (b) {
      Object.assign(b, { output, state: failed ? "failed" : "done", endedAt: this.e.at });
      this.changed(b);
      return;
    }
    const known = this.orphans.get(call);
    if (known) return;
    this.orphans.set(call, this.add("tool", { call, name: "result of an earlier call", input: undefined, output, state: failed ? "failed" : "done", orphan: true }, by));
  }

  // noMore says of every call without a result that none will come.
  noMore() {
    this.over = true;
    for (const t of this.tools.values()) {
      if (t.state !== "running") continue;
      t.state = "none";
      this.changed(t);
    }
  }

  // toolOutput appends what a tool says while it runs.
  toolOutput(call, s) {
    const b = this.tools.get(call);
    if (!b && (this.loose.has(call) || this.loose.size < 64)) this.loose.set(call, ((this.loose.get(call) ?? "") + s).slice(-(64 << 10)));
    if (!b || b.state !== "running") return;
    this.tell(b, () => {
      b.output = (b.output + s).slice(-(64 << 10));
      b.partial = true;
    });
  }

  // thought marks hidden reasoning. Its text is left out here as in the workflow events.
  thought(by) {
    const l = this.last();
    if (l?.kind === "thought" && l.by === by) return this.tell(l, () => {});
    this.add("thought", {}, by);
  }

  note(level, s, detail, by) {
    return this.add("note", { level, text: s, detail }, by);
  }

  // lines collects what is no frame: stderr, banners, one-shot output.
  lines(what, s) {
    const l = this.last();
    if (l?.kind === "lines" && l.what === what && l.count < 200) {
      this.tell(l, () => {
        l.text += "\n" + s;
        l.count++;
      });
      return;
    }
    this.add("lines", { what, text: s, count: 1 });
  }

  raw(e) {
    if (e.bytes === "") return;
    this.lines(e.stream === "err" ? "stderr" : e.piece ? "a piece of a long line" : "output", e.bytes.slice(0, 16 << 10));
  }

  // ask opens or finds the ask of this event.
  ask(id, fields) {
    const known = this.asks.get(id);
    if (known) return this.change(known, fields);
    const b = this.add("ask", { ask: id, title: "", state: "open", ...fields });
    this.asks.set(id, b);
    return b;
  }

  change(b, fields) {
    this.tell(b, () => Object.assign(b, fields));
    return b;
  }

  command(id, name, f) {
    let b = this.commands.get(id);
    if (!b) {
      b = this.add("command", { command: id, name, facts: [] });
      this.commands.set(id, b);
    }
    if (b.facts.some((x) => x.fact === f.fact && x.seq === f.seq)) return;
    b.upto = Math.max(b.upto, this.e.seq);
    b.facts.push(f);
    this.changed(b);
  }

  // drop forgets blocks that the window has left.
  drop(gone) {
    for (const b of gone) {
      if (b.call && this.tools.get(b.call) === b) this.tools.delete(b.call);
      if (b.call && this.orphans.get(b.call) === b) this.orphans.delete(b.call);
      if (b.key && this.drafts.get(b.key) === b) this.drafts.delete(b.key);
      if (b.ask && this.asks.get(b.ask) === b) this.asks.delete(b.ask);
      if (b.command && this.commands.get(b.command) === b) this.commands.delete(b.command);
      if (b.uuid) this.uuids.delete(b.uuid);
    }
  }

  // behind puts the blocks of an earlier part of the run before these, and joins what was split
  // between the two: a call and its result, the halves of a text.
  behind(older) {
    const gone = new Set();
    for (const [key, half] of older.drafts) this.joinText(key, half, gone);
    for (const [call, b] of older.tools) this.joinTool(call, b, gone);
    for (const b of this.blocks) if (b.uuid && older.uuids.has(b.uuid)) gone.add(b); // said twice
    for (const [id, b] of older.asks) {
      const later = this.asks.get(id);
      if (later) {
        Object.assign(b, { state: later.state, reason: later.reason, decision: later.decision, outcome: later.outcome, chosen: later.chosen || b.chosen, title: b.title || later.title });
        gone.add(later);
      }
      this.asks.set(id, b);
    }
    for (const [id, b] of older.commands) {
      const later = this.commands.get(id);
      if (later) {
        b.facts.push(...later.facts.filter((f) => !b.facts.some((x) => x.fact === f.fact && x.seq === f.seq)));
        gone.add(later);
      }
      this.commands.set(id, b);
    }
    for (const u of older.uuids) this.uuids.add(u);
    for (const b of older.blocks) b.id = --this.first;
    this.blocks = [...older.blocks, ...this.blocks].filter((b) => !gone.has(b));
    return gone;
  }

  first = 0;

  // joinText joins the first half of a text that was being written with what came of it.
  joinText(key, half, gone) {
    const rest = this.blocks.find((b) => b.headless && b.key === key);
    if (rest) {
      if (!rest.whole) rest.text = half.text + rest.text;
      rest.headless = half.headless;
      this.changed(rest);
      gone.add(half);
      return;
    }
    const next = this.blocks.find((b) => b.kind === "text" && b.who === "agent" && b.by === half.by);
    if (next?.text.startsWith(half.text)) gone.add(half);
    else if (next || this.over || this.drafts.has(key)) half.draft = false;
    else this.drafts.set(key, half);
  }

  // joinTool joins a call with what later events said of it.
  joinTool(call, b, gone) {
    const result = this.orphans.get(call);
    const later = this.tools.get(call);
    for (const x of [later, result]) {
      if (!x) continue;
      if (x.input !== undefined) Object.assign(b, { input: x.input, name: x.name, title: x.title });
      Object.assign(b, { output: x.output, state: x.state, endedAt: x.endedAt ?? (x.orphan ? x.at : undefined), upto: x.upto });
      gone.add(x);
    }
    if (!result && !later && this.loose.has(call)) b.output = (b.output + this.loose.get(call)).slice(-(64 << 10));
    this.orphans.delete(call);
    this.loose.delete(call);
    if (this.over && b.state === "running") b.state = "none";
    this.tools.set(call, b);
  }
}

// contentText is the text of a message's or result's content.
export function contentText(c) {
  if (typeof c === "string") return c;
  if (!Array.isArray(c)) return c === undefined || c === null ? "" : pretty(c);
  return c.map((b) => (typeof b === "string" ? b : b?.type === "text" || b?.type === "inputText" ? String(b.text ?? "") : `[${line(b?.type ?? "block", 40)}]`)).join("\n");
}

// titleOf is the part of a tool's input that says best what it is about.
export function titleOf(input) {
  if (!input || typeof input !== "object") return typeof input === "string" ? input : "";
  for (const k of ["command", "file_path", "path", "notebook_path", "url", "query", "pattern", "description", "prompt", "toolName", "skill"]) {
    if (typeof input[k] === "string" && input[k] !== "") return input[k];
  }
  return "";
}

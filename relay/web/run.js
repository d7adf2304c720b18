// One run. What is drawn from the run's state (timeline, tasks, asks, commands) is read from the
// relay, which folds it once for everybody; the stream tells when to read it again, and is itself the
// transcript.

import { el, text } from "./dom.js";
import * as api from "./api.js";
import { Stream } from "./stream.js";
import { decode, quiet } from "./events.js";
import { Transcript } from "./transcript.js";
import { Timeline } from "./timeline.js";
import { Tasks } from "./tasks.js";
import { Asks } from "./asks.js";
import { Commands } from "./commands.js";
import { RunHead } from "./runhead.js";
import { count, number } from "./format.js";

const tail = 400; // events that are read at first, from the end
const soonest = 350; // ms between two readings of the state, at least

export class RunPage {
  constructor(page, id) {
    Object.assign(this, { page, id, doc: null, names: new Map() });
    page.title("Run");
    this.head = new RunHead(id);
    this.alerts = el("div.alerts", { role: "status" });
    this.timeline = new Timeline();
    this.asks = new Asks(id, page, (t) => this.nameOf(t));
    this.commands = new Commands(id, page);
    this.tasks = new Tasks(this.commands);
    this.transcript = new Transcript(id, { nameOf: (b) => this.nameOf(b), goToAsk: (a) => this.asks.focus(a) });
    this.head.actions.append(this.commands.interrupt);
    this.side = el("div.side", {}, this.tasks.node, this.commands.node, this.head.facts);
    this.node = el("div.page.run-page", {}, this.head.node, this.alerts, this.asks.node, this.timeline.node,
      el("div.columns", {}, el("section.card.talk", { "aria-labelledby": "talk-title" }, el("h2", { id: "talk-title" }, "Transcript"), this.transcript.node, this.commands.composer), this.side));
    this.tick = setInterval(() => this.refresh(), 1000);
    this.rights = () => this.showRights();
    api.events.addEventListener("session", this.rights);
    this.alert = new Map();
    this.start();
  }

  close() {
    this.closed = true;
    this.stream?.close();
    this.timeline.close();
    this.transcript.close();
    this.commands.close();
    clearInterval(this.tick);
    clearTimeout(this.later);
    clearTimeout(this.again);
    api.events.removeEventListener("session", this.rights);
  }

  // start opens the stream behind all but the run's newest events: a long run is not read from its
  // beginning.
  async start() {
    this.page.contact({ state: "connecting" });
    try {
      const { head } = await api.get(api.path`/v1/runs/${this.id}/events` + "?limit=1");
      if (this.closed) return;
      this.listen(Math.max(0, head - tail));
      this.read();
    } catch (e) {
      if (this.closed) return;
      if (e.status === 404) return this.missing();
      if (e.status === 401 || e.status === 403) {
        this.page.contact({ state: "refused" });
        return this.warn("trouble", "bad", "No rights", e.status === 401 ? "This run needs a token: log in." : api.explain(e));
      }
      this.page.contact({ state: "away", silent: 0 });
      this.warn("trouble", "bad", "No answer", api.explain(e) + " Trying again …");
      this.again = setTimeout(() => this.start(), 2000);
    }
  }

  missing() {
    this.page.contact({ state: "missing" });
    this.node.replaceChildren(el("div.empty", {}, el("h2", {}, "There is no such run"), el("p", {}, "It may be too old to be kept, of another bus, or not yours to see."), el("p", {}, el("a", { href: "#/" }, "To the list of runs"))));
  }

  listen(after) {
    this.warn("trouble");
    this.transcript.reset(after);
    this.stream = new Stream(api.path`/v1/runs/${this.id}/stream`, {
      after, tell: (e) => this.take(e),
      status: (c) => {
        this.page.contact(c);
        this.showContact(c);
      },
    });
  }

  take(e) {
    if (this.closed) return;
    switch (e.name) {
      case "gap":
        this.transcript.gap(JSON.parse(e.data));
        return;
      case "reset": {
        this.warn("reset", "warn", "Begun anew", "The relay no longer had the place where this page was; what is kept is shown again.");
        this.transcript.reset(0);
        this.transcript.live = 0;
        return this.changed();
      }
      case "lost":
        if (this.lost) return;
        this.lost = true;
        break;
      case "resumed":
        this.lost = false;
        break;
    }
    const ev = decode(e.data);
    const seq = Number(e.id ?? 0);
    if (ev.what === "command") {
      const d = ev.frames[0] ?? {};
      this.commands.heard({ command: d.command, fact: d.fact, reason: d.reason, at: ev.at, seq: ev.seq || undefined });
    }
    this.transcript.take(ev, seq);
    if (!quiet(ev)) this.changed();
  }

  // changed reads the state again soon: at most every soonest, and never more than a quarter of the time.
  changed() {
    if (this.reading) {
      this.stale = true;
      return;
    }
    this.later ??= setTimeout(() => {
      this.later = null;
      this.read();
    }, Math.max(soonest, 3 * (this.cost ?? 0)));
  }

  async read() {
    if (this.reading) return void (this.stale = true);
    this.reading = true;
    this.stale = false;
    const begin = performance.now();
    try {
      this.doc = await api.get(api.path`/v1/runs/${this.id}`);
      if (this.closed) return;
      this.warn("trouble");
      this.show();
    } catch (e) {
      if (!this.closed && this.doc === null) this.warn("trouble", "bad", "The state cannot be read", api.explain(e));
      this.stale = e.status === undefined || e.status >= 500;
    } finally {
      this.reading = false;
      this.cost = performance.now() - begin;
      if (this.stale && !this.closed) this.changed();
    }
  }

  show() {
    const { state, first } = this.doc;
    if (first > 1 && this.transcript.first < first) this.transcript.first = first;
    this.names = namesOf(state);
    this.head.show(this.doc);
    const waiting = this.asks.show(state.asks ?? [], this.doc);
    this.timeline.show(state);
    this.tasks.show(state.tasks ?? [], state.dropped?.tasks);
    this.commands.state(state.commands);
    this.page.title((waiting ? `(${waiting}) ` : "") + this.head.title);
    this.page.crumb(el("span", {}, this.head.title));
    this.showRights();
    this.showAlerts();
    this.transcript.soon();
  }

  // refresh brings up to date what time alone changes.
  refresh() {
    if (!this.doc || document.hidden) return;
    this.head.tick();
    this.asks.show(this.doc.state.asks ?? [], this.doc);
    this.tasks.show(this.doc.state.tasks ?? [], this.doc.state.dropped?.tasks);
  }

  showRights() {
    if (!this.doc) return;
    const s = this.doc.state;
    this.commands.rights({ over: Boolean(s.exit), abilities: s.capabilities?.commands });
    this.asks.rights();
  }

  showAlerts() {
    const { state, alive, first } = this.doc;
    const over = Boolean(state.exit);
    this.lost = state.state === "lost";
    this.warn("lost", this.lost ? "bad" : "", "Lost", `No word from the edge${state.lost?.reason ? ` (${String(state.lost.reason).replaceAll("_", " ")})` : ""}: its machine may be gone. The verdict is provisional; it changes if the edge or its spool speaks again.`);
    this.warn("edge", !over && !this.lost && alive === false ? "warn" : "", "Away", "The run's edge gives no sign of life. Commands and answers wait for it.");
    const gaps = [
      first > 1 && `Events 1 to ${number(first - 1)} are no longer kept.`,
      state.counts?.gap_frames > 0 && `${count(state.counts.gap_frames, "line")} of the agent never became events.`,
      first <= 1 && state.counts?.missing > 0 && `${count(state.counts.missing, "event")} could not be read.`,
    ].filter(Boolean);
    this.warn("gap", gaps.length ? "warn" : "", "Gap", `${gaps.join(" ")} What is shown and judged here lacks them.`);
    this.warn("resume", state.waits_for_resume ? "warn" : "", "Ended on a question", "Nobody could answer it in this run. “cbcast asks” shows it, and “cbcast answer” prints the command that goes on with the session.");
  }

  showContact(c) {
    const since = Math.round((c.silent ?? 0) / 1000);
    this.warn("stale", c.state === "stale" ? "warn" : "", "Stale", `Nothing was heard from the relay for ${since} s, not even its heartbeat. What is shown may be old.`);
    this.warn("away", c.state === "away" && this.doc ? "warn" : "", "No connection", "The relay does not answer. The page goes on by itself where it was; what is shown may be old.");
    this.warn("refused", c.state === "refused" ? "bad" : "", "No rights", "Your token or session no longer holds for this run: log in again.");
    this.node.classList.toggle("old", c.state === "stale" || c.state === "away" || c.state === "refused");
    if (c.state === "live" && this.was && this.was !== "live") this.changed();
    this.was = c.state;
    if (c.state === "missing") this.missing();
  }

  // warn shows one alert of a kind, or takes it away.
  warn(key, look, head, s) {
    const have = this.alert.get(key);
    if (!look) {
      have?.remove();
      this.alert.delete(key);
      return;
    }
    if (have) return void text(have.lastChild, " " + s);
    const node = el(`p.alert.${look}`, { "data-alert": key }, el("strong", {}, head), el("span", {}, " " + s));
    this.alert.set(key, node);
    this.alerts.append(node);
  }

  nameOf(id) {
    return this.names.get(id) ?? "sub-agent " + String(id).slice(-6);
  }
}

// namesOf finds names for the calls and tasks that blocks belong to.
function namesOf(state) {
  const names = new Map();
  for (const t of state.tasks ?? []) {
    const name = t.label || t.name || t.description || t.type;
    if (!name) continue;
    names.set(t.id, name);
    if (t.tool_use_id) names.set(t.tool_use_id, name);
  }
  for (const s of state.subagents ?? []) if (s.name) names.set(s.call, s.name);
  return names;
}


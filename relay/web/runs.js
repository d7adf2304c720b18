// The list of runs: who waits for a person stands on top.

import { Keyed, el, set, text } from "./dom.js";
import * as api from "./api.js";
import { count, dayTime, duration, fullTime, line, shortID, since, when, words } from "./format.js";
import { verdictBadge, stateBadge } from "./badges.js";
import { RunFeed } from "./runfeed.js";

// rank puts those that wait first, then those that run, then those that ended.
export function rank(r) {
  if (waits(r)) return 0;
  if (live(r)) return 1;
  return 2;
}

export const waits = (r) => r.state === "waiting" || r.waiting_for === "resume";
export const live = (r) => ["starting", "working", "waiting", "idle"].includes(r.state);

// Who waits longest comes first; of the others the newest.
export function order(a, b) {
  const d = rank(a) - rank(b);
  if (d) return d;
  if (rank(a) === 0) return (when(a.updated) || 0) - (when(b.updated) || 0) || cmp(a.run, b.run);
  return (when(b.started) || 0) - (when(a.started) || 0) || cmp(b.run, a.run);
}

const cmp = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

const views = [
  ["all", "All", () => true],
  ["waiting", "Waiting for a person", waits],
  ["live", "Live", live],
  ["ended", "Ended", (r) => !live(r)],
];

export class RunsPage {
  constructor(page) {
    this.page = page;
    this.view = "all";
    this.words = "";
    page.title("Runs");
    this.search = el("input", { type: "search", placeholder: "Filter: name, repository, branch, id …", "aria-label": "Filter runs", oninput: () => this.filter() });
    this.tabs = views.map(([key, label]) => el("button.tab", { type: "button", "aria-pressed": key === "all", onclick: () => this.choose(key) }, el("span", {}, label), el("span.n")));
    this.list = el("ul.runs");
    this.empty = el("div.empty");
    this.more = el("button", { type: "button", hidden: true, onclick: () => this.feed.older() }, "Older runs");
    this.node = el("section.page", { "aria-labelledby": "runs-title" },
      el("div.bar", {}, el("h1", { id: "runs-title" }, "Runs"), el("div.tabs", { role: "group", "aria-label": "Which runs" }, this.tabs), this.search),
      this.list, this.empty, el("p.center", {}, this.more));
    this.rows = new Keyed(this.list, (r) => r.run, () => new Row());
    this.feed = new RunFeed({ changed: () => this.soon(), status: (c) => page.contact(c) });
    this.tick = setInterval(() => this.show(), 1000);
    this.show();
  }

  close() {
    this.feed.close();
    clearInterval(this.tick);
    cancelAnimationFrame(this.frame);
    this.closed = true;
  }

  soon() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.show();
    });
  }

  filter() {
    this.words = this.search.value.toLowerCase();
    this.show();
  }

  choose(key) {
    this.view = key;
    this.tabs.forEach((t, i) => set(t, "aria-pressed", String(views[i][0] === key)));
    this.show();
  }

  show() {
    if (this.closed) return;
    const all = this.feed.list();
    const fits = matcher(this.words);
    const found = all.filter(fits);
    views.forEach(([, , is], i) => text(this.tabs[i].lastChild, String(found.filter(is).length)));
    const chosen = found.filter(views.find(([k]) => k === this.view)[2]).sort(order);
    this.rows.show(chosen);
    this.more.hidden = !this.feed.next;
    const waiting = all.filter(waits).length;
    this.page.title(waiting ? `(${waiting}) Runs` : "Runs");
    this.showEmpty(chosen.length, all.length);
  }

  showEmpty(shown, all) {
    this.empty.hidden = shown > 0;
    if (shown > 0) return;
    const say = (head, ...rest) => {
      if (this.said === head) return;
      this.said = head;
      this.empty.replaceChildren(el("h2", {}, head), ...rest);
    };
    if (!api.may("read")) say("Nothing to see without a token");
    else if (this.feed.trouble) say("The runs cannot be read", el("p", {}, this.feed.trouble));
    else if (!this.feed.loaded) say("Reading the runs …");
    else if (all === 0) {
      say("No runs yet", el("p", {}, "Put cbcast in front of an agent, and it appears here:"),
        el("pre", {}, 'cbcast run -- claude -p --output-format stream-json --verbose "fix the tests"'),
        el("p", {}, "or play a recorded one:"), el("pre", {}, "cbcast demo"));
    } else if (this.view === "waiting" && !this.words) say("Nobody waits for you", el("p", {}, "Runs that ask something appear here and on top of the list."));
    else say("No run fits", el("p", {}, `${count(all, "run")} in all; the filter leaves none.`));
  }
}

// matcher finds runs that have every word somewhere.
function matcher(words) {
  const list = words.split(/\s+/).filter(Boolean);
  return (r) => {
    if (list.length === 0) return true;
    r.haystack ??= [r.run, r.name, r.dialect, r.state, r.waiting_for, r.verdict, r.host, r.tenant, ...(r.sessions ?? []), ...Object.values(r.labels ?? {})].join("\n").toLowerCase();
    return list.every((w) => r.haystack.includes(w));
  };
}

// labelsOf says where in a CI a run belongs.
export function labelsOf(labels) {
  const l = labels ?? {};
  return [l.cirepo, l.ciref, l.ciworkflow, l.cijob, l.cirun && "#" + l.cirun].filter(Boolean).map((s) => line(s, 60));
}

// subOf tells runs apart that have no name.
function subOf(r) {
  const child = line(r.versions?.child ?? "", 30);
  const session = r.sessions?.[0] ? "session " + line(r.sessions[0], 64).slice(0, 8) : r.resume?.session ? "resumes " + line(r.resume.session, 64).slice(0, 8) : "";
  return [...labelsOf(r.labels), line(r.host ?? "", 60), r.tenant && r.tenant !== "default" ? line(r.tenant, 40) : "", session, child && `${line(r.dialect || "agent", 20)} ${child}`, r.name ? shortID(r.run) : ""].filter(Boolean).join(" · ");
}

class Row {
  constructor() {
    this.state = el("span.cell-state");
    this.name = el("span.name");
    this.sub = el("span.sub");
    this.why = el("span.why");
    this.dialect = el("span.dialect");
    this.took = el("span.took");
    this.started = el("time.started");
    this.verdict = el("span.cell-verdict");
    this.link = el("a.run", {}, this.state, el("span.what", {}, this.name, this.why, this.sub), this.dialect, this.verdict, this.took, this.started);
    this.node = el("li", {}, this.link);
  }

  update(r) {
    set(this.link, "href", "#/run/" + encodeURIComponent(r.run));
    set(this.link, "class", waits(r) ? "run waits" : "run");
    this.state.replaceChildren(stateBadge(r.state, r.alive));
    text(this.name, line(r.name || "run " + shortID(r.run), 120));
    text(this.sub, subOf(r));
    set(this.sub, "title", this.sub.textContent);
    text(this.why, why(r));
    text(this.dialect, line(r.dialect ?? "", 20));
    this.verdict.replaceChildren(verdictBadge(r.verdict));
    const start = when(r.started);
    const end = when(r.ended);
    text(this.took, Number.isNaN(start) ? "" : duration((Number.isNaN(end) ? (live(r) ? api.now() : when(r.updated)) : end) - start));
    text(this.started, Number.isNaN(start) ? "" : dayTime(start, api.now()));
    set(this.started, "title", fullTime(start));
  }
}

function why(r) {
  if (!waits(r)) return "";
  if (r.waiting_for === "resume") return "ended on a question";
  const n = r.open_asks > 1 ? ` (${r.open_asks})` : "";
  const ago = when(r.updated);
  return `${r.waiting_for === "approval" ? "asks for approval" : "asks " + words(r.waiting_for || "something")}${n}${Number.isNaN(ago) ? "" : " for " + since(api.now() - ago)}`;
}

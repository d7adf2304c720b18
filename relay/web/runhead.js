// The head of a run's page: what it is, how it stands, what it has used.

import { el, text } from "./dom.js";
import { argvNodes } from "./argv.js";
import * as api from "./api.js";
import { compact, duration, fullTime, line, money, shortID, visible, when, words } from "./format.js";
import { stateBadge, verdictBadge } from "./badges.js";
import { labelsOf } from "./runs.js";

export class RunHead {
  constructor(id) {
    this.title = "run " + shortID(id);
    this.h1 = el("h1", {}, this.title);
    this.badges = el("span.badges");
    this.line = el("p.dim.head-line");
    this.took = el("span");
    this.actions = el("div.actions");
    this.node = el("header.run-head", {}, el("div.run-title", {}, this.h1, this.badges, this.actions), this.line);
    this.table = el("dl");
    this.facts = el("section.card", { "aria-labelledby": "facts-title" }, el("h2", { id: "facts-title" }, "About this run"), this.table);
  }

  show(doc) {
    const { info, state, alive } = doc;
    this.doc = doc;
    this.title = line(info.name, 120) || workflowOf(state) || labelsOf(info.labels)[0] || "run " + shortID(state.run);
    text(this.h1, this.title);
    this.badges.replaceChildren(...[stateBadge(state.state, alive), verdictBadge(state.verdict?.verdict, state.provisional)].filter(Boolean));
    const u = state.usage ?? {};
    const used = u.tokens ?? {};
    const parts = [line(state.dialect, 20), line(state.model ?? "", 60), words(state.permission_mode ?? ""), ...labelsOf(info.labels), money(u.cost_usd),
      used.input || used.output ? `${compact((used.input ?? 0) + (used.cache_read ?? 0) + (used.cache_create ?? 0))} tokens in, ${compact(used.output)} out` : ""].filter(Boolean);
    this.line.replaceChildren(this.took, parts.length ? " · " + parts.join(" · ") : "");
    this.tick();
    this.showFacts(info, state);
  }

  tick() {
    const { info, state } = this.doc;
    const from = when(state.started_at ?? info.started);
    const end = when(state.ended_at ?? state.lost?.at);
    text(this.took, Number.isNaN(from) ? "not started" : duration((Number.isNaN(end) ? api.now() : end) - from));
  }

  showFacts(info, s) {
    const rows = [
      ["verdict", words(s.verdict?.verdict ?? "")], ["evidence", (s.verdict?.evidence ?? []).map((e) => words(e.what) + (e.text ? ` (${line(e.text, 100)})` : "") + (e.seq ? `: event ${e.seq}` : "")).join(", ")],
      ["run", state(s.run)], ["session", state(s.session)], ["tenant", info.tenant === "default" ? "" : info.tenant],
      ["started", fullTime(s.started_at)], ["ended", fullTime(s.ended_at)],
      ["exit", s.exit ? (s.exit.signal || (s.exit.code ?? "") + "" || s.exit.reason || "") : ""],
      ["host", s.host], ["directory", s.cwd], ["command", s.argv?.length ? argvNodes(s.argv) : ""], ["versions", Object.entries(s.versions ?? {}).map((v) => v.join(" ")).join(", ")],
      ["can", s.capabilities ? `level ${s.capabilities.level}: ${(s.capabilities.commands ?? []).join(", ")}` : ""],
      ["turns", (s.turns ?? []).length + (s.dropped?.turns ?? 0) || ""], ["events", s.last_seq],
      ["warnings", (s.warnings ?? []).slice(-5).map((w) => `${words(w.what)}${w.text ? ": " + line(w.text, 120) : ""}`).join("; ")],
    ].filter(([, v]) => v !== "" && v !== undefined && v !== null);
    const ci = jobLink(info.labels);
    this.table.replaceChildren(...rows.flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, Array.isArray(v) ? v : visible(String(v)).slice(0, 600))]), ...(ci ? [el("dt", {}, "CI job"), el("dd", {}, ci)] : []));
  }
}

// workflowOf names a run by its first workflow, where it has one.
function workflowOf(s) {
  const t = (s.tasks ?? []).find((t) => t.type === "local_workflow" && (t.label || t.name));
  return t ? line(t.label || t.name, 100) : "";
}

const state = (id) => (id ? line(id, 80) : "");

// jobLink leads to the job that the CI's own variables name, not to anything an agent said. Only web
// addresses are links, and the whole address is what is read.
function jobLink(labels) {
  const s = labels?.ciurl;
  if (!s || !/^https:\/\/[a-z0-9.-]+(:\d+)?\/[!-~]*$/i.test(s)) return null;
  return el("a", { href: s, rel: "noopener noreferrer", target: "_blank" }, line(s, 120));
}

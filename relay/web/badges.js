// States and verdicts as small marks: a word, a colour and a shape, so that none of them is needed alone.

import { el } from "./dom.js";
import { words } from "./format.js";

const shapes = { starting: "◌", working: "◐", waiting: "?", idle: "○", done: "■", lost: "✕" };

export function stateBadge(state, alive = true) {
  const known = state in shapes;
  const away = !alive && ["starting", "working", "waiting", "idle"].includes(state);
  return el(`span.badge.s-${known ? state : "other"}`, { title: away ? "no word from its edge" : null },
    el("span.shape", { "aria-hidden": "true" }, shapes[state] ?? "·"), words(state || "unknown") + (away ? " (away)" : ""));
}

const verdicts = { success: "✓", failed: "✕", denied: "⊘", incomplete: "◒", interrupted: "□", lost: "?" };

export function verdictBadge(verdict, provisional = false) {
  if (!verdict) return "";
  const known = verdict in verdicts;
  return el(`span.badge.v-${known ? verdict : "other"}`, {}, el("span.shape", { "aria-hidden": "true" }, verdicts[verdict] ?? "·"), words(verdict) + (provisional ? ", provisional" : ""));
}

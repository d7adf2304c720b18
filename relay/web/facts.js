// What cbcast itself states about a run, as blocks.

import { argvText } from "./argv.js";
import { bytes, count, line, words } from "./format.js";

export function fact(b, e) {
  const d = e.frames[0] ?? {};
  switch (e.what) {
    case "started": {
      const argv = argvText(d.argv ?? []);
      b.note("life", d.source ? `started (${words(d.source)})` : "started", [argv, d.host && "on " + d.host].filter(Boolean).join(" "));
      return;
    }
    case "session":
      if (d.previous) b.note("life", "the session changed", d.session);
      return;
    case "input":
      b.note("user", d.type === "user" || !d.type ? "message" : "input", `${bytes(d.bytes ?? 0)}, text not recorded`);
      return;
    case "exited":
      b.settle();
      b.noMore();
      b.note(d.code === 0 ? "life" : "warn", "the agent has left", exit(d));
      return;
    case "gap":
      b.add("gap", { text: `${count(d.frames ?? 0, "line")}, ${bytes(d.bytes ?? 0)} are missing here: ${words(d.reason)}` });
      return;
    case "stalled":
      b.note("warn", words(d.what), `for ${d.seconds} s`);
      return;
    case "session_conflict":
      b.note("warn", "another live run uses this session", d.run);
      return;
    case "incompatible":
      b.note("warn", "nobody could answer a request of the agent", d.request);
      return;
    case "output":
      b.add("lines", { what: `file of a task: ${e.ext.outputfile ?? ""}`, text: e.bytes || e.ext.outputerror || "", count: 1, folded: true });
      return;
    case "ask":
      if (d.ask) b.ask(d.ask, { state: "closed", reason: d.reason, by_: d.by, decision: d.decision, outcome: d.outcome });
      return;
    case "decision":
      if (d.ask) b.ask(d.ask, { state: d.error ? "open" : "answered", decision: d.decision, by_: "policy", rule: d.rule, trouble: d.error, tool: d.tool });
      return;
    case "command":
      if (d.name !== "answer") b.command(d.command, d.name, { fact: d.fact, reason: d.reason, seq: e.seq, at: e.at }); // of an answer its ask tells
      return;
    case "lost":
      b.add("gap", { head: "Lost.", text: "No word from the edge; the verdict is provisional." });
      return;
    case "resumed":
      b.note("life", "the edge or its spool spoke again");
  }
}

function exit(d) {
  const parts = [];
  if (d.signal) parts.push(line(d.signal, 20));
  else if (d.code !== undefined && d.code !== null) parts.push(`exit code ${Number(d.code)}`);
  if (d.reason) parts.push(words(d.reason));
  if (d.ended) parts.push(`ended by ${words(d.ended)}`);
  if (d.complete === false) parts.push("not everything it said is here");
  return parts.join(", ");
}

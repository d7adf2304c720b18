// What codex app-server says, as blocks.

import { contentText } from "./blocks.js";
import { duration, line, words } from "./format.js";

const text = (v) => (typeof v === "string" ? v : "");

export function codex(b, e, f) {
  const p = f.params ?? {};
  const by = e.task;
  if (f.id !== undefined && e.ask) return ask(b, e, f, p);
  switch (f.method) {
    case "item/started":
      return item(b, p.item ?? {}, by, false);
    case "item/completed":
      return item(b, p.item ?? {}, by, true);
    case "item/agentMessage/delta":
    case "item/plan/delta":
      return b.grow(text(p.itemId), text(p.delta), by);
    case "item/commandExecution/outputDelta":
      return b.toolOutput(text(p.itemId), text(p.delta));
    case "turn/completed": {
      if (by) return;
      b.settle();
      const t = p.turn ?? {};
      const bad = t.status === "failed" || Boolean(t.error);
      b.add("turn", { bad, text: text(t.error?.message), facts: [t.status === "completed" ? "turn done" : "turn " + words(t.status), duration(t.durationMs)].filter(Boolean) });
      return;
    }
    case "error":
      b.note(p.willRetry ? "warn" : "bad", p.willRetry ? "error, trying again" : "error", text(p.error?.message), by);
      return;
    case "warning":
    case "configWarning":
    case "guardianWarning":
    case "deprecationNotice":
      b.note("dim", words(f.method), text(p.message) || text(p.summary), by);
      return;
    case "thread/compacted":
      b.note("dim", "the conversation was compacted", undefined, by);
      return;
    case "serverRequest/resolved":
      return;
  }
  if (f.error && f.id !== undefined) b.note("warn", "an error in answer to a request", text(f.error.message));
}

function ask(b, e, f, p) {
  if (!f.method) return void b.ask(e.ask, { state: "answered" }); // the host's answer
  const title = text(p.command) || text(p.questions?.[0]?.question) || text(p.message) || text(p.reason);
  b.ask(e.ask, { tool: toolOf(f.method), title });
}

const toolOf = (method) => method.replace(/^item\//, "").replace(/\/request.*$/, "").replace(/\//g, " ");

const states = { inProgress: "running", completed: "done", failed: "failed", declined: "failed" };

function item(b, i, by, over) {
  const id = text(i.id);
  const state = over ? states[i.status] ?? "done" : "running";
  const tool = (name, title, input, output) => {
    const known = b.tools.get(id);
    b.tool(id, { name, title, input, state, ...(output ? { output } : known ? {} : { output: "" }), ...(over ? { endedAt: b.e.at } : {}) }, by);
  };
  switch (i.type) {
    case "agentMessage":
    case "plan":
      if (over) b.text("agent", text(i.text), by, id);
      else b.begin(id);
      return;
    case "userMessage":
      if (over || b.uuids.has(id)) return;
      b.uuids.add(id);
      b.add("text", { who: by ? "prompt" : "user", text: contentText(i.content), draft: false, uuid: id }, by);
      return;
    case "reasoning":
      return over ? undefined : b.thought(by);
    case "commandExecution":
      return tool("command", text(i.command), { command: i.command, cwd: i.cwd },
        [text(i.aggregatedOutput), over && i.exitCode ? `exit code ${i.exitCode}` : ""].filter(Boolean).join("\n"));
    case "fileChange":
      return tool("file change", (i.changes ?? []).map((c) => text(c?.path)).join(", "), { changes: i.changes });
    case "mcpToolCall":
      return tool(`${text(i.server)}/${text(i.tool)}`, line(JSON.stringify(i.arguments ?? {}), 120), i.arguments, contentText(i.result?.content ?? i.error?.message));
    case "dynamicToolCall":
      return tool(text(i.tool), line(JSON.stringify(i.arguments ?? {}), 120), i.arguments, contentText(i.contentItems));
    case "collabAgentToolCall":
      return tool(`agent: ${words(i.tool)}`, text(i.prompt), { prompt: i.prompt, agents: i.receiverThreadIds });
    case "webSearch":
      return tool("web search", text(i.query), { query: i.query });
    case "contextCompaction":
      return over ? b.note("dim", "the conversation was compacted", undefined, by) : undefined;
    case "subAgentActivity":
      return over ? undefined : b.note("task", `sub-agent ${words(i.kind)}`, text(i.agentPath), by);
  }
}

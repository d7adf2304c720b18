// What claude and cbc say, as blocks.

import { contentText, titleOf } from "./blocks.js";
import { duration, money, words } from "./format.js";

export function claude(b, e, f) {
  const by = text(f.parent_tool_use_id) || e.parent;
  if (e.stream === "in") return fromHost(b, e, f);
  switch (f.type) {
    case "assistant":
      return assistant(b, f, by);
    case "user":
      return user(b, f, by);
    case "stream_event":
      return delta(b, f.event ?? {}, by);
    case "result":
      return result(b, f);
    case "system":
      return system(b, e, f);
    case "control_request":
      return asked(b, e, f.request ?? {});
    case "control_cancel_request":
      if (e.ask) b.ask(e.ask, { state: "closed", reason: "withdrawn" });
      return;
    case "error":
      b.note("bad", "error", contentText(f.error?.message ?? f.error ?? f.message));
      return;
    case "rate_limit_event":
      return;
  }
}

const text = (v) => (typeof v === "string" ? v : "");

// A tool that is called through another one is shown as itself.
export function effective(name, input) {
  if (name === "DeferExecuteTool" && input && typeof input === "object") return [text(input.toolName) || name, input.params ?? input];
  return [name, input];
}

function assistant(b, f, by) {
  const content = f.message?.content;
  if (f.uuid && b.uuids.has(f.uuid)) return;
  if (typeof content === "string") return void mark(b, f, b.text("agent", content, by, draftOf(b, by, content)));
  for (const part of Array.isArray(content) ? content : []) {
    switch (part?.type) {
      case "text":
        mark(b, f, b.text("agent", text(part.text), by, draftOf(b, by, text(part.text))));
        break;
      case "tool_use":
      case "server_tool_use":
      case "mcp_tool_use": {
        const [name, input] = effective(text(part.name), part.input);
        b.tool(text(part.id), { name, input, title: titleOf(input) }, by);
        break;
      }
      case "thinking":
      case "redacted_thinking":
        b.thought(by);
        break;
      default:
        b.note("dim", `[${words(part?.type ?? "block")}]`, undefined, by);
    }
  }
}

// mark remembers a message by its uuid: agents repeat some.
function mark(b, f, block) {
  if (!f.uuid || !block) return;
  b.uuids.add(f.uuid);
  block.uuid = f.uuid;
}

// draftOf finds the draft that a text completes: the one that begins as it does.
function draftOf(b, by, whole) {
  for (const [key, d] of b.drafts) {
    if (d.by === by && (whole.startsWith(d.text) || (d.headless && whole.endsWith(d.text)))) return key;
  }
  return undefined;
}

function user(b, f, by) {
  if (f.uuid && b.uuids.has(f.uuid)) return;
  const content = f.message?.content;
  if (typeof content === "string") return void mark(b, f, said(b, content, by));
  for (const part of Array.isArray(content) ? content : []) {
    if (part?.type === "tool_result") b.toolResult(text(part.tool_use_id), contentText(part.content), part.is_error === true, by);
    else if (part?.type === "text") mark(b, f, said(b, text(part.text), by));
    else if (part?.type) b.note("dim", `[${words(part.type)}]`, undefined, by);
  }
}

// said is a user's message. One to a sub-agent is its prompt.
function said(b, s, by) {
  return s.trim() === "" ? null : b.add("text", { who: by ? "prompt" : "user", text: s, draft: false }, by);
}

function delta(b, ev, by) {
  const key = `${by}|${ev.index ?? 0}`;
  switch (ev.type) {
    case "message_start":
      b.settle((k) => k.startsWith(by + "|"));
      return;
    case "content_block_start":
      if (ev.content_block?.type === "text") b.begin(key);
      if (ev.content_block?.type === "tool_use") b.tool(text(ev.content_block.id), { name: text(ev.content_block.name) }, by);
      if (ev.content_block?.type === "thinking") b.thought(by);
      return;
    case "content_block_delta":
      if (ev.delta?.type === "text_delta") b.grow(key, text(ev.delta.text), by);
      if (ev.delta?.type === "thinking_delta") b.thought(by);
  }
}

function result(b, f) {
  b.settle();
  const bad = f.is_error === true || (f.subtype && f.subtype !== "success");
  const said = contentText(f.result) || (Array.isArray(f.errors) ? f.errors.map(contentText).join("\n") : "");
  const again = b.blocks.findLast((x) => x.kind === "text" && x.who === "agent" && !x.by)?.text.trim() === said.trim();
  b.add("turn", {
    bad, text: again && !bad ? "" : said,
    facts: [bad ? words(f.subtype && f.subtype !== "success" ? f.subtype : "error") : "turn done", duration(f.duration_ms), money(f.total_cost_usd)].filter(Boolean),
  });
}

function system(b, e, f) {
  switch (f.subtype) {
    case "task_started":
      b.note("task", "task started", text(f.workflow_name) || text(f.description) || text(f.task_id));
      return;
    case "task_notification":
      b.note(f.status === "completed" ? "task" : "bad", `task ${words(f.status)}`, text(f.summary) || text(f.task_id));
      return;
    case "api_retry":
      b.note("warn", "the model's API failed, trying again", [f.error, f.error_message, f.attempt && `attempt ${f.attempt}`].map(contentText).filter(Boolean).join(" · "));
      return;
    case "api_error":
    case "model_fallback":
    case "model_refusal_fallback":
    case "model_refusal_no_fallback":
    case "permission_denied":
    case "permission_retry":
      b.note("warn", words(f.subtype), contentText(f.message ?? f.content ?? f.error ?? f.tool_name));
      return;
    case "compact_boundary":
      b.note("dim", "the conversation was compacted");
      return;
    case "informational":
    case "notification":
    case "local_command_output":
      b.note("dim", contentText(f.content ?? f.message ?? f.text));
  }
}

function asked(b, e, r) {
  if (!e.ask) return;
  const [name, input] = effective(text(r.tool_name), r.input);
  const title = name === "AskUserQuestion" ? text(input?.questions?.[0]?.question) : name === "ExitPlanMode" ? "a plan" : titleOf(input);
  b.ask(e.ask, { tool: name, title: title || text(r.message) });
}

// fromHost is what was written to the agent.
function fromHost(b, e, f) {
  if (f.type === "user") {
    if (f.uuid && b.uuids.has(f.uuid)) return;
    const s = contentText(f.message?.content);
    return void mark(b, f, said(b, s, ""));
  }
  if (f.type === "control_response" && e.ask) {
    const r = f.response?.response ?? {};
    const yes = r.behavior === "allow" || r.allowed === true || r.action === "accept";
    b.ask(e.ask, { state: "answered", decision: yes ? "allow" : "deny", chosen: yes ? chosen(r.updatedInput?.params?.answers ?? r.updatedInput?.answers) : "" });
  }
}

// chosen are the answers to the questions of an ask.
function chosen(answers) {
  if (!answers || typeof answers !== "object") return "";
  return Object.values(answers).slice(0, 20).map((v) => contentText(v)).filter(Boolean).join("; ");
}

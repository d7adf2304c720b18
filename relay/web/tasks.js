// Tasks as a list: what the timeline draws, in words, and the button that stops one.

import { el, Keyed, set, text } from "./dom.js";
import * as api from "./api.js";
import { compact, count, duration, line, when, words } from "./format.js";

export const openTask = (t) => t.status === "running" || t.status === "pending" || t.status === "paused";

export class Tasks {
  constructor(commands) {
    this.commands = commands;
    this.list = el("ul.tasks");
    this.none = el("p.dim", {}, "No tasks: the agent works in its turn alone.");
    this.title = el("h2", { id: "tasks-title" }, "Tasks");
    this.node = el("section.card", { "aria-labelledby": "tasks-title" }, this.title, this.none, this.list);
    this.rows = new Keyed(this.list, (t) => t.id, (t) => new TaskRow(t, this));
  }

  show(tasks, dropped) {
    const open = tasks.filter(openTask).length;
    text(this.title, tasks.length ? `Tasks (${open ? `${open} of ${tasks.length} open` : tasks.length})` : "Tasks");
    this.none.hidden = tasks.length > 0;
    // What runs comes first, then what ended last.
    const list = [...tasks.filter(openTask), ...tasks.filter((t) => !openTask(t)).reverse()];
    this.rows.show(list.slice(0, 100));
    const left = Math.max(0, list.length - 100) + (dropped ?? 0);
    this.rest ??= this.node.appendChild(el("p.dim"));
    text(this.rest, left ? `and ${count(left, "more task")}` : "");
  }
}

class TaskRow {
  constructor(t, tasks) {
    this.tasks = tasks;
    this.mark = el("span.mark", { "aria-hidden": "true" });
    this.name = el("span.name");
    this.status = el("span.status");
    this.sub = el("div.sub-line");
    this.stop = el("button.quiet", { type: "button", onclick: () => this.tasks.commands.stopTask(t.id) }, "Stop");
    this.node = el("li.task", { "data-task": t.id }, el("div.task-line", {}, this.mark, this.name, this.status, this.stop), this.sub);
  }

  update(t) {
    const [shape, look] = { completed: ["✓", "done"], failed: ["✕", "failed"], killed: ["✕", "failed"], stopped: ["□", "cut"], running: ["◐", "running"], pending: ["○", "running"], paused: ["‖", "running"] }[t.status] ?? ["·", "none"];
    text(this.mark, shape);
    set(this.mark, "class", "mark " + look);
    text(this.name, line(t.label || t.name || t.description || t.id, 100));
    text(this.status, words(t.status) + (t.by ? ` by ${words(t.by)}` : ""));
    const from = when(t.started_at);
    const to = t.ended_at ? when(t.ended_at) : openTask(t) ? api.now() : NaN;
    const agents = t.agents ?? [];
    const failed = agents.filter((a) => a.state === "error").length;
    text(this.sub, [words(t.type ?? ""), agents.length ? `${agents.filter((a) => a.state === "done").length}/${count(agents.length, "agent")} done${failed ? `, ${failed} failed` : ""}` : "", duration(to - from),
      t.usage?.total_tokens ? compact(t.usage.total_tokens) + " tokens" : "", line(t.error || t.summary || "", 200)].filter(Boolean).join(" · "));
    this.stop.hidden = !openTask(t);
    this.stop.disabled = !this.tasks.commands.canStop;
  }
}

// A host program that answers asks and interrupts, as the SDKs for TypeScript of
// Claude and of CodeBuddy make it: live.mjs SDK OPTIONS MESSAGE…
// It interrupts when it reads a line, sends the next message at each result, and
// closes after the last.
import { createInterface } from "node:readline";

const [sdk, options, ...messages] = process.argv.slice(2);
const module = await import(sdk);
const { query } = module.query ? module : module.default;
const say = (m) => console.log(JSON.stringify(m));

let next;
async function* prompt() {
  for (const content of messages) {
    const turn = new Promise((resolve) => (next = resolve));
    yield { type: "user", session_id: "", parent_tool_use_id: null, message: { role: "user", content } };
    if (messages.length > 1) await turn; // CodeBuddy's reads nothing before the input has ended
  }
}
async function canUseTool(tool, input) {
  say({ class: "canUseTool", tool, input });
  return { behavior: "allow", updatedInput: input };
}
const q = query({ prompt: prompt(), options: { ...JSON.parse(options), canUseTool } });
createInterface({ input: process.stdin }).on("line", async () => {
  await q.interrupt();
  say({ class: "interrupted" });
});
let left = messages.length;
for await (const m of q) {
  say(m);
  if (m.type !== "result") continue;
  next?.();
  if (--left === 0) break;
}
q.close?.();
say({ class: "closed" });
process.exit(0);

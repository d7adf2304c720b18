// What the test reads of a client: a line for each event, and one at the end.
export const say = (stream, event) =>
  process.stdout.write(`${stream} ${event.name} ${event.id || "-"} ${event.data.length} ${JSON.parse(event.data).id ?? "-"}\n`);
export const end = (stream) => process.stdout.write(`${stream} end\n`);
export const fail = (stream, why) => process.stdout.write(`${stream} failed ${why}\n`);

// The addresses to follow, and the token for them.
export const addresses = process.argv.slice(2);
export const token = process.env.CBCAST_TOKEN;

// A command line as it is recorded: what may be a prompt or a secret stands there as its length and a
// keyed hash (13:b34a…).

import { el } from "./dom.js";
import { bytes, line } from "./format.js";

const most = 60; // arguments that are shown
const masked = /^([\w.-]+=)?(\d{1,12}):([0-9a-f]{32})$/;

// argvNodes is the command line as nodes. That of a masked argument tells its hash when asked.
export function argvNodes(argv) {
  return argv.slice(0, most).flatMap((a, i) => {
    const m = masked.exec(a);
    return [i ? " " : "", m ? [m[1] ?? "", el("span.masked", { title: `masked: ${size(m[2])}, keyed hash ${m[3]}: the same text has the same one on its machine` }, `[masked: ${size(m[2])}]`)] : line(a, 300)].flat();
  });
}

// argvText is the same in one line.
export const argvText = (argv) => argv.slice(0, most).map((a) => String(a).replace(masked, (_, flag, n) => `${flag ?? ""}[masked: ${size(n)}]`)).join(" ");

const size = (n) => (Number(n) < 1024 ? `${Number(n)} ${Number(n) === 1 ? "byte" : "bytes"}` : bytes(Number(n)));

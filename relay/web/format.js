// How things are written for people. Everything that an agent said goes through visible.

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028\u2029\u034f\u115f\u1160\u3164\uffa0\p{Cf}\p{Cs}]/gu;
const EMOJI_BEFORE = /[\p{Extended_Pictographic}\p{Emoji_Modifier}\ufe0f]$/u;
const EMOJI_AFTER = /^\p{Extended_Pictographic}/u;

// visible shows what would not be seen, or would turn the order of what is: control characters
// as their pictures, characters that steer direction or have no width by their number. The joiner
// inside an emoji stays.
export function visible(s) {
  s = String(s ?? "");
  return s.replace(HIDDEN, (c, at) => {
    const n = c.codePointAt(0);
    if (n === 0x0d && s[at + 1] === "\n") return "";
    if (n < 0x20) return String.fromCharCode(0x2400 + n);
    if (n === 0x7f) return "\u2421";
    if (n === 0x200d && EMOJI_BEFORE.test(s.slice(Math.max(0, at - 2), at)) && EMOJI_AFTER.test(s.slice(at + 1, at + 3))) return c;
    return "\u27e8U+" + n.toString(16).toUpperCase().padStart(4, "0") + "\u27e9";
  });
}

// line is visible on one line, at most max characters.
export function line(s, max = 200) {
  s = String(s ?? "");
  if (s.length > 4 * max) s = s.slice(0, 4 * max);
  const t = visible(s.replace(/\s+/g, " ").trim());
  return t.length > max ? t.slice(0, max - 1) + "…" : t;
}

export function count(n, one, many = one + "s") {
  return `${number(n)} ${n === 1 ? one : many}`;
}

export function number(n) {
  return Number(n ?? 0).toLocaleString("en-US");
}

// short numbers for tokens: 940, 12.3k, 4.1M
export function compact(n) {
  n = Number(n ?? 0);
  if (n < 1000) return String(n);
  if (n < 1e6) return (n / 1e3).toFixed(n < 1e5 ? 1 : 0) + "k";
  return (n / 1e6).toFixed(1) + "M";
}

export function bytes(n) {
  if (n < 1024) return `${n} B`;
  if (n < 1 << 20) return `${(n / 1024).toFixed(1)} KiB`;
  return `${(n / (1 << 20)).toFixed(1)} MiB`;
}

export function money(usd) {
  return usd > 0 ? "$" + (usd < 1 ? usd.toFixed(4) : usd.toFixed(2)) : "";
}

// duration of ms: 340 ms, 4.2 s, 1 m 05 s, 2 h 03 m
export function duration(ms) {
  if (!(ms >= 0)) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(ms < 9950 ? 1 : 0)} s`;
  const s = Math.round(ms / 1000);
  const two = (n) => String(n).padStart(2, "0");
  if (s < 3600) return `${Math.floor(s / 60)} m ${two(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${two(Math.floor((s % 3600) / 60))} m`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

// since is a duration in one unit: 5 s, 12 min, 3 h, 2 d
export function since(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

// when parses a time of the relay; NaN where there is none (Go's zero time is none).
export function when(t) {
  if (!t || String(t).startsWith("0001-")) return NaN;
  return Date.parse(t);
}

export function clockTime(t) {
  const ms = typeof t === "number" ? t : when(t);
  return Number.isNaN(ms) ? "" : new Date(ms).toLocaleTimeString([], { hour12: false });
}

// dayTime is a time with its day, where that is not today.
export function dayTime(t, now) {
  const d = new Date(t);
  if (d.toDateString() === new Date(now).toDateString()) return clockTime(t);
  return d.toLocaleString([], { month: "short", day: "numeric", ...(now - t > 300 * 86_400_000 ? { year: "numeric" } : { hour: "2-digit", minute: "2-digit", hour12: false }) });
}

export function fullTime(t) {
  const ms = typeof t === "number" ? t : when(t);
  return Number.isNaN(ms) ? "" : new Date(ms).toLocaleString([], { hour12: false, timeZoneName: "short" });
}

// pretty is JSON for people; what is no JSON stays as it is.
export function pretty(v) {
  if (v === undefined || v === null) return "";
  if (typeof v === "string") return v;
  return JSON.stringify(v, null, 2);
}

// words turns a word of the wire into one for people: no_effect → no effect.
export function words(s) {
  return line(String(s ?? "").replaceAll("_", " "), 80);
}

export const shortID = (id) => line(String(id ?? ""), 64).slice(-8);

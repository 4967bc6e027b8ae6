// Numbers and times as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const minute = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const date = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

export function count(value: number): string {
  if (!Number.isFinite(value)) return "–";
  return value > -0.5 && value < 0 ? "0" : whole.format(value).replace("-", "−");
}

export function signed(value: number): string {
  if (!Number.isFinite(value)) return "–";
  return Math.abs(value) < 0.5 ? "±0" : (value > 0 ? "+" : "") + count(value);
}

export function halfWidth(value: number): string { return Number.isFinite(value) ? `±${count(value)}` : "±?"; }

export function percent(value: number, digits = 1): string {
  return Number.isFinite(value) ? `${(100 * value).toFixed(digits)}%` : "–";
}

/** Epsilon with as many digits as matter: 0.041666 is 0.0417, and what rounding leaves of a budget is 0. */
export function epsilon(value: number): string {
  if (!Number.isFinite(value)) return "–";
  if (Math.abs(value) < 1e-6) return "0";
  return Number(value.toPrecision(3)).toString();
}

export function duration(seconds: number): string {
  const size = Math.abs(seconds);
  if (size < 1) return `${Math.round(size * 1000)} ms`;
  if (size < 90) return `${Number(size.toFixed(size < 10 ? 1 : 0))} s`;
  if (size < 5400) return `${Math.round(size / 60)} min`;
  if (size < 129_600) return `${Number((size / 3600).toFixed(1))} h`;
  return `${Math.round(size / 86_400)} days`;
}

export function ago(seconds: number): string { return seconds < 1 ? "just now" : `${duration(seconds)} ago`; }

/** The time of day; of another day than today, or if slots are long, the day and the minute. */
export function time(seconds: number): string {
  const at = new Date(seconds * 1000);
  return Math.abs(Date.now() / 1000 - seconds) < 43_200 ? clock.format(at) : day.format(at);
}

/** A mark of an axis whose marks are `step` seconds apart. */
export function axisTime(seconds: number, step: number): string {
  const at = new Date(seconds * 1000);
  if (step >= 86_400) return date.format(at);
  if (at.getHours() === 0 && at.getMinutes() === 0 && step >= 600) return date.format(at);
  return (step < 60 ? clock : minute).format(at);
}

const SPANS: [string, number][] = [
  ["1 minute", 60], ["10 minutes", 600], ["1 hour", 3_600], ["6 hours", 21_600], ["1 day", 86_400], ["1 week", 604_800], ["30 days", 2_592_000], ["1 year", 31_536_000],
];
const FEWEST_SLOTS = 12;

/** Three lengths of time that suit slots of so many seconds: the first has at least 12 slots. */
export function spansFor(slotSeconds: number): [string, number][] {
  const first = SPANS.findIndex(([, seconds]) => seconds >= FEWEST_SLOTS * slotSeconds);
  return SPANS.slice(Math.min(first < 0 ? SPANS.length : first, SPANS.length - 3)).slice(0, 3);
}

export function bytes(value: number): string {
  const units = ["bytes", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit++; }
  return `${unit === 0 ? value : value.toFixed(value < 10 ? 1 : 0)} ${units[unit]}`;
}

/** "1 link", "2 links". */
export function plural(number: number, noun: string): string { return `${count(number)} ${noun}${number === 1 ? "" : "s"}`; }

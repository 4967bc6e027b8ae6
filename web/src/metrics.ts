// The text format of Prometheus, as far as the page needs it.

export interface Sample { labels: Record<string, string>; value: number }

export class Metrics {
  private readonly families = new Map<string, Sample[]>();

  constructor(text: string) {
    for (const line of text.split("\n")) {
      const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
      if (match === null) continue;
      const labels: Record<string, string> = {};
      for (const [, name, value] of (match[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
        labels[name] = value.replace(/\\(.)/g, (_, char: string) => (char === "n" ? "\n" : char));
      }
      const samples = this.families.get(match[1]) ?? [];
      samples.push({ labels, value: match[3] === "+Inf" ? Infinity : Number(match[3]) });
      this.families.set(match[1], samples);
    }
  }

  all(name: string): Sample[] { return this.families.get(name) ?? []; }

  value(name: string, labels: Record<string, string> = {}): number | null {
    const sample = this.all(name).find((one) => Object.entries(labels).every(([key, text]) => one.labels[key] === text));
    return sample === undefined ? null : sample.value;
  }

  sum(name: string): number { return this.all(name).reduce((total, one) => total + one.value, 0); }

  /** The bound of the bucket below which a part of all observations of a histogram are; null without observations. */
  quantile(name: string, part: number): number | null {
    const buckets = this.all(`${name}_bucket`).map((one) => ({ bound: Number(one.labels.le.replace("+Inf", "Infinity")), count: one.value }));
    buckets.sort((a, b) => a.bound - b.bound);
    const total = buckets.length === 0 ? 0 : buckets[buckets.length - 1].count;
    if (total === 0) return null;
    return buckets.find((one) => one.count >= part * total)?.bound ?? null;
  }
}

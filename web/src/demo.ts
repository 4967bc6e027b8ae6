// What only a demo knows: the truth, and what simpler ways of releasing the same counts would have shown.

import { Session } from "./api";
import type { Column, DemoColumns } from "./api";
import type { Overlay } from "./server";

const MOST_SLOTS = 10_000;

export type Method = "truth" | "alone" | "naive";

export class Demo {
  note = "";
  server = "";
  version = 0;
  private readonly columns: Record<Method, Map<string, Overlay>> = { truth: new Map(), alone: new Map(), naive: new Map() };
  private last = -1;
  private timer = 0;

  constructor(private readonly path: string, private readonly session: Session, private readonly changed: () => void) {}

  start(): void {
    const read = async () => {
      try {
        this.take(await this.session.json<DemoColumns>(`${this.path}?after=${this.last}`));
      } catch { /* the demo has ended, or is busy: the next answer has these slots, too */ }
    };
    void read();
    this.timer = window.setInterval(() => void read(), 1_000);
  }

  close(): void { clearInterval(this.timer); }

  /** The values of a method by slot, of a region or in total. */
  values(method: Method, region: string | null): Overlay { return this.columns[method].get(region ?? "") ?? new Map(); }

  private take(columns: DemoColumns): void {
    if (this.note === columns.note && columns.slots.length === 0) return;
    this.note = columns.note;
    this.server = columns.server;
    const add = (method: Method, region: string, values: Column) => {
      const known = this.columns[method].get(region) ?? new Map<number, number>();
      columns.slots.forEach((slot, index) => known.set(slot, values[index] ?? NaN));
      for (const slot of known.keys()) {
        if (known.size <= MOST_SLOTS) break;
        known.delete(slot);
      }
      this.columns[method].set(region, known);
    };
    add("truth", "", columns.truth);
    add("alone", "", columns.alone);
    add("naive", "", columns.naive);
    columns.regions.forEach((region, place) => {
      add("truth", region, columns.truth_regions[place]);
      add("alone", region, columns.alone_regions[place]);
      add("naive", region, columns.naive_regions[place]);
    });
    this.last = columns.slots.length === 0 ? this.last : columns.slots[columns.slots.length - 1];
    this.version++;
    this.changed();
  }
}

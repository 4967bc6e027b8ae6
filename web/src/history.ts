// The releases of one server in typed arrays of fixed size: hours of slots need no more memory than the first.

import type { Columns } from "./api";

const MOST_SLOTS = 10_000;
const MOST_NUMBERS = 10_000_000;

/** A ring of slots. Places run from 0, the oldest, to `length` - 1, the newest. */
export class History {
  readonly capacity: number;
  readonly places: Map<string, number>;
  length = 0;
  /** Increases with every change, so that drawings know when they are out of date. */
  version = 0;
  private head = 0;
  private readonly slots: Float64Array;
  private readonly times: Float64Array;
  private readonly samples: Uint8Array;
  private readonly heards: Uint16Array;
  private readonly spent: Float64Array;
  private readonly totals: Float64Array;
  private readonly totalHalves: Float64Array;
  private readonly estimates: Float32Array;
  private readonly halves: Float32Array;

  constructor(readonly regions: string[]) {
    const width = Math.max(regions.length, 1);
    this.capacity = Math.max(128, Math.min(MOST_SLOTS, Math.floor(MOST_NUMBERS / width)));
    this.places = new Map(regions.map((name, place) => [name, place]));
    this.slots = new Float64Array(this.capacity);
    this.times = new Float64Array(this.capacity);
    this.samples = new Uint8Array(this.capacity);
    this.heards = new Uint16Array(this.capacity);
    this.spent = new Float64Array(this.capacity);
    this.totals = new Float64Array(this.capacity);
    this.totalHalves = new Float64Array(this.capacity);
    this.estimates = new Float32Array(this.capacity * regions.length);
    this.halves = new Float32Array(this.capacity * regions.length);
  }

  private at(place: number): number { return (this.head + place) % this.capacity; }

  slot(place: number): number { return this.slots[this.at(place)]; }
  opens(place: number): number { return this.times[this.at(place)]; }
  sampled(place: number): boolean { return this.samples[this.at(place)] === 1; }
  heard(place: number): number { return this.heards[this.at(place)]; }
  epsilon(place: number): number { return this.spent[this.at(place)]; }

  /** The estimate of a region, or of all with -1; NaN if there is none. */
  estimate(place: number, region: number): number {
    return region < 0 ? this.totals[this.at(place)] : this.estimates[region * this.capacity + this.at(place)];
  }

  halfWidth(place: number, region: number): number {
    return region < 0 ? this.totalHalves[this.at(place)] : this.halves[region * this.capacity + this.at(place)];
  }

  get lastSlot(): number { return this.length === 0 ? -1 : this.slot(this.length - 1); }

  /** The place of a slot, or of the first one after it. */
  find(slot: number): number {
    let low = 0, high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.slot(middle) < slot) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Add newer slots, or fill in what is known of older ones. Slots before the oldest one are put before it. */
  merge(columns: Columns): void {
    const regions = columns.regions.map((name) => this.places.get(name) ?? -1);
    if (columns.slots.length === 0) return;
    if (this.length > 0 && columns.slots[0] < this.slot(0)) this.prepend(columns);
    for (let index = 0; index < columns.slots.length; index++) {
      const slot = columns.slots[index];
      if (this.length > 0 && slot < this.slot(0)) continue;
      let place = this.length === 0 ? 0 : slot > this.lastSlot ? this.length : this.find(slot);
      if (place === this.length) place = this.append(slot);
      else if (this.slot(place) !== slot) continue;
      this.write(this.at(place), columns, index, regions);
    }
    this.version++;
  }

  private append(slot: number): number {
    if (this.length === this.capacity) this.head = (this.head + 1) % this.capacity;
    else this.length++;
    const at = this.at(this.length - 1);
    this.clear(at, slot);
    return this.length - 1;
  }

  private clear(at: number, slot: number): void {
    this.slots[at] = slot;
    this.totals[at] = this.totalHalves[at] = NaN;
    for (let region = 0; region < this.regions.length; region++) {
      this.estimates[region * this.capacity + at] = NaN;
      this.halves[region * this.capacity + at] = NaN;
    }
  }

  private prepend(columns: Columns): void {
    const first = this.slot(0);
    let count = 0;
    while (count < columns.slots.length && columns.slots[count] < first) count++;
    count = Math.min(count, this.capacity - this.length);
    for (let index = 0; index < count; index++) {
      this.head = (this.head + this.capacity - 1) % this.capacity;
      this.length++;
      this.clear(this.head, -1);
    }
    const from = columns.slots.findIndex((slot) => slot >= first);
    const end = from < 0 ? columns.slots.length : from;
    for (let index = 0; index < count; index++) this.slots[this.at(index)] = columns.slots[end - count + index];
  }

  private write(at: number, columns: Columns, index: number, regions: number[]): void {
    this.times[at] = columns.opens[index];
    this.samples[at] = columns.sampled[index] ? 1 : 0;
    this.heards[at] = columns.heard[index];
    this.spent[at] = columns.epsilon[index];
    this.totals[at] = columns.total[index] ?? NaN;
    this.totalHalves[at] = columns.total_half_width[index] ?? NaN;
    for (let number = 0; number < regions.length; number++) {
      if (regions[number] < 0) continue;
      this.estimates[regions[number] * this.capacity + at] = columns.estimate[number][index] ?? NaN;
      this.halves[regions[number] * this.capacity + at] = columns.half_width[number][index] ?? NaN;
    }
  }
}

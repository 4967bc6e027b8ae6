// One server as the page sees it: its releases, live, and its state, asked for every few seconds.
//
// A browser opens at most six connections to one address, and a stream keeps one. So of the many servers of a demo the
// one that is shown has a stream, and the others are asked for their last slots again and again.

import { Refused, Session } from "./api";
import type { Budget, Columns, NeighbourColumns, NetworkStatus, PageServer, Quality, Readiness, Topology } from "./api";
import { History } from "./history";
import { Metrics } from "./metrics";

export type Connection = "connecting" | "live" | "lost" | "denied";

const STATE_EVERY = 3_000;
const METRICS_EVERY = 10_000;
const FIRST_SLOTS = 2_000;
const FIRST_NUMBERS = 60_000;
const LONGEST_PAUSE = 8_000;
const LONGEST_POLL = 10_000;

/** Estimates of a server about another time or by another server, drawn beside its own: values by slot. */
export type Overlay = Map<number, number>;

/** Records of one server: what each says by itself, and half of its interval, by slot. */
export interface RecordLine { values: Overlay; halves: Overlay }
/** isLearned: records are divided by learned shares, not by public ones. */
export interface Others { neighbours: Map<string, Overlay>; records: Map<string, RecordLine>; isLearned: boolean }

export class Server {
  connection: Connection = "connecting";
  /** Since when the connection is what it is, in milliseconds. */
  since = Date.now();
  problem = "";
  network: NetworkStatus | null = null;
  topology: Topology | null = null;
  budget: Budget | null = null;
  metrics: Metrics | null = null;
  readiness: Readiness | null = null;
  shapes: unknown = null;
  quality: Quality | null = null;
  history: History | null = null;
  /** When the last release arrived, in milliseconds; 0 before the first. */
  arrived = 0;
  private readonly stop = new AbortController();
  /** Ends the stream, or the polling, when the other one is due. */
  private following = new AbortController();
  private shown = false;
  private readonly loadedFrom = new Map<number, number>();
  private readonly loading = new Set<string>();
  private timers: number[] = [];

  /** pollEvery: milliseconds, at least, between two questions while another server is shown */
  constructor(readonly place: PageServer, private readonly session: Session, private readonly changed: () => void,
              private readonly denied: (error: Refused) => void, private readonly pollEvery = 1_000) {}

  get name(): string { return this.network?.server ?? this.place.name ?? "this server"; }

  /** Whether servers pass records on, so that past slots are estimated again. */
  get keepsRecords(): boolean { return (this.network?.lag ?? null) !== null; }

  start(): void { void this.run(); }

  /** Follow this server by a stream, with its state and health, or only by its last slots. */
  show(shown: boolean): void {
    if (shown === this.shown) return;
    this.shown = shown;
    this.following.abort();
    if (shown && this.connection === "live") { void this.readState(); void this.readHealth(); }
  }

  close(): void {
    this.stop.abort();
    this.following.abort();
    for (const timer of this.timers) clearInterval(timer);
  }

  private get closed(): boolean { return this.stop.signal.aborted; }

  private path(rest: string): string { return this.place.path + rest; }

  private get<T>(rest: string): Promise<T> {
    return this.session.json<T>(this.path(rest), this.stop.signal);
  }

  private become(connection: Connection, problem = ""): void {
    if (connection !== this.connection) this.since = Date.now();
    this.connection = connection;
    this.problem = problem;
    this.changed();
  }

  private async run(): Promise<void> {
    let pause = 500;
    const every = (milliseconds: number, work: () => Promise<void>) => {
      this.timers.push(window.setInterval(() => { if (!document.hidden && this.shown && this.connection === "live") void work(); }, milliseconds));
    };
    every(STATE_EVERY, () => this.readState());
    every(METRICS_EVERY, () => this.readHealth());
    let isLoaded = false;
    while (!this.closed) {
      const { signal } = this.following = new AbortController();
      const answered = () => { pause = 500; if (this.connection !== "live") this.become("live"); };
      try {
        if (!isLoaded) await this.load();
        isLoaded = true;
        if (this.shown) await this.stream(signal, answered);
        else await this.poll(signal, answered);
        if (signal.aborted) continue;
        this.become("lost", "the server has ended the stream.");
      } catch (error) {
        if (this.closed) return;
        if (isLoaded && signal.aborted) continue;
        if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
          this.become("denied", error.message);
          this.denied(error);
          return;
        }
        this.become("lost", error instanceof Refused ? error.message : "the server does not answer.");
      }
      isLoaded = false;
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(2 * pause, LONGEST_PAUSE);
    }
  }

  private stream(signal: AbortSignal, opened: () => void): Promise<void> {
    const after = this.history === null || this.history.lastSlot < 0 ? "" : `&after=${this.history.lastSlot}`;
    return this.session.events(this.path(`/v1/stream?columns=true${after}`), signal,
      (event, data) => {
        if (event === "estimates") this.take(JSON.parse(data) as Columns);
        else if (event === "lost") void this.refill();
      }, opened);
  }

  /** Ask for the slots since the last answer until the signal comes; a page that nobody looks at does not ask. */
  private async poll(signal: AbortSignal, answered: () => void): Promise<void> {
    answered();
    const seconds = this.network?.slot_seconds ?? 1;
    const most = firstSlots(this.history?.regions.length ?? 1);
    for (let last = Date.now(); ;) {
      await pauseFor(Math.max(this.pollEvery, Math.min(1000 * seconds, LONGEST_POLL)), signal);
      if (signal.aborted) return;
      if (document.hidden) continue;
      const slots = Math.min(most, Math.ceil((Date.now() - last) / 1000 / seconds) + 2);
      this.take(await this.session.json<Columns>(this.path(`/v1/history?slots=${slots}`), signal));
      last = Date.now();
      answered();
    }
  }

  /** Read everything that a reader who has just come, or come back, does not have. */
  private async load(): Promise<void> {
    const [network, topology] = await Promise.all([
      this.get<NetworkStatus>("/v1/network"), this.get<Topology>("/v1/topology"), this.readState(), this.readHealth(),
    ]);
    this.network = network;
    this.topology = topology;
    if (this.history === null || this.history.regions.join("\n") !== network.regions.join("\n")) {
      this.history = new History(network.regions);
      this.loadedFrom.clear();
    }
    await this.readPast(this.history);
    if (topology.map && this.shapes === null) await this.readMap();
    this.changed();
  }

  /** Read the shapes of the regions; a file that the server cannot read costs the map, and nothing else. */
  private async readMap(): Promise<void> {
    try {
      this.shapes = await this.get("/v1/map");
    } catch (error) {
      if (!(error instanceof Refused && error.status === 404)) throw error;
    }
  }

  private async readPast(history: History): Promise<void> {
    const slots = firstSlots(history.regions.length);
    const [totals, recent] = await Promise.all([
      this.get<Columns>(`/v1/history?total_only=true&slots=${FIRST_SLOTS}`), this.get<Columns>(`/v1/history?slots=${slots}`),
    ]);
    history.merge(totals);
    history.merge(recent);
    for (let region = 0; region < history.regions.length; region++) {
      if (!this.loadedFrom.has(region)) this.loadedFrom.set(region, recent.slots[0] ?? 0);
    }
  }

  /** Read the past again: this reader was too slow, and the server has left slots out of the stream. */
  private async refill(): Promise<void> {
    if (this.history === null) return;
    const history = new History(this.history.regions);
    this.loadedFrom.clear();
    this.loading.clear();
    try {
      await this.readPast(history);
      this.history = history;
      await this.fill("/v1/history?slots=10", () => undefined);
    } catch { /* the stream tells whether the server answers */ }
  }

  private take(columns: Columns): void {
    if (this.history === null) return;
    const before = this.history.lastSlot;
    this.history.merge(columns);
    if (this.history.lastSlot === before) return;
    this.arrived = Date.now();
    this.changed();
  }

  private async readState(): Promise<void> {
    try {
      [this.network, this.budget] = await Promise.all([this.get<NetworkStatus>("/v1/network"), this.get<Budget>("/v1/budget")]);
      this.changed();
    } catch { /* the stream tells whether the server answers */ }
  }

  private async readHealth(): Promise<void> {
    try {
      const [metrics, readiness] = await Promise.all([
        this.session.text(this.path("/metrics"), this.stop.signal), this.get<Readiness>("/v1/readiness"),
      ]);
      this.metrics = new Metrics(metrics);
      this.readiness = readiness;
      this.quality = await this.get<Quality>("/v1/quality");
      this.changed();
    } catch { /* as above */ }
  }

  /** Have the past of some regions (-1: the total) loaded, as far back as the page keeps it. */
  need(regions: number[], everything: boolean): void {
    const history = this.history;
    if (history === null || history.length === 0) return;
    if (everything && !this.loading.has("total")) {
      this.loading.add("total");
      void this.fill(`/v1/history?total_only=true&slots=${history.capacity}`, () => undefined);
    }
    const oldest = history.slot(0);
    for (const region of regions) {
      const name = history.regions[region];
      const key = `${everything} ${name}`;
      if (region < 0 || this.loading.has(key) || (!everything && (this.loadedFrom.get(region) ?? 0) <= oldest)) continue;
      this.loading.add(key);
      const slots = everything ? history.capacity : history.length;
      void this.fill(`/v1/history?slots=${slots}&region=${encodeURIComponent(name)}`,
        (columns) => this.loadedFrom.set(region, columns.slots[0] ?? 0));
    }
  }

  private async fill(path: string, loaded: (columns: Columns) => void): Promise<void> {
    try {
      const columns = await this.get<Columns>(path);
      this.history?.merge(columns);
      loaded(columns);
      this.changed();
    } catch { /* it is asked for again when the page is opened the next time */ }
  }

  /** What others say, by their names: what neighbours estimated, and the records of all servers. */
  async others(region: string | null, slots: number): Promise<Others> {
    const query = region === null ? "" : `&region=${encodeURIComponent(region)}`;
    const columns = await this.get<NeighbourColumns>(`/v1/neighbours?slots=${slots}${query}`);
    const neighbours = Object.entries(columns.neighbours).filter(([, values]) => values.some((one) => one !== null));
    const records = Object.entries(columns.records ?? {});
    return {
      isLearned: records.some(([, one]) => one.learned?.at(-1) === true),
      neighbours: new Map(neighbours.map(([name, values]) => [name, overlay(columns.slots, values)])),
      records: new Map(records.map(([name, one]) => [name, { values: overlay(one.slots, one.value), halves: overlay(one.slots, one.half_width) }])),
    };
  }

  /** The non-negative view of a region: it depends on all regions, so the server computes it. */
  async nonnegative(region: string, slots: number): Promise<Overlay> {
    const columns = await this.get<Columns>(`/v1/history?view=nonnegative&slots=${slots}&region=${encodeURIComponent(region)}`);
    return overlay(columns.slots, columns.estimate_nonnegative?.[0] ?? []);
  }

  /** The smoothed past of a region, or of all regions together. */
  async smoothed(region: string | null, slots: number): Promise<Overlay> {
    const first = Math.max(0, (this.history?.lastSlot ?? 0) - slots);
    const query = region === null ? "" : `&region=${encodeURIComponent(region)}`;
    const rows = await this.get<{ slot: number; estimate: number | null }[]>(
      `/v1/estimates?smoothed=true&from=${first}&limit=250000${query}`);
    const values: Overlay = new Map();
    for (const row of rows) values.set(row.slot, (values.get(row.slot) ?? 0) + (row.estimate ?? NaN));
    return values;
  }
}

/** How many slots are loaded with all regions. */
function firstSlots(regions: number): number {
  return Math.max(2, Math.min(FIRST_SLOTS, Math.floor(FIRST_NUMBERS / Math.max(1, regions))));
}

/** Wait, or until the signal comes. */
function pauseFor(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => { clearTimeout(timer); signal.removeEventListener("abort", end); resolve(); };
    const timer = setTimeout(end, milliseconds);
    signal.addEventListener("abort", end);
  });
}

export function overlay(slots: number[], values: (number | null)[]): Overlay {
  return new Map(slots.map((slot, index) => [slot, values[index] ?? NaN]));
}

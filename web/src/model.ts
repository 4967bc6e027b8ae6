// Everything that the page shows: the servers, the demo, and what the reader has chosen.

import { Refused, Session } from "./api";
import type { PageDescription } from "./api";
import { Demo } from "./demo";
import { Server } from "./server";

export type Theme = "auto" | "light" | "dark";

export class Model {
  readonly session = new Session();
  description: PageDescription | null = null;
  servers: Server[] = [];
  current = 0;
  demo: Demo | null = null;
  /** Regions that the chart shows; empty: the total. */
  chosen: number[] = [];
  theme: Theme = "auto";
  /** Why the token in the form was refused. */
  refusal = "";
  needsToken = false;
  failure = "";
  private waiting = false;
  private readonly darkness = matchMedia("(prefers-color-scheme: dark)");

  constructor(private readonly render: () => void) {
    this.darkness.addEventListener("change", () => this.paint(this.theme));
    this.paint("auto");
  }

  /** Draw once per frame, however much has changed. */
  readonly changed = (): void => {
    if (this.waiting) return;
    this.waiting = true;
    const draw = () => { this.waiting = false; this.render(); };
    if (document.hidden) setTimeout(draw, 1_000);
    else requestAnimationFrame(draw);
  };

  get server(): Server | null { return this.servers[this.current] ?? null; }

  async start(): Promise<void> {
    try {
      this.description = await this.session.json<PageDescription>("/page.json");
      this.failure = "";
    } catch {
      this.failure = "The server does not answer. The page tries again every few seconds.";
      this.changed();
      setTimeout(() => void this.start(), 3_000);
      return;
    }
    this.needsToken = this.description.token_needed && this.session.token === null;
    if (!this.needsToken) this.open();
    this.changed();
  }

  private open(): void {
    if (this.description === null) return;
    const places = this.description.servers, pollEvery = Math.max(1_000, 100 * places.length);
    this.servers = places.map((place) => new Server(place, this.session, this.changed, this.denied, pollEvery));
    this.servers.forEach((server, number) => { server.show(number === this.current); server.start(); });
    if (this.description.demo !== null) {
      this.demo = new Demo(this.description.demo, this.session, this.changed);
      this.demo.start();
    }
  }

  private readonly denied = (error: Refused): void => {
    this.refusal = this.session.token === null ? "" : error.message;
    this.leave();
  };

  async enter(token: string): Promise<void> {
    this.refusal = "";
    this.session.use(token);
    try {
      await this.session.json(`${this.description?.servers[0]?.path ?? ""}/v1/budget`);
    } catch (error) {
      this.session.use(null);
      this.refusal = error instanceof Refused ? error.message : "The server does not answer; try again.";
      this.changed();
      return;
    }
    this.needsToken = false;
    this.open();
    this.changed();
  }

  /** Forget the token and everything that was read with it. */
  leave(): void {
    for (const server of this.servers) server.close();
    this.demo?.close();
    this.servers = [];
    this.demo = null;
    this.chosen = [];
    this.session.use(null);
    this.needsToken = true;
    this.changed();
  }

  select(place: number): void {
    this.current = place;
    this.servers.forEach((server, number) => server.show(number === place));
    this.changed();
  }

  /** Add a region to the chart, or take it out; at most four are drawn. */
  toggle(region: number): void {
    this.chosen = this.chosen.includes(region) ? this.chosen.filter((one) => one !== region) : [...this.chosen, region].slice(-4);
    this.changed();
  }

  /** Use the colours of a theme; "auto" follows the system. */
  paint(theme: Theme): void {
    this.theme = theme;
    document.documentElement.dataset.theme = theme === "auto" ? (this.darkness.matches ? "dark" : "light") : theme;
    this.changed();
  }
}

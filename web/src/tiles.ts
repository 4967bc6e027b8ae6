// A tile per region, coloured by its estimate. The elements are made once and changed in place: a thousand tiles
// per second must neither flicker nor grow.

import type { History } from "./history";
import { count, halfWidth, signed } from "./format";

const FEW = 16, MEDIUM = 24, MANY = 60;

export class Tiles {
  private tiles: HTMLButtonElement[] = [];
  private texts: Text[][] = [];
  private names: string[] = [];
  private focused = 0;
  private shown = "";
  private last: { history: History; chosen: number[]; steps: number } | null = null;

  constructor(private readonly box: HTMLElement, private readonly choose: (region: number) => void,
              private readonly point: (region: number | null) => void) {
    box.addEventListener("click", (event) => {
      const region = this.regionOf(event.target);
      if (region !== null) this.choose(region);
    });
    box.addEventListener("pointerover", (event) => this.point(this.regionOf(event.target)));
    box.addEventListener("pointerleave", () => this.point(null));
    box.addEventListener("focusin", (event) => {
      const region = this.regionOf(event.target);
      if (region === null) return;
      this.rove(region);
      this.point(region);
      if (this.last !== null) this.draw(this.last.history, this.last.chosen, this.last.steps, true);
    });
    const again = () => { if (this.last !== null && this.names.length > MANY) this.draw(this.last.history, this.last.chosen, this.last.steps, true); };
    box.addEventListener("scroll", again, { passive: true });
    new ResizeObserver(again).observe(box);
    box.addEventListener("focusout", () => this.point(null));
    box.addEventListener("keydown", (event) => this.move(event));
  }

  private regionOf(target: EventTarget | null): number | null {
    const tile = (target as Element | null)?.closest<HTMLElement>("[data-region]");
    return tile === null || tile === undefined ? null : Number(tile.dataset.region);
  }

  private rove(region: number): void {
    if (this.tiles[this.focused] !== undefined) this.tiles[this.focused].tabIndex = -1;
    this.focused = region;
    this.tiles[region].tabIndex = 0;
  }

  /** The arrow keys move between tiles; the grid is one stop of the tabulator. */
  private move(event: KeyboardEvent): void {
    const columns = Math.max(1, this.tiles.filter((one) => one.offsetTop === this.tiles[0].offsetTop).length);
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || this.tiles.length === 0) return;
    event.preventDefault();
    this.tiles[Math.max(0, Math.min(this.tiles.length - 1, this.focused + step))].focus();
  }

  private build(names: string[]): void {
    this.names = names;
    this.focused = 0;
    this.box.classList.toggle("few", names.length <= FEW);
    this.box.classList.toggle("medium", names.length > MEDIUM && names.length <= MANY);
    this.box.classList.toggle("many", names.length > MANY);
    this.tiles = names.map((name, region) => {
      const tile = document.createElement("button");
      tile.type = "button";
      tile.className = "tile";
      tile.dataset.region = String(region);
      tile.tabIndex = region === 0 ? 0 : -1;
      return Object.assign(tile, { title: name });
    });
    const skipped = names.length > MANY ? commonStart(names) : 0;
    this.texts = this.tiles.map((tile, region) => ["name", "number", "half", "change"].map((part) => {
      const span = document.createElement("span");
      const text = document.createTextNode(part === "name" ? names[region].slice(skipped) : "");
      span.className = part;
      span.append(text);
      tile.append(span);
      return text;
    }));
    this.box.replaceChildren(...this.tiles);
  }

  /** The first and the last tile that can be seen: of a thousand, only these are changed. */
  private visible(): [number, number] {
    const count = this.tiles.length;
    if (count <= MANY) return [0, count - 1];
    const height = this.tiles[0].offsetHeight + 3, columns = Math.max(1, Math.floor((this.box.clientWidth - 5) / (this.tiles[0].offsetWidth + 2)));
    const first = Math.floor(this.box.scrollTop / height) - 1, rows = Math.ceil(this.box.clientHeight / height) + 2;
    return [Math.max(0, first * columns), Math.min(count - 1, (first + rows + 1) * columns - 1)];
  }

  draw(history: History, chosen: number[], steps: number, anew = false): void {
    if (!sameNames(history.regions, this.names)) this.build(history.regions);
    const now = `${history.version} ${chosen.join()}`;
    const isDrawn = now === this.shown && history === this.last?.history;  // two servers may have the same version
    if ((isDrawn && !anew) || history.length === 0) return;
    this.shown = now;
    this.last = { history, chosen, steps };
    const last = history.length - 1, before = Math.max(0, last - steps);
    let most = 1;
    for (let region = 0; region < this.tiles.length; region++) {
      const value = history.estimate(last, region);
      if (value > most) most = value;
    }
    const many = this.tiles.length > MANY;
    const [from, to] = this.visible();
    for (let region = from; region <= to; region++) {
      const tile = this.tiles[region];
      const value = history.estimate(last, region), half = history.halfWidth(last, region);
      const change = value - history.estimate(before, region), noise = Math.hypot(half, history.halfWidth(before, region));
      const part = Number.isFinite(value) ? Math.max(0, Math.min(1, value / most)) : 0;
      const [, number, width, arrow] = this.texts[region];
      const text = `${count(value)}`;
      if (number.data !== text) number.data = text;
      if (!many) {
        width.data = Number.isFinite(half) ? ` ${halfWidth(half)}` : "";
        arrow.data = Number.isFinite(change) && before < last ? `${Math.abs(change) <= noise ? "≈" : change > 0 ? "▲" : "▼"} ${signed(change)}` : "";
      }
      const shade = `${Math.round(part * 50) * 2}%`;
      if (tile.style.getPropertyValue("--part") !== shade) tile.style.setProperty("--part", shade);
      const pressed = String(chosen.includes(region));
      if (tile.getAttribute("aria-pressed") !== pressed) tile.setAttribute("aria-pressed", pressed);
      if (many && region === this.focused) tile.setAttribute("aria-label", `${this.names[region]}: ${text} ${halfWidth(half)}`);
    }
  }
}

/** Tiles of the same regions are kept when another server is shown: whoever uses the keyboard stays where they are. */
function sameNames(some: string[], others: string[]): boolean {
  return some === others || (some.length === others.length && some.every((one, place) => one === others[place]));
}

/** How many characters all names begin with: small tiles leave them out. */
function commonStart(names: string[]): number {
  let length = 0;
  const shortest = Math.min(...names.map((one) => one.length));
  while (length < shortest - 1 && names.every((one) => one[length] === names[0][length])) length++;
  while (length > 0 && /[\p{L}\p{N}]/u.test(names[0][length - 1])) length--;
  return length;
}

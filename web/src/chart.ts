// Estimates over time, drawn by uPlot: bands, lines, samples; drag to pan, turn the wheel or pinch to zoom.
//
// Of many slots, two points per pixel column are drawn: the lowest and the highest of those that share it. So a drawing
// of ten thousand slots costs no more than one of a thousand, and no peak is lost.

import uPlot from "uplot";
import { axisTime } from "./format";
import type { History } from "./history";
import type { Overlay } from "./server";

export interface Subject { label: string; region: number; color: string }
/** A thin line. `halves`: values are single records, drawn as dots with their intervals; `beneath`: below the estimate. */
export interface Line { label: string; values: Overlay; halves?: Overlay; beneath?: boolean; color: string; width: number; dash?: number[] }
export interface Colors { ink: string; grid: string; surface: string }
export interface Picture {
  history: History; subjects: Subject[]; lines: Line[]; relative: boolean; band: boolean; colors: Colors;
}
/** Which slots are shown: the last `slots`, and on with time, or those between two times (seconds). */
export type View = { slots: number } | { from: number; to: number };

const MANY_SAMPLES = 150, MANY_BARS = 600;
const HEIGHT = 320;

type Values = (number | null)[];

/** Where the columns of a drawing are: time, lines beneath, low, high, estimate and sample of each subject, other lines. */
function layoutOf({ subjects, lines }: Picture): { subject: number; line: number[] } {
  const beneath = lines.filter((one) => one.beneath).length;
  let below = 1, above = 1 + beneath + 4 * subjects.length;
  return { subject: 1 + beneath, line: lines.map((one) => (one.beneath ? below++ : above++)) };
}

/** The columns of a drawing, as `layoutOf` has them. */
export function columnsOf(picture: Picture, first: number, last: number, pixels: number): Values[] {
  const { history, subjects, lines } = picture;
  const layout = layoutOf(picture);
  const columns: Values[] = Array.from({ length: 1 + 4 * subjects.length + lines.length }, () => []);
  const bucket = Math.max(1, Math.ceil((2 * (last - first + 1)) / Math.max(pixels, 50)));
  const scales = subjects.map((one) => (picture.relative ? 100 / average(history, one.region, first, last) : 1));
  const row = (x: number): void => { columns[0].push(x); for (let i = 1; i < columns.length; i++) columns[i].push(null); };
  for (let start = first; start <= last; start += bucket) {
    const end = Math.min(start + bucket - 1, last);
    if (start > first && history.slot(start) - history.slot(start - 1) > 1 && bucket === 1) {
      row((history.opens(start) + history.opens(start - 1)) / 2);
    }
    row(history.opens(start));
    const single = end === start;
    if (!single) row(history.opens(end));
    const at = columns[0].length - 1;
    subjects.forEach((subject, number) => {
      const base = layout.subject + 4 * number;
      let low = Infinity, high = -Infinity, least = Infinity, most = -Infinity, risesLast = true;
      for (let place = start; place <= end; place++) {
        const value = history.estimate(place, subject.region), half = history.halfWidth(place, subject.region);
        if (!Number.isFinite(value)) continue;
        if (value < least) { least = value; risesLast = false; }
        if (value > most) { most = value; risesLast = true; }
        if (Number.isFinite(half)) { low = Math.min(low, value - half); high = Math.max(high, value + half); }
      }
      const scale = scales[number];
      const put = (column: number, from: number, to: number) => {
        if (!single) columns[column][at - 1] = finite(from * scale);
        columns[column][at] = finite(to * scale);
      };
      put(base, low, low);
      put(base + 1, high, high);
      put(base + 2, risesLast ? least : most, risesLast ? most : least);
      if (single && history.sampled(start)) columns[base + 3][at] = finite(least * scale);
    });
    lines.forEach((line, number) => {
      let least = Infinity, most = -Infinity, risesLast = true;
      for (let place = start; place <= end; place++) {
        const value = line.values.get(history.slot(place));
        if (value === undefined || !Number.isFinite(value)) continue;
        if (value < least) { least = value; risesLast = false; }
        if (value > most) { most = value; risesLast = true; }
      }
      const column = layout.line[number], scale = scales[0] ?? 1;
      if (!single) columns[column][at - 1] = finite((risesLast ? least : most) * scale);
      columns[column][at] = finite((risesLast ? most : least) * scale);
    });
  }
  return columns;
}

function finite(value: number): number | null { return Number.isFinite(value) ? value : null; }

function average(history: History, region: number, first: number, last: number): number {
  let sum = 0, number = 0;
  for (let place = first; place <= last; place++) {
    const value = history.estimate(place, region);
    if (Number.isFinite(value)) { sum += value; number++; }
  }
  return number === 0 || sum === 0 ? NaN : sum / number;
}

export class Chart {
  view: View = { slots: 120 };
  private plot: uPlot | null = null;
  private signature = "";
  private drawn = "";
  private picture: Picture | null = null;
  private readonly resize: ResizeObserver;
  private readonly pointers = new Map<number, number>();
  private dragged: { x: number; from: number; to: number } | null = null;

  constructor(private readonly box: HTMLElement, private readonly viewed: (view: View) => void,
              private readonly pointed: (place: number | null) => void) {
    this.resize = new ResizeObserver(() => {
      this.plot?.setSize({ width: box.clientWidth, height: HEIGHT });
      this.redraw();
    });
    this.resize.observe(box);
  }

  close(): void {
    this.resize.disconnect();
    this.plot?.destroy();
  }

  show(picture: Picture): void {
    const signature = JSON.stringify([picture.subjects, picture.lines.map((one) => [one.label, one.color, one.width, one.dash]),
      picture.relative, picture.band, picture.colors]);
    if (picture.history !== this.picture?.history) this.drawn = "";  // two servers may have the same version
    this.picture = picture;
    if (this.plot === null || signature !== this.signature) this.build(picture);
    this.signature = signature;
    this.draw();
  }

  look(view: View): void {
    this.view = view;
    this.viewed(view);
    this.redraw();
  }

  /** The first and the last place that are shown. */
  private span(history: History): [number, number] {
    const last = history.length - 1;
    if ("slots" in this.view) return [Math.max(0, history.find(history.lastSlot - this.view.slots + 1)), last];
    return [Math.max(0, placeOf(history, this.view.from) - 1), Math.min(last, placeOf(history, this.view.to))];
  }

  private times(history: History): [number, number] {
    if (!("slots" in this.view)) return [this.view.from, this.view.to];
    const [first, last] = this.span(history);
    return history.length === 0 ? [0, 1] : [history.opens(first), Math.max(history.opens(last), history.opens(first) + 1)];
  }

  private redraw(): void {
    this.drawn = "";
    this.draw();
  }

  private draw(): void {
    const { picture, plot } = this;
    if (picture === null || plot === null) return;
    const { history } = picture;
    const [first, last] = this.span(history);
    const now = [history.version, first, last, JSON.stringify(this.view), picture.lines.map((one) => one.values.size)].join(" ");
    if (now === this.drawn) return;
    this.drawn = now;
    const columns = history.length === 0 ? columnsOf(picture, 0, -1, 100) : columnsOf(picture, first, last, plot.bbox.width / devicePixelRatio);
    const [from, to] = this.times(history);
    plot.batch(() => {
      plot.setData(columns as uPlot.AlignedData, false);
      plot.setScale("x", { min: from, max: to });
      const layout = layoutOf(picture), noisy = layout.line.filter((_, number) => picture.lines[number].halves !== undefined);
      plot.setScale("y", rangeOf(columns, new Set(noisy)));
    });
  }

  private build(picture: Picture): void {
    this.plot?.destroy();
    this.drawn = "";
    const { ink, grid, surface } = picture.colors;
    const series: uPlot.Series[] = [{}];
    const bands: uPlot.Band[] = [];
    const add = (line: Line): void => {
      const points: uPlot.Series.Points = line.halves === undefined ? { show: false } : { show: (plot) => samplesShown(plot), size: 4, fill: line.color, stroke: line.color, width: 0 };
      series.push({ label: line.label, stroke: line.color, width: line.width, dash: line.dash, points, spanGaps: true });
    };
    picture.lines.filter((one) => one.beneath).forEach(add);
    for (const subject of picture.subjects) {
      const place = series.length;
      const hidden = { stroke: "transparent", width: 0, points: { show: false } };
      series.push({ ...hidden, label: `${subject.label}, low` }, { ...hidden, label: `${subject.label}, high` });
      series.push({ label: subject.label, stroke: subject.color, width: 2.5, points: { show: false } });
      series.push({
        label: `${subject.label}, samples`, stroke: subject.color, paths: () => null,
        points: { show: (plot) => samplesShown(plot), size: 7, fill: surface, stroke: subject.color, width: 1.5 },
      });
      if (picture.band) bands.push({ series: [place + 1, place], fill: withAlpha(subject.color, 0.2) });
    }
    picture.lines.filter((one) => !one.beneath).forEach(add);
    const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "12px system-ui, sans-serif" };
    this.plot = new uPlot({
      width: Math.max(this.box.clientWidth, 200), height: HEIGHT, series, bands,
      legend: { show: false },
      padding: [12, 26, 0, 0],
      scales: { x: { time: true, auto: false }, y: { auto: false } },
      axes: [
        { ...axis, space: 70, values: (_, splits) => splits.map((at) => axisTime(at, splits.length > 1 ? splits[1] - splits[0] : 1)) },
        { ...axis, size: (_, values) => 26 + 7.5 * Math.max(3, ...(values ?? []).map((one) => String(one).length)), values: (_, splits) => splits.map((value) => (picture.relative ? `${value}%` : value.toLocaleString("en"))) },
      ],
      cursor: { drag: { x: false, y: false }, points: { show: false }, y: false },
      hooks: {
        drawClear: [(plot) => { if (this.picture !== null) drawIntervals(plot, this.picture); }],
        setCursor: [(plot) => {
          const x = plot.cursor.left === undefined || plot.cursor.left < 0 ? null : plot.posToVal(plot.cursor.left, "x");
          this.pointed(x === null ? null : nearest(picture.history, x));
        }],
      },
    }, [[]], this.box);
    this.listen(this.plot.over);
  }

  // ------------------------------------------------------------------------------------------------- the hand

  private listen(over: HTMLElement): void {
    over.addEventListener("wheel", (event) => {
      if (event.ctrlKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) return;
      event.preventDefault();
      this.zoom(Math.exp(event.deltaY * 0.0015), event.offsetX / over.clientWidth);
    }, { passive: false });
    over.addEventListener("dblclick", () => this.look({ slots: 120 }));
    over.addEventListener("pointerdown", (event) => {
      over.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, event.offsetX);
      if (this.picture === null) return;
      const [from, to] = this.times(this.picture.history);
      this.dragged = { x: event.offsetX, from, to };
    });
    const end = (event: PointerEvent) => {
      this.pointers.delete(event.pointerId);
      this.dragged = null;
    };
    over.addEventListener("pointerup", end);
    over.addEventListener("pointercancel", end);
    over.addEventListener("pointermove", (event) => {
      const before = this.pointers.get(event.pointerId);
      if (before === undefined || this.dragged === null) return;
      const others = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, x]) => x);
      this.pointers.set(event.pointerId, event.offsetX);
      if (others.length > 0) {
        const was = Math.abs(before - others[0]), is = Math.abs(event.offsetX - others[0]);
        if (was > 5 && is > 5) this.zoom(was / is, (event.offsetX + others[0]) / 2 / over.clientWidth);
        return;
      }
      const moved = event.offsetX - this.dragged.x;
      if (Math.abs(moved) < 3) return;
      const shift = (-moved / over.clientWidth) * (this.dragged.to - this.dragged.from);
      this.go(this.dragged.from + shift, this.dragged.to + shift);
    });
  }

  /** Make what is shown longer (factor above 1) or shorter around a point between 0 (left) and 1 (right). */
  zoom(factor: number, around: number): void {
    if (this.picture === null || this.picture.history.length < 2) return;
    const { history } = this.picture;
    const [from, to] = this.times(history);
    const all = history.opens(history.length - 1) - history.opens(0);
    const length = Math.min(Math.max((to - from) * factor, all / history.length * 8), Math.max(all, 8));
    const centre = from + (to - from) * around;
    this.go(centre - length * around, centre + length * (1 - around));
  }

  /** Move what is shown by a part of its length: -0.5 is half of it back. */
  pan(part: number): void {
    if (this.picture === null) return;
    const [from, to] = this.times(this.picture.history);
    this.go(from + part * (to - from), to + part * (to - from));
  }

  private go(from: number, to: number): void {
    const history = this.picture?.history;
    if (history === undefined || history.length === 0) return;
    const oldest = history.opens(0), newest = history.opens(history.length - 1), length = to - from;
    if (from < oldest) [from, to] = [oldest, oldest + length];
    if (to >= newest) {  // at the right edge the drawing goes on with time
      const slots = history.lastSlot - history.slot(placeOf(history, newest - length)) + 1;
      this.look({ slots: Math.max(slots, 8) });
      return;
    }
    this.look({ from, to });
  }
}

function samplesShown(plot: uPlot): boolean { return (plot.data[0]?.length ?? 0) <= MANY_SAMPLES; }

function placeOf(history: History, seconds: number): number {
  let low = 0, high = history.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (history.opens(middle) < seconds) low = middle + 1;
    else high = middle;
  }
  return low;
}

function nearest(history: History, seconds: number): number | null {
  if (history.length === 0) return null;
  const after = Math.min(placeOf(history, seconds), history.length - 1), before = Math.max(after - 1, 0);
  return Math.abs(history.opens(before) - seconds) < Math.abs(history.opens(after) - seconds) ? before : after;
}

/** What is drawn from bottom to top. Single records (`noisy` columns) widen it to three times the rest at most. */
export function rangeOf(columns: Values[], noisy: Set<number> = new Set()): { min: number; max: number } {
  const extent = (wanted: (number: number) => boolean): [number, number] => {
    let min = Infinity, max = -Infinity;
    for (let number = 1; number < columns.length; number++) {
      if (!wanted(number)) continue;
      for (const value of columns[number]) {
        if (value === null) continue;
        if (value < min) min = value;
        if (value > max) max = value;
      }
    }
    return [min, max];
  };
  let [min, max] = extent((number) => !noisy.has(number));
  const [low, high] = extent((number) => noisy.has(number));
  if (min > max) [min, max] = [low, high];
  else if (low <= high) {
    const span = max - min;
    [min, max] = [Math.min(min, Math.max(low, min - span)), Math.max(max, Math.min(high, max + span))];
  }
  if (min > max) return { min: 0, max: 1 };
  const pad = Math.max((max - min) * 0.06, Math.abs(max) * 0.002, 0.5);
  return { min: min - pad, max: max + pad };
}

/** The 95% intervals of single records, as thin bars below everything else; not when there are too many to tell apart. */
function drawIntervals(plot: uPlot, picture: Picture): void {
  if (picture.relative || !picture.band) return;
  const { history } = picture, { min = 0, max = 0 } = plot.scales.x;
  const first = Math.max(0, placeOf(history, min)), last = Math.min(history.length - 1, placeOf(history, max));
  const bars: [string, number, number, number][] = [];
  for (const line of picture.lines) {
    for (const [slot, half] of line.halves ?? []) {
      const place = history.find(slot);
      if (place < first || place > last || history.slot(place) !== slot) continue;
      const value = line.values.get(slot) ?? NaN;
      bars.push([line.color, history.opens(place), value - half, value + half]);
    }
    if (bars.length > MANY_BARS) return;
  }
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.lineWidth = devicePixelRatio;
  for (const [color, time, low, high] of bars) {
    const x = plot.valToPos(time, "x", true);
    ctx.strokeStyle = withAlpha(color, 0.45);
    ctx.beginPath();
    ctx.moveTo(x, plot.valToPos(low, "y", true));
    ctx.lineTo(x, plot.valToPos(high, "y", true));
    ctx.stroke();
  }
  ctx.restore();
}

export function withAlpha(color: string, alpha: number): string {
  const match = /^#(..)(..)(..)$/.exec(color.trim());
  if (match === null) return color;
  return `rgba(${match.slice(1).map((part) => parseInt(part, 16)).join(",")},${alpha})`;
}

// Over time: estimates with their intervals, samples, what others estimated, and in a demo the truth.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Chart } from "./chart";
import type { Colors, Line, Subject, View } from "./chart";
import { About } from "./explain";
import type { Word } from "./explain";
import { count, halfWidth, plural, spansFor, time } from "./format";
import type { History } from "./history";
import type { Model } from "./model";
import { agreementOf } from "./agreement";
import type { Agreement } from "./agreement";
import type { Others, Overlay, RecordLine, Server } from "./server";

const NEIGHBOURS_EVERY = 4_000;
const TABLE_SLOTS = 15;
const MOST_LINES = 12;

interface Shown { neighbours: boolean; records: boolean; smoothed: boolean; nonnegative: boolean; truth: boolean; alone: boolean; naive: boolean; relative: boolean; band: boolean }

export function palette(): Colors & { series: string[]; other: string; truth: string; alone: string; naive: string; smoothed: string; doubtful: string } {
  const style = getComputedStyle(document.documentElement);
  const read = (name: string) => style.getPropertyValue(name).trim();
  return {
    ink: read("--muted"), grid: read("--line"), surface: read("--surface"), series: [1, 2, 3, 4].map((number) => read(`--series-${number}`)),
    other: read("--other"), truth: read("--ink"), alone: read("--alone"), naive: read("--naive"), smoothed: read("--smoothed"), doubtful: read("--bad"),
  };
}

export function OverTimeSection({ model, server }: { model: Model; server: Server }) {
  const { history } = server;
  const [shown, setShown] = useState<Shown>({ neighbours: true, records: model.demo === null, smoothed: false, nonnegative: false, truth: true, alone: false, naive: true, relative: false, band: true });
  const [view, setView] = useState<View>({ slots: 120 });
  const [pointed, point] = useState<number | null>(null);
  const box = useRef<HTMLDivElement>(null), chart = useRef<Chart | null>(null);
  const others = useOthers(model, server, shown);
  const colors = palette();
  const chosen = history === null ? [] : model.chosen.filter((region) => region < history.regions.length);
  const subjects: Subject[] = chosen.length === 0
    ? [{ label: "All regions", region: -1, color: colors.series[0] }]
    : chosen.map((region, number) => ({ label: history!.regions[region], region, color: colors.series[number] }));
  const single = subjects.length === 1, region = single && subjects[0].region >= 0 ? subjects[0].label : null;
  const lines: Line[] = [];
  const agreements = useMemo(() => (single && history !== null ? agreementsOf(history, subjects[0].region, shown, others) : []),
    [history, history?.version, single, subjects[0].region, shown, others.records, others.neighbours.size]);
  if (single) {
    if (shown.neighbours) others.neighbours.forEach((values, name) => lines.push({ label: name, values, color: colors.other, width: 1, beneath: true }));
    if (shown.records) {
      // In the order of their names: another order would build the chart anew.
      for (const { name, isDoubtful } of agreements.slice(0, MOST_LINES).sort((a, b) => (a.name < b.name ? -1 : 1))) {
        const record = others.records.get(name);
        if (record !== undefined) lines.push({ label: `records of ${name}`, ...record, color: isDoubtful ? colors.doubtful : colors.other, width: 0.75, beneath: true });
      }
    }
    if (shown.smoothed && others.smoothed.size > 0) lines.push({ label: "smoothed", values: others.smoothed, color: colors.smoothed, width: 1.5 });
    if (shown.nonnegative && others.nonnegative.size > 0) lines.push({ label: "non-negative view", values: others.nonnegative, color: subjects[0].color, width: 1.5, dash: [4, 3] });
    if (model.demo !== null) {
      if (shown.naive) lines.push({ label: "naive release", values: model.demo.values("naive", region), color: colors.naive, width: 1.2 });
      if (shown.alone) lines.push({ label: `${model.demo.server} alone`, values: model.demo.values("alone", region), color: colors.alone, width: 1.5, dash: [6, 3] });
      if (shown.truth) lines.push({ label: "the truth", values: model.demo.values("truth", region), color: colors.truth, width: 2, dash: [2, 3] });
    }
  }
  const everything = "slots" in view && view.slots === Infinity;
  useEffect(() => {
    if (box.current === null || history === null) return;
    if (chart.current === null) chart.current = new Chart(box.current, (next) => setView((before) => (sameView(before, next) ? before : next)), point);
    chart.current.show({ history, subjects, lines, relative: shown.relative, band: shown.band, colors: { ink: colors.ink, grid: colors.grid, surface: colors.surface } });
    server.need(chosen, everything);
  });
  useEffect(() => () => { chart.current?.close(); chart.current = null; }, []);
  const option = (name: keyof Shown, text: string, word?: Word, disabled = false) => (
    <label class="option"><input type="checkbox" checked={shown[name]} disabled={disabled} onChange={() => setShown({ ...shown, [name]: !shown[name] })} /> {text}{word !== undefined && <> <About word={word} /></>}</label>
  );
  const regions = history?.regions;
  // The same element again and again: a thousand options are not compared with every frame.
  const picker = useMemo(() => regions !== undefined && regions.length > 1 && (
    <select aria-label="Add a region to the chart" value="" onChange={(event) => { const chosenRegion = Number(event.currentTarget.value); event.currentTarget.value = ""; model.toggle(chosenRegion); }}>
      <option value="">Add a region…</option>
      {regions.map((name, number) => <option key={name} value={String(number)}>{name}</option>)}
    </select>
  ), [regions]);
  const seconds = server.network?.slot_seconds ?? 1;
  const place = history === null || history.length === 0 ? null : pointed === null || pointed >= history.length ? history.length - 1 : pointed;
  return (
    <section id="over-time" aria-labelledby="over-time-title">
      <h2 id="over-time-title">Over time</h2>
      <div class="card">
        <div class="row">
          <p class="subjects" aria-label="Drawn">
            {subjects.map((one) => (
              <span key={one.label} class="chip"><span class="swatch" style={{ background: one.color }} aria-hidden="true" />{one.label}
                {one.region >= 0 && <button type="button" aria-label={`Take ${one.label} out of the chart`} onClick={() => model.toggle(one.region)}>×</button>}
              </span>
            ))}
            {picker}
          </p>
          <div class="choice" role="group" aria-label="Time that is shown">
            {[...spansFor(seconds), ["Everything", Infinity] as [string, number]].map(([text, length]) => {
              const slots = length === Infinity ? Infinity : Math.max(8, Math.round(length / seconds));
              return <button key={text} type="button" aria-pressed={"slots" in view && view.slots === slots} onClick={() => chart.current?.look({ slots })}>{text}</button>;
            })}
          </div>
          <div class="choice" role="group" aria-label="Move and zoom">
            <button type="button" aria-label="Earlier" onClick={() => chart.current?.pan(-0.5)}>←</button>
            <button type="button" aria-label="Later" onClick={() => chart.current?.pan(0.5)}>→</button>
            <button type="button" aria-label="Zoom in" onClick={() => chart.current?.zoom(0.5, 1)}>+</button>
            <button type="button" aria-label="Zoom out" onClick={() => chart.current?.zoom(2, 1)}>−</button>
          </div>
        </div>
        <div class="chart" ref={box} tabIndex={0} role="img" id="chart" aria-label={summary(subjects, history)}
             onKeyDown={(event) => {
               const act: Record<string, () => void> = {
                 ArrowLeft: () => chart.current?.pan(-0.25), ArrowRight: () => chart.current?.pan(0.25),
                 "+": () => chart.current?.zoom(0.7, 1), "-": () => chart.current?.zoom(1.4, 1), "0": () => chart.current?.look({ slots: 120 }),
               };
               if (act[event.key] === undefined) return;
               event.preventDefault();
               act[event.key]();
             }} />
        <Readout history={history} place={place} subjects={subjects} lines={lines} />
        <AgreementText agreements={agreements} isLearned={shown.records && others.isLearned} />
        <div class="options">
          {option("band", "95% interval", "interval")}
          {(model.demo !== null || !server.keepsRecords) && option("neighbours", model.demo === null ? "Neighbours" : "Other servers", "neighbours", !single)}
          {server.keepsRecords && option("records", "Records of other servers", "agreement", !single)}
          {server.keepsRecords && option("smoothed", "Smoothed history", "smoothed", !single)}
          {option("nonnegative", "Non-negative view", "nonnegative", region === null)}
          {option("relative", "Relative to the mean (100%)")}
          {model.demo !== null && (
            <span class="only-demo"><strong>Only this demo knows:</strong> {option("truth", "the truth", "truth", !single)} {option("alone", `${model.demo.server} alone`, "alone", !single)} {option("naive", "naive release", "naive", !single)}</span>
          )}
        </div>
        <p class="note">
          Dots mark slots in which this server sampled <About word="sample" />. Drag to pan, turn the wheel or pinch to zoom, double-click to return to now; with the keyboard: arrows, + and −, 0.
        </p>
        <details>
          <summary>The last slots as a table</summary>
          <div class="scroll" tabIndex={0} role="region" aria-label="The last slots">
            <SlotTable history={history} subjects={subjects} />
          </div>
        </details>
      </div>
    </section>
  );
}

/** Whether the buttons look the same: between two times it does not matter to them which. */
function sameView(before: View, next: View): boolean {
  return "slots" in before && "slots" in next ? before.slots === next.slots : !("slots" in before) && !("slots" in next);
}

interface Asked extends Others { at: number; key: string; smoothed: Overlay; nonnegative: Overlay }

/** What others say: in a demo the other servers' releases, else what their messages said; and the records of all. */
function useOthers(model: Model, server: Server, shown: Shown): Asked {
  const asked = useRef<Asked>({ at: 0, key: "", neighbours: new Map(), records: new Map(), isLearned: false, smoothed: new Map(), nonnegative: new Map() });
  const { history } = server;
  const region = model.chosen.length === 1 && history !== null ? history.regions[model.chosen[0]] ?? null : null;
  const several = model.servers.length > 1;
  if (several) {
    const neighbours = new Map<string, Overlay>();
    for (const other of shown.neighbours ? model.servers : []) {
      if (other === server || other.history === null) continue;
      neighbours.set(other.name, releasesOf(other.history, region));
    }
    asked.current.neighbours = neighbours;
  }
  useEffect(() => {
    const key = `${server.name} ${region} ${shown.records} ${shown.smoothed} ${shown.nonnegative}`;
    if (history === null || history.length === 0 || server.connection !== "live") return;
    if (key === asked.current.key && Date.now() - asked.current.at < NEIGHBOURS_EVERY) return;
    if (key !== asked.current.key) {
      asked.current.records = new Map();
      asked.current.smoothed = new Map();
      asked.current.nonnegative = new Map();
      if (!several) asked.current.neighbours = new Map();
    }
    asked.current.at = Date.now();
    asked.current.key = key;
    if ((shown.neighbours && !several) || (shown.records && server.keepsRecords)) {
      void server.others(region, 2_000).then((others) => {
        if (asked.current.key !== key) return;
        asked.current.records = others.records;
        asked.current.isLearned = others.isLearned;
        if (!several) asked.current.neighbours = others.neighbours;
      }).catch(() => undefined);
    }
    if (shown.smoothed && server.keepsRecords) {
      void server.smoothed(region, 1_000).then((values) => { if (asked.current.key === key) asked.current.smoothed = values; }).catch(() => undefined);
    }
    if (shown.nonnegative && region !== null) {
      void server.nonnegative(region, 1_000).then((values) => { if (asked.current.key === key) asked.current.nonnegative = values; }).catch(() => undefined);
    }
  });
  return asked.current;
}

/** How far others agree with this server, those that agree least first. */
function agreementsOf(history: History, region: number, shown: Shown, others: Others): Agreement[] {
  const lines: [string, RecordLine][] = [];
  if (shown.records) lines.push(...others.records);
  if (shown.neighbours) {
    others.neighbours.forEach((values, name) => { if (!lines.some(([one]) => one === name)) lines.push([name, { values, halves: new Map() }]); });
  }
  return agreementOf(history, region, lines);
}

/** Agreement in words: how many values of each server are within the intervals. */
function AgreementText({ agreements, isLearned }: { agreements: Agreement[]; isLearned: boolean }) {
  if (agreements.length === 0) return null;
  const doubtful = agreements.filter((one) => one.isDoubtful), rest = agreements.length - MOST_LINES;
  return (
    <p class="note" id="agreement">
      Agreement, within the 95% intervals: {agreements.slice(0, MOST_LINES).map((one, place) => <span key={one.name}>{place > 0 && ", "}<span class={one.isDoubtful ? "bad-text" : ""}>{one.name} {count(one.inside)} of {count(one.values)}</span></span>)}
      {rest > 0 && `, and ${plural(rest, "server")} that agree more`}. {doubtful.length > 0 && <strong class="bad-text">Far too few of {doubtful.map((one) => one.name).join(", ")}. </strong>}
      {isLearned && "Records are divided by learned shares. "}
      <About word="agreement" />
    </p>
  );
}

const known = new WeakMap<History, Map<string, { version: number; values: Overlay }>>();

/** The estimates of another server by slot; only what is new is added. */
function releasesOf(history: History, region: string | null): Overlay {
  const kept = known.get(history) ?? new Map<string, { version: number; values: Overlay }>();
  known.set(history, kept);
  const entry = kept.get(region ?? "") ?? { version: -1, values: new Map() as Overlay };
  if (entry.version !== history.version) {
    const number = region === null ? -1 : history.places.get(region) ?? -1;
    const fresh = entry.values.size === 0 || history.version - entry.version > 5 ? 0 : Math.max(0, history.length - 10);
    for (let place = fresh; place < history.length; place++) entry.values.set(history.slot(place), history.estimate(place, number));
    for (const slot of entry.values.keys()) {
      if (entry.values.size <= history.capacity) break;
      entry.values.delete(slot);
    }
    entry.version = history.version;
    if (kept.size > 4) kept.delete(kept.keys().next().value!);
    kept.set(region ?? "", entry);
  }
  return entry.values;
}

function Readout({ history, place, subjects, lines }: { history: History | null; place: number | null; subjects: Subject[]; lines: Line[] }) {
  if (history === null || place === null) return <p class="readout">No release yet.</p>;
  const slot = history.slot(place);
  return (
    <p class="readout">
      <span>slot {slot}, {time(history.opens(place))}{history.sampled(place) ? ", sampled" : ""}</span>
      {subjects.map((one) => <span key={one.label}><span class="swatch" style={{ background: one.color }} aria-hidden="true" />{one.label} <strong>{count(history.estimate(place, one.region))}</strong> {halfWidth(history.halfWidth(place, one.region))}</span>)}
      {lines.map((one) => <span key={one.label}><span class="swatch thin" style={{ background: one.color }} aria-hidden="true" />{one.label} {valueAt(one, slot)}</span>)}
    </p>
  );
}

/** The value of a line in a slot; records and smoothed slots are sparse, so of them the last one before it. */
function valueAt(line: Line, slot: number): string {
  const exact = line.values.get(slot);
  if (exact !== undefined) return `${count(exact)}${line.halves === undefined ? "" : ` ${halfWidth(line.halves.get(slot) ?? NaN)}`}`;
  let before = -1;
  for (const one of line.values.keys()) if (one < slot && one > before) before = one;
  if (before < 0) return "–";
  return `${count(line.values.get(before)!)}${line.halves === undefined ? "" : ` ${halfWidth(line.halves.get(before) ?? NaN)}`} (slot ${before})`;
}

function summary(subjects: Subject[], history: History | null): string {
  if (history === null || history.length === 0) return "Chart of estimates over time; no release yet.";
  const last = history.length - 1;
  const parts = subjects.map((one) => `${one.label} ${count(history.estimate(last, one.region))} ${halfWidth(history.halfWidth(last, one.region))}`);
  return `Chart of estimates over time, up to slot ${history.slot(last)}: ${parts.join(", ")}. A table follows.`;
}

function SlotTable({ history, subjects }: { history: History | null; subjects: Subject[] }) {
  if (history === null) return null;
  const places = Array.from({ length: Math.min(TABLE_SLOTS, history.length) }, (_, back) => history.length - 1 - back);
  return (
    <table>
      <thead><tr><th scope="col">Slot</th><th scope="col">Opened</th><th scope="col">Sampled</th>{subjects.map((one) => <th scope="col" key={one.label}>{one.label}</th>)}</tr></thead>
      <tbody>
        {places.map((place) => (
          <tr key={history.slot(place)}>
            <th scope="row">{history.slot(place)}</th><td>{time(history.opens(place))}</td><td>{history.sampled(place) ? "yes" : "no"}</td>
            {subjects.map((one) => <td key={one.label}>{count(history.estimate(place, one.region))} {halfWidth(history.halfWidth(place, one.region))}</td>)}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

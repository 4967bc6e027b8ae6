// Now: the total, its trend, the largest changes, and a tile per region or a map.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { About } from "./explain";
import { count, halfWidth, percent, signed } from "./format";
import type { History } from "./history";
import { hasMap, RegionMap } from "./map";
import type { Model } from "./model";
import type { Server } from "./server";
import { Tiles } from "./tiles";
import { trendOf } from "./trend";

export const TREND_SLOTS = 10;
const MOST_CHANGES = 5;

interface Change { region: number; change: number; half: number; value: number }

/** The regions whose estimates changed most, largest first; `half` is the interval of the change. */
export function changesOf(history: History, steps: number): Change[] {
  const last = history.length - 1, before = last - steps;
  if (before < 0) return [];
  return history.regions
    .map((_, region) => ({
      region, value: history.estimate(last, region), change: history.estimate(last, region) - history.estimate(before, region),
      half: Math.hypot(history.halfWidth(last, region), history.halfWidth(before, region)),
    }))
    .filter((one) => Number.isFinite(one.change))
    .sort((a, b) => Math.abs(b.change) - Math.abs(a.change));
}

export function NowSection({ model, server }: { model: Model; server: Server }) {
  const { history } = server;
  const [pointed, point] = useState<number | null>(null);
  const [asMap, showMap] = useState<boolean | null>(null);
  const mapped = hasMap(server.topology, server.shapes), map = mapped && (asMap ?? true);
  const last = history === null ? -1 : history.length - 1;
  const total = last < 0 ? NaN : history!.estimate(last, -1), half = last < 0 ? NaN : history!.halfWidth(last, -1);
  const { steps, change, half: noise, part } = trendOf(history, TREND_SLOTS);
  const changes = history === null || steps === 0 ? [] : changesOf(history, steps).slice(0, MOST_CHANGES);
  return (
    <section id="now" aria-labelledby="now-title">
      <h2 id="now-title">Now</h2>
      <div class="now">
        <div class="card hero">
          <p class="label">People in all regions <About word="total" /></p>
          <p class="total" id="total">{count(total)} <span class="half">{halfWidth(half)}</span></p>
          <p class="note">If the network’s model of the crowd is right, the true number is within {halfWidth(half)} in about 95 of 100 slots <About word="interval" /></p>
          <p class="trend"><strong class={change > noise ? "up" : change < -noise ? "down" : ""}>{Number.isFinite(change) ? `${Math.abs(change) <= noise ? "≈" : change > 0 ? "▲" : "▼"} ${signed(change)}` : "–"}</strong>{" "}
            in the last {steps} slots{part === null ? "" : ` (${part >= 0 ? "+" : "−"}${percent(Math.abs(part))})`} <About word="trend" /></p>
          {changes.length > 1 && (
            <>
              <h3>Largest changes <About word="trend" /></h3>
              <ol class="changes">
                {changes.map((one) => (
                  <li key={one.region}>
                    <button type="button" class="link" title={history!.regions[one.region]} onClick={() => model.toggle(one.region)}>{history!.regions[one.region]}</button>
                    <span class={Math.abs(one.change) > one.half ? (one.change > 0 ? "up" : "down") : ""}>{signed(one.change)}</span>
                    <span class="note">{Math.abs(one.change) > one.half ? `beyond ${halfWidth(one.half)}` : `within ${halfWidth(one.half)}`}</span>
                  </li>
                ))}
              </ol>
            </>
          )}
        </div>
        <div class="card regions">
          <div class="row">
            <h3>Regions</h3>
            {mapped && (
              <div class="choice" role="group" aria-label="Show regions as">
                <button type="button" aria-pressed={!map} onClick={() => showMap(false)}>Tiles</button>
                <button type="button" aria-pressed={map} onClick={() => showMap(true)}>Map</button>
              </div>
            )}
            <p class="note legend"><span>few</span><span class="ramp" aria-hidden="true" /><span>many people</span></p>
          </div>
          {history !== null && (map
            ? <RegionMap history={history} topology={server.topology!} shapes={server.shapes} chosen={model.chosen} choose={(region) => model.toggle(region)} point={point} />
            : <TileGrid history={history} model={model} point={point} />)}
          <p class="detail" id="detail">
            {pointed === null || last < 0
              ? "Point at a region to see its interval; choose it to draw it over time."
              : <><strong>{history!.regions[pointed]}</strong>: {count(history!.estimate(last, pointed))} people, 95% interval {count(history!.estimate(last, pointed) - history!.halfWidth(last, pointed))} to {count(history!.estimate(last, pointed) + history!.halfWidth(last, pointed))}</>}
          </p>
        </div>
      </div>
    </section>
  );
}

function TileGrid({ history, model, point }: { history: History; model: Model; point: (region: number | null) => void }) {
  const box = useRef<HTMLDivElement>(null), tiles = useRef<Tiles | null>(null);
  useLayoutEffect(() => {  // in the frame of the total: tiles of the last slot beside it would not add up
    if (box.current !== null && tiles.current === null) tiles.current = new Tiles(box.current, (region) => model.toggle(region), point);
    tiles.current?.draw(history, model.chosen, TREND_SLOTS);
  });
  return <div class="tiles" ref={box} role="group" aria-label="Regions; the arrow keys move between them" />;
}

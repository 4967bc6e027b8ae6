// Whether servers agree: how many of another server's values are as near to this server's estimate as their intervals say.

import type { History } from "./history";
import type { RecordLine } from "./server";

const MOST_VALUES = 200, ENOUGH = 15, DOUBTFUL = 0.75;

/** isDoubtful: so few values agree that it is not chance; only where the values have intervals of their own. */
export interface Agreement { name: string; values: number; inside: number; isDoubtful: boolean }

/** Compare the last 200 values of each server with the estimates of the same slots; the least agreeing comes first. */
export function agreementOf(history: History, region: number, lines: [string, RecordLine][]): Agreement[] {
  const agreements = lines.map(([name, { values, halves }]) => {
    let compared = 0, inside = 0;
    for (const slot of [...values.keys()].slice(-MOST_VALUES)) {
      const place = history.find(slot), value = values.get(slot) ?? NaN;
      if (place >= history.length || history.slot(place) !== slot) continue;
      const distance = Math.abs(value - history.estimate(place, region));
      const half = Math.hypot(history.halfWidth(place, region), halves.get(slot) ?? 0);
      if (!Number.isFinite(distance) || !Number.isFinite(half)) continue;
      compared++;
      if (distance <= half) inside++;
    }
    return { name, values: compared, inside, isDoubtful: halves.size > 0 && compared >= ENOUGH && inside < DOUBTFUL * compared };
  });
  return agreements.filter((one) => one.values > 0).sort((a, b) => a.inside / a.values - b.inside / b.values);
}

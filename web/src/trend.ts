// The trend of a total: its change over some slots, whether that may be noise, and the part of the earlier total that it is.

import type { History } from "./history";

const FEWEST_PEOPLE = 10;

/** `steps`: slots between the two totals; `half`: the interval of the change; `part`: of the earlier total, null if that may be nobody. */
export interface Trend { steps: number; change: number; half: number; part: number | null }

/** Return the trend over the last `most` slots, or over as many as there are. */
export function trendOf(history: History | null, most: number): Trend {
  const last = history === null ? 0 : Math.max(history.length - 1, 0), steps = Math.min(most, last);
  if (history === null || steps === 0) return { steps, change: NaN, half: NaN, part: null };
  const earlier = history.estimate(last - steps, -1), earlierHalf = history.halfWidth(last - steps, -1);
  const change = history.estimate(last, -1) - earlier, half = Math.hypot(history.halfWidth(last, -1), earlierHalf);
  const isBase = earlier >= FEWEST_PEOPLE && earlier > earlierHalf;  // false where one is NaN
  return { steps, change, half, part: isBase && Number.isFinite(change) ? change / earlier : null };
}

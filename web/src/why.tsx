// Why this exists, for whoever sees a demo for the first time: three ways to publish the same counts, and how wrong
// each of them is.

import { About } from "./explain";
import type { Word } from "./explain";
import type { Demo, Method } from "./demo";
import { count, percent } from "./format";
import type { Model } from "./model";
import type { History } from "./history";
import type { Overlay, Server } from "./server";

const SKIPPED = 8;
const MOST_SLOTS = 600;

interface Score { error: number; slots: number }

/** The sum of all regions' absolute errors as a part of the crowd, averaged over slots; the first slots do not count. */
function score(history: History, demo: Demo, estimate: (region: string, slot: number, place: number) => number): Score {
  const truth = history.regions.map((region) => demo.values("truth", region));
  let sum = 0, slots = 0;
  for (let place = Math.max(SKIPPED, history.length - MOST_SLOTS); place < history.length; place++) {
    const slot = history.slot(place);
    let error = 0, people = 0;
    history.regions.forEach((region, number) => {
      const real = truth[number].get(slot) ?? NaN;
      error += Math.abs(estimate(region, slot, place) - real);
      people += real;
    });
    if (!Number.isFinite(error)) continue;
    sum += error / Math.max(people, 1);
    slots++;
  }
  return { error: slots === 0 ? NaN : sum / slots, slots };
}

/** How often the 95% interval of the total held the truth. */
function coverage(history: History, truth: Overlay): number {
  let inside = 0, slots = 0;
  for (let place = Math.max(SKIPPED, history.length - MOST_SLOTS); place < history.length; place++) {
    const error = history.estimate(place, -1) - (truth.get(history.slot(place)) ?? NaN);
    if (!Number.isFinite(error)) continue;
    slots++;
    if (Math.abs(error) <= history.halfWidth(place, -1)) inside++;
  }
  return slots === 0 ? NaN : inside / slots;
}

export function WhySection({ model, server, demo }: { model: Model; server: Server; demo: Demo }) {
  const { history, topology, budget } = server;
  const truth = demo.values("truth", null);
  const none = { error: NaN, slots: 0 };
  const of = (method: Method) => history === null ? none : score(history, demo, (region, slot) => demo.values(method, region).get(slot) ?? NaN);
  const own = history === null ? none : score(history, demo, (region, _, place) => history.estimate(place, history.places.get(region)!));
  const rows: [string, Word, Score, string, string][] = [
    ["This network", "total", own, "servers share noisy counts with their neighbours", "ours"],
    [`${demo.server} alone`, "alone", of("alone"), "the same budget, without neighbours", ""],
    ["Naive release", "naive", of("naive"), "the budget divided by the window, noise in every slot", ""],
  ];
  const worst = Math.max(...rows.map((one) => (Number.isFinite(one[2].error) ? one[2].error : 0)), 1e-9);
  const last = history === null || history.length === 0 ? null : history.length - 1;
  const real = last === null ? undefined : [...truth].reverse().find(([slot]) => slot <= history!.slot(last))?.[1];
  return (
    <section id="why" aria-labelledby="why-title">
      <div class="card why">
        <div>
          <h2 id="why-title">Counting a crowd that nobody may see</h2>
          <p>{model.servers.length} servers each see a part of {demo.note}. No server sees all of it, and none may publish what it sees.
            Each adds noise, pays with its privacy budget{budget === null ? "" : ` (ε = ${budget.epsilon} in any ${budget.length} slots)`}, and talks to {topology === null ? "its neighbours" : "its direct neighbours only"}. Still, each knows the complete crowd:</p>
          <p class="versus"><span>Estimate of {server.name} <strong>{count(last === null ? NaN : history!.estimate(last, -1))}</strong></span> <span>The truth, which only this demo knows <About word="truth" /> <strong>{real === undefined ? "–" : count(real)}</strong></span></p>
        </div>
        <table class="methods">
          <caption>Mean error of the regions, with the same people and the same privacy <About word="error" /></caption>
          <tbody>
            {rows.map(([name, word, { error }, text, tone]) => (
              <tr key={name} class={tone}>
                <th scope="row">{name} <About word={word} /><span class="note">{text}</span></th>
                <td><span class="bar" style={{ width: `${Math.round(100 * (Number.isFinite(error) ? error / worst : 0))}%` }} aria-hidden="true" /></td>
                <td class="number">{percent(error)}</td>
              </tr>
            ))}
          </tbody>
          <tfoot><tr><td colSpan={3} class="note">{own.slots === 0 ? `The first ${SKIPPED} slots are not counted.` : `Over ${own.slots} slots. The truth was inside the 95% interval of the total in ${percent(history === null ? NaN : coverage(history, truth), 0)} of them.`}</td></tr></tfoot>
        </table>
      </div>
    </section>
  );
}

// Why this exists, for whoever sees a demo for the first time: three ways to publish the same counts, and how wrong
// each of them is.

import { About } from "./explain";
import type { Word } from "./explain";
import type { Demo, Method } from "./demo";
import { count, percent } from "./format";
import type { Model } from "./model";
import type { Server } from "./server";

interface Score { error: number; slots: number }

function score(server: Server, truth: Map<number, number>, value: (slot: number, place: number) => number): Score {
  const { history } = server;
  let sum = 0, slots = 0;
  for (let place = 0; history !== null && place < history.length; place++) {
    const real = truth.get(history.slot(place)), shown = value(history.slot(place), place);
    if (real === undefined || !Number.isFinite(real) || !Number.isFinite(shown)) continue;
    sum += Math.abs(shown - real) / Math.max(real, 1);
    slots++;
  }
  return { error: slots === 0 ? NaN : sum / slots, slots };
}

export function WhySection({ model, server, demo }: { model: Model; server: Server; demo: Demo }) {
  const { history, topology, budget } = server;
  const truth = demo.values("truth", null);
  const of = (method: Method) => { const values = demo.values(method, null); return score(server, truth, (slot) => values.get(slot) ?? NaN); };
  const own = score(server, truth, (_, place) => history!.estimate(place, -1));
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
          <caption>Mean error of the total so far, same people and same privacy <About word="error" /></caption>
          <tbody>
            {rows.map(([name, word, { error }, text, tone]) => (
              <tr key={name} class={tone}>
                <th scope="row">{name} <About word={word} /><span class="note">{text}</span></th>
                <td><span class="bar" style={{ width: `${Math.round(100 * (Number.isFinite(error) ? error / worst : 0))}%` }} aria-hidden="true" /></td>
                <td class="number">{percent(error)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

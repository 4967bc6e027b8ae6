// Privacy: what was spent, what comes back, what is promised, and what users would have paid at most.

import { About, Figure } from "./explain";
import { duration, epsilon, plural } from "./format";
import type { History } from "./history";
import type { Model } from "./model";
import type { Server } from "./server";

const WIDTH = 560, HEIGHT = 120, BARS = 140;

export function PrivacySection({ model, server }: { model: Model; server: Server }) {
  const { budget, history, topology } = server;
  if (budget === null) return <section id="privacy" aria-labelledby="privacy-title"><h2 id="privacy-title">Privacy</h2><div class="card"><p>Reading the budget…</p></div></section>;
  const seconds = budget.returns_at === null ? NaN : (Date.parse(budget.returns_at) - Date.now()) / 1000;
  const slot = server.network?.slot ?? 0;
  const exhausted = budget.waits_for === "budget";
  const scope = budget.kind === "window" ? `any ${budget.length} consecutive slots` : `a horizon of ${budget.length} slots`;
  return (
    <section id="privacy" aria-labelledby="privacy-title">
      <h2 id="privacy-title">Privacy</h2>
      <div class="card">
        <div class="budget">
          <Gauge spent={budget.spent} blocked={budget.remaining === 0 ? budget.epsilon - budget.spent : budget.blocked} limit={budget.epsilon} empty={budget.remaining === 0} />
          <dl>
            <Figure label="Spent" word="spent" id="spent" tone={exhausted ? "warn" : ""} note={`of ε = ${epsilon(budget.epsilon)} in ${scope}`}>{epsilon(budget.spent)}</Figure>
            <Figure label="Left for the next sample" word="spent" note={budget.blocked > 0 ? `ε = ${epsilon(budget.blocked)} is blocked: ${budget.blocked_text}` : "what the next slot may cost at most"}>{epsilon(budget.remaining)}</Figure>
            <Figure label="Comes back" word="returns" note={budget.returns === null ? (budget.kind === "finite" ? "a finite horizon returns nothing" : "nothing is spent in this window") : `at slot ${budget.returns_slot}${seconds > 0 ? `, in ${duration(seconds)}` : ""}`}>{budget.returns === null ? "nothing" : epsilon(budget.returns)}</Figure>
          </dl>
        </div>
        {budget.text !== "" && <p class="notice warn" id="no-sample">{exhausted ? "Nothing is left to spend: " : ""}{budget.text}{exhausted ? " The estimates go on from neighbours' messages and prediction." : ""}</p>}
        <Guarantee text={budget.guarantee} />
        <h3>What was spent, slot by slot</h3>
        {history !== null && <Spending history={history} limit={budget.epsilon} window={budget.kind === "window" ? budget.length : 0} />}
        <h3>What a user would have paid at most in {budget.kind === "window" ? `the last ${budget.length} slots` : "the horizon so far"}</h3>
        {history !== null && topology !== null && <UserCosts model={model} server={server} history={history} slot={slot} />}
        <p class="note">{budget.kind === "window" && "Over a longer time a user pays more, up to ε in every window. "}Paid since the ledger began, by all networks that share it: ε = {epsilon(budget.total_spent)}.</p>
      </div>
    </section>
  );
}

/** The promise as a sentence; what it assumes, and what it does not cover, one step away. */
function Guarantee({ text }: { text: string }) {
  const end = /[.] (?=[A-Z])/.exec(text)?.index ?? text.length;
  const rest = text.slice(end + 2);
  return (
    <blockquote id="guarantee">
      {text.slice(0, end + 1)} <About word="guarantee" />
      {rest !== "" && <details><summary>What it assumes, and what it does not cover</summary><p>{rest}</p></details>}
    </blockquote>
  );
}

function Gauge({ spent, blocked, limit, empty }: { spent: number; blocked: number; limit: number; empty: boolean }) {
  const part = Math.min(1, limit === 0 ? 1 : spent / limit), stopped = Math.min(1 - part, limit === 0 ? 0 : blocked / limit);
  const length = Math.PI * 80;
  const label = `${Math.round(100 * part)}% of the privacy budget is spent${empty ? ", and nothing can be spent now" : ""}`;
  return (
    <svg class="gauge" viewBox="0 0 200 122" role="img" aria-label={label}>
      <path d="M20 105 A80 80 0 0 1 180 105" class="track" />
      <path d="M20 105 A80 80 0 0 1 180 105" class="blocked" stroke-dasharray={`${length * (part + stopped)} ${length}`} />
      <path d="M20 105 A80 80 0 0 1 180 105" class={`spent ${part > 0.97 ? "full" : ""}`} stroke-dasharray={`${length * part} ${length}`} />
      <text x="100" y="92" class="big">{Math.round(100 * part)}%</text>
      <text x="100" y="114" class="small">of ε = {epsilon(limit)}</text>
    </svg>
  );
}

/** Bars: what each slot cost. Line: the sum over the window that ends there, which never crosses the limit. */
function Spending({ history, limit, window }: { history: History; limit: number; window: number }) {
  const places = Math.min(history.length, BARS), first = history.length - places;
  if (places === 0) return <p class="note">No release yet.</p>;
  let most = 0;
  const sums: number[] = [];
  let sum = 0;
  for (let place = 0, start = 0; place < history.length; place++) {
    sum += history.epsilon(place);
    while (window > 0 && history.slot(place) - history.slot(start) >= window) sum -= history.epsilon(start++);
    if (place >= first) { sums.push(Math.max(0, sum)); most = Math.max(most, history.epsilon(place)); }
  }
  const x = (index: number) => (index + 0.5) * (WIDTH / Math.max(places, 30));
  const bar = Math.max(1.5, WIDTH / Math.max(places, 30) - 1.5);
  const y = (value: number) => HEIGHT - 6 - (HEIGHT - 22) * Math.min(1, value / limit);
  return (
    <figure class="spending">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`Spending of the last ${places} slots: at most ${epsilon(most)} per slot, and ${epsilon(sums[sums.length - 1])} in the ${window > 0 ? "window" : "horizon"} now, of ${epsilon(limit)}`}>
        {sums.map((_, index) => {
          const value = history.epsilon(first + index), height = most === 0 ? 0 : (HEIGHT / 2.4) * (value / most);
          return value > 0 ? <rect key={index} class="payment" x={x(index) - bar / 2} y={HEIGHT - 6 - height} width={bar} height={height} /> : null;
        })}
        <line class="limit" x1="0" x2={WIDTH} y1={y(limit)} y2={y(limit)} />
        <path class="sum" d={sums.map((value, index) => `${index === 0 ? "M" : "L"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`).join("")} />
        <text x="4" y={y(limit) - 5}>limit ε = {epsilon(limit)}</text>
      </svg>
      <figcaption class="note"><span class="key payment" aria-hidden="true" /> paid per slot, up to {epsilon(most)} <span class="key sum" aria-hidden="true" /> sum of {window > 0 ? `the ${window} slots up to there` : "the horizon up to there"}, never above the limit</figcaption>
    </figure>
  );
}

/** The sum of what a user pays who is, in each slot of the window, where the most is paid. */
export function roamingCost(histories: History[], slot: number, window: number): number {
  const most = new Map<number, number>();
  for (const history of histories) {
    for (let place = window > 0 ? history.find(slot - window + 1) : 0; place < history.length; place++) {
      most.set(history.slot(place), Math.max(most.get(history.slot(place)) ?? 0, history.epsilon(place)));
    }
  }
  return [...most.values()].reduce((sum, value) => sum + value, 0);
}

function UserCosts({ model, server, history, slot }: { model: Model; server: Server; history: History; slot: number }) {
  const budget = server.budget!, topology = server.topology!;
  const all = model.servers.length > 1 && model.servers.every((one) => one.history !== null);
  const window = budget.kind === "window" ? budget.length : 0;
  const others = Math.max(0, topology.servers.length - 1);
  const known = all ? roamingCost(model.servers.map((one) => one.history!), Math.max(slot - 1, history.lastSlot), window) : NaN;
  const covered = topology.users === "roaming";
  const roaming = all ? known : covered ? budget.epsilon : budget.spent + others * budget.epsilon;
  const text = covered ? "the promise covers roaming users" : all ? "in the window, from the spending of all servers; the promise is for pinned users" : `bound: what this server spent, and ε at ${plural(others, "other server")}; the promise is for pinned users`;
  return (
    <dl class="figures">
      <Figure label="Pinned" word="pinned" note="always here, in one region">ε ≤ {epsilon(budget.spent)}</Figure>
      <Figure label="Moving" word="moving" note="always here, in any region">ε ≤ {epsilon(budget.spent)}</Figure>
      <Figure label="Roaming" word="roaming" tone={covered || roaming <= budget.epsilon ? "" : "warn"} note={text}>ε ≤ {epsilon(roaming)}</Figure>
    </dl>
  );
}

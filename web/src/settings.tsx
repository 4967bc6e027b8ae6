// What the network assumes of its crowd: the model and whether servers learn, turnover, and public and learned shares.

import { About } from "./explain";
import { percent } from "./format";
import type { LearnedShare } from "./api";
import type { Server } from "./server";

const ROWS = 12;

/** A learned share beside the public one; `off`: by how many standard deviations they differ. */
export interface ShareRow extends LearnedShare { public: number; off: number }

/** Learned shares, those that differ most from the public ones first. */
export function shareRows(learned: LearnedShare[], places: { name: string; share: number; shares?: Record<string, number> }[]): ShareRow[] {
  const byName = new Map(places.map((one) => [one.name, one]));
  return learned.map((one) => {
    const place = byName.get(one.server), own = place?.shares?.[one.region] ?? place?.share ?? NaN;
    return { ...one, public: own, off: one.deviation > 0 ? Math.abs(one.share - own) / one.deviation : 0 };
  }).sort((a, b) => (b.off || 0) - (a.off || 0));
}

/** Folded: whoever compares two networks, or wonders about an estimate, opens it. */
export function Settings({ server }: { server: Server }) {
  const { network, quality, topology } = server;
  if (network === null || network.learn === undefined) return null;
  const relay = (network.lag ?? null) !== null, width = network.share_width ?? null, turnover = network.turnover ?? null;
  const rows = shareRows(quality?.learned_shares ?? [], topology?.servers ?? []);
  return (
    <details id="settings">
      <summary>Model, turnover and shares: {summaryOf(network.model_source ?? null, network.learn, width)}</summary>
      <dl class="facts">
        <div><dt>Model <About word="model" /></dt><dd>{(network.model_source ?? null) === null ? "none" : <>fitted on “{network.model_data}”; why it costs no budget, as the operators assert: {network.model_assertion ?? `“${network.model_source}”`}</>}</dd></div>
        <div><dt>Learns</dt><dd>{network.learn ? "yes: from releases, how well the model fits" : "no"}</dd></div>
        {relay && <div><dt>Turnover</dt><dd>{turnover === null ? "not stated: everybody counts as new in every slot" : `${turnover}: this part of a server’s users is replaced per slot`}</dd></div>}
        {relay && <div><dt>Share width <About word="learned" /></dt><dd>{width === null || width === 0 ? "none: public shares count as right" : `${width}: public shares may be wrong by ${percent(width, 0)}, and are learned`}</dd></div>}
      </dl>
      {rows.length > 0 && <LearnedShares rows={rows} />}
    </details>
  );
}

function summaryOf(source: string | null, learn: boolean, width: number | null): string {
  const model = source === null ? "no model" : "a model", shares = width !== null && width > 0 ? "learned shares" : "public shares";
  return `${model}${learn ? " and learning" : ""}, ${shares}`;
}

function LearnedShares({ rows }: { rows: ShareRow[] }) {
  const slot = rows[0].slot ?? null, left = rows.length - ROWS;
  return (
    <>
      <p class="note">Learned shares{slot === null ? "" : ` as of slot ${slot}`}, those that differ most from the public ones first{left > 0 ? `; ${left} more at /v1/quality` : ""}.</p>
      <div class="scroll" tabIndex={0} role="region" aria-label="Learned shares">
        <table id="learned-shares">
          <thead><tr><th scope="col">Server</th><th scope="col">Region</th><th scope="col">Public share</th><th scope="col">Learned share</th></tr></thead>
          <tbody>
            {rows.slice(0, ROWS).map((one) => (
              <tr key={`${one.server} ${one.region}`} class={one.off > 3 ? "off" : ""}>
                <th scope="row">{one.server}</th><td>{one.region}</td><td>{percent(one.public)}</td><td>{percent(one.share)} ±{percent(1.96 * one.deviation)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

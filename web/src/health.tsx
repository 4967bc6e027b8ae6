// Health: whether the node does its work, and in time.

import { Figure } from "./explain";
import { bytes, count, duration, percent, plural } from "./format";
import type { Quality } from "./api";
import type { Server } from "./server";

const VERDICTS = { calibrated: "about right", narrow: "intervals are too narrow", wide: "intervals are far too wide", unknown: "" };

export function isOff(quality: Quality): boolean { return quality.verdict === "narrow" || quality.verdict === "wide" || (quality.caveats ?? []).length > 0; }

/** The verdict in a few words, with what limits it. */
export function calibrationNote(quality: Quality): string {
  const suspected = (quality.suspected ?? []).join(", "), values = `${plural(quality.values, "value")} of other servers`;
  if (quality.verdict === "unknown" && (quality.caveats ?? []).includes("suspected")) return `nobody can say while ${suspected} cannot be believed; of ${values}`;
  const narrow = (quality.caveats ?? []).includes("regions") ? "too narrow in single regions" : "";
  if (quality.verdict === "unknown" && narrow !== "") return `${narrow}; of ${values}`;
  if (quality.verdict === "unknown") return quality.values === 0 ? "no value of another server yet" : `too early to say: ${values}, ${quality.needed ?? 200} are needed`;
  const far = (quality.caveats ?? []).includes("far-off") ? ", but some values were far off" : "";
  return `${VERDICTS[quality.verdict]}${far}${narrow === "" ? "" : `, ${narrow}`}; 95% should be inside, of ${values}${suspected === "" ? "" : `, without ${suspected}`}`;
}

export function HealthSection({ server }: { server: Server }) {
  const { metrics, network, readiness } = server;
  const delay = metrics?.quantile("dpcrowd_release_delay_seconds", 0.95) ?? null;
  const usual = metrics?.quantile("dpcrowd_release_delay_seconds", 0.5) ?? null;
  const missed = metrics?.value("dpcrowd_slots_missed_total") ?? null;
  const complete = metrics?.value("dpcrowd_exchanges_total", { outcome: "complete" }) ?? 0;
  const incomplete = metrics?.value("dpcrowd_exchanges_total", { outcome: "incomplete" }) ?? 0;
  const refused = metrics?.sum("dpcrowd_messages_refused_total") ?? 0;
  const stored = metrics?.value("dpcrowd_storage_up") ?? null, free = metrics?.value("dpcrowd_storage_free_bytes") ?? null;
  const offsets = metrics?.all("dpcrowd_neighbour_clock_offset_seconds") ?? [];
  const worst = offsets.reduce((most, one) => (Math.abs(one.value) > Math.abs(most) ? one.value : most), 0);
  const days = (metrics?.all("dpcrowd_certificate_expiry_timestamp_seconds") ?? []).map((one) => (one.value - Date.now() / 1000) / 86_400);
  const started = metrics?.value("process_start_time_seconds") ?? null;
  const tenth = (network?.slot_seconds ?? Infinity) / 10;
  return (
    <section id="health" aria-labelledby="health-title">
      <h2 id="health-title">Health</h2>
      <div class="card">
        <p class={`state ${readiness === null ? "" : readiness.ready ? "good-text" : "bad-text"}`} id="ready">{readiness === null ? "Reading…" : readiness.ready ? "✓ Ready: the node does all of its work." : "✕ Not ready: see the notice at the top of the page."}</p>
        {(readiness?.warnings ?? []).map((text) => <p class="notice warn" key={text}>{text}</p>)}
        <dl class="figures">
          <Figure label="Seal to release" word="delay" note={usual === null ? "no release since the start" : `95 of 100 slots; half of them within ${bound(usual)}`}>{delay === null ? "–" : `≤ ${bound(delay)}`}</Figure>
          <Figure label="Complete exchanges" word="exchange" tone={incomplete > complete ? "warn" : ""} note={`${count(incomplete)} of ${count(complete + incomplete)} slots ended without some neighbour`}>{complete + incomplete === 0 ? "–" : percent(complete / (complete + incomplete), 0)}</Figure>
          <Figure label="Missed slots" word="missed" tone={missed !== null && missed > 0 ? "warn" : ""} note="since the process started">{missed === null ? "–" : count(missed)}</Figure>
          <Figure label="Refused messages" word="refusals" note="of neighbours, since the process started">{count(refused)}</Figure>
          <Figure label="Storage" word="storage" tone={stored === 0 ? "bad" : ""} note={free === null ? "free space is shown to operators only" : `${bytes(free)} free`}>{stored === null ? "–" : stored === 1 ? "works" : "fails"}</Figure>
          <Figure label="Clock offset" word="clock" tone={Math.abs(worst) > tenth ? "warn" : ""} note={offsets.length === 0 ? "no message of a neighbour yet" : `at most, against ${plural(offsets.length, "neighbour")}`}>{offsets.length === 0 ? "–" : `${worst.toFixed(1)} s`}</Figure>
          <Calibration server={server} />
          <Figure label="Certificates" word="certificate" tone={days.length === 0 || Math.min(...days) >= 21 ? "" : Math.min(...days) < 0 ? "bad" : "warn"} note="until the first one expires">{days.length === 0 ? "–" : `${count(Math.floor(Math.min(...days)))} days`}</Figure>
          <Figure label="Running for" word="version" note={`version ${network?.version ?? "–"}`}>{started === null ? "–" : duration(Date.now() / 1000 - started)}</Figure>
          <Figure label="Configuration" word="version" note={<>digest <code>{network?.digest ?? "–"}</code>{network?.next_revision ? `; revision ${network.next_revision} begins at slot ${network.next_revision_slot}` : ""}</>}>revision {network?.revision ?? "–"}</Figure>
        </dl>
      </div>
    </section>
  );
}

function bound(seconds: number): string { return Number.isFinite(seconds) ? duration(seconds) : "more than 5 min"; }

/** Whether the intervals are as wide as they should be, by the records or messages of other servers. */
function Calibration({ server }: { server: Server }) {
  const { quality } = server;
  if (quality === null) return null;
  return <Figure label="Calibration" word="calibration" id="calibration" tone={isOff(quality) ? "warn" : ""} note={calibrationNote(quality)}>{quality.coverage === null ? "–" : percent(quality.coverage, 0)}</Figure>;
}

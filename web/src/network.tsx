// Network: the graph of servers with their states, and what arrives from each neighbour.

import { About } from "./explain";
import { ago, bytes, count, plural } from "./format";
import type { Neighbour, ServerReport } from "./api";
import type { Model } from "./model";
import type { Server } from "./server";
import { Settings } from "./settings";

type Mark = "own" | "good" | "warn" | "bad" | "unknown";

export interface Node { name: string; share: number; mark: Mark; text: string; neighbour: Neighbour | null; report: ServerReport | null; isBroken: boolean; isSuspected: boolean }

const SIGNS: Record<Mark, string> = { own: "●", good: "✓", warn: "!", bad: "✕", unknown: "" };
const SILENT_SLOTS = 3;
const LABELS = 24;

export function nodesOf(model: Model, server: Server): Node[] {
  const network = server.network, topology = server.topology;
  if (network === null || topology === null) return [];
  const neighbours = new Map(network.neighbours.map((one) => [one.name, one]));
  const reports = new Map((network.servers ?? []).map((one) => [one.name, one]));
  return topology.servers.map(({ name, share }) => {
    const neighbour = neighbours.get(name) ?? null, report = reports.get(name) ?? null;
    const other = model.servers.find((one) => one.name === name && one !== server);
    const [mark, text] = name === network.server ? ownState(server, report)
      : report !== null && report.equivocation !== null ? ["bad", `broken: it signed two different records for slot ${report.equivocation}`] as const
      : report !== null && report.suspected_since !== null ? ["warn", disagreement(report.suspected_since)] as const
      : neighbour !== null && stateOf(neighbour, network.slot)[0] !== "good" ? stateOf(neighbour, network.slot)
      : report !== null && report.missing ? ["warn", `its record of slot ${report.overdue} is missing`] as const
      : neighbour !== null ? stateOf(neighbour, network.slot)
      : report !== null && report.last_record !== null ? ["good", "its records arrive; not a neighbour of this server"] as const
      : other !== undefined ? (other.connection === "live" ? ["good", "answers; not a neighbour of this server"] as const : ["bad", "does not answer"] as const)
      : ["unknown", "not a neighbour: this server does not observe it"] as const;
    const isBroken = text.startsWith("broken"), isSuspected = !isBroken && (report?.suspected_since ?? null) !== null;
    return { name, share, mark, text, neighbour, report, isBroken, isSuspected };
  });
}

/** A server judges its own records as those of the others, and may find that it is the one that disagrees. */
function ownState(server: Server, report: ServerReport | null): readonly [Mark, string] {
  if (server.connection !== "live") return ["bad", "this server does not answer"];
  const since = report?.suspected_since ?? null;
  return since === null ? ["own", "this server"] : ["warn", `this server; ${disagreement(since)}`];
}

function disagreement(slot: number): string { return `since slot ${slot} its records disagree with those of the other servers, and count less`; }

function stateOf(neighbour: Neighbour, slot: number): readonly [Mark, string] {
  if (!neighbour.connected) return ["bad", "unreachable: there is no link"];
  if (neighbour.last_slot === null) return ["warn", "connected, but no message was used yet"];
  if (slot - neighbour.last_slot > SILENT_SLOTS) return ["warn", `silent: last message used was of slot ${neighbour.last_slot}`];
  return ["good", "connected"];
}

export function NetworkSection({ model, server }: { model: Model; server: Server }) {
  const nodes = nodesOf(model, server), network = server.network;
  const reasons = Object.entries(network?.refused_messages ?? {}).filter(([, number]) => number > 0);
  const sent = server.metrics?.value("dpcrowd_messages_sent_total") ?? null;
  const broken = nodes.filter((one) => one.isBroken);
  const suspected = nodes.filter((one) => one.isSuspected);
  const down = nodes.filter((one) => one.mark === "bad" && !broken.includes(one));
  const kinds = Object.entries(network?.messages_sent ?? {}).filter(([, number]) => number > 0);
  return (
    <section id="network" aria-labelledby="network-title">
      <h2 id="network-title">Network</h2>
      <div class="card">
        {nodes.length > 0 && <Graph model={model} server={server} nodes={nodes} />}
        <p class="note" id="network-summary">{plural(nodes.length, "server")}, {plural(server.topology?.links.length ?? 0, "link")}; {server.name} has {plural(network?.neighbours.length ?? 0, "neighbour")}. {down.length > 0 && <strong class="bad-text">Not reachable: {down.map((one) => one.name).join(", ")}.</strong>}{broken.length > 0 && <strong class="bad-text"> Broken: {broken.map((one) => one.name).join(", ")}.</strong>}{suspected.length > 0 && <strong> Records disagree with those of the others: {suspected.map((one) => one.name === server.name ? `${one.name} (this server)` : one.name).join(", ")}.</strong>}</p>
        <div class="scroll" tabIndex={0} role="region" aria-label="Servers">
          <table id="servers">
            <thead><tr><th scope="col">Server</th><th scope="col">State <About word="state" /></th><th scope="col">Last heard</th><th scope="col">Refused <About word="refusals" /></th>{nodes.some((one) => one.report !== null) && <th scope="col">Records <About word="records" /></th>}</tr></thead>
            <tbody>
              {nodes.filter((one) => one.mark !== "unknown" || one.report !== null).slice(0, 60).map((one) => (
                <tr key={one.name} data-server={one.name} data-state={one.mark}>
                  <th scope="row"><span class={`sign ${one.mark}`} aria-hidden="true">{SIGNS[one.mark]}</span> {one.name}</th>
                  <td>{one.text}</td>
                  <td>{one.neighbour === null ? "" : one.neighbour.last_heard === null ? "never" : `${ago(Math.max(0, (Date.now() - Date.parse(one.neighbour.last_heard)) / 1000))}, slot ${one.neighbour.last_slot}`}</td>
                  <td>{one.neighbour === null ? "" : refusalsOf(one.neighbour)}</td>
                  {nodes.some((other) => other.report !== null) && <td>{reportOf(one.report, one.name === server.name)}</td>}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
        <p class="note">
          {sent !== null && <>Messages sent since the start: {count(sent)}{kinds.length > 0 && ` (${kinds.map(([kind, number]) => `${count(number)} ${kind}`).join(", ")})`} <About word="bytes" />. </>}{traffic(server)}
          {(network?.joined_from ?? []).length > 0 && <span id="joined">The estimate began with the word of {network!.joined_from!.join(", ")}, of slot {network!.joined_slot} <About word="joined" />. </span>}
          {reasons.length === 0 ? "No message was refused." : `Refused in total: ${reasons.map(([reason, number]) => `${number} ${reason}`).join(", ")}.`}
        </p>
        <Settings server={server} />
      </div>
    </section>
  );
}

function refusalsOf(neighbour: Neighbour): string {
  const parts = Object.entries(neighbour.refused).filter(([, number]) => number > 0);
  return parts.length === 0 ? "none" : parts.map(([reason, number]) => `${number} ${reason}`).join(", ");
}

/** What is known of a server's records, in words. */
function reportOf(report: ServerReport | null, own: boolean): string {
  if (report === null) return "";
  const refused = Object.entries(report.records_refused).map(([reason, number]) => `${number} refused: ${reason}`);
  const late = report.records_late > 0 ? [`${count(report.records_late)} too late`] : [];
  const last = report.last_record === null ? [] : [`last of slot ${report.last_record}`];
  return [...(own ? [] : [count(report.records)]), ...last, ...late, ...refused].join(", ");
}

/** Bytes and records, from the metrics of versions that count them. */
function traffic(server: Server): string {
  const { metrics } = server;
  if (metrics === null) return "";
  const parts: string[] = [];
  const sum = (name: string, text: string, show: (value: number) => string) => { if (metrics.all(name).length > 0) parts.push(`${show(metrics.sum(name))} ${text}`); };
  sum("dpcrowd_messages_sent_bytes_total", "sent", bytes);
  sum("dpcrowd_records_received_total", "records received", count);
  sum("dpcrowd_records_forwarded_total", "records passed on", count);
  return parts.length === 0 ? "" : `${parts.join(", ")}. `;
}

function Graph({ model, server, nodes }: { model: Model; server: Server; nodes: Node[] }) {
  const size = 300, radius = nodes.length === 1 ? 0 : 105;
  const position = (index: number): [number, number] => {
    const angle = (2 * Math.PI * index) / nodes.length - Math.PI / 2;
    return [size / 2 + 50 + radius * Math.cos(angle) * 1.25, size / 2 + radius * Math.sin(angle)];
  };
  const places = new Map(nodes.map((one, index) => [one.name, position(index)]));
  const marks = new Map(nodes.map((one) => [one.name, one.mark]));
  const named = nodes.length <= LABELS;
  return (
    <svg class="graph" viewBox={`0 0 ${size + 100} ${size}`} role="img" aria-label={`Servers and links: ${nodes.map((one) => `${one.name}: ${one.text}`).slice(0, 12).join("; ")}`}>
      {(server.topology?.links ?? []).map(([a, b]) => {
        const from = places.get(a), to = places.get(b);
        if (from === undefined || to === undefined) return null;
        const own = a === server.name || b === server.name;
        const broken = own && (marks.get(a) === "bad" || marks.get(b) === "bad");
        return <line key={`${a} ${b}`} class={`link ${own ? "own" : ""} ${broken ? "broken" : ""}`} x1={from[0]} y1={from[1]} x2={to[0]} y2={to[1]} />;
      })}
      {nodes.map((one, index) => {
        const [x, y] = position(index), r = named ? 19 : Math.max(3, 240 / nodes.length);
        const place = model.servers.findIndex((other) => other.name === one.name);
        return (
          <g key={one.name} class={`node ${one.mark}`} onClick={place >= 0 ? () => model.select(place) : undefined}>
            <title>{one.name}: {one.text}</title>
            <circle cx={x} cy={y} r={r} />
            {named && <text x={x} y={y + 5} class="sign">{SIGNS[one.mark]}</text>}
            {named && <text x={x} y={y + (y < size / 2 - 1 ? -27 : 36)}>{one.name}</text>}
          </g>
        );
      })}
    </svg>
  );
}

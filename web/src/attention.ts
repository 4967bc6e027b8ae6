// What needs somebody's attention, in the order of its weight: the first thing that an operator reads.

import { plural } from "./format";
import { isOff } from "./health";
import type { Model } from "./model";
import { nodesOf } from "./network";
import type { Server } from "./server";

/** section: the part of the page that says more; empty: nothing does. */
export interface Concern { tone: "bad" | "warn"; text: string; section: string }

const MOST_NAMES = 6;
const CAUSES = "share in network.toml, or that of a region, may not be what it counts, or may have moved; or its feed may have stopped, count people twice, or name the wrong regions.";

export function concernsOf(model: Model, server: Server): Concern[] {
  const { readiness, budget, quality } = server, concerns: Concern[] = [];
  const add = (tone: Concern["tone"], text: string, section: string) => concerns.push({ tone, text, section });
  for (const text of readiness?.problems ?? []) add("bad", text, "health");
  if (server.connection !== "live") return concerns;
  const nodes = nodesOf(model, server), others = nodes.filter((one) => one.name !== server.name);
  const own = nodes.find((one) => one.name === server.name);
  for (const one of others) if (one.isBroken) add("bad", `${one.name} is ${one.text}.`, "network");
  if (own !== undefined && own.isSuspected) add("warn", `This server itself is suspected: since slot ${own.report!.suspected_since} its records disagree with those of the other servers, and count less. Its ${CAUSES}`, "network");
  for (const one of others) if (one.isSuspected) add("warn", `${one.name}: ${one.text}. Its ${CAUSES}`, "network");
  const unreachable = others.filter((one) => one.mark === "bad" && !one.isBroken), quiet = others.filter((one) => one.mark === "warn" && !one.isSuspected);
  if (unreachable.length > 0) add("bad", `${names(unreachable)} cannot be reached.`, "network");
  if (quiet.length === 1) add("warn", `${quiet[0].name}: ${quiet[0].text}.`, "network");
  else if (quiet.length > 1) add("warn", `Nothing new arrives from ${names(quiet)}.`, "network");
  const contradicting = server.network?.join_disagreement ?? [];
  if (contradicting.length > 0) add("warn", `When this server asked its neighbours for the past, the states of ${names(contradicting.map((name) => ({ name })))} contradicted each other, or the one that was taken: compare what they release.`, "network");
  if (budget !== null && budget.kind === "finite" && budget.waits_for === "budget") add("warn", "The budget of the horizon is spent: this server does not sample any more.", "privacy");
  if (quality !== null && isOff(quality)) add("warn", `Calibration${quality.verdict === "narrow" || quality.verdict === "wide" ? " is off" : ""}: ${quality.text}`, "health");
  for (const text of readiness?.warnings ?? []) add("warn", text, "health");
  return concerns;
}

function names(nodes: { name: string }[]): string {
  const rest = nodes.length - MOST_NAMES;
  return nodes.slice(0, MOST_NAMES).map((one) => one.name).join(", ") + (rest > 0 ? ` and ${plural(rest, "more server")}` : "");
}

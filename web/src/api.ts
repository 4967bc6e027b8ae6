// Requests to one server. The token travels in the header Authorization, never in an address.

export interface PageServer { path: string; name: string | null }
export interface PageDescription { token_needed: boolean; servers: PageServer[]; demo: string | null }

export type Column = (number | null)[];
export interface Columns {
  slots: number[]; opens: number[]; sampled: boolean[]; epsilon: number[]; heard: number[];
  total: Column; total_half_width: Column; regions: string[]; estimate: Column[]; half_width: Column[]; estimate_nonnegative?: Column[];
}
/** Records of one server in a relay network, oldest first: its noisy counts divided by its share, public or learned. */
export interface RecordColumns { slots: number[]; value: Column; half_width: Column; learned?: boolean[] }
export interface NeighbourColumns {
  region: string | null; slots: number[]; neighbours: Record<string, Column>; records?: Record<string, RecordColumns>;
}

export interface Neighbour {
  name: string; connected: boolean; last_slot: number | null; last_heard: string | null;
  refused: Record<string, number>; refused_last: Record<string, string>;
  records_received?: number; records_forwarded?: number; records_late?: number;
}
/** A server of a network that passes records on, as its records show it. */
export interface ServerReport {
  name: string; last_record: number | null; overdue: number | null; missing: boolean; suspected_since: number | null;
  equivocation: number | null; records: number; records_late: number; records_refused: Record<string, number>;
}
export interface NetworkStatus {
  network: string; server: string; version: string; revision: number; digest: string;
  next_revision: number | null; next_revision_slot: number | null; epoch: string; slot_seconds: number;
  grace_seconds: number; slot: number; regions: string[]; neighbours: Neighbour[];
  refused_messages: Record<string, number>; servers?: ServerReport[]; lag?: number | null;
  messages_sent?: Record<string, number>; joined_from?: string[]; joined_slot?: number | null;
  join_disagreement?: string[];
  model_data?: string | null; model_source?: string | null; model_assertion?: string | null; learn?: boolean; turnover?: number | null; share_width?: number | null;
}
export interface Budget {
  guarantee: string; kind: "window" | "finite"; length: number; epsilon: number; spent: number; blocked: number;
  blocked_text: string; blocked_until: string | null; remaining: number; returns: number | null;
  returns_slot: number | null; returns_at: string | null; total_spent: number; total_blocked: number;
  samples: boolean; waits_for: string | null; text: string;
}
export interface Topology {
  servers: { name: string; share: number; shares?: Record<string, number> }[]; links: [string, string][]; population: number; scheme: string;
  users: "pinned" | "roaming"; servers_per_slot: number; regions_per_slot: number;
  coordinates: Record<string, [number, number]>; map: boolean;
}
/** The running calibration of a server's intervals. */
export interface Quality {
  verdict: "calibrated" | "narrow" | "wide" | "unknown"; text: string; coverage: number | null; calibration: number | null; values: number;
  needed?: number; caveats?: string[]; suspected?: string[]; learned_shares?: LearnedShare[];
}
/** The share of a server in a region that records have shown, as of a slot. */
export interface LearnedShare { server: string; region: string; share: number; deviation: number; slot?: number | null }
export interface Readiness { ready: boolean; problems: string[]; warnings?: string[] }
/** What only a demo knows; see `dpcrowd.demo.truth`. */
export interface DemoColumns {
  note: string; server: string; slots: number[]; truth: Column; truth_regions: Column[]; regions: string[];
  alone: Column; alone_half_width: Column; naive: Column; naive_half_width: Column;
  alone_regions: Column[]; naive_regions: Column[];
}

/** A refusal of the server, in its own words. */
export class Refused extends Error {
  constructor(readonly status: number, readonly reason: string, text: string) { super(text); }
}

const KEY = "dpcrowd-token";

export class Session {
  token: string | null = sessionStorage.getItem(KEY);

  use(token: string | null): void {
    this.token = token;
    if (token === null) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, token);
  }

  private request(path: string, signal?: AbortSignal): Promise<Response> {
    const headers: Record<string, string> = this.token === null ? {} : { Authorization: `Bearer ${this.token}` };
    return fetch(path, { headers, signal, cache: "no-store", credentials: "omit", redirect: "error" });
  }

  async text(path: string, signal?: AbortSignal): Promise<string> {
    const response = await this.request(path, signal);
    if (!response.ok) throw await refusal(response);
    return response.text();
  }

  async json<T>(path: string, signal?: AbortSignal): Promise<T> {
    const response = await this.request(path, signal);
    if (!response.ok) throw await refusal(response);
    return response.json() as Promise<T>;
  }

  /** Read server-sent events until the stream ends; EventSource could not send the header. */
  async events(path: string, signal: AbortSignal, deliver: (event: string, data: string) => void,
               opened: () => void): Promise<void> {
    const response = await this.request(path, signal);
    if (!response.ok || response.body === null) throw await refusal(response);
    opened();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop() ?? "";
      for (const part of parts) {
        let name = "message";
        const data: string[] = [];
        for (const line of part.split("\n")) {
          if (line.startsWith("event: ")) name = line.slice(7);
          else if (line.startsWith("data: ")) data.push(line.slice(6));
        }
        if (data.length > 0) deliver(name, data.join("\n"));
      }
    }
  }
}

async function refusal(response: Response): Promise<Refused> {
  try {
    const body = await response.json() as { error?: { reason?: string; text?: string } };
    return new Refused(response.status, body.error?.reason ?? "refused", body.error?.text ?? response.statusText);
  } catch {
    return new Refused(response.status, "refused", `the server answered ${response.status}.`);
  }
}

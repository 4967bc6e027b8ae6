import { useEffect, useRef, useState } from "preact/hooks";
import { concernsOf } from "./attention";
import type { Concern } from "./attention";
import { Explanation, Glossary } from "./explain";
import { ago, count, duration } from "./format";
import { HealthSection } from "./health";
import { Model } from "./model";
import type { Theme } from "./model";
import { NetworkSection } from "./network";
import { NowSection } from "./now";
import { OverTimeSection } from "./over-time";
import { PrivacySection } from "./privacy";
import type { Server } from "./server";
import { WhySection } from "./why";

const SECTIONS = [["now", "Now"], ["over-time", "Over time"], ["privacy", "Privacy"], ["network", "Network"], ["health", "Health"], ["meaning", "Meaning"]];
const GLOSSARY = <Glossary />;
const THEMES: Record<Theme, string> = { auto: "Automatic", light: "Light", dark: "Dark" };

export function App() {
  const [, draw] = useState(0);
  const model = useRef<Model | null>(null);
  if (model.current === null) model.current = new Model(() => draw((number) => number + 1));
  useEffect(() => {
    void model.current?.start();
    const timer = setInterval(() => model.current?.changed(), 1_000);
    return () => clearInterval(timer);
  }, []);
  return <Page model={model.current} />;
}

function Page({ model }: { model: Model }) {
  const { server } = model;
  const concerns = server === null ? [] : concernsOf(model, server);
  const title = server === null ? "dpcrowd" : titleOf(server, concerns);
  useEffect(() => { document.title = title; }, [title]);
  return (
    <>
      <a class="skip" href="#content">Skip to the numbers</a>
      <Header model={model} />
      <main id="content" tabIndex={-1}>
        {model.failure !== "" && <p class="notice bad" role="alert">{model.failure}</p>}
        {model.needsToken && <Login model={model} />}
        {server !== null && (
          <>
            <Notices server={server} concerns={concerns} />
            {model.demo !== null && <WhySection model={model} server={server} demo={model.demo} />}
            <NowSection model={model} server={server} />
            <OverTimeSection model={model} server={server} />
            <div class="pair">
              <PrivacySection model={model} server={server} />
              <NetworkSection model={model} server={server} />
            </div>
            <HealthSection server={server} />
            {GLOSSARY}
          </>
        )}
      </main>
      <Explanation />
      <footer>
        dpcrowd {server?.network?.version ?? ""} · This page shows released values only: estimates that were made from noisy, paid counts. <a href="/help">Documentation</a>
      </footer>
    </>
  );
}

function Header({ model }: { model: Model }) {
  const { server } = model;
  return (
    <header class="top">
      <div class="brand"><img src="/assets/icon.svg" alt="" width="28" height="28" /> <h1>dpcrowd{server?.network && <span> · {server.network.network}</span>}</h1></div>
      {server !== null && <Live server={server} />}
      <div class="controls">
        {model.servers.length > 1 && (
          <label>Server{" "}
            <select value={String(model.current)} onChange={(event) => model.select(Number(event.currentTarget.value))}>
              {model.servers.map((one, place) => <option key={one.name} value={String(place)}>{one.name}</option>)}
            </select>
          </label>
        )}
        <label>Colours{" "}
          <select value={model.theme} onChange={(event) => model.paint(event.currentTarget.value as Theme)}>
            {Object.entries(THEMES).map(([theme, text]) => <option key={theme} value={theme}>{text}</option>)}
          </select>
        </label>
        {model.session.token !== null && !model.needsToken && <button type="button" onClick={() => model.leave()}>Sign out</button>}
      </div>
      {server !== null && (
        <nav aria-label="Sections">
          {SECTIONS.map(([id, text]) => <a key={id} href={`#${id}`}>{text}</a>)}
        </nav>
      )}
    </header>
  );
}

function Live({ server }: { server: Server }) {
  const late = server.network === null || server.arrived === 0 ? 0 : (Date.now() - server.arrived) / 1000;
  const overdue = server.network !== null && server.connection === "live" && late > 3 * server.network.slot_seconds + 5;
  const tone = server.connection === "live" ? (overdue ? "warn" : "good") : server.connection === "connecting" ? "" : "bad";
  const text = server.connection === "live"
    ? (server.history === null || server.history.lastSlot < 0 ? "Live, no release yet" : `Live · slot ${server.history.lastSlot}${server.arrived === 0 ? "" : ` · ${ago(late)}`}`)
    : server.connection === "connecting" ? "Connecting…" : `No connection for ${duration((Date.now() - server.since) / 1000)}`;
  return <p class={`live ${tone}`} data-connection={server.connection}><span class="dot" aria-hidden="true" /> <strong>{server.name}</strong> {text}</p>;
}

/** The title of the tab: an operator sees among twenty tabs that something is wrong. */
function titleOf(server: Server, concerns: Concern[]): string {
  const { history } = server, total = history === null || history.length === 0 ? NaN : history.estimate(history.length - 1, -1);
  const mark = server.connection === "lost" || concerns.some((one) => one.tone === "bad") ? "✕ " : concerns.length > 0 ? "! " : "";
  return `${mark}${Number.isFinite(total) ? `${count(total)} · ` : ""}${server.name} · dpcrowd`;
}

function Notices({ server, concerns }: { server: Server; concerns: Concern[] }) {
  return (
    <div aria-live="polite" id="notices">
      {server.connection === "lost" && <p class="notice bad" id="lost">{server.name}: {server.problem} What you see is its last state; the page tries again by itself.</p>}
      {concerns.map((one) => <p class={`notice ${one.tone}`} key={one.text}>{one.text} {one.section !== "" && <a href={`#${one.section}`}>Details</a>}</p>)}
    </div>
  );
}

function Login({ model }: { model: Model }) {
  const [token, setToken] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    await model.enter(token.trim());
    setBusy(false);
  };
  return (
    <form class="login card" onSubmit={(event) => void submit(event)}>
      <h2>Sign in to read</h2>
      <p>The estimates of this server are for readers. Enter a token with the right <code>read</code>, as <code>[tokens]</code> of its node.toml has it. The token stays in this tab and is sent to this server only.</p>
      <label for="token">Token</label>
      <input id="token" type="password" autocomplete="off" spellcheck={false} required value={token}
             aria-describedby={model.refusal === "" ? undefined : "refusal"} aria-invalid={model.refusal !== ""}
             onInput={(event) => setToken(event.currentTarget.value)} />
      {model.refusal !== "" && <p id="refusal" class="notice bad" role="alert">Not signed in: {model.refusal}</p>}
      <button type="submit" class="primary" disabled={busy || token.trim() === ""}>{busy ? "Checking…" : "Sign in"}</button>
    </form>
  );
}

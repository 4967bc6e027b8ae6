// What every number means: a short text that opens beside it, with a link to the documentation, which the server has.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

/** `page`: the page of the documentation that says more, and the place on it. */
interface Entry { title: string; text: string; page: string }

const NARROW = 800;

export const WORDS = {
  total: { title: "Estimated total", page: "words#the-crowd-and-its-estimate", text: "How many people are in all regions together in one slot, as this server estimates it from its own noisy counts and those of its neighbours. It is an estimate: nobody has counted everybody, and no exact count leaves any server." },
  interval: { title: "95% interval (±)", page: "schemes#the-filter-that-most-of-them-share", text: "The true number is inside this range in about 95 of 100 slots, if the network's model of the crowd is right. The interval of a total is computed from those of its regions, which go together as far as the network's model says." },
  trend: { title: "Trend", page: "page#what-it-shows", text: "The change of the estimate over the last ten slots, and that change as a part of the estimate before them. There is no such part if the estimate before them was below ten people, or not above its interval. A change that is smaller than its interval may be noise." },
  slot: { title: "Slot", page: "words#the-crowd-and-its-estimate", text: "One interval of time. A person counts once per slot; each slot has one release." },
  sample: { title: "Sample", page: "privacy#what-a-slot-costs", text: "A slot in which this server read its own counts, added noise and paid for it from its privacy budget. In other slots it estimates from its neighbours' messages and from the past, which costs nothing." },
  neighbours: { title: "Neighbours' estimates", page: "page#what-it-shows", text: "Thin lines are the estimates of other servers. Servers that hear each other should agree within their intervals; a line far away from the others deserves a look." },
  agreement: { title: "Records of other servers", page: "page#agreement", text: "In a relay network servers exchange signed, noisy samples, not estimates. A thin line connects the records of one server, each divided by the part of the people that the server sees, its public or learned share, so that it is an estimate of everybody. Records scatter by their noise, within the bars; a server whose records are on one side again and again deserves a look." },
  smoothed: { title: "Smoothed history", page: "api#get-v1estimates", text: "Past slots, estimated again with what came later. It is more accurate than the live estimate and costs no privacy, since every record in it was paid for." },
  nonnegative: { title: "Non-negative view", page: "api#get-v1history", text: "Estimates of small regions may be below zero, because noise moves them down as often as up. This dashed line is the most likely count without negative numbers, with the same total of all regions. Read single numbers from it; sums and averages over slots are better taken of the estimates." },
  truth: { title: "The truth", page: "page#what-only-a-demo-shows", text: "The exact number of people. Only this demo knows it, because it has made the crowd up. In a real network nobody knows it, and no server of the demo does." },
  alone: { title: "One server alone", page: "page#what-only-a-demo-shows", text: "What a server would show if it had no neighbours: the same counts and the same privacy budget, but only its own part of the crowd." },
  naive: { title: "Naive release", page: "page#what-only-a-demo-shows", text: "What a server would show if it divided its budget by the length of the window, added noise to the counts of every slot and published the result, without a filter and without neighbours." },
  error: { title: "Mean error", page: "page#what-only-a-demo-shows", text: "The distances between the estimates of all regions and the truth, added up, as a part of the crowd; the average over the last slots, at most 600, without the first 8 after the start." },
  spent: { title: "Privacy budget spent (ε)", page: "privacy#the-guarantee", text: "What this server has paid for its samples in the current window or horizon. When nothing is left it stops sampling, and continues with its neighbours' messages." },
  returns: { title: "Budget that comes back", page: "operate#the-budget", text: "In a sliding window a payment counts until its slot has left the window. Then that part of the budget can be spent again. In a finite horizon nothing comes back." },
  guarantee: { title: "The promise", page: "privacy#the-guarantee", text: "What the published numbers can reveal about one person is limited by ε: with or without that person's data, every result is about equally probable, by a factor of at most e to the power of ε." },
  pinned: { title: "A pinned user", page: "privacy#neighbouring-streams", text: "Somebody who always checks in at this server, in the same region. This user pays at most the sum of what the samples of the window have cost." },
  moving: { title: "A moving user", page: "privacy#why-a-ledger-per-region-is-not-enough", text: "Somebody who always checks in at this server, but moves between regions. The ledger charges each slot by its most expensive region, so that moving costs no more than staying." },
  roaming: { title: "A roaming user", page: "privacy#users-who-roam-between-servers", text: "Somebody who checks in at another server in every slot, wherever the most was spent. A promise for pinned users does not cover this person; one for roaming users does." },
  state: { title: "State of a server", page: "failures#neighbours", text: "Connected: the link is up and messages arrive. Silent: the link is up, but the last slots brought no message that could be used. Unreachable: there is no link. Only direct neighbours are observed." },
  refusals: { title: "Refused messages", page: "failures#messages-that-are-refused", text: "Messages of neighbours that were not used, by reason: too late, of another configuration, with a wrong signature, with impossible values. A few after a restart are normal." },
  records: { title: "Records", page: "relay#on-live-servers", text: "Signed samples of a relay network: each server passes them on, and every server counts each of them once." },
  model: { title: "Process model", page: "words#the-crowd-and-its-estimate", text: "What all servers expect of the crowd before they hear any record: its usual level, its season, and how far it deviates from them. Filters that learn find out from releases how well it fits." },
  learned: { title: "Learned shares", page: "shares#learned-shares", text: "The part of the people that a server sees, as the records of all servers show it, where public shares may be wrong (share width). It follows from noisy values alone, and goes up to the last slot of which no more records are accepted." },
  joined: { title: "Joined late", page: "failures#this-server-has-lost-records-of-the-others", text: "This server had lost records of earlier slots. Its estimate began with what these neighbours say follows from them. That is their word, which no signature proves; every record since then is signed by its server." },
  bytes: { title: "Bytes", page: "metrics#all-metrics", text: "What this server has sent to its neighbours since its process started." },
  delay: { title: "Seal to release", page: "metrics#all-metrics", text: "How long after the end of its grace period a slot is published. Rounded up to public bounds, so that the time reveals nothing about how many people were counted." },
  missed: { title: "Missed slots", page: "failures#clock-feed-and-timing", text: "Slots that passed while this server was down or suspended." },
  storage: { title: "Storage", page: "failures#storage", text: "Whether the last write to the data folder succeeded. A server that cannot store a payment does not sample." },
  clock: { title: "Clock offset", page: "metrics#clocks", text: "By how much this server's clock is ahead of its neighbours' at most, from the arrival of their messages. Above a tenth of a slot, messages may come too late." },
  calibration: { title: "Calibration", page: "metrics#calibration", text: "Whether the intervals are as wide as they should be: how far other servers' records were from what this server expected, in units of its own interval." },
  certificate: { title: "Certificates", page: "keys#renewal", text: "Days until the first certificate expires, of this server or of a neighbour. Links end when a certificate has expired." },
  version: { title: "Version and digest", page: "configuration#networktoml", text: "The software that runs, and a fingerprint of network.toml. Servers whose digests differ refuse each other's messages." },
  exchange: { title: "Complete exchanges", page: "metrics#all-metrics", text: "The part of all slots in which the messages of all neighbours arrived before the deadline." },
} satisfies Record<string, Entry>;

export type Word = keyof typeof WORDS;

let openExplanation: (word: Word, button: HTMLElement) => void = () => undefined;

/** A question mark beside a number: it opens the explanation right there. */
export function About({ word }: { word: Word }) {
  return (
    <button type="button" class="about" aria-label={`What is: ${WORDS[word].title}?`} title={WORDS[word].text}
            onClick={(event) => { event.preventDefault(); openExplanation(word, event.currentTarget); }}>?</button>
  );
}

function DocsLink({ word }: { word: Word }) {
  const title = WORDS[word].title;
  return <a class="source" href={`/help/${WORDS[word].page}`} target="_blank" rel="noopener" aria-label={`${title}: read more in the documentation`}>Read more</a>;
}

/** The explanation that is open, if any: one element for all question marks. Escape, or a click elsewhere, closes it. */
export function Explanation() {
  const [shown, show] = useState<{ word: Word; button: HTMLElement } | null>(null);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    openExplanation = (word, button) => show((before) => (before?.button === button ? null : { word, button }));
    const away = (event: MouseEvent) => {
      const target = event.target as Element;
      if (box.current?.contains(target) !== true && target.closest(".about") === null) show(null);
    };
    document.addEventListener("click", away);
    return () => { document.removeEventListener("click", away); openExplanation = () => undefined; };
  }, []);
  useEffect(() => {
    if (shown === null || box.current === null) return;
    const at = shown.button.getBoundingClientRect(), own = box.current.getBoundingClientRect();
    const left = Math.max(8, Math.min(at.left - 20, document.documentElement.clientWidth - own.width - 8));
    box.current.style.left = `${left + scrollX}px`;
    box.current.style.top = `${at.bottom + 6 + scrollY}px`;
    box.current.focus({ preventScroll: true });
  }, [shown]);
  if (shown === null) return null;
  const close = () => { show(null); shown.button.focus({ preventScroll: true }); };
  return (
    <div class="explanation" ref={box} role="dialog" aria-labelledby="explanation-title" tabIndex={-1} onKeyDown={(event) => { if (event.key === "Escape") close(); }}>
      <p><strong id="explanation-title">{WORDS[shown.word].title}</strong> <button type="button" class="close" aria-label="Close" onClick={close}>×</button></p>
      <p>{WORDS[shown.word].text}</p>
      <p><DocsLink word={shown.word} /></p>
    </div>
  );
}

interface FigureProps { label: string; word: Word; note?: ComponentChildren; tone?: string; id?: string; children: ComponentChildren }

/** One number with its name, its meaning in a few words, and a link to the explanation. */
export function Figure({ label, word, note, tone, id, children }: FigureProps) {
  return (
    <div class={`figure ${tone ?? ""}`} id={id}>
      <dt>{label} <About word={word} /></dt>
      <dd><span class="value">{children}</span>{note !== undefined && <span class="note">{note}</span>}</dd>
    </div>
  );
}

export function Glossary() {
  return (
    <section id="meaning" aria-labelledby="meaning-title">
      <h2 id="meaning-title">What the numbers mean</h2>
      <details open={innerWidth > NARROW}>
        <summary>{Object.keys(WORDS).length} words</summary>
        <dl class="glossary">
          {Object.entries(WORDS).map(([word, entry]) => (
            <div id={`about-${word}`} key={word}>
              <dt>{entry.title}</dt>
              <dd>{entry.text} <DocsLink word={word as Word} /></dd>
            </div>
          ))}
        </dl>
      </details>
      <p class="note"><a href="/help">The complete documentation</a> of this version is part of the server.</p>
    </section>
  );
}

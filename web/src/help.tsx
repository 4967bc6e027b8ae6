// The documentation at /help and /help/NAME: the pages of docs/ that this server has, of the version that it runs.

import { useEffect, useMemo, useState } from "preact/hooks";
import { blocksOf, Markdown } from "./markdown";

interface HelpPage { name: string; title: string }

const darkness = matchMedia("(prefers-color-scheme: dark)");
const paint = (): void => { document.documentElement.dataset.theme = darkness.matches ? "dark" : "light"; };

/** The name of the documentation's page in a path; null: the path is not one of the documentation. */
export function helpName(path: string): string | null {
  const match = /^\/help(?:\/([a-z0-9-]*))?$/.exec(path);
  return match === null ? null : match[1] || "index";
}

/** Where a link of the documentation leads: to another page here, to a place on this one, or elsewhere; or nowhere. */
export function helpLink(target: string, pages: HelpPage[]): string | null {
  if (/^(https?:|#)/.test(target)) return target;
  const match = /^([a-z0-9-]+)\.md(#.*)?$/.exec(target);
  if (match === null || !pages.some((one) => one.name === match[1])) return null;
  return `/help/${match[1]}${match[2] ?? ""}`;
}

export function Help({ name }: { name: string }) {
  const [pages, setPages] = useState<HelpPage[]>([]);
  const [text, setText] = useState<string | null>(null);
  const [failed, fail] = useState(false);
  useEffect(() => {
    paint();
    darkness.addEventListener("change", paint);
    const read = async () => {
      const [contents, page] = await Promise.all([fetch("/help/contents.json"), fetch(`/help/${name}.md`)]);
      if (!contents.ok || !page.ok) throw new Error("not found");
      setPages(await contents.json() as HelpPage[]);
      setText(await page.text());
    };
    read().catch(() => fail(true));
  }, [name]);
  const blocks = useMemo(() => (text === null ? [] : blocksOf(text)), [text]);
  useEffect(() => {
    if (text === null) return;
    document.title = `${pages.find((one) => one.name === name)?.title ?? name} · dpcrowd`;
    document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
  }, [text]);
  return (
    <>
      <a class="skip" href="#content">Skip to the text</a>
      <header class="top">
        <div class="brand"><img src="/assets/icon.svg" alt="" width="28" height="28" /> <p class="title">dpcrowd<span> · documentation</span></p></div>
        <div class="controls"><a href="/">To the live page</a></div>
      </header>
      <div class="help">
        <nav aria-label="Documentation">
          {pages.map((one) => <a key={one.name} href={`/help/${one.name}`} aria-current={one.name === name ? "page" : undefined}>{one.title}</a>)}
        </nav>
        <main id="content" tabIndex={-1}>
          {failed && <p class="notice bad" role="alert">This page of the documentation cannot be loaded. <a href="/help">The start of the documentation</a></p>}
          <Markdown blocks={blocks} resolve={(target) => helpLink(target, pages)} />
        </main>
      </div>
    </>
  );
}

// The Markdown of docs/ as elements: headings, paragraphs, lists, tables, code, links. Elements are created one by one,
// never from HTML text, so that nothing in a page of the documentation can become a script. Of HTML, docs/ has <sub>,
// <sup> and <br>, which become elements, and comments in lines of their own, which are left out.

import type { ComponentChildren, JSX } from "preact";

/** The address of a link of the documentation; null: this server does not have what it leads to. */
export type Resolve = (target: string) => string | null;

export type Block =
  | { kind: "heading"; level: number; text: string; id: string }
  | { kind: "paragraph"; text: string }
  | { kind: "code"; text: string }
  | { kind: "list"; ordered: boolean; items: Block[][] }
  | { kind: "table"; head: string[]; rows: string[][] };

const COMMENT = /^<!--.*-->\s*$/;
const ITEM = /^(?:[-*+]|\d+\.)\s+/;

/** The anchor of a heading, as the built documentation has it: "The ε of a slot" is "the-of-a-slot". */
export function anchorOf(text: string): string {
  const plain = text.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").replace(/<\/?su[bp]>/g, "").normalize("NFKD").replace(/[^\x00-\x7f]/g, "");
  return plain.replace(/[^\w\s-]/g, "").trim().toLowerCase().replace(/[-\s]+/g, "-");
}

export function blocksOf(text: string): Block[] { return parse(text.split("\n")); }

function parse(lines: string[]): Block[] {
  const blocks: Block[] = [];
  let at = 0;
  const until = (stop: (line: string) => boolean): string[] => {
    const start = at;
    while (at < lines.length && !stop(lines[at])) at++;
    return lines.slice(start, at);
  };
  while (at < lines.length) {
    const line = lines[at];
    const heading = /^(#{1,5})\s+(.*?)\s*#*$/.exec(line);
    if (line.trim() === "" || COMMENT.test(line)) at++;
    else if (line.startsWith("```")) {
      at++;
      blocks.push({ kind: "code", text: until((one) => one.startsWith("```")).join("\n") });
      at++;
    } else if (heading !== null) {
      blocks.push({ kind: "heading", level: heading[1].length, text: heading[2], id: anchorOf(heading[2]) });
      at++;
    } else if (/^ {4}/.test(line)) {
      const code = until((one) => one.trim() !== "" && !/^ {4}/.test(one)).map((one) => one.slice(4));
      blocks.push({ kind: "code", text: code.join("\n").trimEnd() });
    } else if (line.startsWith("|") && /^\|[\s:|-]+\|\s*$/.test(lines[at + 1] ?? "")) {
      const [head, , ...rows] = until((one) => !one.startsWith("|")).map(cellsOf);
      blocks.push({ kind: "table", head, rows });
    } else if (ITEM.test(line)) {
      const ordered = /^\d/.test(line), items: Block[][] = [];
      while (at < lines.length && ITEM.test(lines[at])) items.push(parse(itemLines(lines, at, (next) => { at = next; })));
      blocks.push({ kind: "list", ordered, items });
    } else {
      const first = at++;
      until((one) => one.trim() === "" || one.startsWith("```") || one.startsWith("#") || ITEM.test(one) || one.startsWith("|") || COMMENT.test(one));
      blocks.push({ kind: "paragraph", text: lines.slice(first, at).join(" ") });
    }
  }
  return blocks;
}

/** The lines of one item of a list, without its mark and indentation. */
function itemLines(lines: string[], start: number, move: (next: number) => void): string[] {
  const own = [lines[start].replace(ITEM, "")];
  let at = start + 1;
  for (; at < lines.length; at++) {
    const line = lines[at];
    if (line.trim() === "") {
      const next = lines.slice(at).find((one) => one.trim() !== "");
      if (next === undefined || !/^\s{2,}/.test(next)) break;
      own.push("");
    } else if (/^\s/.test(line)) own.push(line.replace(/^\s{1,4}/, (indent) => (indent.length < 4 && !ITEM.test(line.trimStart()) ? "" : indent.slice(4))));
    else if (ITEM.test(line) || line.startsWith("#") || line.startsWith("|") || line.startsWith("```")) break;
    else own.push(line);
  }
  while (at < lines.length && lines[at].trim() === "" && ITEM.test(lines[at + 1] ?? "")) at++;
  move(at);
  return own;
}

function cellsOf(line: string): string[] {
  const cells: string[] = [];
  let cell = "", code = false;
  for (let place = 1; place < line.trimEnd().length; place++) {
    const char = line[place];
    if (char === "\\" && line[place + 1] === "|") { cell += "|"; place++; }
    else if (char === "|" && !code) { cells.push(cell.trim()); cell = ""; }
    else { if (char === "`") code = !code; cell += char; }
  }
  return cells;
}

const INLINE = /`([^`]+)`|\*\*(.+?)\*\*|(?<![\w*])\*(?!\s)(.+?)\*(?!\w)|!\[([^\]]*)\]\([^)]*\)|\[((?:[^\]`]|`[^`]*`)+)\]\(([^)\s]+)\)|<(https?:[^>\s]+)>|<(su[bp])>(.*?)<\/\8>|<(br)>/;

export function inline(text: string, resolve: Resolve): ComponentChildren[] {
  const parts: ComponentChildren[] = [];
  let rest = text;
  for (let match = INLINE.exec(rest); match !== null; match = INLINE.exec(rest)) {
    parts.push(unescaped(rest.slice(0, match.index)));
    rest = rest.slice(match.index + match[0].length);
    const [, code, bold, italic, image, label, target, address, shift, shifted, lineEnd] = match;
    if (code !== undefined) parts.push(<code>{code}</code>);
    else if (bold !== undefined) parts.push(<strong>{inline(bold, resolve)}</strong>);
    else if (italic !== undefined) parts.push(<em>{inline(italic, resolve)}</em>);
    else if (image !== undefined) parts.push(<em>{image}</em>);
    else if (shift !== undefined) parts.push(shift === "sub" ? <sub>{inline(shifted, resolve)}</sub> : <sup>{inline(shifted, resolve)}</sup>);
    else if (lineEnd !== undefined) parts.push(<br />);
    else if (address !== undefined) parts.push(<a href={address} rel="noreferrer">{address}</a>);
    else {
      const href = resolve(target);
      parts.push(href === null ? <span>{inline(label, resolve)}</span> : <a href={href} rel="noreferrer">{inline(label, resolve)}</a>);
    }
  }
  parts.push(unescaped(rest));
  return parts;
}

function unescaped(text: string): string { return text.replace(/\\([\\`*_{}[\]()#+.!|<>~-])/g, "$1"); }

export function Markdown({ blocks, resolve }: { blocks: Block[]; resolve: Resolve }): JSX.Element {
  return <>{blocks.map((block) => element(block, resolve))}</>;
}

function element(block: Block, resolve: Resolve): ComponentChildren {
  switch (block.kind) {
    case "heading": {
      const Tag = `h${block.level}` as "h1" | "h2" | "h3" | "h4" | "h5";
      return <Tag id={block.id} tabIndex={-1}>{inline(block.text, resolve)}</Tag>;
    }
    case "paragraph": return <p>{inline(block.text, resolve)}</p>;
    case "code": return <pre tabIndex={0}><code>{block.text}</code></pre>;
    case "list": {
      const Tag = block.ordered ? "ol" : "ul";
      return <Tag>{block.items.map((item) => <li>{item.map((one, place) => (place === 0 && one.kind === "paragraph" ? inline(one.text, resolve) : element(one, resolve)))}</li>)}</Tag>;
    }
    case "table": return (
      <div class="scroll" tabIndex={0} role="region" aria-label={`Table: ${block.head.join(", ")}`}>
        <table>
          <thead><tr>{block.head.map((cell) => <th scope="col">{inline(cell, resolve)}</th>)}</tr></thead>
          <tbody>{block.rows.map((row) => <tr>{row.map((cell) => <td>{inline(cell, resolve)}</td>)}</tr>)}</tbody>
        </table>
      </div>
    );
  }
}

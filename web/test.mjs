// Tests of the parts of the page that compute: node --test test.mjs. What people see is tested in tests/e2e/test_page.py.
import assert from "node:assert/strict";
import path from "node:path";
import test from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = path.dirname(fileURLToPath(import.meta.url));

async function load(name) {
  const result = await build({
    absWorkingDir: here, entryPoints: [`src/${name}`], bundle: true, format: "esm", platform: "node", write: false,
    jsx: "automatic", jsxImportSource: "preact",
  });
  return import(`data:text/javascript;base64,${Buffer.from(result.outputFiles[0].contents).toString("base64")}`);
}

const { History } = await load("history.ts");
const { columnsOf, rangeOf } = await load("chart.ts");
const { agreementOf } = await load("agreement.ts");
const { spansFor } = await load("format.ts");
const { hasMap, shapesOf } = await load("map.tsx");
const { anchorOf, blocksOf, inline } = await load("markdown.tsx");
const { Metrics } = await load("metrics.ts");
const { Tiles } = await load("tiles.ts");
const { trendOf } = await load("trend.ts");
globalThis.matchMedia = () => ({ matches: false, addEventListener: () => undefined });
const { helpLink, helpName } = await load("help.tsx");
const { roamingCost } = await load("privacy.tsx");
const { calibrationNote, isOff } = await load("health.tsx");
const { shareRows } = await load("settings.tsx");

function columns(first, last, { regions = ["north"], value = (slot) => slot, epsilon = 0.1 } = {}) {
  const slots = Array.from({ length: last - first + 1 }, (_, place) => first + place);
  const fill = (make) => slots.map(make);
  return {
    slots, opens: fill((slot) => 1000 + slot), sampled: fill(() => true), epsilon: fill(() => epsilon), heard: fill(() => 2),
    total: fill(value), total_half_width: fill(() => 1), regions, estimate: regions.map(() => fill(value)),
    half_width: regions.map(() => fill(() => 1)),
  };
}

test("a ring keeps the newest slots and forgets the oldest", () => {
  const history = new History(["north"]);
  for (let first = 0; first < 25_000; first += 500) history.merge(columns(first, first + 499));
  assert.equal(history.length, 10_000);
  assert.equal(history.slot(0), 15_000);
  assert.equal(history.lastSlot, 24_999);
  assert.equal(history.estimate(history.length - 1, 0), 24_999);
  assert.equal(history.find(20_000), 5_000);
});

test("a thousand regions are kept for ten thousand slots, more regions for fewer", () => {
  assert.equal(new History(Array.from({ length: 1_000 }, (_, place) => `${place}`)).capacity, 10_000);
  assert.equal(new History(Array.from({ length: 10_000 }, (_, place) => `${place}`)).capacity, 1_000);
});

test("the past that is loaded later is put before what is there", () => {
  const history = new History(["north"]);
  history.merge(columns(50, 60));
  history.merge(columns(20, 55, { value: (slot) => 2 * slot }));
  assert.equal(history.length, 41);
  assert.deepEqual([history.slot(0), history.estimate(0, 0), history.estimate(40, 0)], [20, 40, 60]);
  assert.equal(history.estimate(history.find(52), 0), 104);
});

test("a total without regions leaves regions unknown until they are loaded", () => {
  const history = new History(["north", "south"]);
  history.merge({ ...columns(0, 9), regions: [], estimate: [], half_width: [] });
  assert.ok(Number.isNaN(history.estimate(3, 1)));
  history.merge(columns(2, 9, { regions: ["south"] }));
  assert.deepEqual([history.estimate(3, -1), history.estimate(3, 1)], [3, 3]);
  assert.ok(Number.isNaN(history.estimate(3, 0)));
});

test("a slot that comes twice counts once, and gaps stay gaps", () => {
  const history = new History(["north"]);
  history.merge(columns(0, 4));
  history.merge(columns(4, 4));
  history.merge(columns(8, 9));
  assert.deepEqual([history.length, history.find(5), history.slot(5)], [7, 5, 8]);
});

test("a trend is a part of the total that it began with, if that was clearly somebody", () => {
  const trend = (before, now, half = 1) => {
    const history = new History([]);
    history.merge({ ...columns(0, 12, { regions: [], value: (slot) => (slot < 12 ? before : now) }), total_half_width: Array(13).fill(half) });
    return trendOf(history, 10);
  };
  const { steps, change, part } = trend(37, 146);
  assert.deepEqual([steps, change, part.toFixed(3)], [10, 109, "2.946"]);
  assert.equal(trend(40, 30).part, -0.25);
  for (const [before, half] of [[9, 1], [37, 40], [0, 1], [-20, 1], [37, NaN], [NaN, 1]]) assert.equal(trend(before, 146, half).part, null, `${before} ±${half}`);
  assert.equal(trend(37, NaN).part, null);
  assert.deepEqual([trendOf(null, 10).steps, trendOf(new History([]), 10).change], [0, NaN]);
});

const colors = { ink: "", grid: "", surface: "" };

test("no peak is lost when many slots share a pixel", () => {
  const history = new History(["north"]);
  history.merge(columns(0, 9_999, { value: (slot) => (slot === 7_777 ? 1e6 : slot === 3_333 ? -1e6 : 5) }));
  const picture = { history, subjects: [{ label: "north", region: 0, color: "" }], lines: [], relative: false, band: true, colors };
  const [times, low, high, estimate] = columnsOf(picture, 0, 9_999, 800);
  assert.ok(times.length <= 1_700, `${times.length} points`);
  assert.ok(estimate.includes(1e6) && estimate.includes(-1e6));
  assert.ok(high.includes(1e6 + 1) && low.includes(-1e6 - 1));
  assert.ok(times.every((time, place) => place === 0 || time >= times[place - 1]));
});

test("missed slots interrupt the line", () => {
  const history = new History(["north"]);
  history.merge(columns(0, 4));
  history.merge(columns(10, 14));
  const picture = { history, subjects: [{ label: "north", region: 0, color: "" }], lines: [], relative: false, band: true, colors };
  const [times, , , estimate] = columnsOf(picture, 0, 9, 800);
  assert.equal(times.length, 11);
  assert.equal(estimate[5], null);
});

test("relative numbers are parts of the mean", () => {
  const history = new History(["north"]);
  history.merge(columns(1, 3));
  const picture = { history, subjects: [{ label: "north", region: 0, color: "" }], lines: [], relative: true, band: true, colors };
  assert.deepEqual(columnsOf(picture, 0, 2, 800)[3], [50, 100, 150]);
});

/** As much of a document as tiles need: elements that hold others. */
class Box {
  children = []; dataset = {}; attributes = new Map(); listeners = {};
  classList = { toggle: () => undefined };
  style = { getPropertyValue: () => "", setProperty: () => undefined };
  addEventListener(name, listener) { this.listeners[name] = listener; }
  append(child) { this.children.push(child); }
  replaceChildren(...children) { this.children = children; }
  closest() { return this; }
  getAttribute(name) { return this.attributes.get(name); }
  setAttribute(name, value) { this.attributes.set(name, value); }
}

test("tiles stay when another server is shown, with its numbers, even where both have as many slots", () => {
  globalThis.document = { createElement: () => new Box(), createTextNode: (data) => ({ data }) };
  globalThis.ResizeObserver = class { observe() {} };
  const regions = ["north", "south"], [one, other] = [1, 2].map((factor) => {
    const history = new History([...regions]);
    history.merge(columns(0, 9, { regions, value: (slot) => factor * slot }));
    return history;
  });
  assert.equal(one.version, other.version);
  const box = new Box(), tiles = new Tiles(box, () => undefined, () => undefined);
  const numbers = () => box.children.map((tile) => tile.children[1].children[0].data);
  tiles.draw(one, [], 5);
  const before = box.children;
  assert.deepEqual(numbers(), ["9", "9"]);
  tiles.draw(other, [], 5);
  assert.deepEqual(numbers(), ["18", "18"]);
  box.listeners.focusin({ target: before[1] });
  assert.deepEqual(numbers(), ["18", "18"]);
  assert.equal(box.children, before);
  delete globalThis.document;
});

test("metrics are read as Prometheus writes them", () => {
  const text = '# HELP a b\na 3\nd_bucket{le="0.25"} 5\nd_bucket{le="1"} 9\nd_bucket{le="+Inf"} 10\nn{name="x \\"y\\"",kind="k"} 1e3\n';
  const metrics = new Metrics(text);
  assert.equal(metrics.value("a"), 3);
  assert.equal(metrics.value("n", { name: 'x "y"' }), 1000);
  assert.equal(metrics.quantile("d", 0.5), 0.25);
  assert.equal(metrics.quantile("d", 0.95), Infinity);
  assert.equal(metrics.quantile("nothing", 0.5), null);
  assert.equal(metrics.value("nothing"), null);
});

test("a roaming user pays the most of all servers in each slot of the window", () => {
  const [one, two] = [new History(["north"]), new History(["north"])];
  one.merge(columns(0, 9, { epsilon: 0.1 }));
  two.merge(columns(5, 9, { epsilon: 0.3 }));
  assert.ok(Math.abs(roamingCost([one, two], 9, 4) - 4 * 0.3) < 1e-9);
  assert.ok(Math.abs(roamingCost([one, two], 9, 0) - (5 * 0.1 + 5 * 0.3)) < 1e-9);
});

test("single records widen the chart, but do not flatten the estimate", () => {
  const time = [0, 1], low = [90, 90], high = [110, 110], estimate = [100, 100];
  const range = rangeOf([time, low, high, estimate, [null, null], [100, 4000]], new Set([5]));
  assert.ok(range.max > 125 && range.max < 140, `${range.max}`);
  assert.ok(range.min > 80 && range.min < 90, `${range.min}`);
});

test("a server whose records are far away is named first, and only then doubted", () => {
  const history = new History(["north"]);
  history.merge(columns(0, 29, { value: () => 100 }));
  const line = (value) => ({ values: new Map(Array.from({ length: 30 }, (_, slot) => [slot, value])), halves: new Map(Array.from({ length: 30 }, (_, slot) => [slot, 10])) });
  const [far, near] = agreementOf(history, 0, [["near", line(105)], ["far", line(140)]]);
  assert.deepEqual([far.name, far.inside, far.values, far.isDoubtful], ["far", 0, 30, true]);
  assert.deepEqual([near.name, near.inside, near.isDoubtful], ["near", 30, false]);
  const [early] = agreementOf(history, 0, [["early", { values: new Map([[1, 500]]), halves: new Map([[1, 10]]) }]]);
  assert.equal(early.isDoubtful, false);
});

test("spans of time suit the length of a slot", () => {
  assert.deepEqual(spansFor(1).map(([text]) => text), ["1 minute", "10 minutes", "1 hour"]);
  assert.deepEqual(spansFor(900).map(([text]) => text), ["6 hours", "1 day", "1 week"]);
  assert.equal(spansFor(86_400 * 30).length, 3);
});

test("the documentation's Markdown becomes blocks", () => {
  const text = "# Title\n\nOne\ntwo `a|b`.\n\n| a | b |\n|---|---|\n| `x|y` | 2 |\n\n- one\n  more\n    - inner\n- two\n\nThen:\n\n    code here\n\n```text\n# no heading\n```\n1. first\n2. second\n";
  const kinds = blocksOf(text).map((one) => one.kind);
  assert.deepEqual(kinds, ["heading", "paragraph", "table", "list", "paragraph", "code", "code", "list"]);
  const [heading, , table, list, , , fenced] = blocksOf(text);
  assert.equal(heading.id, "title");
  assert.deepEqual(table.rows, [["`x|y`", "2"]]);
  assert.equal(list.items.length, 2);
  assert.deepEqual(list.items[0].map((one) => one.kind), ["paragraph", "list"]);
  assert.equal(fenced.text, "# no heading");
  assert.deepEqual([anchorOf("GET /v1/estimates"), anchorOf("[map]"), anchorOf("The ε of `w` slots")], ["get-v1estimates", "map", "the-of-w-slots"]);
});

test("the little HTML of the documentation becomes elements, and nothing else does", () => {
  const shown = (text) => inline(text, () => null).filter((one) => one !== "").map((one) => (typeof one === "string" ? one : [one.type, ...[one.props.children ?? []].flat().filter((part) => part !== "")]));
  assert.deepEqual(shown("ε/T<sub>s</sub> is 10<sup>−9</sup>,<br>`<sub>`"), ["ε/T", ["sub", "s"], " is 10", ["sup", "−9"], ",", ["br"], ["code", "<sub>"]]);
  assert.deepEqual(shown("<script>alert(1)</script>"), ["<script>alert(1)</script>"]);
  assert.deepEqual(blocksOf("<!-- a -->\nOne\n<!-- b -->\n\n```\n<!-- kept -->\n```").map((one) => one.text), ["One", "<!-- kept -->"]);
  assert.equal(anchorOf("DPCrowd<sub>w</sub> live"), "dpcrowdw-live");
});

test("a map is drawn from what can be drawn, whatever the file has besides", () => {
  const history = new History(["north", "south"]), none = { coordinates: {}, map: true };
  const square = (at) => [[[at, 0], [at + 1, 0], [at + 1, 1], [at, 1], [at, 0]]];
  const feature = (name, geometry) => ({ properties: { name }, geometry });
  const broken = [null, {}, feature("north"), feature("north", null), feature("north", { type: "Polygon" }), feature("north", { type: "Polygon", coordinates: [["x", [1], null]] }), feature("north", { type: "MultiPolygon", coordinates: 3 })];
  assert.deepEqual(shapesOf(history, none, { features: broken }), []);
  const shapes = shapesOf(history, none, { features: [...broken, feature("south", { type: "Polygon", coordinates: square(3) })] });
  assert.deepEqual(shapes.map((one) => one.region), [1]);
  const long = Array.from({ length: 300_000 }, (_, place) => [Math.cos(place / 5e4), Math.sin(place / 5e4)]);
  assert.equal(shapesOf(history, none, { features: [feature("north", { type: "Polygon", coordinates: [long] })] }).length, 1);
  assert.deepEqual([hasMap(none, null), hasMap(none, { features: [] }), hasMap({ coordinates: { north: [1, 2] }, map: false }, null)], [false, true, true]);
});

test("links of the documentation lead to pages that the server has", () => {
  const pages = [{ name: "privacy", title: "" }];
  assert.equal(helpLink("privacy.md#noise", pages), "/help/privacy#noise");
  assert.equal(helpLink("#noise", pages), "#noise");
  assert.equal(helpLink("tuning.md", pages), null);
  assert.equal(helpLink("../src/secret.py", pages), null);
  assert.equal(helpLink("javascript:alert(1)", pages), null);
  assert.deepEqual([helpName("/help"), helpName("/help/privacy"), helpName("/"), helpName("/help/a.md")], ["index", "privacy", null, null]);
});

test("the calibration says what limits it, and never that there is too little beside clear evidence", () => {
  const quality = { verdict: "narrow", text: "", coverage: 0.23, calibration: 9, values: 48, needed: 200, caveats: [], suspected: [] };
  assert.match(calibrationNote(quality), /too narrow; 95% should be inside, of 48 values/);
  assert.match(calibrationNote({ ...quality, verdict: "unknown", coverage: 0.9 }), /too early to say: 48 values of other servers, 200 are needed/);
  const doubtful = { ...quality, verdict: "unknown", caveats: ["suspected"], suspected: ["a", "d"] };
  assert.match(calibrationNote(doubtful), /nobody can say while a, d cannot be believed/);
  assert.ok(isOff(doubtful));
  const far = { ...quality, verdict: "calibrated", caveats: ["far-off"], suspected: ["d"] };
  assert.match(calibrationNote(far), /about right, but some values were far off; .*, without d/);
  assert.ok(isOff(far));
  const earlier = { verdict: "calibrated", text: "", coverage: 0.95, calibration: 1, values: 400 };
  assert.ok(!isOff(earlier));
});

test("learned shares that differ most from the public ones come first", () => {
  const places = [{ name: "a", share: 0.25, shares: { north: 0.3 } }, { name: "b", share: 0.25 }];
  const learned = [
    { server: "a", region: "north", share: 0.31, deviation: 0.01 }, { server: "b", region: "north", share: 0.4, deviation: 0.01 },
    { server: "a", region: "south", share: 0.25, deviation: 0 },
  ];
  const rows = shareRows(learned, places);
  assert.deepEqual(rows.map((one) => [one.server, one.region, one.public]), [["b", "north", 0.25], ["a", "north", 0.3], ["a", "south", 0.25]]);
});

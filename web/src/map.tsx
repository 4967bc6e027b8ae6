// Regions on a map: circles at their coordinates, or the shapes of a GeoJSON file. There is no background map, since
// it would have to come from another host.

import { useMemo } from "preact/hooks";
import type { Topology } from "./api";
import type { History } from "./history";
import { count, halfWidth, plural } from "./format";

type Point = [number, number];
interface Geometry { type?: unknown; coordinates?: unknown }
interface Feature { properties?: Record<string, unknown> | null; id?: unknown; geometry?: Geometry | null }

export interface Shape { region: number; path?: string; x: number; y: number }

const WIDTH = 640, HEIGHT = 400, EDGE = 34;

/** Whether there is something to draw a map from: a file of shapes that could be read, or coordinates. */
export function hasMap(topology: Topology | null, shapes: unknown): boolean {
  return topology !== null && (shapes !== null || Object.keys(topology.coordinates).length > 0);
}

/** Longitude and latitude on a plane that is true to shape around the middle of the network. */
function projection(points: Point[]): (point: Point) => Point {
  const [west, east] = bounds(points, 0), [south, north] = bounds(points, 1);
  const stretch = Math.cos(((south + north) / 2) * Math.PI / 180);
  const scale = Math.min((WIDTH - 2 * EDGE) / Math.max((east - west) * stretch, 1e-9), (HEIGHT - 2 * EDGE) / Math.max(north - south, 1e-9));
  const bounded = Number.isFinite(scale) && scale < 1e8 ? scale : 1;
  return ([lon, lat]) => [
    WIDTH / 2 + (lon - (west + east) / 2) * stretch * bounded, HEIGHT / 2 - (lat - (south + north) / 2) * bounded,
  ];
}

/** Least and largest coordinate; a loop, since a file may have more points than a function takes arguments. */
function bounds(points: Point[], axis: 0 | 1): [number, number] {
  let least = Infinity, most = -Infinity;
  for (const point of points) { least = Math.min(least, point[axis]); most = Math.max(most, point[axis]); }
  return [least, most];
}

/** The lines around a shape; what is not a point is left out, so that a wrong file costs a shape and not the page. */
function rings(geometry: Geometry | null | undefined): Point[][] {
  const { type, coordinates } = geometry ?? {};
  const lines = type === "Polygon" ? coordinates : type === "MultiPolygon" && Array.isArray(coordinates) ? coordinates.flat() : type === "Point" ? [[coordinates]] : [];
  if (!Array.isArray(lines)) return [];
  return lines.map((line: unknown) => (Array.isArray(line) ? line.filter(isPoint) : [])).filter((line) => line.length > 0);
}

function isPoint(value: unknown): value is Point {
  return Array.isArray(value) && Number.isFinite(value[0]) && Number.isFinite(value[1]);
}

export function shapesOf(history: History, topology: Topology, shapes: unknown): Shape[] {
  const features = ((shapes as { features?: (Feature | null)[] } | null)?.features ?? []).flatMap((feature) => {
    const names = [feature?.properties?.region, feature?.properties?.name, feature?.id].map((one) => String(one));
    const name = names.find((one) => history.places.has(one)), lines = rings(feature?.geometry);
    return name === undefined || lines.length === 0 ? [] : [{ region: history.places.get(name)!, rings: lines }];
  });
  if (features.length > 0) {
    const project = projection(features.flatMap((one) => one.rings.flat()));
    return features.map(({ region, rings: lines }) => {
      const drawn = lines.map((line) => line.map(project));
      const outer = drawn.reduce((a, b) => (b.length > a.length ? b : a), [] as Point[]);
      const path = drawn.map((line) => `M${line.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}Z`).join("");
      const middle = (axis: 0 | 1) => { const [least, most] = bounds(outer, axis); return (least + most) / 2; };
      return { region, path, x: middle(0), y: middle(1) };
    });
  }
  const places = Object.entries(topology.coordinates).filter(([name]) => history.places.has(name));
  const project = projection(places.map(([, [lat, lon]]) => [lon, lat]));
  return places.map(([name, [lat, lon]]) => {
    const [x, y] = project([lon, lat]);
    return { region: history.places.get(name)!, x, y };
  });
}

interface Props { history: History; topology: Topology; shapes: unknown; chosen: number[]; choose: (region: number) => void; point: (region: number | null) => void }

export function RegionMap({ history, topology, shapes, chosen, choose, point }: Props) {
  const drawn = useMemo(() => shapesOf(history, topology, shapes), [history, topology.map, shapes]);
  const last = history.length - 1;
  const values = drawn.map((one) => (last < 0 ? NaN : history.estimate(last, one.region)));
  const most = Math.max(1, ...values.filter(Number.isFinite));
  const few = drawn.length <= 40, missing = history.regions.length - new Set(drawn.map((one) => one.region)).size;
  return (
    <>
    <svg class="map" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="group" aria-label="Map of the regions, coloured by their estimates">
      {drawn.map((one, place) => {
        const part = Number.isFinite(values[place]) ? Math.max(0, Math.min(1, values[place] / most)) : 0;
        const half = last < 0 ? NaN : history.halfWidth(last, one.region);
        const name = history.regions[one.region];
        return (
          <g key={name} class="place" role="button" tabIndex={0} aria-pressed={chosen.includes(one.region)}
             aria-label={`${name}: ${count(values[place])} ${halfWidth(half)}`} style={{ "--part": `${Math.round(part * 100)}%` }}
             onClick={() => choose(one.region)} onFocus={() => point(one.region)} onBlur={() => point(null)}
             onPointerEnter={() => point(one.region)} onPointerLeave={() => point(null)}
             onKeyDown={(event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(one.region); } }}>
            {one.path === undefined
              ? <circle cx={one.x} cy={one.y} r={(few ? 10 : 4) + (few ? 20 : 10) * Math.sqrt(part)} />
              : <path d={one.path} />}
            {few && <text x={one.x} y={one.y + 4}>{name}</text>}
          </g>
        );
      })}
    </svg>
    {missing > 0 && <p class="note" id="not-on-map">{plural(missing, "region")} of {history.regions.length} {missing === 1 ? "has" : "have"} no place on the map; the tiles show {missing === 1 ? "it" : "them"}.</p>}
    </>
  );
}

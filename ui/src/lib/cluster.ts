// A cluster with who has which GPU, and where each node is drawn. Knows no canvas.
import type { Doc } from "./api";

export const FREE = -1;
export const TAKEN = -2;
export const DOWN = -3;

export interface MapNode {
  id: string;
  gpuType: string;
  state: string;
  reason: string | null;
  unit: number;
  // Of each GPU: an index into `jobs`, or one of the three above.
  owners: Int32Array;
  x: number;
  y: number;
  width: number;
  height: number;
  columns: number;
}

export interface Box {
  name: string;
  depth: number;
  x: number;
  y: number;
  width: number;
  height: number;
  // Room for its name: the more lies in a box, the larger, so that outer ones can be read where inner ones cannot.
  title: number;
}

export interface ClusterMap {
  nodes: MapNode[];
  boxes: Box[];
  // Finest units of the fabric (or GPU types, where there is no fabric), by path.
  units: string[];
  jobs: string[];
  width: number;
  height: number;
}

type Snapshot = Doc<"SnapshotDoc">;
type Gpus = Record<string, readonly number[]>;

const CELL = 5;
const PAD = 4;
const TITLE = 9;
const ASPECT = 2;
const WIDER = [1, 1.15, 1.3, 1.5, 1.75];

// What jobs have now, as the snapshot says.
export function present(snapshot: Snapshot): [string, Gpus][] {
  return snapshot.jobs.flatMap((job) => (job.current ? [[job.id, job.current] as [string, Gpus]] : []));
}

// What jobs have by the plan; jobs that are planned ahead have their nodes whole, and those that run until then go first.
export function planned(snapshot: Snapshot, plan: Doc<"PlanDoc">): [string, Gpus][] {
  const given = (plan.allocations ?? []).map((job) => [job.job_id, job.gpus] as [string, Gpus]);
  if (!plan.ahead?.length) return given;
  const sizes = new Map(snapshot.cluster.nodes.map((node) => [node.id, node.num_gpus]));
  const whole = (names: readonly string[]): Gpus =>
    Object.fromEntries(names.map((name) => [name, Array.from({ length: sizes.get(name) ?? 0 }, (_, k) => k)]));
  const later = plan.ahead.map((job) => [job.placement.job_id, whole(job.placement.hosts)] as [string, Gpus]);
  return [...(given.length > 0 ? given : present(snapshot)), ...later];
}

export function clusterMap(snapshot: Snapshot, holders: [string, Gpus][]): ClusterMap {
  const jobs = snapshot.jobs.map((job) => job.id);
  const jobIndex = new Map(jobs.map((id, k) => [id, k]));
  const units: string[] = [];
  const unitIndex = new Map<string, number>();
  const paths: string[][] = [];
  const nodes = snapshot.cluster.nodes.map((node): MapNode => {
    const path = node.path?.length ? [...node.path] : [node.gpu_type];
    const name = path.join("/");
    let unit = unitIndex.get(name);
    if (unit === undefined) {
      unit = units.push(name) - 1;
      unitIndex.set(name, unit);
      paths.push(path);
    }
    // What runs on a drained node may stay; nothing new gets there.
    const owners = new Int32Array(node.num_gpus).fill((node.state ?? "up") === "up" ? FREE : DOWN);
    const taken = node.gpus_in_use ?? [];
    if (typeof taken === "number") owners.fill(TAKEN, 0, taken);
    else for (const gpu of taken) owners[gpu] = TAKEN;
    const columns = inRows(node.num_gpus);
    const rows = Math.ceil(node.num_gpus / columns);
    const [width, height] = [columns * CELL + 3, rows * CELL + 3];
    const { id, gpu_type: gpuType, state = "up", state_reason: reason = null } = node;
    return { id, gpuType, state, reason, unit, owners, columns, width, height, x: 0, y: 0 };
  });
  const byId = new Map(nodes.map((node) => [node.id, node]));
  for (const [job, gpus] of holders) {
    const owner = jobIndex.get(job);
    if (owner === undefined) continue;
    for (const [id, indices] of Object.entries(gpus)) {
      const node = byId.get(id);
      for (const gpu of indices) if (node && gpu < node.owners.length) node.owners[gpu] = owner;
    }
  }
  const boxes: Box[] = [];
  const { width, height } = placed(tree(paths, nodes), 0, boxes);
  return { nodes, boxes, units, jobs, width, height };
}

// GPUs in a row: up to twice as many as rows, and rows of the same length where these are to be had.
function inRows(gpus: number): number {
  const [square, most] = [Math.ceil(Math.sqrt(gpus)), Math.ceil(Math.sqrt(2 * gpus))];
  for (let columns = Math.max(1, square); columns <= most; columns++) if (gpus % columns === 0) return columns;
  return Math.max(1, most);
}

interface Group {
  name: string;
  groups: Map<string, Group>;
  nodes: MapNode[];
}

interface Size {
  width: number;
  height: number;
}

interface Item extends Size {
  move: (x: number, y: number) => void;
}

function tree(paths: string[][], nodes: MapNode[]): Group {
  const root: Group = { name: "", groups: new Map(), nodes: [] };
  for (const node of nodes) {
    let group = root;
    for (const name of paths[node.unit]!) {
      let next = group.groups.get(name);
      if (next === undefined) group.groups.set(name, (next = { name, groups: new Map(), nodes: [] }));
      group = next;
    }
    group.nodes.push(node);
  }
  return root;
}

interface Placed extends Size {
  title: number;
  moved: (dx: number, dy: number) => void;
}

// Places what is in a group from (0, 0) on; boxes come after those that they are in.
function placed(group: Group, depth: number, boxes: Box[]): Placed {
  const mine: Box = { name: group.name, depth, x: 0, y: 0, width: 0, height: 0, title: TITLE };
  if (depth > 0) boxes.push(mine);
  const items: Item[] = [];
  const moves: ((dx: number, dy: number) => void)[] = [];
  for (const child of group.groups.values()) {
    const { width, height, title, moved } = placed(child, depth + 1, boxes);
    mine.title = Math.max(mine.title, 2 * title);
    items.push({ width: width + PAD, height: height + PAD, move: moved });
    moves.push(moved);
  }
  for (const node of group.nodes) {
    const move = (dx: number, dy: number): void => {
      node.x += dx;
      node.y += dy;
    };
    items.push({ width: node.width + 2, height: node.height + 2, move });
    moves.push(move);
  }
  const [left, top] = depth > 0 ? [PAD, mine.title] : [0, 0];
  const inner = shelves(items, left, top);
  mine.width = inner.width + left + PAD;
  mine.height = inner.height + top + PAD;
  const moved = (dx: number, dy: number): void => {
    mine.x += dx;
    mine.y += dy;
    for (const move of moves) move(dx, dy);
  };
  return { width: mine.width, height: mine.height, title: mine.title, moved };
}

// Rows of items, about `ASPECT` times as wide as high: of several widths of rows that which needs least room in such a
// window. Few and large items leave much of it empty at most widths.
function shelves(items: Item[], left: number, top: number): Size {
  const area = items.reduce((sum, item) => sum + item.width * item.height, 0);
  const widest = items.reduce((most, item) => Math.max(most, item.width), 0);
  const limits = WIDER.map((factor) => Math.max(widest, factor * Math.sqrt(area * ASPECT)) + 0.5);
  const room = ({ width, height }: Size): number => Math.max(width, height * ASPECT);
  let [best, least] = [limits[0]!, Infinity];
  for (const limit of limits) {
    const needed = room(rows(items, limit));
    if (needed < least) [best, least] = [limit, needed];
  }
  return rows(items, best, (item, x, y) => item.move(left + x, top + y));
}

function rows(items: Item[], limit: number, each?: (item: Item, x: number, y: number) => void): Size {
  let [x, y, row, width] = [0, 0, 0, 0];
  for (const item of items) {
    if (x > 0 && x + item.width > limit) [x, y, row] = [0, y + row, 0];
    each?.(item, x, y);
    x += item.width;
    row = Math.max(row, item.height);
    width = Math.max(width, x);
  }
  return { width, height: y + row };
}

export function nodeAt(map: ClusterMap, x: number, y: number): MapNode | null {
  const hit = (node: MapNode): boolean =>
    x >= node.x && y >= node.y && x <= node.x + node.width && y <= node.y + node.height;
  return map.nodes.find(hit) ?? null;
}

// The next node in a direction: near, and rather straight ahead than aside.
export function neighbour(map: ClusterMap, from: MapNode, dx: number, dy: number): MapNode {
  let [best, least] = [from, Infinity];
  for (const node of map.nodes) {
    const [x, y] = [node.x - from.x, node.y - from.y];
    const ahead = x * dx + y * dy;
    const aside = Math.abs(x * dy) + Math.abs(y * dx);
    if (ahead > 0.5 && ahead + 3 * aside < least) [best, least] = [node, ahead + 3 * aside];
  }
  return best;
}

export function ownerName(map: ClusterMap, owner: number): string {
  if (owner === FREE) return "free";
  if (owner === TAKEN) return "in use by other work";
  return owner === DOWN ? "drained or down" : map.jobs[owner]!;
}

// Who has GPUs of these nodes, most first.
export function shares(map: ClusterMap, nodes: Iterable<MapNode>): { owner: number; name: string; gpus: number }[] {
  const gpus = new Map<number, number>();
  for (const node of nodes) for (const owner of node.owners) gpus.set(owner, (gpus.get(owner) ?? 0) + 1);
  return [...gpus]
    .map(([owner, many]) => ({ owner, name: ownerName(map, owner), gpus: many }))
    .sort((a, b) => b.gpus - a.gpus);
}

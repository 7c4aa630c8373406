// Draws a cluster on a canvas: what is seen of it, and GPUs one by one only where they can be told apart.
import { DOWN, FREE, TAKEN, type ClusterMap, type MapNode } from "./cluster";
import { jobColour } from "./colours";

export interface Camera {
  scale: number;
  x: number;
  y: number;
}

export interface Look {
  dark: boolean;
  selected: MapNode | null;
  // A job that stands out; all others are pale.
  marked: number | null;
}

const CELL = 5;
const PALE = 0.18;

export function fitted(map: ClusterMap, width: number, height: number): Camera {
  const scale = Math.max(0.01, Math.min(width / (map.width + 8), height / (map.height + 8), 6));
  return { scale, x: (map.width - width / scale) / 2, y: (map.height - height / scale) / 2 };
}

export function draw(canvas: HTMLCanvasElement, map: ClusterMap, camera: Camera, look: Look): void {
  const context = canvas.getContext("2d")!;
  const ratio = devicePixelRatio;
  const style = getComputedStyle(canvas);
  const variable = (name: string): string => style.getPropertyValue(name).trim();
  const [width, height] = [canvas.width / ratio, canvas.height / ratio];
  const [right, bottom] = [camera.x + width / camera.scale, camera.y + height / camera.scale];
  const seen = (it: { x: number; y: number; width: number; height: number }): boolean =>
    it.x < right && it.y < bottom && it.x + it.width > camera.x && it.y + it.height > camera.y;
  const colours = map.jobs.map((_, k) => jobColour(k, look.dark));
  const others = new Map([[FREE, variable("--free")], [TAKEN, variable("--taken")], [DOWN, variable("--down")]]);
  const colour = (owner: number): string => colours[owner] ?? others.get(owner)!;
  const alpha = (owner: number): number => (look.marked === null || look.marked === owner || owner < 0 ? 1 : PALE);

  context.setTransform(1, 0, 0, 1, 0, 0);
  context.fillStyle = variable("--card");
  context.fillRect(0, 0, canvas.width, canvas.height);
  const scale = camera.scale * ratio;
  context.setTransform(scale, 0, 0, scale, -camera.x * scale, -camera.y * scale);

  context.strokeStyle = variable("--strong-line");
  context.lineWidth = 1 / camera.scale;
  for (const box of map.boxes) if (seen(box)) context.strokeRect(box.x, box.y, box.width, box.height);

  const detailed = CELL * camera.scale >= 3;
  let last = NaN;
  const use = (owner: number): void => {
    if (owner === last) return;
    context.fillStyle = colour(owner);
    context.globalAlpha = alpha(owner);
    last = owner;
  };
  for (const node of map.nodes) {
    if (!seen(node)) continue;
    const { owners, columns } = node;
    if (!detailed && owners.every((owner) => owner === owners[0])) {
      use(owners[0]!);
      context.fillRect(node.x, node.y, node.width, node.height);
      continue;
    }
    for (let gpu = 0; gpu < owners.length; gpu++) {
      use(owners[gpu]!);
      const [x, y] = [node.x + 2 + (gpu % columns) * CELL, node.y + 2 + Math.floor(gpu / columns) * CELL];
      context.fillRect(x, y, CELL - 1, CELL - 1);
    }
  }
  context.globalAlpha = 1;

  if (detailed) {
    // Drained nodes take no new work, whoever has their GPUs.
    context.strokeStyle = variable("--bad");
    context.lineWidth = 1;
    for (const node of map.nodes) {
      if (node.state !== "up" && seen(node)) context.strokeRect(node.x, node.y, node.width, node.height);
    }
  }
  context.fillStyle = variable("--quiet");
  context.textBaseline = "top";
  for (const box of map.boxes) {
    const size = Math.min(box.title - 1, 13 / camera.scale);
    if (size * camera.scale < 7 || !seen(box)) continue;
    context.font = `${size}px system-ui, sans-serif`;
    context.fillText(box.name, box.x + 3, box.y + 1, box.width - 6);
  }
  if (look.selected !== null) {
    context.strokeStyle = variable("--text");
    context.lineWidth = 3 / camera.scale;
    const { x, y, width: w, height: h } = look.selected;
    context.strokeRect(x - 1, y - 1, w + 2, h + 2);
  }
}

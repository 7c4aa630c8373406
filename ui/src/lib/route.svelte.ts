// Where we are: `#/plans/plan-1/map` is ["plans", "plan-1", "map"]. Links are plain anchors.
function segments(): string[] {
  return location.hash
    .replace(/^#\/?/, "")
    .split("/")
    .filter((part) => part !== "")
    .map(decodeURIComponent);
}

export const route = $state({ path: segments() });

addEventListener("hashchange", () => {
  route.path = segments();
});

export function href(...path: string[]): string {
  return `#/${path.map(encodeURIComponent).join("/")}`;
}

export function go(...path: string[]): void {
  location.hash = href(...path);
}

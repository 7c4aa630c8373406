// A colour a job: hues a golden angle apart, so that neighbours in the list differ, and lightness that turns with them.
const GOLDEN_ANGLE = 137.508;

export function jobColour(index: number, dark: boolean): string {
  const lightness = (dark ? [62, 52, 70] : [46, 56, 38])[index % 3];
  return `hsl(${((index * GOLDEN_ANGLE + 205) % 360).toFixed(0)} ${index % 2 ? 58 : 68}% ${lightness}%)`;
}

// Numbers and times for people. What is not known is a dash.
const DASH = "–";

export function number(value: number | null | undefined, digits = 4): string {
  if (value === null || value === undefined) return DASH;
  return value.toLocaleString("en", { maximumSignificantDigits: digits });
}

export function percent(value: number | null | undefined): string {
  if (value === null || value === undefined) return DASH;
  return `${(100 * value).toLocaleString("en", { maximumFractionDigits: value !== 0 && Math.abs(value) < 0.001 ? 4 : 2 })} %`;
}

export function seconds(value: number | null | undefined): string {
  if (value === null || value === undefined) return DASH;
  if (value < 1) return `${number(1000 * value, 3)} ms`;
  if (value < 120) return `${number(value, 3)} s`;
  if (value < 7200) return `${number(value / 60, 3)} min`;
  if (value < 172_800) return `${number(value / 3600, 3)} h`;
  return `${number(value / 86_400, 3)} days`;
}

export function milliseconds(value: number | null | undefined): string {
  return value === null || value === undefined ? DASH : seconds(value / 1000);
}

export function moment(value: string | null | undefined): string {
  if (!value) return DASH;
  return new Date(value).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
}

export function count(value: number, one: string, many = `${one}s`): string {
  return `${value.toLocaleString("en")} ${value === 1 ? one : many}`;
}

// `n1` to `n9` of many names: the first ones, and how many there are.
export function some(names: string[], most = 4): string {
  return names.length <= most ? names.join(", ") : `${names.slice(0, most).join(", ")} and ${names.length - most} more`;
}

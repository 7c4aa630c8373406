// Light or dark as the system says, until somebody chooses.
const KEY = "stowplan.theme";
const CHOICES = ["system", "light", "dark"] as const;
export type Theme = (typeof CHOICES)[number];

const system = matchMedia("(prefers-color-scheme: dark)");
const stored = localStorage.getItem(KEY) as Theme | null;

export const theme = $state({ chosen: stored !== null && CHOICES.includes(stored) ? stored : "system", dark: false });

function apply(): void {
  theme.dark = theme.chosen === "dark" || (theme.chosen === "system" && system.matches);
  document.documentElement.dataset["theme"] = theme.dark ? "dark" : "light";
}

export function choose(chosen: Theme): void {
  theme.chosen = chosen;
  localStorage.setItem(KEY, chosen);
  apply();
}

system.addEventListener("change", apply);
apply();

import { svelte } from "@sveltejs/vite-plugin-svelte";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { defineConfig, type Plugin } from "vite";

const OUT = "../api/ui";
// What is made or downloaded here.
const NOT_SOURCES = new Set(["node_modules", "schema.d.ts"]);

function files(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    if (NOT_SOURCES.has(entry.name)) return [];
    const path = join(folder, entry.name);
    return entry.isDirectory() ? files(path) : [path];
  });
}

// What was built says of which sources: `tests/api/ui/test_build.py` compares, and needs no Node.
function sourcesHash(): Plugin {
  return {
    name: "sources-hash",
    closeBundle() {
      const hash = createHash("sha256");
      const named = files(".").map((path) => [relative(".", path).split(sep).join("/"), path] as const);
      for (const [name, path] of named.sort(([a], [b]) => (a < b ? -1 : 1))) {
        hash.update(`${name}\0`).update(readFileSync(path)).update("\0");
      }
      writeFileSync(join(OUT, "sources.sha256"), `${hash.digest("hex")}\n`);
    },
  };
}

export default defineConfig({
  // Relative, so that the page works wherever a proxy puts the service.
  base: "./",
  plugins: [svelte({ preprocess: [] }), sourcesHash()],
  build: { outDir: OUT, emptyOutDir: true, target: "es2022", modulePreload: { polyfill: false }, assetsInlineLimit: 0 },
});

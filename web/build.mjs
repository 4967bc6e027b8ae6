// Bundles the page into a folder: node build.mjs [FOLDER]. The same sources give the same bytes on every machine.
import { copyFile, mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = path.dirname(fileURLToPath(import.meta.url));
const folder = path.resolve(process.argv[2] ?? path.join(here, "../src/dpcrowd/node/api/assets"));

await mkdir(folder, { recursive: true });
const result = await build({
  absWorkingDir: here,
  entryPoints: { app: "src/main.tsx" },
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022", "chrome111", "firefox113", "safari16.4"],
  jsx: "automatic",
  jsxImportSource: "preact",
  charset: "utf8",
  legalComments: "inline",
  outdir: folder,
  write: false,
});
for (const file of result.outputFiles) await writeFile(file.path, file.contents);
for (const name of ["index.html", "icon.svg"]) await copyFile(path.join(here, "src", name), path.join(folder, name));

// Writes the programs of the page typescript.md into a folder, each with what it prints: a block that is preceded by
// `<!-- saved as name.ts -->` is a program, and the block of text behind it, if there is one, is its output.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const page = readFileSync(join(process.env.TASKQ_DOCS ?? "../../../docs", "typescript.md"), "utf8");
const folder = process.argv[2] ?? "docs";
mkdirSync(folder, { recursive: true });
const programs = [...page.matchAll(/<!-- saved as (\S+\.ts) -->\n```ts\n(.*?)```\n(?:\n```text\n(.*?)```\n)?/gs)];
if (programs.length === 0) throw new Error("the page has no programs");
for (const [, name, program] of programs) writeFileSync(join(folder, name), program);
// A program that works is stopped by a signal; any other ends without.
const expected = Object.fromEntries(
  programs.map(([, name, program, output = ""]) => [
    name.replace(/\.ts$/, ""),
    { output, works: program.includes("app.work(") },
  ]),
);
writeFileSync(join(folder, "expected.json"), JSON.stringify(expected, undefined, 2));

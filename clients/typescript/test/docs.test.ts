import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import { Database, until } from "./support.js";

// The programs of docs/typescript.md, see extract.js. Each runs on a database of its own, is stopped once it has printed
// what the page says, and ends with 0.
const expected: Record<string, { output: string; works: boolean }> = JSON.parse(
  readFileSync(new URL("../docs/expected.json", import.meta.url), "utf8"),
);

describe("the programs of the page", { concurrency: 2 }, () => {
  for (const [name, { output, works }] of Object.entries(expected)) {
    test(name, async () => {
      const database = await Database.make();
      try {
        await database.client.query("CREATE TABLE stock (item text PRIMARY KEY, left_over int)");
        await database.client.query("INSERT INTO stock VALUES ('lamp', 10)");
        // With the shipped back-off, as a reader runs it.
        const env = { NODE_ENV: "test", PGDATABASE: database.name, PGOPTIONS: "" };
        const worker = database.worker(`../docs/${name}`, env);
        const printed = () => output.split("\n").every((line) => worker.output.includes(line));
        let code: number | null | undefined;
        worker.exited.then((exit) => {
          code = exit.code;
        });
        await until(
          () => printed() || code !== undefined,
          `${name} to print what the page says`,
          () => worker.output,
        );
        assert.ok(printed(), worker.output);
        if (works) worker.kill("SIGTERM");
        assert.deepEqual(await worker.exited, { code: 0, signal: null }, worker.output);
      } finally {
        await database.drop();
      }
    });
  }
});

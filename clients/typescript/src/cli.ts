#!/usr/bin/env node
import { createServer } from "node:http";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { inspect, parseArgs } from "node:util";
import { App } from "./app.js";
import { decodeBody, SETTINGS } from "./encode.js";
import { messageOf } from "./errors.js";
import { supervise } from "./supervise.js";

/** The options of a command, as they were typed. */
type Options = Record<string, any>;

/** A command: its operands, of which those in brackets may be left out, its options, and what it does. */
interface Command {
  operands: string;
  options: Record<string, "string" | "boolean" | "list">;
  help: string;
  run(operands: string[], options: Options): Promise<unknown>;
}

const USAGE = "usage: taskq-pg COMMAND [--conninfo URL] …, or PGHOST and the like";

/** A command about the queue that `--conninfo` or the environment names. */
function of(
  operands: string,
  help: string,
  run: (app: App, operands: string[], options: Options) => unknown,
  options: Command["options"] = {},
): Command {
  const onQueue = async (given: string[], typed: Options) => {
    await using app = new App(typed.conninfo ?? {});
    return await run(app, given, typed);
  };
  return { operands, help, options: { conninfo: "string", ...options }, run: onQueue };
}

const TARGET = { action: "string", group: "string", schedule: "string" } as const;

const COMMANDS: Record<string, Command> = {
  work: {
    operands: "MODULE[:NAME]",
    help: "Performs the tasks of an app that a module exports, as `app` or by default.",
    options: {
      concurrency: "string",
      action: "list",
      "until-idle": "boolean",
      grace: "string",
      "exit-after": "string",
      processes: "string",
      "health-port": "string",
      reload: "boolean",
    },
    run: work,
  },
  setup: {
    operands: "MODULE[:NAME]",
    help: "Writes the settings and schedules of an app; --prune removes what its code no longer has.",
    options: { prune: "boolean" },
    async run([module], { prune }) {
      await using app = await appOf(module as string);
      await app.setup({ prune });
    },
  },
  insert: of(
    "ACTION [BODY]",
    "Inserts a task and prints its id. BODY is JSON, else a text.",
    async (app, [action, body], { key = [] }) => {
      const keys = (key as string[]).map((pair) => [camel(pair.split("=")[0] as string), valueIn(pair)]);
      return `${await app.insert(action as string, jsonOrText(body), Object.fromEntries(keys))}`;
    },
    { key: "list" },
  ),
  signal: of("ID [RESULT]", "Gives a signal.", (app, [id, result]) => app.signal(id as string, jsonOrText(result))),
  cancel: of("ID…", "Aborts tasks that have not settled.", (app, ids) => app.cancel(ids)),
  retry: of("ID…", "Gives aborted tasks new tries.", (app, ids) => app.retry(ids)),
  rerun: of("ID…", "Starts settled tasks over, and what depends on them.", (app, ids) => app.rerun(ids)),
  delete: of("ID…", "Removes tasks.", (app, ids) => app.delete(ids)),
  release: of("ID…", "Takes tasks back from workers that are dead.", (app, ids) => app.release(ids)),
  rewind: of("ID STEP", "Forgets a step and all that were saved after it.", (app, [id, step]) =>
    app.rewind(id as string, step as string),
  ),
  get: of("ID", "Shows a task.", async (app, [id]) => {
    const task = await app.get(id as string);
    if (!task) throw new Error(`there is no task "${id}"`);
    const known = Object.entries(task).filter(([, value]) => value !== null);
    return known.map(([name, value]) => `${name}: ${typeof value === "string" ? value : inspect(value)}`);
  }),
  why: of("ID", "Tells why a task does not run.", (app, [id]) => app.why(id as string)),
  graph: of(
    "ID",
    "Draws the graph of a task: --format text, dot or mermaid.",
    (app, [id], { format }) => app.graph(id as string, { format }),
    { format: "string" },
  ),
  pause: of(
    "",
    "Holds back --action, --group or --schedule.",
    (app, _, { conninfo, ...target }) => app.pause(target as never),
    TARGET,
  ),
  resume: of("", "Ends a pause.", (app, _, { conninfo, ...target }) => app.resume(target as never), TARGET),
  unschedule: of("NAME", "Removes a schedule.", (app, [name]) => app.unschedule(name as string)),
  "run-schedule": of("NAME", "Inserts a run of a schedule now.", (app, [name]) => app.runSchedule(name as string)),
  schedule: of(
    "NAME CRON ACTION [BODY]",
    "Writes a schedule.",
    async (app, [name, cron, action, body], { timezone }) => {
      app.schedule(name as string, cron as string, action as string, jsonOrText(body), { timezone });
      await app.setup();
    },
    { timezone: "string" },
  ),
  "set-action": of(
    "ACTION",
    `Writes settings of an action: ${Object.keys(SETTINGS).map(dashed).join(", ")}.`,
    (app, [action], { conninfo, ...settings }) => app.setAction(action as string, typed(settings)),
    Object.fromEntries(Object.keys(SETTINGS).map((name) => [name.replaceAll("_", "-"), "string" as const])),
  ),
  "set-group": of(
    "GROUP",
    "Writes settings of a group: --max-concurrency, --weight.",
    (app, [group], { conninfo, ...settings }) => app.setGroup(group as string, typed(settings)),
    { "max-concurrency": "string", weight: "string" },
  ),
};

async function work([module]: string[], options: Options): Promise<unknown> {
  const { processes = "1", "health-port": port, reload = false, ...rest } = options;
  if (processes !== "1" || reload) {
    const own = Object.entries(rest).flatMap(([name, value]) =>
      [value].flat().map((one) => (one === true ? `--${name}` : `--${name}=${one}`)),
    );
    const commands = Array.from({ length: Number(processes) }, (_, n) => [
      __filename,
      "work",
      module as string,
      ...own,
      ...(port === undefined ? [] : [`--health-port=${Number(port) + n}`]),
    ]);
    return supervise(commands, { ends: rest["until-idle"], reload: reload ? process.cwd() : undefined });
  }
  await using app = await appOf(module as string);
  const health = createServer((_, response) => {
    const well = app.healthy();
    response.writeHead(well ? 200 : 503, { "content-type": "text/plain" });
    response.end(well ? "ok\n" : "it does not claim or extend\n");
  });
  if (port !== undefined) health.listen(Number(port));
  try {
    await app.work({
      concurrency: rest.concurrency === undefined ? undefined : Number(rest.concurrency),
      actions: rest.action,
      untilIdle: rest["until-idle"],
      grace: rest.grace,
      exitAfter: rest["exit-after"],
    });
  } finally {
    health.close();
  }
}

/** The app that a module of the program exports. */
async function appOf(name: string): Promise<App> {
  const [, path = name, exported] = /^(.*?)(?::(\w+))?$/.exec(name) ?? [];
  const module = await import(pathToFileURL(resolve(path)).href);
  const found = exported
    ? (module[exported] ?? module.default?.[exported])
    : (module.app ?? module.default?.app ?? module.default);
  if (!(found instanceof App)) throw new TypeError(`${name} exports no App`);
  return found;
}

function jsonOrText(text: string | undefined): unknown {
  return text === undefined ? undefined : decodeBody(text);
}

/** Keys whose values are texts, also where they look like JSON. */
const TEXTS = /^(id|delay|lease|.*_id|workgroup|.*_key|expires_.*|not_before|max_run_time)$/;

function valueIn(pair: string): unknown {
  const [, key = "", value = ""] = /^(.*?)=(.*)$/s.exec(pair) ?? [];
  if (key === "") throw new TypeError(`--key is NAME=VALUE, not ${pair}`);
  return TEXTS.test(key) ? value : jsonOrText(value);
}

/** Settings as they were typed, with the names and types that the methods take. */
function typed(settings: Options): Options {
  return Object.fromEntries(
    Object.entries(settings).map(([name, value]) => {
      const type = SETTINGS[name.replaceAll("-", "_")];
      return [camel(name), type === "interval" ? value : type === "text[]" ? value.split(",") : jsonOrText(value)];
    }),
  );
}

function camel(name: string): string {
  return name.replace(/[-_]([a-z])/g, (_, letter) => letter.toUpperCase());
}

function dashed(name: string): string {
  return `--${name.replaceAll("_", "-")}`;
}

async function main([name = "", ...words]: string[]): Promise<void> {
  const command = COMMANDS[name];
  if (!command || words.includes("--help")) {
    const shown = command ? { [name]: command } : COMMANDS;
    const lines = Object.entries(shown).map(([each, { operands, help }]) => `  ${each} ${operands}\n      ${help}`);
    console.log([USAGE, ...lines].join("\n"));
    if (!command && name !== "" && name !== "--help") process.exitCode = 2;
    return;
  }
  const { values, positionals } = parseArgs({
    args: words,
    allowPositionals: true,
    options: Object.fromEntries(
      Object.entries(command.options).map(([option, kind]) => [
        option,
        kind === "boolean" ? { type: "boolean" as const } : { type: "string" as const, multiple: kind === "list" },
      ]),
    ),
  });
  const wanted = command.operands.split(" ").filter((word) => word && !word.startsWith("["));
  const many = command.operands.endsWith("…");
  const most = command.operands.split(" ").filter(Boolean).length;
  if (positionals.length < wanted.length || (!many && positionals.length > most))
    throw new TypeError(`taskq-pg ${name} ${command.operands}`);
  const shown = await command.run(positionals, values);
  for (const line of [shown].flat()) if (line !== undefined) console.log(printable(String(line)));
  if (name === "signal" && shown === false) process.exitCode = 1;
}

/** What a terminal shows as it is: others write bodies and statuses. */
function printable(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what a terminal obeys.
  return text.replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f]/g, "�");
}

main(process.argv.slice(2)).catch((error) => {
  console.error(`taskq: ${printable(messageOf(error))}`);
  process.exitCode = 1;
});

// Runs all of clients/conformance: what this package has in common with those of other languages.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import pg from "pg";
import * as taskq from "taskq-pg";
import { type App, Complete, type Context, Leave, Reject, Retry, type Task } from "taskq-pg";
import { drain, travel } from "taskq-pg/testing";
import { Database, gate, until } from "./support.js";

const folder = process.env.TASKQ_CONFORMANCE ?? "";
const read = (name: string) => JSON.parse(readFileSync(`${folder}/${name}.json`, "utf8"));

/** What JSON cannot say. */
const SAID: Record<string, unknown> = {
  NaN: Number.NaN,
  Infinity: Number.POSITIVE_INFINITY,
  function: () => 1,
  "invalid time": new Date("never"),
};
/** A language that has no such value passes over the case. */
const LACKS = Symbol("lacks");

function meant(value: any): any {
  if (Array.isArray(value)) return value.map(meant);
  if (typeof value !== "object" || value === null) return value;
  if (typeof value.$ === "string") return value.$ in SAID ? SAID[value.$] : LACKS;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, meant(each)]));
}

function fits(actual: any, expected: any): boolean {
  if (expected?.$ === "any") return actual !== undefined;
  if (expected?.$ === "like") return new RegExp(expected.pattern).test(actual);
  if (Array.isArray(expected))
    return actual?.length === expected.length && expected.every((each, n) => fits(actual[n], each));
  if (typeof expected !== "object" || expected === null) return Object.is(actual, expected);
  const keys = new Set([...Object.keys(expected), ...Object.keys(actual ?? {})]);
  return [...keys].every((key) => fits(actual?.[key], expected[key]));
}

function check(actual: unknown, expected: unknown, what: string): void {
  assert.ok(fits(actual, expected), `${what}: ${JSON.stringify(actual)} is not ${JSON.stringify(expected)}`);
}

const camel = (name: string) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
/** Keys of SQL as this language spells them. */
const keysOf = (keys: Record<string, unknown>): any =>
  Object.fromEntries(Object.entries(keys).map(([key, value]) => [camel(key), value]));

describe("conformance", { skip: folder === "" }, () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  test("bodies", async () => {
    const { insert, read: stored, refused } = read("bodies");
    const app = database.app();
    const got = new Map<string, unknown>();
    app.task("any", (body, task) => void got.set(task.id, body));
    app.task<string>("text", { text: true }, (body, task) => void got.set(task.id, body));
    for (const [n, one] of insert.entries()) {
      const value = meant(one.value);
      const tasks = [await app.insert("any", value, { id: `any ${n}` })];
      if (typeof value === "string") tasks.push(await app.insert("text", value, { id: `text ${n}` }));
      const { body } = await database.task(tasks[0] as taskq.Handle);
      if ("stored" in one) assert.equal(body, one.stored, JSON.stringify(one));
      else assert.deepEqual(JSON.parse(body), one.json);
      await app.work({ untilIdle: true });
      for (const { id } of tasks) assert.deepEqual(got.get(id), value, `${id}: ${JSON.stringify(one)}`);
    }
    for (const [n, one] of stored.entries()) {
      const kinds = ["any", "text"].filter((kind) => kind in one);
      for (const kind of kinds)
        await database.rows("SELECT taskq.insert_task($1, $2, $3::text)", `read ${kind} ${n}`, kind, one.stored);
      await app.work({ untilIdle: true });
      for (const kind of kinds) assert.deepEqual(got.get(`read ${kind} ${n}`), one[kind], JSON.stringify(one));
    }
    for (const { value } of refused)
      await assert.rejects(app.insert("refused", meant(value)), TypeError, JSON.stringify(value));
    assert.deepEqual(await database.states("refused"), {});
  });

  test("results", async () => {
    const { returned, complete } = read("results");
    const app = database.app();
    let made: unknown;
    app.task("returns", () => made);
    const performed = async (value: unknown) => {
      made = value;
      const task = await app.insert("returns");
      await app.work({ untilIdle: true });
      return database.task(task);
    };
    for (const one of returned) {
      const task = await performed(meant(one.returns));
      assert.equal(task.status_code, one.code, JSON.stringify(one));
      if ("result" in one) assert.deepEqual(task.result, one.result);
      if (one.status) assert.ok(task.status.includes(one.status), task.status);
    }
    for (const { complete: more, code, result, status, children = {} } of complete) {
      const { result: own, children: of, ...options } = more;
      const task = await performed(new Complete(own, { ...options, children: of?.map(keysOf) }));
      assert.deepEqual([task.status_code, task.result], [code, result]);
      if (status) assert.equal(task.status, status);
      for (const [id, child] of Object.entries<any>(children)) {
        const { body, state } = await database.task(id);
        assert.deepEqual(["json" in child ? JSON.parse(body) : body, state], [child.json ?? child.body, child.state]);
      }
    }
  });

  test("errors", async () => {
    const { raised, refused, mended } = read("errors");
    class Broken extends Error {
      override name = "Error";
    }
    for (const one of raised) {
      const app = database.app();
      const { kind, text, after, count_try } = one.raises;
      app.task(`raises ${kind}`, { abortOn: one.abort_on ? [Broken] : [] }, () => {
        if (kind === "reject") throw new Reject(text);
        if (kind === "retry") throw new Retry(text, { after, countTry: count_try });
        if (kind === "leave") throw new Leave(text);
        throw new Broken(text);
      });
      const handle = await app.insert(`raises ${kind}`);
      await app.work({ untilIdle: true });
      const task = await database.task(handle);
      assert.deepEqual([task.state, task.num_tries], [one.state, one.num_tries], JSON.stringify(one));
      if ("status" in one) assert.equal(task.status, one.status);
      else assert.ok(task.status.endsWith(one.status_ends), task.status);
      if (one.within) assert.ok(Number(task.not_before) - Date.now() <= 1000 * one.within, task.not_before);
      await database.rows("SELECT taskq.cancel_tasks(ARRAY[$1])", handle.id);
    }
    const app = database.app();
    for (const { signal, tasks, error, sqlstate } of refused) {
      if (signal) await app.signal(signal);
      const kind = (taskq as any)[error];
      await assert.rejects(
        app.insertTasks(tasks.map(keysOf)),
        (thrown: any) => thrown instanceof kind && thrown.code === sqlstate,
        error,
      );
    }
    await database.rows("DO $$ BEGIN CREATE ROLE without_rights LOGIN; EXCEPTION WHEN duplicate_object THEN END $$");
    const without: Record<string, App> = {
      "the extension": database.app({ connectionString: undefined, database: "postgres" }),
      "a right": database.app({
        connectionString: undefined,
        database: database.name,
        user: "without_rights",
      }),
    };
    for (const { lacks, says } of mended)
      await assert.rejects(
        (without[lacks] as App).insert("x"),
        (thrown: Error) => thrown.message.includes(says),
        lacks,
      );
  });

  test("durations, times and numbers", async () => {
    const { taken, keys, refused, times, numbers } = read("durations");
    const app = database.app();
    for (const { text } of taken) for (const key of keys) await app.insert("taken", null, keysOf({ [key]: text }));
    for (const { value, says } of refused)
      for (const key of keys)
        await assert.rejects(
          app.insert("refused", null, keysOf({ [key]: meant(value) })),
          (error: Error) => error.message.includes(says?.milliseconds ?? ""),
          key,
        );
    // What a worker times itself: it asks the server.
    for (const { text, seconds } of taken) {
      const [{ extract }] = await database.rows("SELECT extract(epoch FROM $1::interval)::float8", text);
      assert.equal(extract, seconds);
    }
    for (const key of times.keys) {
      for (const value of times.taken) {
        await app.insert("taken", null, keysOf({ [key]: value }));
        await app.insert("taken", null, keysOf({ [key]: new Date(value) }));
      }
      for (const { value } of times.refused) {
        if (meant(value) !== LACKS)
          await assert.rejects(app.insert("refused", null, keysOf({ [key]: meant(value) })), RangeError, key);
      }
    }
    for (const key of numbers.keys)
      for (const { value } of numbers.refused)
        await assert.rejects(app.insert("refused", null, keysOf({ [key]: meant(value) })), RangeError, key);
    assert.deepEqual(await database.states("refused"), {});
  });

  test("names of steps and children", async () => {
    for (const { name, before: tasks = [], calls, entries } of read("names")) {
      await using own = await databaseOf();
      const app = own.database.app();
      app.task("echo", (body) => body);
      app.workflow("W's", async (ctx) => {
        let last: unknown;
        for (const call of calls) last = await make(ctx, call);
        return last;
      });
      if (tasks.length > 0) await app.insertTasks(tasks.map(keysOf));
      await app.insert("W's", null, { id: "W" });
      for (const entry of entries) {
        if (entry.travel) await travel(app, entry.travel);
        if (entry.signal) await app.signal(entry.signal.id, entry.signal.result);
        if (entry.cancel) await app.cancel(entry.cancel.id, { status: entry.cancel.status });
        await drain(app).catch(() => {});
        const task = await own.database.task("W");
        const where = `${name}, ${JSON.stringify(entry)}`;
        assert.equal(task.state, entry.state, `${where}: ${task.status}`);
        const steps = await own.database.rows("SELECT step, result FROM taskq.steps WHERE task_id = 'W'");
        check(Object.fromEntries(steps.map(({ step, result }) => [step, result])), entry.steps, where);
        const ids = async (condition: string) =>
          (await own.database.rows(`SELECT id FROM taskq.tasks WHERE ${condition} ORDER BY id`)).map(({ id }) => id);
        if (entry.children) check(await ids("id LIKE 'W/%'"), entry.children, where);
        if (entry.signals) check(await ids("signal AND state NOT IN ('completed', 'aborted')"), entry.signals, where);
        if (entry.status) assert.ok(task.status.includes(entry.status), `${where}: ${task.status}`);
        if ("gives" in entry) assert.deepEqual(task.result, entry.gives, where);
      }
    }
  });

  test("statements", async () => {
    const { signatures, calls } = read("statements");
    const sent: string[] = [];
    const original = pg.Client.prototype.query;
    (pg.Client.prototype as any).query = function (this: pg.Client, query: any, ...rest: any[]) {
      sent.push(typeof query === "string" ? query : query.text);
      return (original as any).call(this, query, ...rest);
    };
    try {
      for (const { call, with: given = {}, sends, always, may = [], fails } of calls) {
        const app = database.app({ actor: "conforming" });
        await app.insert("none", null, { id: "given", groupId: "g", onConflict: "skip" });
        await app.signal("settled");
        app.schedule("nightly", "0 3 * * *", "none");
        await app.setup();
        sent.length = 0;
        await making(app, call, given, sends).catch((error) => assert.equal(error.code, fails, `${call}: ${error}`));
        const found = sent
          .filter((text) => text.includes(`taskq.${sends}(`))
          .map((text) => argumentsOf(text, sends, signatures[sends]));
        assert.ok(found.length > 0, `${call} sends ${sends}: ${sent}`);
        for (const names of found) {
          for (const name of always) assert.ok(names.includes(name), `${call}: ${name} is not in ${names}`);
          const others = names.filter((name) => ![...always, ...may].includes(name));
          assert.deepEqual(others, [], `${call}, ${sends}`);
        }
      }
    } finally {
      pg.Client.prototype.query = original;
    }
  });

  test("answers", async () => {
    const { granted, returned, large } = read("answers");
    for (const { row, task: expected } of granted) {
      await using own = await databaseOf();
      // As the server says it.
      await own.database.rows("ALTER FUNCTION taskq.own_tasks RENAME TO real");
      await own.database.rows(
        `CREATE FUNCTION taskq.own_tasks(text, integer, text[], interval, interval, boolean, with_steps boolean DEFAULT false)
           RETURNS TABLE (task_id text, token uuid, action text, body text, num_tries integer, num_failures integer,
                          action_deadline timestamptz, checkpoint jsonb, results jsonb, priority integer, metadata jsonb,
                          body_json jsonb, steps jsonb, incomplete boolean)
           LANGUAGE sql AS $$ SELECT * FROM jsonb_to_record(${pg.escapeLiteral(JSON.stringify(row))}) AS r (
                          task_id text, token uuid, action text, body text, num_tries integer, num_failures integer,
                          action_deadline timestamptz, checkpoint jsonb, results jsonb, priority integer, metadata jsonb,
                          body_json jsonb, steps jsonb, incomplete boolean) $$`,
      );
      const app = own.database.app();
      const got = gate<Task>();
      // It has no such task, and refuses the return.
      app.workflow("echo", (ctx) => got.open(ctx.task));
      const working = app.work();
      const task = await got.promise;
      await app.stop({ now: true });
      await working;
      for (const key of Object.keys(expected).filter((key) => key !== "incomplete")) {
        const value = key === "results" ? task.results.map((each) => snake(each)) : (task as any)[camel(key)];
        assert.deepEqual(value, key === "metadata" ? (expected[key] ?? {}) : expected[key], `${row.task_id}: ${key}`);
      }
      await own.database.rows("DROP FUNCTION taskq.own_tasks");
      await own.database.rows("ALTER FUNCTION taskq.real RENAME TO own_tasks");
    }
    for (const one of returned) {
      await using own = await databaseOf();
      const app = own.database.app();
      const go = gate();
      app.task("held", () => go.promise.then(() => one.result));
      await app.insert("held", null, { id: "held" });
      const working = app.work();
      await own.database.until("held", "in-progress");
      // It claims nothing more, and is not stopped by what is refused.
      const stopped = app.stop();
      await own.database.rows(one.while);
      go.open();
      await stopped;
      await working;
      const task = await own.database.task("held");
      assert.equal(task?.state ?? null, one.state, one.says);
      if ("stored" in one) assert.deepEqual(task.result, one.stored, one.says);
    }
    assert.ok(large.dependencies > 0);
  });

  test("answers that are too large", { skip: !process.env.TASKQ_TEST_LONG }, async () => {
    const { dependencies, megabytes_each } = read("answers").large;
    const app = database.app();
    app.task("large", () => "x".repeat(megabytes_each * 1_000_000));
    app.task("sums", { results: true }, (_, task) =>
      task.results.reduce((sum, { result }) => sum + (result as string).length, 0),
    );
    const dependsOn = await app.insertMany("large", new Array(dependencies).fill(null));
    const sum = await app.insert("sums", null, { dependsOn });
    await app.work({ untilIdle: true, concurrency: 1 });
    assert.equal((await database.task(sum)).result, dependencies * megabytes_each * 1_000_000);
  });
});

async function databaseOf(): Promise<{ database: Database; [Symbol.asyncDispose](): Promise<void> }> {
  const database = await Database.make();
  return { database, [Symbol.asyncDispose]: () => database.drop() };
}

const snake = (value: object) =>
  Object.fromEntries(
    Object.entries(value).map(([key, each]) => [key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), each]),
  );

/** A call of a context. */
function make(ctx: Context, { call, name, ...given }: any): Promise<unknown> {
  const { returns, unique, duration, signal, tasks, timeout, action, bodies, body } = given;
  switch (call) {
    case "step":
      return ctx.step(name, () => returns, { unique });
    case "transaction":
      return ctx.transaction(name, () => returns);
    case "sleep":
      return ctx.sleep(name, duration);
    case "wait_for":
      return tasks ? ctx.waitFor(name, { tasks, timeout }) : ctx.waitFor(name, { signal, timeout });
    case "map":
      return ctx.map(name, action, bodies);
    case "call":
      return ctx.call(name, action, body);
    default:
      throw new Error(`no call of a context: ${call}`);
  }
}

/** A call of an app. */
async function making(app: App, call: string, given: any, sends: string): Promise<unknown> {
  const { action, body, bodies, tasks, id, ids, result, step, name, group, max_concurrency } = given;
  const settings = { maxConcurrency: max_concurrency };
  switch (call) {
    case "insert":
      return app.insert(action, body);
    case "insert_many":
      return app.insertMany(action, bodies);
    case "insert_tasks":
      return app.insertTasks(tasks);
    case "signal":
      return app.signal(id, result);
    case "wait":
      return app.wait(id);
    case "rewind":
      return app.rewind(id, step);
    case "why":
      return app.why(id);
    case "graph":
      return app.graph(id);
    case "run_schedule":
      return app.runSchedule(name);
    case "unschedule":
      return app.unschedule(name);
    case "set_action":
      return app.setAction(action, settings);
    case "set_group":
      return app.setGroup(group, settings);
    case "pause":
    case "resume":
      return app[call](given);
    case "cancel":
    case "retry":
    case "rerun":
    case "delete":
    case "release":
      return app[call](ids);
  }
  const held = gate();
  app.workflow("performed", { lease: "600 milliseconds" }, async (ctx) => {
    if (call === "report") await ctx.task.report({ progress: 0.5 });
    if (call === "step") await ctx.step("s", () => 1);
    if (sends === "extend_tasks_ownership") await held.promise;
  });
  app.task("completed", { transactional: true }, () => 1);
  const task = await app.insert(call === "complete" ? "completed" : "performed");
  const working = app.work();
  if (sends === "extend_tasks_ownership") {
    await new Promise((resolve) => setTimeout(resolve, 500));
    held.open();
  }
  await until(async () => (await task.state()) === "completed", "it to be performed");
  // The claim sleeps by then.
  if (call === "stop") await new Promise((resolve) => setTimeout(resolve, 300));
  await app.stop();
  await working;
}

/** The names of the arguments that a statement gives to a function. */
function argumentsOf(text: string, name: string, signature: string[]): string[] {
  const begin = text.indexOf(`taskq.${name}(`) + `taskq.${name}(`.length;
  const list: string[] = [""];
  let depth = 1;
  let quoted = false;
  for (const letter of text.slice(begin)) {
    if (letter === "'") quoted = !quoted;
    if (!quoted && letter === "(") depth++;
    if (!quoted && letter === ")" && --depth === 0) break;
    if (!quoted && letter === "," && depth === 1) list.push("");
    else list[list.length - 1] += letter;
  }
  if (list.length === 1 && list[0]?.trim() === "") return [];
  return list.map((argument, n) => /^\s*(\w+)\s*=>/.exec(argument)?.[1] ?? (signature[n] as string));
}

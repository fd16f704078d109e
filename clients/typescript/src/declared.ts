import { settingCall, settingsOf } from "./encode.js";
import { sqlState } from "./errors.js";
import type { ActionSettings, Logger } from "./types.js";

/** Runs a statement and gives its rows. */
type Run = (text: string, values: (string | null)[]) => Promise<any[]>;

/** A schedule, as the arguments of `taskq.schedule` after its name. */
export type Schedule = (string | null)[];

/** What an app has written, as it is kept in the signal `taskq.app NAME`. */
interface Kept {
  version?: string | null;
  settings?: Record<string, string[]>;
  schedules?: string[];
}

const SCHEDULE = `SELECT taskq.schedule($1::text, $2::text, $3::text::jsonb, timezone => $4::text, overlap => $5::text,
                                        backfill => $6::text, max_backfill => $7::text::integer)`;
const SCHEDULED = `
  SELECT cron = $2::text AND task = $3::text::jsonb AND timezone = $4::text AND overlap = $5::text AND backfill = $6::text
         AND max_backfill IS NOT DISTINCT FROM $7::text::integer AS same
    FROM taskq.schedules WHERE name = $1::text`;
const KEEP = `SELECT taskq.signal($1::text, result => $2::text::jsonb, action => 'taskq.app', retention => '1000 years')`;
/** Settings that come together. */
const PAIR: Record<string, string> = { rate_limit: "rate_period", rate_period: "rate_limit" };

/**
 * Settings and schedules of the code, and those that the database has. What an app with a name has written is kept beside
 * them: so each start can tell what the code no longer has, and which version has written last.
 */
export class Declared {
  readonly #name: string | undefined;
  readonly #version: string | null;
  readonly #actions: Map<string, ActionSettings>;
  readonly #schedules: Map<string, Schedule>;
  readonly #log: Logger;

  constructor(
    app: { name?: string; version: string | null },
    actions: Map<string, ActionSettings>,
    schedules: Map<string, Schedule>,
    log: Logger,
  ) {
    this.#name = app.name;
    this.#version = app.version;
    this.#actions = actions;
    this.#schedules = schedules;
    this.#log = log;
  }

  /** Writes all; with `prune` removes what this app has written and the code no longer has. */
  async write(run: Run, prune: boolean): Promise<void> {
    if (prune && this.#name === undefined)
      throw new TypeError("name the app to prune: new App({ name }) tells its settings from those of others");
    let gone = this.#gone(await this.#before(run));
    for (const [action, settings] of this.#actions)
      await run(...settingCall("set_action", action, settingsOf(settings)));
    for (const [name, schedule] of this.#schedules) await run(SCHEDULE, [name, ...schedule]);
    if (prune) {
      for (const [action, names] of Object.entries(gone.settings ?? {}))
        await run(...settingCall("set_action", action, settingsOf({ clear: names })));
      for (const name of gone.schedules ?? []) await run("SELECT taskq.unschedule($1::text)", [name]);
      gone = {};
    }
    await this.#keep(run, gone, false);
    this.#tell(gone);
  }

  /** Writes what the database lacks, and the rest if this version is higher than that which has written it. */
  async begin(run: Run): Promise<void> {
    const before = await this.#before(run);
    if (before && isHigher(this.#version, before.version)) return this.write(run, false);
    const others: string[] = [];
    for (const [action, settings] of this.#actions) {
      const lacking = await lackingOf(run, action, settings, others);
      if (lacking.length > 0) await run(...settingCall("set_action", action, lacking));
    }
    for (const [name, schedule] of this.#schedules) {
      const [row] = await run(SCHEDULED, [name, ...schedule]);
      if (!row) await run(SCHEDULE, [name, ...schedule]);
      else if (!row.same) others.push(`schedule "${name}"`);
    }
    if (others.length > 0)
      this.#log.warn(`the database has others than the code, setup writes them: ${others.join("; ")}`);
    if (!before && this.#actions.size + this.#schedules.size > 0) await this.#keep(run, {}, true);
    this.#tell(this.#gone(before));
  }

  /** Without the rights for it a worker goes on with what there is. */
  async beginIfAllowed(run: Run): Promise<void> {
    try {
      await this.begin(run);
    } catch (error) {
      if (sqlState(error) !== "42501") throw error;
      this.#log.info("settings and schedules are not written, which takes the rights of an operator");
    }
  }

  get #id(): string {
    return `taskq.app ${this.#name}`;
  }

  async #before(run: Run): Promise<Kept | undefined> {
    if (this.#name === undefined) return undefined;
    const [row] = await run("SELECT result::text FROM taskq.tasks WHERE id = $1::text AND signal", [this.#id]);
    return row ? (JSON.parse(row.result ?? "null") ?? {}) : undefined;
  }

  /** Keeps what this app has written, and what it has left there. Of several that are first, one is. */
  async #keep(run: Run, gone: Kept, isFirst: boolean): Promise<void> {
    if (this.#name === undefined) return;
    const settings = { ...gone.settings };
    for (const [action, own] of this.#actions) {
      const names = settingsOf(own).map(({ key }) => key);
      settings[action] = [...new Set([...names, ...(gone.settings?.[action] ?? [])])].sort();
    }
    const schedules = [...new Set([...this.#schedules.keys(), ...(gone.schedules ?? [])])].sort();
    if (!isFirst) await run("SELECT taskq.delete_tasks(ARRAY[$1::text])", [this.#id]);
    await run(KEEP, [this.#id, JSON.stringify({ version: this.#version, settings, schedules })]);
  }

  /** What it has written and does not have any more. */
  #gone(before: Kept | undefined): Kept {
    const settings: Record<string, string[]> = {};
    for (const [action, had] of Object.entries(before?.settings ?? {})) {
      const has = new Set(settingsOf(this.#actions.get(action) ?? {}).map(({ key }) => key));
      const names = had.filter((name) => !has.has(name));
      if (names.length > 0) settings[action] = names;
    }
    return { settings, schedules: (before?.schedules ?? []).filter((name) => !this.#schedules.has(name)) };
  }

  #tell({ settings = {}, schedules = [] }: Kept): void {
    const gone = Object.entries(settings).map(([action, names]) => `${names.join(", ")} of ${action}`);
    gone.push(...schedules.map((name) => `schedule "${name}"`));
    if (gone.length > 0) this.#log.warn(`the code no longer has, and setup with prune removes: ${gone.join("; ")}`);
  }
}

type Setting = ReturnType<typeof settingsOf>[number];

/** The settings that the database has none of; those that it has otherwise are told. */
async function lackingOf(run: Run, action: string, settings: ActionSettings, others: string[]): Promise<Setting[]> {
  const own = settingsOf(settings);
  if (own.length === 0) return [];
  // What is as it is without a setting is not NULL for all. The names are ours.
  const rows = await run(
    `SELECT each.* FROM taskq.actions, LATERAL (VALUES ${own
      .map(
        ({ key, type }, n) =>
          `('${key}', ${key} IS NULL OR ${key}::text IN ('false', 'retry'), ${key} IS NOT DISTINCT FROM $${n + 2}::text::${type}, ${key}::text)`,
      )
      .join(", ")}) AS each (key, lacks, same, stored) WHERE action = $1::text`,
    [action, ...own.map(({ value }) => value)],
  );
  if (rows.length === 0) return own;
  const lacking = new Set<string>();
  for (const { key, lacks, same, stored } of rows) {
    if (same) continue;
    const here = own.find((setting) => setting.key === key)?.value;
    if (lacks) lacking.add(key).add(PAIR[key] ?? key);
    else others.push(`${key} of ${action} is ${stored}, here ${here}`);
  }
  return own.filter(({ key }) => lacking.has(key));
}

function isHigher(version: string | null, other: string | null | undefined): boolean {
  const [here, there] = [numbers(version), numbers(other ?? null)];
  for (let n = 0; n < Math.max(here.length, there.length); n++) {
    const difference = (here[n] ?? -1) - (there[n] ?? -1);
    if (difference !== 0) return difference > 0;
  }
  return false;
}

function numbers(version: string | null): number[] {
  return version === null ? [] : version.split(".").map(Number);
}

/** A version as a text; `TypeError` if it is no number, and no dotted numbers. */
export function versionOf(version: string | number | undefined): string | null {
  if (version === undefined) return null;
  if (/^\d+(\.\d+)*$/.test(String(version))) return String(version);
  throw new TypeError(`the version "${version}" is no integer, and no dotted numbers such as "1.10"`);
}

// Servers of a test's own, and where clients connect to them.
import { execFile } from "node:child_process";
import { chmod, mkdir, mkdtemp, rm, stat } from "node:fs/promises";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import pg from "pg";
import { until } from "./support.js";

const run = promisify(execFile);
const { TASKQ_CLUSTER: script, PG_CONFIG: pgConfig } = process.env;

/** Why such tests are not run, if they are not. */
export const skip = script && pgConfig ? false : "TASKQ_CLUSTER and PG_CONFIG are not set";

/** Logs nothing. */
export const silent = { info() {}, warn() {}, error() {} };

/** A folder that the server's user may enter. */
export async function makeFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "taskq-ts-"));
  await chmod(folder, 0o755);
  return folder;
}

export async function removeFolder(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true });
}

/** A server of the test's own. */
export class Server {
  constructor(readonly folder: string) {}

  async do(command: string, ...rest: string[]): Promise<string> {
    return (await run(script as string, [command, this.folder, ...rest])).stdout;
  }

  start(...settings: string[]): Promise<string> {
    return this.do("start", "-c", "fsync=off", ...settings.flatMap((setting) => ["-c", setting]));
  }

  async socket(): Promise<string> {
    const environment = await this.do("env");
    return /PGHOST=(\S+)/.exec(environment)?.[1] as string;
  }

  async query(text: string): Promise<any[]> {
    const client = new pg.Client({ host: await this.socket(), user: "postgres", database: "postgres" });
    await client.connect();
    try {
      return (await client.query(text)).rows;
    } finally {
      await client.end();
    }
  }

  /** A streaming standby of this server, in a folder of its own. */
  async standby(folder: string): Promise<Server> {
    const standby = new Server(folder);
    const data = join(folder, "data");
    await mkdir(folder);
    const { stdout } = await run(pgConfig as string, ["--bindir"]);
    const options = ["--checkpoint=fast", "--no-sync", "--write-recovery-conf", "-U", "postgres"];
    await run(join(stdout.trim(), "pg_basebackup"), [...options, "-h", await this.socket(), "-D", data]);
    // The server refuses to run as root: the copy belongs to the user that runs the primary.
    const { uid, gid } = await stat(join(this.folder, "data"));
    await run("chown", ["-R", `${uid}:${gid}`, data]);
    await standby.start();
    await until(
      async () => (await this.query("SELECT FROM pg_stat_replication WHERE state = 'streaming'")).length === 1,
      "the standby to stream",
    );
    return standby;
  }
}

/** Where clients connect. It leads to one server or another, as a proxy or a name in DNS does. */
export class Forwarder {
  readonly #sockets = new Set<net.Socket>();
  readonly #listener: net.Server;

  private constructor(private target: string) {
    this.#listener = net.createServer((client) => {
      const upstream = net.connect(join(this.target, ".s.PGSQL.5432"));
      for (const [socket, other] of [
        [client, upstream],
        [upstream, client],
      ] as const) {
        this.#sockets.add(socket);
        socket
          .on("error", () => {})
          .on("close", () => {
            this.#sockets.delete(socket);
            other.destroy();
          });
        socket.pipe(other);
      }
    });
  }

  static async to(server: Server): Promise<Forwarder> {
    const forwarder = new Forwarder(await server.socket());
    await new Promise<void>((resolve) => forwarder.#listener.listen(0, "127.0.0.1", resolve));
    return forwarder;
  }

  /** New connections lead to this server. */
  async turnTo(server: Server): Promise<void> {
    this.target = await server.socket();
  }

  get connectionString(): string {
    const { port } = this.#listener.address() as net.AddressInfo;
    return `postgresql://postgres@127.0.0.1:${port}/postgres`;
  }

  close(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#listener.close();
  }
}

import assert from "node:assert/strict";
import net from "node:net";
import { after, before, describe, test } from "node:test";
import type { App } from "taskq-pg";
import { Database, gate, pause } from "./support.js";

// What is between the app and the server is slow, or not there.
describe("a worker that is stopped before it has a connection", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  /** Where clients connect; what becomes of each connection is said by its number, from 0 up. */
  const listen = async (accept: (socket: net.Socket, number: number) => void) => {
    let number = 0;
    const sockets = new Set<net.Socket>();
    const listener = net.createServer((socket) => {
      sockets.add(socket.on("error", () => {}));
      accept(socket, number++);
    });
    await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
    const { port } = listener.address() as net.AddressInfo;
    const close = () => {
      for (const socket of sockets) socket.destroy();
      listener.close();
    };
    return { port, connectionString: `postgresql://postgres@127.0.0.1:${port}/${database.name}`, close };
  };
  const pipe = (socket: net.Socket) => {
    const { PGHOST, PGPORT = "5432" } = process.env;
    const upstream = net.connect(`${PGHOST}/.s.PGSQL.${PGPORT}`).on("error", () => {});
    socket.pipe(upstream).pipe(socket);
    socket.on("close", () => upstream.destroy());
    upstream.on("close", () => socket.destroy());
  };
  /** It would take five seconds to give up a server that does not answer. */
  const endsAtOnce = async (app: App, working: Promise<void>) => {
    const ended = await Promise.race([app.stop().then(() => true), pause(3000).then(() => false)]);
    await working;
    assert.ok(ended);
  };

  test("ends at once while it connects", async () => {
    const connected = gate();
    const silent = await listen(() => connected.open());
    const app = database.app({ connectionString: silent.connectionString });
    app.task("any", () => {});
    const working = app.work();
    await connected.promise;
    await endsAtOnce(app, working);
    silent.close();
  });

  test("ends at once while it connects for a claim, and claims nothing", async () => {
    const connected = gate();
    const half = await listen((socket, number) => (number === 0 ? pipe(socket) : connected.open()));
    const app = database.app({ connectionString: half.connectionString });
    app.task("any", () => assert.fail("it has been stopped"));
    const id = await database.app().insert("any");
    const working = app.work();
    await connected.promise;
    await endsAtOnce(app, working);
    assert.equal((await database.task(id)).num_tries, 0);
    half.close();
  });

  test("ends at once while it pauses between attempts", async () => {
    const none = await listen(() => {});
    none.close();
    const paused = gate();
    const warn = (message: string) => void (message.startsWith("no answer") && paused.open());
    const logger = { info() {}, warn, error() {} };
    const app = database.app({ connectionString: none.connectionString, logger });
    app.task("any", () => {});
    const working = app.work();
    await paused.promise;
    await endsAtOnce(app, working);
  });
});

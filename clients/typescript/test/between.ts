// What is between the apps and the server: a network that is slow, silent, or not there.
import net from "node:net";
import type { Database } from "./support.js";

/** Where clients connect instead. */
export interface Between {
  connectionString: string;
  close(): void;
}

/** What becomes of each connection is said by its number, from 0 up. */
export async function between(
  database: Database,
  accept: (socket: net.Socket, number: number) => void,
): Promise<Between> {
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
  database.atEnd(close);
  return { connectionString: `postgresql://postgres@127.0.0.1:${port}/${database.name}`, close };
}

/** Leads on to the server. `pass` may hold back what the client says, or keep it (`false`), and `answer` may change what the server says. */
export function pipe(
  socket: net.Socket,
  pass: (data: Buffer) => Promise<unknown> | false | undefined = () => undefined,
  answer: (data: Buffer) => Buffer = (data) => data,
): void {
  const { PGHOST, PGPORT = "5432" } = process.env;
  const upstream = net.connect(`${PGHOST}/.s.PGSQL.${PGPORT}`).on("error", () => {});
  let last: Promise<unknown> = Promise.resolve();
  socket.on("data", (data) => {
    last = last
      .then((): unknown => pass(data))
      .then((passed) => {
        if (passed !== false) upstream.write(data);
      });
  });
  upstream.on("data", (data) => void socket.write(answer(data)));
  socket.on("close", () => upstream.destroy());
  upstream.on("close", () => socket.destroy());
}

/** A message of the server: an error of this severity, with a SQLSTATE. */
export function errorMessage(severity: "ERROR" | "FATAL", state: string, text: string): Buffer {
  const fields = Buffer.from(`S${severity}\0V${severity}\0C${state}\0M${text}\0\0`);
  const head = Buffer.alloc(5);
  head.write("E");
  head.writeInt32BE(fields.length + 4, 1);
  return Buffer.concat([head, fields]);
}

/** What the server says when it expects a query. */
export const READY = Buffer.from("Z\0\0\0\x05I", "latin1");

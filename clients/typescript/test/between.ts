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
  return {
    connectionString: `postgresql://postgres@127.0.0.1:${port}/${database.name}`,
    close() {
      for (const socket of sockets) socket.destroy();
      listener.close();
    },
  };
}

/** Leads on to the server. `pass` may hold back what the client says. */
export function pipe(
  socket: net.Socket,
  pass: (data: Buffer) => Promise<void> | undefined = () => undefined,
): void {
  const { PGHOST, PGPORT = "5432" } = process.env;
  const upstream = net.connect(`${PGHOST}/.s.PGSQL.${PGPORT}`).on("error", () => {});
  let last = Promise.resolve();
  socket.on("data", (data) => {
    last = last.then(() => pass(data)).then(() => void upstream.write(data));
  });
  upstream.pipe(socket);
  socket.on("close", () => upstream.destroy());
  upstream.on("close", () => socket.destroy());
}

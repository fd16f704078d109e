// What pg does not do for a connection, or does not declare.
import { connect } from "node:net";
import type { Client } from "pg";
import { forTimer } from "./encode.js";
import { NO_ANSWER } from "./failures.js";

const CANCEL_REQUEST = 80877102;
/** How long the server may take to close a connection. */
const CLOSING = 1000;

/** `ref` and `unref` are documented by pg, and not declared; nor are the rest. */
type Declared = Client & {
  ref(): void;
  unref(): void;
  connection: { stream: { bytesRead: number; destroy(): void } };
  processID: number;
  secretKey: number | Buffer;
};

/** Whether the process waits for this connection. */
export function keepAlive(client: Client, alive: boolean): void {
  if (alive) (client as Declared).ref();
  else (client as Declared).unref();
}

/**
 * An answer, if it comes in time. The `query_timeout` of pg would throw away one that came while a handler computed, and with it what it
 * grants: timers are looked at before sockets are. So this looks at the socket once more before it gives up.
 */
export function answered<T>(client: Client, answer: Promise<T>, timeout: number): Promise<T> {
  if (timeout === 0) return answer;
  return new Promise((resolve, reject) => {
    let timer: NodeJS.Timeout | undefined;
    let over = false;
    const { stream } = (client as Declared).connection;
    const wait = () => {
      if (over) return;
      timer = setTimeout(() => {
        const read = stream.bytesRead;
        // After that an answer is there, or a part of it, or there is none.
        setImmediate(() => (stream.bytesRead === read ? reject(new Error(NO_ANSWER)) : wait()));
      }, forTimer(timeout));
    };
    wait();
    answer.then(resolve, reject).finally(() => {
      over = true;
      clearTimeout(timer);
    });
  });
}

/** Has the server end the statement that runs. It fails with 57014 then, if the request does not get lost. */
export function cancel(client: Client): void {
  const { processID, secretKey, host, port } = client as Declared;
  // The request of the protocol, not pg_cancel_backend(): it finds its way through PgBouncer as well.
  const key = typeof secretKey === "number" ? int32(secretKey) : Buffer.from(secretKey);
  const body = Buffer.concat([int32(CANCEL_REQUEST), int32(processID), key]);
  const socket = host.startsWith("/") ? connect(`${host}/.s.PGSQL.${port}`) : connect(port, host);
  socket.on("error", () => socket.destroy());
  socket.end(Buffer.concat([int32(body.length + 4), body]));
}

/** Says goodbye. A server that does not heed it is left. */
export async function end(client: Client): Promise<void> {
  keepAlive(client, true);
  const left = setTimeout(() => destroy(client), CLOSING);
  await client.end().catch(() => {});
  clearTimeout(left);
}

/** Ends a connection at once, or the attempt to open it. */
export function destroy(client: Client): void {
  (client as Declared).connection.stream.destroy();
}

function int32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value | 0);
  return bytes;
}

// What pg does not do for a connection, or does not declare.
import type { Client } from "pg";
import { forTimer } from "./encode.js";
import { NO_ANSWER } from "./failures.js";

/** How long the server may take to close a connection. */
const CLOSING = 1000;

/** `ref` and `unref` are documented by pg, and not declared; nor are the rest. */
type Declared = Client & {
  ref(): void;
  unref(): void;
  connection: { stream: { bytesRead: number; destroy(): void } };
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

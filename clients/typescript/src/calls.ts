import { Link, type LinkOptions, repeat, type Values } from "./link.js";
import { Terms } from "./terms.js";

/** How long a connection is kept that no call waits for, in milliseconds; one of them stays. */
const LINGERING = 1000;

/** A call that waits for a connection. */
interface Turn {
  resolve(link: Link): void;
  reject(error: Error): void;
}

/**
 * The connections of what the app and its handlers say: so many and no more, for which calls queue. A call may wait for a
 * lock, and holds up no other until all are taken.
 */
export class Calls {
  readonly #options: Omit<LinkOptions, "terms">;
  readonly #most: number;
  #terms = new Terms();
  #links = new Set<Link>();
  /** The one that was used last is at the end, and used next. */
  #idle: Link[] = [];
  readonly #queue: Turn[] = [];
  #trimming: NodeJS.Timeout | undefined;

  constructor(options: Omit<LinkOptions, "terms">, most: number) {
    if (!(Number.isInteger(most) && most >= 1)) throw new RangeError("maxConnections is no positive integer");
    this.#options = options;
    this.#most = most;
  }

  /** The rows of a statement, sent once. */
  async query(text: string, values: Values): Promise<any[]> {
    const link = this.#idle.pop() ?? this.#another() ?? (await this.#turn());
    try {
      return await link.query(text, values);
    } finally {
      this.#give(link);
    }
  }

  /** The same, until it is answered. A pause takes no connection from others. */
  call(text: string, values: Values): Promise<any[]> {
    return repeat(() => this.query(text, values), this.#terms, this.#options.log);
  }

  /** Closes the connections, and fails what is under way. The next call opens another one. */
  async close(): Promise<void> {
    clearTimeout(this.#trimming);
    this.#terms.giveUpAt(0);
    this.#terms = new Terms();
    const links = [...this.#links];
    this.#links = new Set();
    this.#idle = [];
    for (const { reject } of this.#queue.splice(0)) reject(new Error("the app was closed"));
    await Promise.all(links.map((link) => link.close()));
  }

  #another(): Link | undefined {
    if (this.#links.size >= this.#most) return undefined;
    const link = new Link({ ...this.#options, terms: this.#terms });
    this.#links.add(link);
    return link;
  }

  #turn(): Promise<Link> {
    return new Promise((resolve, reject) => this.#queue.push({ resolve, reject }));
  }

  #give(link: Link): void {
    // It may have been closed.
    if (!this.#links.has(link)) return;
    const next = this.#queue.shift();
    if (next) {
      next.resolve(link);
      return;
    }
    this.#idle.push(link);
    clearTimeout(this.#trimming);
    this.#trimming = setTimeout(() => this.#trim(), LINGERING).unref();
  }

  #trim(): void {
    for (const link of this.#idle.splice(0, this.#idle.length - 1)) {
      this.#links.delete(link);
      void link.close();
    }
  }
}

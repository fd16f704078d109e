/** What a handler of batches is called with. */
type Call<T> = (tasks: T[]) => unknown;

/** Tasks that are performed by one call of their handler. Each has a lease, a return and an end of its own. */
export class Batch<T extends { readonly id: string }> {
  /** Those that have not begun: some may be lost, or go back, before they do. */
  readonly #awaited: Set<T>;
  readonly #begun: T[] = [];
  #call: Call<T> | undefined;
  #called: (results: Promise<Map<string, unknown> | undefined>) => void = () => {};
  readonly #results = new Promise<Map<string, unknown> | undefined>((resolve) => {
    this.#called = resolve;
  });

  constructor(tasks: T[]) {
    this.#awaited = new Set(tasks);
  }

  /** The result of a task. The handler is called once with all that have begun. */
  async perform(task: T, call: Call<T>): Promise<unknown> {
    this.#call = call;
    this.#begun.push(task);
    this.leave(task);
    const results = await this.#results;
    if (!results) return undefined;
    if (!results.has(task.id)) throw new Error("the batch has returned nothing for this task");
    const result = results.get(task.id);
    if (result instanceof Error) throw result;
    return result;
  }

  /** It is not waited for any more. */
  leave(task: T): void {
    if (this.#awaited.delete(task) && this.#awaited.size === 0) this.#called(this.#run());
  }

  /** By the id of the task; none at all where the handler returns nothing. */
  async #run(): Promise<Map<string, unknown> | undefined> {
    if (!this.#call) return undefined;
    const made = await this.#call(this.#begun);
    if (made === undefined || made === null) return undefined;
    if (made instanceof Map) return made;
    if (!Array.isArray(made)) return new Map(Object.entries(made));
    if (made.length !== this.#begun.length)
      throw new TypeError(`a batch of ${this.#begun.length} returns so many results, or an object of them by id`);
    return new Map(this.#begun.map(({ id }, n) => [id, made[n]]));
  }
}

/** The names of one run of a workflow: what is saved under each is found by the next run. */
export class Names {
  readonly #used = new Map<string, number>();
  readonly #saved = new Set<string>();

  /** The name under which a step is saved. */
  of(name: string, { unique = true }: { unique?: boolean }): string {
    if (name === "") throw new TypeError("a step needs a name");
    const count = (this.#used.get(name) ?? 0) + 1;
    this.#used.set(name, count);
    return this.take(count === 1 || unique ? name : `${name}#${count}`);
  }

  /** What one step has saved must not be read by another. */
  take(step: string): string {
    if (this.#saved.has(step))
      throw new Error(`step "${step}" is used twice in this run: give it another name, or { unique: false }`);
    this.#saved.add(step);
    return step;
  }
}

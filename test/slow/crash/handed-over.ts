/**
 * Values that a POS submitted for one target, and the highest accepted one. Values only rise, so of two values the
 * higher one is newer.
 */
interface Word {
  accepted: number;
  submitted: Set<number>;
}

/** Records everything that a POS submitted, of which nothing may be lost, doubled or overtaken. */
export class SubmittedChange {
  readonly #words = new Map<string, Word>();
  readonly acks = new Set<string>();
  #next = 1;
  submitted = 0;
  accepted = 0;

  /** Records and returns a new value for a target, above `from` and higher than the target's earlier values. */
  submit(target: string, from = 0): number {
    const value = from + this.#next++;
    const word = this.#words.get(target) ?? { accepted: 0, submitted: new Set() };
    word.submitted.add(value);
    this.#words.set(target, word);
    this.submitted += 1;
    return value;
  }

  /**
   * Records that a value was accepted. It must not be lost from now on, because the POS was informed that it is stored.
   */
  accept(target: string, value: number): void {
    const word = this.#words.get(target);
    if (!word?.submitted.has(value)) throw new Error(`${target} was never set to ${value}`);
    word.accepted = Math.max(word.accepted, value);
    this.accepted += 1;
  }

  /** Records that a value was certainly not accepted. */
  withdraw(target: string, value: number): void {
    if (this.#words.get(target)?.submitted.delete(value)) this.submitted -= 1;
  }

  /** Returns a sentence for each target for which `found` has neither the last accepted value nor a later one. */
  missing(found: ReadonlyMap<string, number>): string[] {
    return [...this.#words].flatMap(([target, { accepted }]) =>
      accepted > 0 && (found.get(target) ?? 0) < accepted
        ? [`${target} was accepted as ${accepted} and is ${found.get(target) ?? 'nowhere'}`]
        : [],
    );
  }

  /**
   * Returns the faults of the final state: targets below their accepted value, or with a value that was never
   * submitted.
   */
  unlike(found: (target: string) => number | undefined): string[] {
    return [...this.#words].flatMap(([target, { accepted, submitted }]) => {
      const value = found(target) ?? 0;
      if (accepted === 0 || (value >= accepted && submitted.has(value))) return [];
      return [`${target} was accepted as ${accepted} and ended at the platform as ${value}`];
    });
  }
}

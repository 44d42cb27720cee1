/** What a POS said of one target, and what it was told. Values only rise, so that any two of them have an order. */
interface Word {
  accepted: number;
  submitted: Set<number>;
}

/** All that a POS handed over: the measure of what must not be lost, doubled or overtaken. */
export class HandedOver {
  readonly #words = new Map<string, Word>();
  readonly acks = new Set<string>();
  #next = 1;
  submitted = 0;
  accepted = 0;

  /** A new value for a target, higher than all before; above `from`. */
  submit(target: string, from = 0): number {
    const value = from + this.#next++;
    const word = this.#words.get(target) ?? { accepted: 0, submitted: new Set() };
    word.submitted.add(value);
    this.#words.set(target, word);
    this.submitted += 1;
    return value;
  }

  /** From here on it must not be lost: the POS was told that it is kept. */
  accept(target: string, value: number): void {
    const word = this.#words.get(target);
    if (!word?.submitted.has(value)) throw new Error(`${target} was never set to ${value}`);
    word.accepted = Math.max(word.accepted, value);
    this.accepted += 1;
  }

  /** It certainly was not taken. */
  withdraw(target: string, value: number): void {
    if (this.#words.get(target)?.submitted.delete(value)) this.submitted -= 1;
  }

  /** A sentence for each target of which the last accepted value is in none of `found`, nor a later one. */
  missing(found: ReadonlyMap<string, number>): string[] {
    return [...this.#words].flatMap(([target, { accepted }]) =>
      accepted > 0 && (found.get(target) ?? 0) < accepted
        ? [`${target} was accepted as ${accepted} and is ${found.get(target) ?? 'nowhere'}`]
        : [],
    );
  }

  /** The same for where all must end: a value that was never handed over is wrong there, too. */
  unlike(found: (target: string) => number | undefined): string[] {
    return [...this.#words].flatMap(([target, { accepted, submitted }]) => {
      const value = found(target) ?? 0;
      if (accepted === 0 || (value >= accepted && submitted.has(value))) return [];
      return [`${target} was accepted as ${accepted} and ended at the platform as ${value}`];
    });
  }
}

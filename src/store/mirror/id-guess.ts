/**
 * Guesses a record's order id from its text, without parsing it, by where the id stood in an earlier record. A
 * guess only saves work: it is used to find a digest of the same bytes, and a wrong one finds none.
 */
export class IdGuess {
  #quotedName = '';
  #occurrence = 0;
  #reach = 0;

  /** How much of a record's text has to be seen for a guess. */
  get reach(): number {
    return this.#reach;
  }

  /** Remembers the first name in `text` that is followed by this id. */
  learn(text: string, orderId: string): void {
    for (const id of [`"${orderId}"`, orderId]) {
      const at = text.indexOf(id);
      if (at === -1) continue;
      const name = /("[^"\\]{1,64}")\s*:\s*$/.exec(text.slice(Math.max(0, at - 80), at))?.[1];
      if (name === undefined) continue;
      this.#quotedName = name;
      this.#occurrence = 0;
      this.#reach = Math.max(this.#reach, at + id.length + SLACK);
      for (let seen = text.indexOf(name); seen !== -1 && seen < at; seen = text.indexOf(name, seen + 1)) {
        this.#occurrence++;
      }
      return;
    }
  }

  guess(text: string): string | undefined {
    const name = this.#quotedName;
    if (name === '') return undefined;
    let at = -1;
    for (let i = 0; i < this.#occurrence; i++) {
      at = text.indexOf(name, at + 1);
      if (at === -1) return undefined;
    }
    VALUE.lastIndex = at + name.length;
    const match = VALUE.exec(text);
    return match?.[1] ?? match?.[2];
  }
}

/** Ids and what stands before them differ in length from record to record. */
const SLACK = 128;

const VALUE = /\s*:\s*(?:"([^"\\]{1,512})"|(\d{1,40}))/y;

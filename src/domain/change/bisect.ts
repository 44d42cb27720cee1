/** Alone refused, one after the other, before the search takes it that the platform refuses everything. */
const HOPELESS_AFTER = 3;

/**
 * Finds the bad items of a call that was refused whole by sending its halves, in the order of the items. Ask for
 * `next`, send it, say whether it was accepted, until `next` is undefined.
 */
export class Bisection<T> {
  /** Items that were refused alone, with the platform's message. */
  readonly refused: { item: T; message: string }[] = [];
  #groups: T[][];
  #accepted = false;

  /** `items` were refused together. */
  constructor(items: readonly T[], message: string) {
    this.#groups = [[...items]];
    this.groupRefused(message);
  }

  /** The group to send next; undefined when every item is accepted or refused alone. */
  get next(): readonly T[] | undefined {
    return this.#groups[0];
  }

  /**
   * Whether the first items were each refused alone and nothing was accepted: then it is not the items, and
   * the search is better given up than run to its end.
   */
  get isHopeless(): boolean {
    return !this.#accepted && this.refused.length >= HOPELESS_AFTER;
  }

  /** Items that were neither accepted nor refused alone. */
  get open(): T[] {
    return this.#groups.flat();
  }

  groupAccepted(): void {
    this.#accepted = true;
    this.#groups.shift();
  }

  groupRefused(message: string): void {
    const group = this.#groups.shift();
    if (!group) return;
    const [item] = group;
    if (group.length === 1 && item !== undefined) {
      this.refused.push({ item, message });
      return;
    }
    const middle = Math.ceil(group.length / 2);
    this.#groups.unshift(group.slice(0, middle), group.slice(middle));
  }
}

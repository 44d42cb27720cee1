/** Addresses of a branch's hub, which are tried in turn. */
export class Ways {
  readonly #urls: readonly string[];
  /** Address that worked last. */
  #worked: string | undefined;
  /** Address whose server answered while no hub did. */
  #givenUp: string | undefined;

  constructor(urls: readonly string[]) {
    this.#urls = urls;
  }

  /** Returns the addresses in the order of trying: first the one that worked last, last the one that was given up. */
  list(): string[] {
    const rank = (url: string) => (url === this.#givenUp ? 2 : url === this.#worked ? 0 : 1);
    return this.#urls.toSorted((a, b) => rank(a) - rank(b));
  }

  noteWorked(url: string): void {
    this.#worked = url;
  }

  /** Gives up the address that worked last. Returns false if there is no other one. */
  giveUp(): boolean {
    if (this.#urls.length < 2 || this.#worked === undefined) return false;
    this.#givenUp = this.#worked;
    return true;
  }
}

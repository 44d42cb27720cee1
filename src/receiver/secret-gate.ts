import { hash, timingSafeEqual } from 'node:crypto';

export interface SecretGateOptions {
  /** Every secret valid now: one, or two and more during a rotation; empty when none is configured. */
  secrets: () => readonly string[];
  /**
   * Admits everything while no secret is configured. The platform sends `x-webhook-secret` only when one is
   * set, so a company may run without; but then anyone who finds the address can write orders into the mirror,
   * and a credential that failed to load would open the door unnoticed. So it takes an explicit word.
   */
  allowUnsigned: boolean;
}

/**
 * Tells whether a callback carries the agreed secret (document, "Webhook origin validation"). Digests of equal
 * length are compared, always all of them, so that the time taken says nothing of a secret or of which one fit.
 */
export class SecretGate {
  readonly #options: SecretGateOptions;
  #known: readonly string[] = [];
  #digests: readonly Buffer[] = [];

  constructor(options: SecretGateOptions) {
    this.#options = options;
  }

  /**
   * `header` as Node hands it over: one character per byte; a header that came twice is joined by `, ` and
   * fits no secret. Throws what `secrets()` throws.
   */
  admits(header: string | string[] | undefined): boolean {
    const secrets = this.#options.secrets();
    if (secrets.length === 0) return this.#options.allowUnsigned;
    this.#remember(secrets);
    const single = typeof header === 'string' ? header : '';
    const offered = hash('sha256', Buffer.from(single, 'latin1'), 'buffer');
    let fits = false;
    for (const digest of this.#digests) fits = timingSafeEqual(offered, digest) || fits;
    return fits && single !== '';
  }

  #remember(secrets: readonly string[]): void {
    if (secrets.length === this.#known.length && secrets.every((secret, i) => secret === this.#known[i]))
      return;
    this.#known = [...secrets];
    this.#digests = secrets.map((secret) => hash('sha256', Buffer.from(secret, 'utf8'), 'buffer'));
  }
}

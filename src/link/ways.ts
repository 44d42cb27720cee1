import { createHash, X509Certificate } from 'node:crypto';
import { getCACertificates } from 'node:tls';
import * as z from 'zod';
import { isNatsUrl, isSecure, KNOWN_AUTHORITIES, WAYS_MAX } from '../core/values.ts';

/**
 * Addresses at which a branch reaches its hub: the configured ones, the ones in the hub's last announcement,
 * and the one that last worked, which no announcement can remove.
 */

const PEM_LENGTH_MAX = 20_000;

const texts = z.array(z.string());

/** A hub's announcement of its addresses, in the order of trying. */
const ANNOUNCEMENT = z.object({ addresses: texts, authorities: texts });
export type Announcement = z.infer<typeof ANNOUNCEMENT>;

/**
 * An address of the hub with the certificate authorities to trust there, each a PEM text or `KNOWN_AUTHORITIES`. The
 * authorities are unused without TLS.
 */
const way = z.object({ url: z.string(), authorities: texts });
export type Way = z.infer<typeof way>;

/** Addresses of the hub in a branch's state.db: those last announced and accepted, and the one that last worked. */
export const KEPT_WAYS = z.object({ announced: ANNOUNCEMENT.nullable(), worked: way.nullable() });
export type KeptWays = z.infer<typeof KEPT_WAYS>;

/**
 * Returns only the certificates of a PEM text, because a file may also have a private key. Returns null if there are
 * none, if one cannot be read, or if the text is too long.
 */
export function certificatesIn(text: string): string | null {
  if (text.length > PEM_LENGTH_MAX) return null;
  const found = text.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  try {
    const areRead = found.every((pem) => new X509Certificate(pem).subject !== '');
    return found.length > 0 && areRead ? `${found.join('\n')}\n` : null;
  } catch {
    return null;
  }
}

/** Returns all authorities as one PEM text, or null if only the machine's own authorities are trusted. */
export function authoritiesText(authorities: readonly string[]): string | null {
  const own = authorities.filter((each) => each !== KNOWN_AUTHORITIES);
  if (own.length === 0) return null;
  return [...own, ...(own.length < authorities.length ? getCACertificates() : [])].join('\n');
}

/** Returns a digest by which hub and branch recognise an announcement. */
export function stampOf({ addresses, authorities }: Announcement): string {
  return createHash('sha256')
    .update(JSON.stringify([addresses, authorities]))
    .digest('hex')
    .slice(0, 16);
}

/**
 * Returns a sentence with the reason why a branch refuses an announcement, or undefined if it accepts the
 * announcement. `isSecret` is true if the present connection uses TLS.
 */
function announcementFault({ addresses, authorities }: Announcement, isSecret: boolean): string | undefined {
  for (const [list, what] of [
    [addresses, 'addresses'],
    [authorities, 'authorities'],
  ] as const) {
    if (list.length > WAYS_MAX) {
      return `The hub announces ${list.length} ${what}; ${WAYS_MAX} are the most.`;
    }
  }
  const odd = addresses.find((address) => !isNatsUrl(address));
  if (odd !== undefined) {
    return `The hub announces ${JSON.stringify(odd.slice(0, 100))}, which is no address of a nats-server.`;
  }
  const clear = addresses.find((address) => isSecret && !isSecure(address));
  if (clear !== undefined) return `The hub announces ${clear}, in clear text, to a branch that speaks TLS.`;
  const unread = authorities.findIndex(
    (authority) => authority !== KNOWN_AUTHORITIES && certificatesIn(authority) === null,
  );
  return unread === -1
    ? undefined
    : `Of the authorities that the hub announces, number ${unread + 1} cannot be read as a certificate.`;
}

const unique = <T>(values: readonly T[]) => [...new Set(values)];

/** The hub's addresses in the section `[link]` of the configuration. */
export interface ConfiguredWays {
  urls: readonly string[];
  authorities: readonly string[];
}

/**
 * Returns the hub's addresses in the order of trying. Announced certificate authorities are trusted beside the
 * configured ones. If the address that last worked used authorities that are no longer trusted, that address is added
 * at the end once more, with its old authorities.
 */
export function waysOf({ urls, authorities }: ConfiguredWays, { announced, worked }: KeptWays): Way[] {
  const trusted = unique([...authorities, ...(announced?.authorities ?? [])]);
  const all = unique([...(worked ? [worked.url] : []), ...(announced?.addresses ?? []), ...urls]);
  const ways = all.map((url) => ({ url, authorities: trusted }));
  if (!worked?.authorities.some((each) => !trusted.includes(each))) return ways;
  return [...ways, worked];
}

/** Stores the addresses that `waysOf` reads. */
export interface WaysStore {
  read(): KeptWays;
  keep(ways: KeptWays): void;
}

/** Manages the addresses of a branch's hub. */
export class BranchWays {
  readonly #configured: ConfiguredWays;
  readonly #store: WaysStore;
  #refused: string | null = null;

  constructor(configured: ConfiguredWays, store: WaysStore) {
    this.#configured = configured;
    this.#store = store;
  }

  list(): Way[] {
    return waysOf(this.#configured, this.#store.read());
  }

  /**
   * Records that the hub answered at address `used` and announced `given`, which is null from an older hub.
   * Returns the reason if the announcement is refused, else null.
   */
  heard(used: Way, given: unknown): string | null {
    const kept = this.#store.read();
    const read = ANNOUNCEMENT.nullable().safeParse(given ?? null);
    const announced = read.data ?? null;
    this.#refused = read.success
      ? ((announced && announcementFault(announced, isSecure(used.url))) ?? null)
      : 'What the hub announces of its addresses cannot be read.';
    const next = {
      announced: announced !== null && this.#refused === null ? announced : kept.announced,
      worked: used,
    };
    if (JSON.stringify(next) !== JSON.stringify(kept)) this.#store.keep(next);
    return this.#refused;
  }

  /**
   * Returns the stamp of the announcement that the branch uses, and why it refused the last one. The hub lists branches
   * without its present announcement, because they would not find the hub after a move.
   */
  told(): { stamp: string | null; refused: string | null } {
    const { announced } = this.#store.read();
    return { stamp: announced && stampOf(announced), refused: this.#refused };
  }
}

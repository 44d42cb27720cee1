/** The token pair as state.db keeps it. Never logged, never part of an error. */
export interface TokenPair {
  refreshToken: string;
  accessToken: string | null;
  /** Rises with each stored pair; the fencing number of saves. */
  generation: number;
  /** Wall clock, when this pair was stored. */
  savedAtMs: number;
  /** Wall clock of the platform at which the access token ends; null: unknown. */
  accessExpiresAtMs: number | null;
  accessIssuedAtMs: number | null;
  refreshExpiresAtMs: number | null;
  /** Platform's wall clock minus ours when last seen. */
  clockSkewMs: number;
  /** Why no refresh is tried any more; null while all is well. */
  lockedOut: LockOut | null;
}

export interface LockOut {
  atMs: number;
  /**
   * - `refused`: the platform refused the refresh token
   * - `reply-lost`: a refresh was sent earlier and its answer never saved, then the platform refused
   */
  cause: 'refused' | 'reply-lost';
}

/** Where the pair lives. Each method is one short durable transaction and may throw `storage-busy`. */
export interface TokenStore {
  read(): TokenPair | null;
  /** Notes durably that the token of `generation` is about to be used up. Also proves that the disk takes writes. */
  writeIntent(generation: number): void;
  /** The intent left behind by a refresh that never came to its end; null when there is none. */
  readIntent(): { generation: number; startedAtMs: number } | null;
  /** Drops the intent of `generation`: its request never left, so the token is unused. */
  clearIntent(generation: number): void;
  /** Whether a person handed in this refresh token before; only a fingerprint of it is kept. */
  wasHandedIn(refreshToken: string): boolean;
  /**
   * Stores a new pair if the store still holds `expectedGeneration` (0: nothing; null: whatever it holds, a
   * person's word), drops the intent and ends a lock-out. False: another process was first, nothing is changed.
   * `offered`: the refresh token that a person handed in and that was exchanged for this pair.
   */
  save(pair: NewTokenPair, expectedGeneration: number | null, offered?: string): boolean;
  /** Id of the company whose tokens were taken here first; null: no token has told. */
  company(): string | null;
  setCompany(companyId: string): void;
  markLockedOut(generation: number, lockOut: LockOut): void;
  /** Takes the refresh lease; undefined while another process has it. */
  acquireLease(holdMs: number): number | undefined;
  releaseLease(fence: number): void;
}

export type NewTokenPair = Omit<TokenPair, 'generation' | 'savedAtMs' | 'lockedOut'>;

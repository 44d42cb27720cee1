/** What state.db remembers of the webhook: secrets that were rotated here, and what was last registered. */
export interface WebhookMemory {
  /** The secret sent to the platform by the last finished rotation; null: none was rotated here. */
  current: string | null;
  /** The one before it, valid until `previousUntilMs` (wall clock). */
  previous: string | null;
  previousUntilMs: number | null;
  /** Generated and accepted, but not yet confirmed by the platform. */
  pending: string | null;
  /** One that was pending before it: its confirmation may have been lost, so the platform may use it. */
  doubtful: string | null;
  /** SHA-256 of the handed-in secret at the last rotation; a different one handed in later wins again. */
  handedInDigest: string | null;
  /** What PUT /webhook last confirmed. */
  registered: { callbackUrl: string; secretDigest: string | null } | null;
}

export const NO_WEBHOOK_MEMORY: WebhookMemory = {
  current: null,
  previous: null,
  previousUntilMs: null,
  pending: null,
  doubtful: null,
  handedInDigest: null,
  registered: null,
};

/** Where it lives (state.db, mode 0600). Both may throw `storage-busy`. */
export interface WebhookMemoryStore {
  read(): WebhookMemory;
  /** Reads, changes and writes in one durable transaction. */
  update(change: (memory: WebhookMemory) => WebhookMemory): void;
}

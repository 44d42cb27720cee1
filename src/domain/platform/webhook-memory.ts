/** What state.db remembers of the webhook: secrets that were rotated here, and what was last registered. */
export interface WebhookMemory {
  /** The secret sent to the platform by the last finished rotation; null: none was rotated here. */
  current: string | null;
  /** The one before it, valid until `previousUntilMs` (wall clock). */
  previous: string | null;
  previousUntilMs: number | null;
  /** Generated and accepted, none confirmed by the platform, oldest first: it may have taken any of them. */
  pending: readonly string[];
  /** SHA-256 of the handed-in secret at the last rotation; a different one handed in later wins again. */
  handedInDigest: string | null;
  /** What PUT /webhook last confirmed; null: nothing, or a rotation since whose answer did not come. */
  registered: { callbackUrl: string; secretDigest: string | null } | null;
}

export const NO_WEBHOOK_MEMORY: WebhookMemory = {
  current: null,
  previous: null,
  previousUntilMs: null,
  pending: [],
  handedInDigest: null,
  registered: null,
};

/** What was stored, also by an earlier version, which kept the two newest pending secrets as two fields. */
export function asWebhookMemory({ pending, doubtful, ...stored }: Record<string, unknown>): WebhookMemory {
  const inDoubt = Array.isArray(pending) ? pending : [doubtful, pending].filter((each) => each != null);
  return { ...NO_WEBHOOK_MEMORY, ...stored, pending: inDoubt };
}

/** Where it lives (state.db, mode 0600). Both may throw `storage-busy`. */
export interface WebhookMemoryStore {
  read(): WebhookMemory;
  /** Reads, changes and writes in one durable transaction. */
  update(change: (memory: WebhookMemory) => WebhookMemory): void;
}

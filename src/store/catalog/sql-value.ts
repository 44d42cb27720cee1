/** What a column of the catalogue holds. */
export type SqlValue = string | number | bigint | null;

/** A value as it was sent: whole numbers as integers, which a reader would else see as `1500.0`. */
export function asSent(value: string | number | boolean | null): SqlValue {
  if (typeof value === 'boolean') return value ? 1n : 0n;
  return typeof value === 'number' && Number.isSafeInteger(value) ? BigInt(value) : value;
}

export function asBit(value: boolean | null): number | null {
  return value === null ? null : Number(value);
}

export function fromBit(value: number | null): boolean | null {
  return value === null ? null : value !== 0;
}

/** Whether a stored value is what a new one would be stored as. */
export function isStored(stored: string | number | null, value: string | number | boolean | null): boolean {
  return stored === (typeof value === 'boolean' ? Number(value) : value);
}

/** A value as JSON text; undefined for one that has none, and for one that is nested deeper than the stack. */
export function jsonText(value: unknown): string | undefined {
  try {
    return JSON.stringify(value);
  } catch {
    return undefined;
  }
}

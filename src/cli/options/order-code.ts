/** The order number that a person typed, such as `1005` or `#1005`; undefined: it is none. */
export function orderCode(word: string): number | undefined {
  const digits = /^#?(\d{1,15})$/.exec(word.trim())?.[1];
  return digits === undefined ? undefined : Number(digits);
}

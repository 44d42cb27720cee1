/** The platform's wall clock by its Date header, which has whole seconds; undefined without a readable one. */
export function serverDateMs(headers: Record<string, string>): number | undefined {
  const ms = Date.parse(headers.date ?? '');
  return Number.isNaN(ms) ? undefined : ms;
}

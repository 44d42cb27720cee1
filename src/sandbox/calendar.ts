const formats = new Map<string, Intl.DateTimeFormat>();

/** The calendar date of a moment in a zone, YYYY-MM-DD. Keeps its formatters: building one takes long. */
export function localDate(timeZone: string, epochMs: number): string {
  let format = formats.get(timeZone);
  if (!format) {
    format = new Intl.DateTimeFormat('sv-SE', { timeZone, dateStyle: 'short' });
    formats.set(timeZone, format);
  }
  return format.format(epochMs);
}

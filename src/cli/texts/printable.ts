/**
 * What steers a terminal or hides text on it: controls (C0, C1), line separators, marks of direction, characters
 * without width and tag characters.
 */
const UNSEEN =
  /[\p{Cc}\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

/** Text from outside in one line, as a terminal may show it: what could steer or deceive is made visible. */
export function printable(text: string): string {
  return text.replace(UNSEEN, (char) => (/[\n\r\t]/.test(char) ? ' ' : escaped(char)));
}

/** The same with its lines kept. */
export function printableLines(text: string): string {
  return text.replace(UNSEEN, (char) => (/[\n\t]/.test(char) ? char : escaped(char)));
}

/** JSON text that says the same and shows all of it: what a terminal would obey is escaped. */
export function printableJson(json: string): string {
  return json.replace(UNSEEN, (char) => (/[\n\r\t]/.test(char) ? char : units(char)));
}

function escaped(char: string): string {
  const hex = (char.codePointAt(0) ?? 0).toString(16);
  return hex.length > 4 ? `\\u{${hex}}` : `\\u${hex.padStart(4, '0')}`;
}

function units(char: string): string {
  return [...Array(char.length).keys()]
    .map((at) => `\\u${char.charCodeAt(at).toString(16).padStart(4, '0')}`)
    .join('');
}

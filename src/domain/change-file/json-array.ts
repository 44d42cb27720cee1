import { parseExactJson } from './exact-json.ts';
import { badText, cut, type ItemParser, type RawItem } from './raw-item.ts';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

/**
 * A JSON array, cut into its elements by counting brackets outside of texts, so that each is parsed by itself: a
 * bad one spoils no other, and a huge array is never held whole.
 */
export class JsonArray implements ItemParser {
  #text = '';
  /** Where the scan goes on in `#text`, and where the element under way began. */
  #at = 0;
  #start = 0;
  #depth = 0;
  #inText = false;
  #index = 0;
  #state: 'before' | 'within' | 'after' | 'over' = 'before';

  push(text: string): RawItem[] {
    if (this.#state === 'over') return [];
    this.#text = this.#text.slice(this.#start) + text;
    this.#at -= this.#start;
    this.#start = 0;
    const items: RawItem[] = [];
    if (this.#state === 'before') this.#open();
    if (this.#state === 'within') this.#scan(items);
    if (this.#state === 'after') this.#trailing(items);
    return items;
  }

  end(): RawItem[] {
    if (this.#state === 'after' || this.#state === 'over') return [];
    return [this.#place(cut('The array has no end: the file is cut off here.'))];
  }

  #open(): void {
    const start = this.#text.search(/\S/);
    if (start === -1) return;
    // The format was chosen by this bracket, or by a person.
    this.#state = 'within';
    this.#at = this.#start = this.#text[start] === '[' ? start + 1 : start;
  }

  #scan(items: RawItem[]): void {
    const text = this.#text;
    let at = this.#at;
    for (; at < text.length; at++) {
      const code = text.charCodeAt(at);
      if (this.#inText) {
        if (code === BACKSLASH) at += 1;
        else if (code === QUOTE) this.#inText = false;
      } else if (code === QUOTE) {
        this.#inText = true;
      } else if (code === OPEN_OBJECT || code === OPEN_ARRAY) {
        this.#depth += 1;
      } else if (this.#depth > 0) {
        if (code === CLOSE_OBJECT || code === CLOSE_ARRAY) this.#depth -= 1;
      } else if (code === COMMA || code === CLOSE_ARRAY) {
        this.#element(text.slice(this.#start, at), code === CLOSE_ARRAY, items);
        this.#start = at + 1;
        if (code === CLOSE_ARRAY) {
          this.#state = 'after';
          break;
        }
      }
    }
    this.#at = this.#state === 'after' ? this.#start : at;
  }

  #element(text: string, isLast: boolean, items: RawItem[]): void {
    if (isLast && this.#index === 0 && text.trim() === '') return;
    items.push(this.#place(parseExactJson(text)));
  }

  #trailing(items: RawItem[]): void {
    if (this.#text.slice(this.#start).trim() !== '') {
      // Told once, however much comes.
      this.#state = 'over';
      items.push(this.#place(badText('Something follows the end of the array; it was not read.')));
    }
    this.#start = this.#at = this.#text.length;
  }

  #place<T extends object>(content: T): T & { index: number; line: null } {
    return { index: this.#index++, line: null, ...content };
  }
}

import { parseExactJson } from './exact-json.ts';
import { cut, type ItemParser, type RawItem } from './raw-item.ts';

/** NDJSON: one JSON value on each line; empty lines are passed over. */
export class JsonLines implements ItemParser {
  #rest = '';
  #line = 0;
  #index = 0;

  push(text: string): RawItem[] {
    const lines = (this.#rest + text).split('\n');
    this.#rest = lines.pop() ?? '';
    return lines.flatMap((line) => this.#item(line));
  }

  end(): RawItem[] {
    const [last] = this.#item(this.#rest);
    this.#rest = '';
    if (!last) return [];
    // Lines end with a line break; one that is also no JSON was cut off.
    return ['fault' in last ? { ...last, ...cut('The file ends in the middle of this line.') } : last];
  }

  #item(line: string): RawItem[] {
    this.#line += 1;
    return line.trim() === '' ? [] : [{ index: this.#index++, line: this.#line, ...parseExactJson(line) }];
  }
}

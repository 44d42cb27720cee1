import { createInterface, type Interface } from 'node:readline';
import { Writable } from 'node:stream';
import { TillsyncError } from '../../core/errors.ts';
import { broken, type Cli, printable } from '../cli.ts';

/** One question to a person. */
export interface Question {
  label: string;
  /** What it means, in a sentence or two. */
  meaning?: string;
  /** What Enter keeps; empty or missing: Enter gives nothing. */
  kept?: string;
}

/** JSON that is pasted in several lines is taken together, up to so many. */
const PASTED_LINES_MAX = 40;

/**
 * Asks a person at a terminal. The terminal shows what is typed only while a plain question waits, so neither a
 * secret nor what is pasted behind it can be seen. After Ctrl-C or the end of input every question throws `aborted`.
 */
export class Terminal {
  readonly #cli: Pick<Cli, 'stderr'>;
  readonly #lines: Interface;
  readonly #ended = new AbortController();
  #isShown = false;
  #waiting: PromiseWithResolvers<string> | undefined;
  /** Lines of a pasted text that is not whole yet. */
  #pasted: string[] = [];

  constructor(cli: Pick<Cli, 'stdin' | 'stderr' | 'signal'>) {
    this.#cli = cli;
    const screen = new Writable({
      write: (chunk, _encoding, done) => {
        if (this.#isShown) cli.stderr.write(String(chunk));
        done();
      },
    });
    this.#lines = createInterface({
      // A terminal's standard input is a stream with events.
      input: cli.stdin as unknown as NodeJS.ReadableStream,
      output: Object.assign(screen, { columns: cli.stderr.columns ?? 80 }),
      terminal: true,
      historySize: 0,
    });
    this.#lines.on('line', (line) => {
      if (!this.#isShown) {
        this.#pasted.push(line.trim());
        if (isCutJson(this.#pasted.join('')) && this.#pasted.length < PASTED_LINES_MAX) return;
      }
      this.#waiting?.resolve(this.#isShown ? line : this.#pasted.join(''));
      this.#isShown = false;
    });
    this.#lines.on('SIGINT', () => this.#end());
    this.#lines.on('close', () => this.#end());
    cli.signal.addEventListener('abort', () => this.#end(), { once: true });
  }

  /** Aborts once the person wants to stop. */
  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  say(text: string): void {
    // A terminal without a size says 0.
    const columns = this.#cli.stderr.columns || Number.POSITIVE_INFINITY;
    const lines = text.split('\n').flatMap((line) => broken(printable(line), columns - 1));
    this.#cli.stderr.write(`${lines.join('\n')}\n`);
  }

  /** The answer without blanks around it; the kept one for Enter; `-` for none. */
  async ask({ kept = '', ...question }: Question): Promise<string> {
    this.#put(question);
    const line = (await this.#line(kept === '' ? '> ' : `[${printable(kept)}] > `, true)).trim();
    if (line === '-') return '';
    return line === '' ? kept : line;
  }

  async yes(label: string, otherwise: boolean): Promise<boolean> {
    for (;;) {
      const line = await this.#line(`\n${label} [${otherwise ? 'Y/n' : 'y/N'}] > `, true);
      const word = line.trim().toLowerCase();
      if (word === '') return otherwise;
      if (['y', 'yes', 's', 'si', 'sí'].includes(word)) return true;
      if (['n', 'no'].includes(word)) return false;
      this.say('Please answer y or n.');
    }
  }

  /** What was typed or pasted, never shown. JSON in several lines is read to its end. */
  async secret(question: Question): Promise<string> {
    this.#put(question);
    const text = await this.#line('(not shown) > ', false);
    this.#cli.stderr.write('\n');
    return text;
  }

  #put({ label, meaning }: Question): void {
    this.say(`\n${label}`);
    if (meaning !== undefined) this.say(meaning.replace(/^/gm, '  '));
  }

  close(): void {
    this.#lines.close();
  }

  async #line(prompt: string, isShown: boolean): Promise<string> {
    if (this.#ended.signal.aborted) throw stopped();
    // What was typed before the question was put is no answer to it.
    for (const name of ['e', 'u']) this.#lines.write(null, { ctrl: true, name });
    this.#waiting = Promise.withResolvers();
    this.#pasted = [];
    const [, before = '', last = ''] = /^(\n*)([\s\S]*)$/.exec(prompt) ?? [];
    this.#cli.stderr.write(before);
    this.#isShown = isShown;
    if (isShown) {
      this.#lines.setPrompt(last);
      this.#lines.prompt();
    } else {
      this.#cli.stderr.write(last);
    }
    return this.#waiting.promise;
  }

  #end(): void {
    if (this.#ended.signal.aborted) return;
    this.#isShown = false;
    this.#ended.abort();
    this.#lines.close();
    this.#cli.stderr.write('\n');
    this.#waiting?.reject(stopped());
  }
}

/** Asks for one secret and nothing else. A line that the terminal edits itself would end after 4,095 characters. */
export async function askSecret(
  cli: Pick<Cli, 'stdin' | 'stderr' | 'signal'>,
  label: string,
): Promise<string> {
  const terminal = new Terminal(cli);
  try {
    return await terminal.secret({ label });
  } finally {
    terminal.close();
  }
}

function isCutJson(text: string): boolean {
  if (!text.startsWith('{')) return false;
  try {
    JSON.parse(text);
    return false;
  } catch {
    return true;
  }
}

/** The person has enough. */
export function stopped(): TillsyncError {
  return new TillsyncError('aborted', 'Stopped before the end.');
}

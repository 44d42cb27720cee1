import { createInterface, type Interface } from 'node:readline';
import { Writable } from 'node:stream';
import { TillsyncError } from '../../core/errors.ts';
import { broken, type Cli, printable } from '../cli.ts';

/** A question to a person. */
interface Question {
  label: string;
  /** A sentence or two that explain the question. */
  meaning?: string;
  /** Present value, which Enter keeps. If it is empty or left out, Enter gives an empty answer. */
  kept?: string;
}

/** Maximum number of pasted lines that are joined into one JSON answer. */
const PASTED_LINES_MAX = 40;

/**
 * Asks a person at a terminal. Typed text is shown only during a question that is not for a secret, so that neither a
 * secret nor text pasted after it is visible. After Ctrl-C or the end of input, every question throws `aborted`.
 */
export class Terminal {
  readonly #cli: Pick<Cli, 'stderr'>;
  readonly #lines: Interface;
  readonly #ended = new AbortController();
  #isShown = false;
  #waiting: PromiseWithResolvers<string> | undefined;
  /** Lines of pasted text that is not complete yet. */
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
      // The cast is safe, because the standard input of a terminal is a ReadableStream.
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

  /** Aborts when the person stops. */
  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  say(text: string): void {
    // A terminal of unknown width reports 0 columns.
    const columns = this.#cli.stderr.columns || Number.POSITIVE_INFINITY;
    const lines = text.split('\n').flatMap((line) => broken(printable(line), columns - 1));
    this.#cli.stderr.write(`${lines.join('\n')}\n`);
  }

  /**
   * Asks a question and returns the answer without outer blanks. Enter returns the present value, and `-` returns ''.
   */
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

  /** Asks for text that is never shown. JSON on several lines is read to its end. */
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
    // Discards text that was typed before the question.
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

/**
 * Asks for one secret. The line editing of the terminal itself is not used, because it cuts a line after 4,095
 * characters.
 */
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

/**
 * Asks a person at a terminal to confirm. Throws `usage` if there is no terminal, and `aborted` for any answer but
 * yes.
 */
export async function confirm(
  cli: Pick<Cli, 'stdin' | 'stderr' | 'signal'>,
  what: string,
  question: string,
): Promise<void> {
  if (!cli.stdin.isTTY) {
    throw new TillsyncError('usage', `${what} Nothing was done yet.`, { hint: 'To do it, say --yes.' });
  }
  const terminal = new Terminal(cli);
  try {
    terminal.say(what);
    const answer = await terminal.ask({ label: `${question} (yes/no)` });
    if (/^(y|yes|s|si|sí)$/i.test(answer.trim())) return;
    throw new TillsyncError('aborted', 'Stopped. Nothing was done.');
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

/** Returns the error for a person who stopped. */
export function stopped(): TillsyncError {
  return new TillsyncError('aborted', 'Stopped before the end.');
}

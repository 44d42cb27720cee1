import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { cleaned } from '../core/errors.ts';
import type { Clock } from '../core/time.ts';

/** Pause before an ended command is started again, so that a till may also be a command that runs once and ends. */
const REST_MS = 500;
/** If the command ends this many times in a row, each time with a fault and within `SOON_MS`, it counts as broken. */
const ENDS_MAX = 5;
const SOON_MS = 3_000;
/** Number of last characters of the till's output that are kept, and of last lines that are shown. */
const SAID_MAX = 4_000;
const LINES_MAX = 5;
const LINE_MAX = 300;
/** Clock ticks per second in /proc. It is 100 on every Linux on which Node runs. */
const TICKS_A_SECOND = 100;

export interface TillOptions {
  command: readonly string[];
  env: NodeJS.ProcessEnv;
  directory: string;
  clock: Clock;
}

/** The process of the till. It is started again whenever it ends, until it is killed. */
export class Till {
  readonly #options: TillOptions;
  #child: ChildProcess | undefined;
  #running: Promise<void> | undefined;
  #stop = new AbortController();
  #badEnds = 0;
  /** Why the program could not be executed at all, and how it ended last. */
  #fault: NodeJS.ErrnoException | undefined;
  #ended = '';
  /** End of the till's output, and number of characters that it has printed in all. */
  #said = '';
  #saidLength = 0;

  constructor(options: TillOptions) {
    this.#options = options;
  }

  /**
   * Reason why the till is no longer started again, in one sentence, with its last output; undefined if it still is.
   */
  get broken(): string | undefined {
    const [program = ''] = this.#options.command;
    if (this.#fault) return `The till can't be started: ${reasonOf(this.#fault, program)}.`;
    if (this.#badEnds < ENDS_MAX) return undefined;
    const said = this.printedSince(0);
    const why = `The till stopped ${ENDS_MAX} times in a row within ${SOON_MS / 1000} seconds of its start, the last time with ${this.#ended}.`;
    return said === null ? `${why} It printed nothing.` : `${why} It printed: ${said}`;
  }

  /** Number of characters that the till has printed so far, on standard output and standard error. */
  get printed(): number {
    return this.#saidLength;
  }

  /**
   * Returns the last lines that the till printed after its first `printed` characters, separated by line feeds; null if
   * there are none.
   */
  printedSince(printed: number): string | null {
    const length = Math.min(this.#said.length, this.#saidLength - printed);
    const lines = this.#said
      .slice(this.#said.length - length)
      .split('\n')
      .map((line) => cleaned(line.trimEnd(), LINE_MAX))
      .filter((line) => line !== '');
    return lines.length === 0 ? null : lines.slice(-LINES_MAX).join('\n');
  }

  start(): void {
    if (this.#running) return;
    this.#badEnds = 0;
    this.#stop = new AbortController();
    this.#running = this.#keepRunning(this.#stop.signal);
  }

  /** Kills the till and all its children, and waits for the end. */
  async kill(): Promise<void> {
    this.#stop.abort();
    this.#killGroup();
    await this.#running;
    this.#running = undefined;
  }

  /** Returns the processor time in seconds that the till used since its last start; undefined if it is unknown. */
  usedS(): number | undefined {
    try {
      const stat = readFileSync(`/proc/${this.#child?.pid}/stat`, 'utf8');
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      return (Number(fields[11]) + Number(fields[12])) / TICKS_A_SECOND;
    } catch {
      return undefined;
    }
  }

  async #keepRunning(signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    while (!signal.aborted && this.#badEnds < ENDS_MAX && !this.#fault) {
      const startMs = clock.monotonicMs();
      const code = await this.#run();
      const isBad = code !== 0 && clock.monotonicMs() - startMs < SOON_MS;
      this.#badEnds = isBad && !signal.aborted ? this.#badEnds + 1 : 0;
      await clock.sleep(REST_MS, signal);
    }
  }

  async #run(): Promise<number | null> {
    const { command, env, directory } = this.#options;
    const [program = '', ...words] = command;
    // The till gets a process group of its own, so that its children can be killed with it.
    const child = spawn(program, words, {
      cwd: directory,
      env,
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#child = child;
    const hear = (text: Buffer) => {
      this.#said = (this.#said + text).slice(-SAID_MAX);
      this.#saidLength += text.toString().length;
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    try {
      // `exit` is awaited and not `close`, because a child of the till may keep the pipe open.
      const [code, killedBy] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null];
      this.#ended = code === null ? `signal ${killedBy}` : `exit code ${code}`;
      return code;
    } catch (error) {
      this.#fault = error as NodeJS.ErrnoException;
      return 1;
    } finally {
      this.#killGroup();
    }
  }

  #killGroup(): void {
    const pid = this.#child?.pid;
    if (pid === undefined) return;
    try {
      process.kill(-pid, 'SIGKILL');
    } catch {
      // The process ended by itself.
    }
  }
}

/** Returns why a program cannot be executed, as the rest of a sentence. */
function reasonOf({ code, message }: NodeJS.ErrnoException, program: string): string {
  if (code === 'ENOENT') return `there is no program "${program}"`;
  if (code === 'EACCES') return `there is no permission to run "${program}" (EACCES)`;
  return `${code ?? message}, program "${program}"`;
}

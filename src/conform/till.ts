import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { Clock } from '../core/time.ts';

/** Pause before an ended command is started again, so that a till may also be a command that runs once and ends. */
const REST_MS = 500;
/** If the command ends this many times in a row, each time with a fault and within `SOON_MS`, it counts as broken. */
const ENDS_MAX = 5;
const SOON_MS = 3_000;
const SAID_MAX = 3_000;
/** Matches the line of a stack trace that has the error's message. */
const ERROR_LINE = /^\S*(error|exception|fatal)/i;
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
  #said = '';

  constructor(options: TillOptions) {
    this.#options = options;
  }

  /** Reason why the till is no longer started again; undefined if it still is. */
  get broken(): string | undefined {
    if (this.#badEnds < ENDS_MAX) return undefined;
    const lines = this.#said.trim().split('\n');
    const last = lines.findLast((line) => ERROR_LINE.test(line)) ?? lines.at(-1);
    return `The command ended ${ENDS_MAX} times with a fault, each within ${SOON_MS / 1000} s.${last && ` It said: ${last}`}`;
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
    while (!signal.aborted && this.#badEnds < ENDS_MAX) {
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
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    try {
      // `exit` is awaited and not `close`, because a child of the till may keep the pipe open.
      const [code] = (await once(child, 'exit')) as [number | null];
      return code;
    } catch (error) {
      this.#said = error instanceof Error ? error.message : String(error);
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

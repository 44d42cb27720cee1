import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { bundle } from '../../../config/package/bundle.ts';
import { type CommandResult, NODE, ROOT, until } from '../../support/workplace.ts';

/** The packaged program, which starts several times faster than the checkout. */
export interface Program {
  /** Starts the program. Its environment is `env`, a `PATH` and a cache directory, and nothing of this process's. */
  start(words: readonly string[], env: Record<string, string>): ChildProcess;
  remove(): void;
}

/** A table that only the made-up later version has. */
export const LATER_TABLE = 'later';

/** Migrations as a later version may have them, with a table and columns that this version does not know. */
export const LATER = {
  mirror: `ALTER TABLE _orders ADD COLUMN of_later TEXT;
    CREATE TABLE ${LATER_TABLE} AS SELECT order_id, seq FROM _orders;
    UPDATE _orders SET of_later = order_id;`,
  state: `ALTER TABLE tokens ADD COLUMN of_later TEXT; CREATE TABLE ${LATER_TABLE} (x);`,
};

/**
 * Bundles the sources in `TILLSYNC_CRASH_ROOT`, else those of this checkout. `laterSteps` maps databases to SQL; the
 * program is then a later version, with this SQL as one more migration of each of these databases.
 */
export async function buildProgram(
  laterSteps: Partial<Record<'mirror' | 'state', string>> = {},
): Promise<Program> {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-crash-program-'));
  await bundle({ root: process.env.TILLSYNC_CRASH_ROOT ?? ROOT, directory });
  for (const [name, sql] of Object.entries(laterSteps)) {
    const migrations = path.join(directory, 'db', name, 'migrations');
    const number = String(readdirSync(migrations).length + 1).padStart(4, '0');
    writeFileSync(path.join(migrations, `${number}-of-a-later-version.sql`), sql);
  }
  const env = { PATH: process.env.PATH ?? '', CACHE_DIRECTORY: path.join(directory, 'cache') };
  return {
    start: (words, more) =>
      spawn(NODE, [path.join(directory, 'start.cjs'), ...words], {
        env: { ...env, ...more },
        stdio: ['pipe', 'pipe', 'pipe'],
      }),
    remove: () => rmSync(directory, { recursive: true, force: true }),
  };
}

/** A process of `tillsync run`, from its start to its death. */
export class DaemonLife {
  readonly #child: ChildProcess;
  readonly #dead: Promise<unknown>;
  #log = '';
  /** Monotonic time of the kill in milliseconds; null if the process was not killed. */
  killedMs: number | null = null;

  constructor(child: ChildProcess) {
    this.#child = child;
    child.stdin?.end();
    const hear = (text: string) => {
      this.#log += text;
    };
    child.stdout?.setEncoding('utf8').on('data', hear);
    child.stderr?.setEncoding('utf8').on('data', hear);
    this.#dead = once(child, 'close');
  }

  get log(): string {
    return this.#log;
  }

  get runs(): boolean {
    return this.#log.includes('tillsync is running');
  }

  get ended(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  /** Kills the process at once, at whatever point it is. */
  kill(): void {
    if (this.killedMs !== null || this.ended) return;
    this.killedMs = performance.now();
    this.#child.kill('SIGKILL');
  }

  /** Resolves when the process has ended and its output was read. */
  async dead(): Promise<void> {
    await this.#dead;
  }

  async running(): Promise<void> {
    await until('the daemon runs', () => this.runs || this.ended, 20_000);
    if (!this.runs) throw new Error(`The daemon did not start:\n${this.#log}`);
  }

  /** Sends SIGTERM and returns the exit code. */
  async stop(): Promise<number | null> {
    this.#child.kill('SIGTERM');
    await this.#dead;
    return this.#child.exitCode;
  }
}

/** Writes `input` to a started command and waits for its end; returns its exit code and output. */
export async function runCommand(child: ChildProcess, input = ''): Promise<CommandResult> {
  let [stdout, stderr] = ['', ''];
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  child.stdin?.end(input);
  await once(child, 'close');
  return { code: child.exitCode, stdout, stderr };
}

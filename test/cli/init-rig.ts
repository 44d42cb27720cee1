import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { stripVTControlCharacters } from 'node:util';
import { runCli } from '../../src/cli/program.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { type Sandbox, startSandbox } from '../../src/sandbox/server.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { QUICK_LIMITS } from '../support/workplace.ts';

/** A machine that is not set up, with a platform. */
export interface NewPlace {
  directory: string;
  file: string;
  storage: string;
  sandbox: Sandbox;
  text(): string;
}

export async function newPlace(seed: number): Promise<NewPlace> {
  const directory = mkdtempSync(join(tmpdir(), 'tillsync-init-'));
  const file = join(directory, 'config.toml');
  const sandbox = await startSandbox({
    clock: systemClock,
    random: seededRandom(seed),
    limits: QUICK_LIMITS,
  });
  const storage = join(directory, 'storage');
  return { directory, file, storage, sandbox, text: () => readFileSync(file, 'utf8') };
}

/** Keys that a person types after a text on the screen; `\u0003` is Ctrl-C. */
export type Script = readonly (readonly [asked: string, typed: string])[];

export interface Talk {
  code: number;
  stdout: string;
  /** Text on the screen, without colours and cursor moves. */
  screen: string;
}

/** Runs a command at a terminal and answers its questions. Fails if a question of `script` is never asked. */
export async function talk(
  words: readonly string[],
  script: Script,
  env: Record<string, string> = {},
): Promise<Talk> {
  const stdin = Object.assign(new PassThrough(), { isTTY: true as const });
  let stdout = '';
  let screen = '';
  let seen = 0;
  const left = [...script];
  const answer = () => {
    const next = left[0];
    const at = next === undefined ? -1 : screen.indexOf(next[0], seen);
    // A question is complete once its prompt is there.
    if (next === undefined || at === -1 || !/> $/.test(stripVTControlCharacters(screen.slice(at)))) return;
    seen = screen.length;
    left.shift();
    setImmediate(() => stdin.write(next[1] === '\u0003' ? next[1] : `${next[1]}\r`));
  };
  const stderr = {
    isTTY: true,
    columns: 120,
    write: (text: string) => {
      screen += text;
      answer();
    },
  };
  const code = await runCli(words, {
    env,
    stdin,
    stdout: {
      write: (text: string) => {
        stdout += text;
      },
    },
    stderr,
    clock: systemClock,
    random: seededRandom(1),
    who: 'cli root (sudo by ana)',
    signal: AbortSignal.timeout(15_000),
  });
  if (left.length > 0) throw new Error(`never asked: ${left[0]?.[0]}\n${stripVTControlCharacters(screen)}`);
  return { code, stdout, screen: stripVTControlCharacters(screen) };
}

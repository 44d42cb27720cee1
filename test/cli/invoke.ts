import path from 'node:path';
import { Readable } from 'node:stream';
import { runCli } from '../../src/cli/program.ts';
import { setInstallation } from '../../src/core/errors.ts';
import { systemClock, systemRandom } from '../../src/core/system-clock.ts';
import type { Clock } from '../../src/core/time.ts';
import type { Workplace } from '../support/workplace.ts';
import type { ProcessOptions, ProcessResult } from './run-process.ts';

/** Runs the command line inside this process, which has the same effect and saves the start of a process. */
export async function invoke(
  words: readonly string[],
  options: ProcessOptions & { stop?: AbortController; who?: string; clock?: Clock } = {},
): Promise<ProcessResult> {
  const stop = options.stop ?? new AbortController();
  const result = { stdout: '', stderr: '' };
  const sink = (name: keyof typeof result) => ({
    write: (text: string) => {
      result[name] += text;
      const { signalWhen } = options;
      if (signalWhen !== undefined && (result.stdout + result.stderr).includes(signalWhen.text)) stop.abort();
      return true;
    },
  });
  const code = await runCli(words, {
    env: options.env ?? {},
    stdin: Readable.from(options.input === undefined ? [] : [options.input]),
    stdout: sink('stdout'),
    stderr: sink('stderr'),
    clock: options.clock ?? systemClock,
    random: systemRandom,
    who: options.who ?? 'cli tester',
    signal: stop.signal,
  });
  setInstallation();
  return { code, ...result };
}

const ONE_BRANCH = '[{"external_id":"B1"}]';

/** Returns the environment for commands on the files in `directory`, with a platform that does not answer. */
export function unreachedEnv(directory: string, branches = ONE_BRANCH) {
  return {
    TILLSYNC_CONFIG: path.join(import.meta.dirname, '../../config/tillsync.sample.toml'),
    TILLSYNC_STORAGE_DIRECTORY: directory,
    TILLSYNC_PLATFORM_BASE_URL: 'http://127.0.0.1:9',
    TILLSYNC_BRANCHES: branches,
  };
}

/** Returns functions that run the command line at a workplace: `run` for texts, and `json` with `--json`. */
export function commandsAt(place: Pick<Workplace, 'env'>, who?: string) {
  const run = (words: string[], input?: string, stop?: AbortController) =>
    invoke(words, {
      env: place.env,
      ...(who !== undefined && { who }),
      ...(input !== undefined && { input }),
      ...(stop !== undefined && { stop }),
    });
  const json = async (words: string[], input?: string) => {
    const result = await run([...words, '--json'], input);
    return { ...result, document: JSON.parse(result.stdout) };
  };
  return { run, json };
}

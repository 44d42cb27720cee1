import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { storagePaths } from '../app/storage.ts';
import type { Config } from '../config/config-type.ts';
import { asTillsyncError } from '../core/errors.ts';
import { packSupport, SUPPORT_REQUEST, type SupportHandler, type SupportHead } from '../link/link.ts';
import { runOwnCommand } from './own-command.ts';

const TAKES_AT_MOST_MS = 300_000;
const SCRATCH = '.asked-';

export interface SupportOptions {
  config: Config;
  /** Configuration file of the daemon. */
  configFile: string;
  signal: AbortSignal;
}

/**
 * Runs the command that a hub's question names, in a process of its own so that it delays neither orders nor stock
 * counts, and answers with its output. A question is refused while another one is answered.
 */
export function supportAnswers(options: SupportOptions): SupportHandler {
  let isBusy = false;
  return async (question, body) => {
    if (isBusy) return failure('The branch is answering another question. Ask again in a minute.');
    isBusy = true;
    try {
      const { json } = SUPPORT_REQUEST.parse(JSON.parse(body));
      if (question === 'bundle') return await withBundle(options);
      return packSupport(await say(options, [question, ...(json ? ['--json'] : [])]));
    } catch (error) {
      return failure(asTillsyncError(error).message);
    } finally {
      isBusy = false;
    }
  };
}

async function withBundle(options: SupportOptions): Promise<Uint8Array> {
  const { directory } = options.config.storage;
  // Deletes directories that a killed process left behind.
  for (const name of readdirSync(directory)) {
    if (name.startsWith(SCRATCH)) rmSync(path.join(directory, name), { recursive: true, force: true });
  }
  const scratch = mkdtempSync(path.join(directory, SCRATCH));
  try {
    const file = path.join(scratch, 'bundle.tar.gz');
    const head = await say(options, ['bundle', file, '--json']);
    return packSupport(head, head.exit === 0 ? readFileSync(file) : undefined);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

function failure(message: string): Uint8Array {
  return packSupport({ exit: 1, stdout: '', stderr: `tillsync: ${message}\n` });
}

/** Runs the command as a person would type it on this machine. */
async function say(
  { config, configFile, signal }: SupportOptions,
  words: readonly string[],
): Promise<SupportHead> {
  const end = await runOwnCommand(words, { configFile, timeoutMs: TAKES_AT_MOST_MS, signal });
  const isOver =
    end.exit === null ? `${end.stderr}tillsync: The command took too long at the branch.\n` : end.stderr;
  const { knownSecrets, Redactor } = await import('../support/bundle/redact.ts');
  const { state: statePath } = storagePaths(config.storage.directory);
  const redactor = new Redactor(knownSecrets({ env: process.env, configFile, statePath }));
  return { exit: end.exit ?? 1, stdout: redactor.known(end.stdout), stderr: redactor.known(isOver) };
}

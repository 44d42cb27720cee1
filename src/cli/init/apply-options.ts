import { existsSync } from 'node:fs';
import path from 'node:path';
import type { AskedKey, ConfigDraft } from '../../config/config-draft.ts';
import { DEFAULT_CONFIG_FILE } from '../../config/config-source.ts';
import { SAMPLE_BASE_URL } from '../../config/sample-config.ts';
import type { Secrets } from '../../config/secrets.ts';
import { hasCode, TillsyncError } from '../../domain/errors.ts';
import type { Cli } from '../cli.ts';
import { readTokenInput } from '../token-input.ts';
import type { InitOptions } from './init-options.ts';
import { freePortBeside } from './listeners.ts';
import { unitsOf } from './service.ts';
import type { SetUp } from './set-up.ts';
import { machineTimeZone, setTimeZone } from './time-zone.ts';

/** Puts the answers of the command line into the draft. Throws `config-invalid` for one that may not stand there. */
export function applyOptions(draft: ConfigDraft, options: InitOptions): void {
  // A shell's path begins where the shell is; the file is read by a service that is somewhere else.
  const directory = options.directory && path.resolve(options.directory);
  const given: [AskedKey, string | undefined][] = [
    ['platform.base_url', options.baseUrl],
    ['storage.directory', directory],
    ['storage.group', options.group],
    ['webhook.listen', options.webhookListen],
    ['local.listen', options.localListen],
  ];
  for (const [key, value] of given) {
    if (value === undefined) continue;
    try {
      draft.set(key, value);
    } catch (error) {
      if (!hasCode(error, 'config-invalid')) throw error;
      throw new TillsyncError('config-invalid', `${key}: ${error.message}`, { cause: error });
    }
  }
  const zone = options.timezone ?? (draft.isNew ? machineTimeZone() : undefined);
  if (zone !== undefined) setTimeZone(draft, zone);
  if (options.branch !== undefined) draft.setBranches(options.branch);
  const callbackUrl = options.callbackUrl ?? (draft.isNew ? '' : undefined);
  if (callbackUrl !== undefined) setCallback(draft, callbackUrl);
}

/** A further company begins with ports of its own. */
export async function chooseFreePorts(draft: ConfigDraft, options: InitOptions): Promise<void> {
  if (!draft.isNew || draft.file === DEFAULT_CONFIG_FILE || unitsOf(draft.file) === undefined) return;
  if (!existsSync(path.dirname(draft.file))) return;
  const { webhook, local } = draft.config();
  const wanted = await freePortBeside(draft.file, webhook.host, webhook.port);
  if (options.webhookListen === undefined) draft.set('webhook.listen', `127.0.0.1:${wanted}`);
  const other = await freePortBeside(draft.file, local.host, Math.max(local.port, wanted + 1));
  if (options.localListen === undefined) draft.set('local.listen', `127.0.0.1:${other}`);
}

/** An address switches the webhook on; taking it away, or never having one, leaves polling alone. */
export function setCallback(draft: ConfigDraft, callbackUrl: string): void {
  const before = draft.value('webhook.callback_url');
  draft.set('webhook.callback_url', callbackUrl);
  if (callbackUrl !== '') draft.set('webhook.enabled', true);
  else if (before !== '' || draft.isNew) draft.set('webhook.enabled', false);
}

/** Tries all that a script has answered, in the order in which one rests on the other. Throws at the first fault. */
export async function tryAnswers(
  cli: Cli,
  options: InitOptions,
  secrets: Secrets,
  setUp: SetUp,
): Promise<void> {
  if (setUp.draft.value('platform.base_url') === SAMPLE_BASE_URL) {
    throw new TillsyncError('usage', "The address of the platform's API is not set.", {
      hint: 'Give it with --base-url.',
    });
  }
  // Before anything is made, and long before systemd would say no more than that a job failed.
  await setUp.tryListener('webhook.listen');
  await setUp.tryListener('local.listen');
  // Read first: a wrong standard input is told before anything is made.
  const offered = options.tokenStdin ? (await readTokenInput(cli.stdin)).refreshToken : undefined;
  await setUp.reach();
  const state = await setUp.tokenState();
  // A newer pair in the store wins over the token that was handed to the service at first.
  const token = offered ?? (state === 'ok' ? undefined : secrets.refreshToken);
  if (token !== undefined) await setUp.useToken(token);
  else await setUp.tryStoredTokens();
  for (const branch of setUp.draft.branches()) await setUp.tryBranch(branch);
}

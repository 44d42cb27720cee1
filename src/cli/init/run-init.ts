import { ASKED_KEYS, ConfigDraft } from '../../config/config-draft.ts';
import { envName } from '../../config/config-keys.ts';
import { loadSecrets, type Secrets } from '../../config/secrets.ts';
import { checkGroup } from '../../daemon/storage/storage-directory.ts';
import { asRoot } from '../../daemon/storage/storage-user.ts';
import { hasCode, TillsyncError } from '../../domain/errors.ts';
import type { Cli } from '../cli.ts';
import { EXIT } from '../exit-code.ts';
import { writeJson } from '../output.ts';
import { applyOptions, chooseFreePorts, tryAnswers } from './apply-options.ts';
import type { InitOptions } from './init-options.ts';
import { interview } from './interview.ts';
import { refuseUnwritable } from './permissions.ts';
import { checkText, type InitReport, reportText, statusPageOf, summaryText, warningsOf } from './report.ts';
import { SetUp } from './set-up.ts';
import { bringToWork } from './start-service.ts';
import { Terminal } from './terminal.ts';

/** The whole set-up. Until all answers are tried and confirmed, the file stays as it is. */
export async function runInit(cli: Cli, options: InitOptions, isAsking: boolean): Promise<void> {
  const draft = ConfigDraft.open({ file: options.config, env: cli.env });
  const secrets = loadSecrets(cli.env);
  const listenBefore = callbacksAt(draft);
  const groupBefore = String(draft.value('storage.group'));
  applyOptions(draft, options);
  await chooseFreePorts(draft, options);
  checkGroup(String(draft.value('storage.group')));
  refuseUnwritable(draft.file, String(draft.value('storage.directory')));
  tellOverrides(cli);
  const terminal = isAsking ? new Terminal(cli) : undefined;
  const setUp = new SetUp({
    cli,
    draft,
    secrets,
    groupBefore,
    signal: terminal?.signal ?? cli.signal,
    offline: options.offline === true,
    onCheck: (check) => cli.stderr.write(`${checkText(check)}\n`),
  });
  let isWritten = false;
  try {
    if (terminal) await askAll(terminal, setUp, secrets);
    else await tryAnswers(cli, options, secrets, setUp);
    const { webhook } = draft.config();
    const webhookSecret = webhook.enabled ? await setUp.prepareSecret() : null;
    for (const warning of warningsOf(draft.config())) cli.stderr.write(`${warning}\n`);
    terminal?.say(summaryText(draft.config(), draft.branches()));
    if (terminal && !(await terminal.yes(`Write this to ${draft.file}?`, true))) throw stopped();
    const replaced = asRoot(() => draft.write(cli.clock.nowMs()));
    isWritten = true;
    await setUp.settle();
    const moved = listenBefore !== callbacksAt(draft);
    const work = await bringToWork({ cli, setUp, terminal, moved, mayStart: options.start });
    const report: InitReport = {
      file: draft.file,
      ...replaced,
      checks: setUp.checks,
      orders: webhook.enabled ? 'callbacks' : 'polling',
      callbackUrl: webhook.callbackUrl || null,
      webhookSecret,
      ...work,
      statusPage: statusPageOf(draft.config()),
    };
    if (setUp.checks.some(({ what, ok }) => what === 'service' && ok === false)) cli.endWith(EXIT.failed);
    terminal?.close();
    if (options.json) writeJson(cli, report);
    else cli.stdout.write(`${terminal ? '\n' : ''}${reportText(report)}`);
  } catch (error) {
    throw isWritten ? error : toldWhatStays(error, setUp);
  } finally {
    terminal?.close();
    await setUp.close();
  }
}

/** An override of this environment is no answer; for the service it does not hold. */
function tellOverrides({ env, stderr }: Cli): void {
  for (const key of ASKED_KEYS) {
    const name = envName(key.replace('.', '_'));
    if (env[name] === undefined) continue;
    stderr.write(
      `${name} is set here: commands in this environment take it in place of ${key} of the file.\n`,
    );
  }
}

/** Where the socket unit listens, if it does. */
function callbacksAt(draft: ConfigDraft): unknown {
  return draft.value('webhook.enabled') === false ? 'nowhere' : draft.value('webhook.listen');
}

async function askAll(terminal: Terminal, setUp: SetUp, secrets: Secrets): Promise<void> {
  terminal.say(
    `This sets tillsync up in ${setUp.draft.file}. Enter takes what stands in [brackets]; each answer is tried
at once; nothing is written before the end, and Ctrl-C leaves the file as it is.`,
  );
  await interview(terminal, setUp, secrets);
}

function stopped(): TillsyncError {
  return new TillsyncError('aborted', 'Stopped before the end.');
}

/** The same error, with what it leaves behind. */
function toldWhatStays(error: unknown, { draft, hasStoredTokens }: SetUp): unknown {
  if (!(error instanceof TillsyncError) || error.code === 'internal') return error;
  const tokens = hasStoredTokens ? ' The tokens that were handed over are stored.' : '';
  const { code, message, hint, httpStatus, retryAfterMs, retryable } = error;
  const offline = hasCode(error, 'platform-unreachable')
    ? ['To set up without the platform: {tillsync} init --offline']
    : [];
  const advice = [...(hint === undefined ? [] : [hint]), ...offline].join('\n');
  return new TillsyncError(code, `${message}\n${draft.file} is as it was.${tokens}`, {
    cause: error,
    retryable,
    ...(advice !== '' && { hint: advice }),
    ...(httpStatus !== undefined && { httpStatus }),
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  });
}

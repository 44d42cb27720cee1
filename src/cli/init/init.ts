import { accessSync, constants, existsSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Command } from 'commander';
import { asRoot } from '../../app/installation.ts';
import { checkGroup } from '../../app/storage.ts';
import { ASKED_KEYS, ConfigDraft } from '../../config/edit.ts';
import { loadSecrets, type Secrets } from '../../config/secrets.ts';
import { envName } from '../../config/source.ts';
import { asTyped, hasCode, TillsyncError } from '../../core/errors.ts';
import { type Cli, EXIT, newResultCommand, writeJson } from '../cli.ts';
import {
  applyOptions,
  branchOption,
  checkText,
  chooseFreePorts,
  type InitOptions,
  type InitReport,
  interview,
  reportText,
  statusPageOf,
  summaryText,
  tryAnswers,
  warningsOf,
} from './interview.ts';
import { commandsFor, isInstalled, SetUp, startAnew, unitsOf } from './set-up.ts';
import { Terminal } from './terminal.ts';

/** Says before the first question that this user cannot write what a set-up writes. Throws `config-invalid`. */
export function refuseUnwritable(file: string, storageDirectory: string): void {
  for (const path of [dirname(file), storageDirectory]) {
    if (mayWrite(standing(path))) continue;
    throw new TillsyncError('config-invalid', `This user may not write in ${path}; nothing was changed.`, {
      hint: 'Run it as root: {tillsync} init. For a trial of your own: --config FILE --directory DIRECTORY.',
    });
  }
}

/** The path, or what is there of those above it. */
function standing(path: string): string {
  return existsSync(path) || dirname(path) === path ? path : standing(dirname(path));
}

function mayWrite(path: string): boolean {
  try {
    accessSync(path, constants.W_OK | constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

export interface WorkOptions {
  cli: Cli;
  setUp: SetUp;
  /** Not there: nobody is asked. */
  terminal: Terminal | undefined;
  /** Callbacks arrive at another address than before. */
  moved: boolean;
  mayStart: boolean;
}

/** Starts the installed service with the new file, or says what a person has to run. */
export async function bringToWork(options: WorkOptions): Promise<Pick<InitReport, 'service' | 'next'>> {
  const { cli, setUp, terminal, moved, mayStart } = options;
  const { file } = setUp.draft;
  const service = unitsOf(file);
  if (service === undefined || !(await isInstalled(service, cli.env))) {
    if (await setUp.isRunning()) {
      await setUp.tryReceiver();
      return { service: null, next: ['Restart the tillsync that is running, so that it reads the file.'] };
    }
    return { service: null, next: [asTyped('{tillsync} run')] };
  }
  const { unit } = service;
  const isRoot = process.getuid?.() === 0;
  const isWanted =
    mayStart && isRoot && (terminal === undefined || (await terminal.yes(await question(setUp, unit), true)));
  if (!isWanted) {
    const next = commandsFor(service, moved).map((words) => `systemctl ${words.join(' ')}`);
    return { service: { unit, started: false }, next };
  }
  const fault = await startAnew(service, moved, cli.env);
  if (fault !== undefined) {
    setUp.note({ what: 'service', subject: unit, ok: false, message: fault });
    return { service: { unit, started: false }, next: [`journalctl -u ${unit} -n 50`] };
  }
  setUp.note({ what: 'service', subject: unit, ok: true, message: 'started' });
  await setUp.tryReceiver();
  return { service: { unit, started: true }, next: [] };
}

async function question(setUp: SetUp, unit: string): Promise<string> {
  return (await setUp.isRunning()) ? `Restart ${unit} now, so that this holds?` : `Start ${unit} now?`;
}

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

/** `init`: the guided set-up, for a person at a terminal and for scripts. */
export function initCommand(cli: Cli): Command {
  return newResultCommand(
    'init',
    'Set tillsync up: ask, try each answer against the platform, write the file',
    [
      'init',
      'init --yes --base-url https://api.example.com --branch sub-1,B1 --token-stdin < refresh-token.txt',
      'init --yes --timezone America/Lima --callback-url https://shop.example.com/webhook --json',
    ],
  )
    .option('--base-url <url>', "address of the platform's API")
    .option(
      '--branch <ids>',
      'a branch as SUBSIDIARY, SUBSIDIARY,EXTERNAL or ,EXTERNAL; once for each, in place of those in the file',
      branchOption,
    )
    .option('--callback-url <url>', 'public address for callbacks; "" leaves polling alone')
    .option('--webhook-listen <address>', 'where callbacks arrive on this machine, as host:port')
    .option('--local-listen <address>', 'where status page and local API are, as host:port')
    .option('--timezone <zone>', 'whose calendar order dates are in, such as America/Santiago')
    .option('--directory <path>', 'storage directory')
    .option('--group <name>', 'Unix group of the point of sale')
    .option('--token-stdin', 'read the refresh token from standard input (else TILLSYNC_REFRESH_TOKEN)')
    .option('--offline', 'ask nothing of the platform, so try nothing')
    .option('--no-start', 'leave the service as it is')
    .option('-y, --yes', 'ask nothing: what is not given stays, or gets its default')
    .action((_options, command: Command) => init(cli, command.optsWithGlobals()));
}

async function init(cli: Cli, options: InitOptions): Promise<void> {
  const isAtTerminal = cli.stdin.isTTY === true && cli.stderr.isTTY === true;
  const isAsking = options.yes !== true && isAtTerminal && options.tokenStdin !== true;
  if (!isAsking && options.yes !== true) {
    throw new TillsyncError('usage', 'There is no terminal to ask at; nothing was changed.', {
      hint: 'Add --yes, and give the answers as options: {tillsync} init --help',
    });
  }
  await runInit(cli, options, isAsking);
}

import { existsSync } from 'node:fs';
import path from 'node:path';
import { asRoot } from '../../app/installation.ts';
import { checkGroup, refuseUnsafe } from '../../app/storage.ts';
import type { BranchConfig, Config } from '../../config/config-type.ts';
import { ASKED_KEYS, type AskedKey, ConfigDraft } from '../../config/edit.ts';
import { isBranch } from '../../config/roles.ts';
import { loadSecrets, type Secrets } from '../../config/secrets.ts';
import { DEFAULT_CONFIG_FILE, envName, SAMPLE_BASE_URL } from '../../config/source.ts';
import { hasCode, TillsyncError } from '../../core/errors.ts';
import type { Replaced } from '../../core/files.ts';
import { formatDuration } from '../../core/time.ts';
import { readTokenInput } from '../auth.ts';
import { type Cli, printable } from '../cli.ts';
import { type CommonOptions, command, ofChain, parsed, type Result, type Values } from '../command.ts';
import { phraseText } from '../phrase-text.ts';
import { statusPageOf } from '../status-page.ts';
import { fields } from '../table.ts';
import { Interview, type Step, setCallback, stepsOf } from './interview.ts';
import {
  freePortsBeside,
  groupSocketOf,
  machineLanguage,
  machineTimeZone,
  refuseUnwritable,
  setTimeZone,
  unitsOf,
} from './machine.ts';
import { type AtWork, branchName, type Check, SetUp, workLines } from './set-up.ts';
import { stopped, Terminal } from './terminal.ts';

/**
 * Adds the branch of one `--branch SUBSIDIARY[,EXTERNAL]` to the branches of earlier ones. Without SUBSIDIARY, as in
 * `--branch ,EXTERNAL`, the branch has only the POS's own id.
 */
function branchOption(text: string, before: BranchConfig[] = []): BranchConfig[] {
  const [subsidiaryId = '', externalId = '', ...more] = text.split(',').map((id) => id.trim());
  if (more.length > 0 || (subsidiaryId === '' && externalId === '')) {
    throw new TillsyncError(
      'usage',
      `--branch: found "${text}"; allowed: SUBSIDIARY, SUBSIDIARY,EXTERNAL or ,EXTERNAL.`,
    );
  }
  const branch = { ...(subsidiaryId !== '' && { subsidiaryId }), ...(externalId !== '' && { externalId }) };
  return [...before, branch];
}

const OPTIONS = {
  '--base-url <url>': "Address of the platform's API",
  '--branch <ids>': parsed(
    'Branch as SUBSIDIARY, SUBSIDIARY,EXTERNAL or ,EXTERNAL; repeatable, replaces those in the file',
    branchOption,
  ),
  '--callback-url <url>': 'Public address for callbacks; "" for polling only',
  '--webhook-listen <address>': 'Address for callbacks on this machine, as host:port',
  '--local-listen <address>': 'Address of the status page and local API, as host:port',
  '--timezone <zone>': 'Time zone of the shop (example: America/Santiago)',
  '--language <code>': 'Language of alarms, status and doctor: en or es (default: from LANG)',
  '--personal-data <duration>':
    'Time to keep customer data after an order closes (example: 60d); 0d: as long as the order',
  '--new-phrase': 'Create a recovery phrase, show it once, and encrypt all backups with it',
  '--directory <path>': 'Storage directory',
  '--group <name>': 'Unix group of the POS',
  '--join <invitation>': ofChain('Join a hub as a branch; - reads the invitation from standard input'),
  '--token-stdin': 'Read the refresh token from standard input (default: TILLSYNC_REFRESH_TOKEN)',
  '--offline': "Don't contact the platform",
  '--no-start': "Don't start or restart the service",
  '-y, --yes': "Don't ask; use the given, current or default values",
};

type InitOptions = Values<typeof OPTIONS> & CommonOptions;

export const init = command({
  description: 'Set up tillsync or change its settings',
  examples: [
    'init',
    'init --yes --base-url https://api.example.com --branch sub-1,B1 --token-stdin < refresh-token.txt',
    'init --yes --timezone America/Lima --callback-url https://shop.example.com/webhook --json',
  ],
  options: OPTIONS,
  async run({ cli, options }) {
    if (options.join !== undefined) {
      const { joinHub } = await import('./join.ts');
      return joinHub(cli, options, options.join);
    }
    const isAtTerminal = cli.stdin.isTTY === true && cli.stderr.isTTY === true;
    if (!options.yes && (!isAtTerminal || options.tokenStdin)) {
      throw new TillsyncError('usage', 'There is no terminal to ask at; nothing was changed.', {
        hint: 'Add --yes, and give the answers as options: {tillsync} init --help',
      });
    }
    return setUpFrom(cli, options);
  },
});

/** Runs the whole set-up. The configuration file is written only after all answers were tried and confirmed. */
async function setUpFrom(cli: Cli, options: InitOptions): Promise<Result> {
  const draft = ConfigDraft.open({ file: options.config, env: cli.env });
  const secrets = loadSecrets(cli.env);
  const callbacksBefore = callbacksAt(draft);
  const groupBefore = String(draft.value('storage.group'));
  applyOptions(draft, options, cli.env);
  await chooseFreePorts(draft, options);
  await openGroupSocket(draft, cli.env);
  checkGroup(String(draft.value('storage.group')));
  const storage = String(draft.value('storage.directory'));
  refuseUnwritable(path.dirname(draft.file), storage);
  refuseUnsafe(storage);
  tellOverrides(cli);
  const terminal = options.yes ? undefined : new Terminal(cli);
  const { signal } = terminal ?? cli;
  const setUp = new SetUp({ cli, draft, secrets, groupBefore, signal, offline: options.offline === true });
  let isWritten = false;
  try {
    await answer({ cli, options, secrets, setUp, terminal });
    if (options.newPhrase && setUp.phrase === null) await setUp.makePhrase();
    const config = draft.config();
    const webhookSecret = config.webhook.enabled ? await setUp.prepareSecret() : null;
    for (const warning of warningsOf(config)) cli.stderr.write(`${warning}\n`);
    terminal?.say(summaryText(config, draft.branches()));
    if (terminal && !(await terminal.yes(`Write this to ${draft.file}?`, true))) throw stopped();
    await setUp.keepSigningKey();
    const replaced = asRoot(() => draft.write(cli.clock.nowMs()));
    isWritten = true;
    await setUp.settle();
    const moved = callbacksBefore !== callbacksAt(draft);
    const report: InitReport = {
      file: draft.file,
      ...replaced,
      checks: setUp.checks,
      orders: config.webhook.enabled ? 'callbacks' : 'polling',
      callbackUrl: config.webhook.callbackUrl || null,
      webhookSecret,
      phrase: setUp.phrase,
      ...(await setUp.bringToWork({ terminal, moved, mayStart: options.start })),
    };
    return {
      json: report,
      text: `${terminal ? '\n' : ''}${reportText(report)}`,
      exit: setUp.exit,
    };
  } catch (error) {
    throw isWritten ? error : toldWhatStays(error, setUp);
  } finally {
    terminal?.close();
    await setUp.close();
  }
}

/** Puts the answers of the command line into the draft. Throws `config-invalid` for an invalid one. */
function applyOptions(draft: ConfigDraft, options: InitOptions, env: Cli['env']): void {
  const given: [AskedKey, string | undefined][] = [
    ['platform.base_url', options.baseUrl],
    // A path on the command line is relative to the shell's directory, but the service runs in another directory.
    ['storage.directory', options.directory && path.resolve(options.directory)],
    ['storage.group', options.group],
    ['webhook.listen', options.webhookListen],
    ['local.listen', options.localListen],
    ['retention.personal_data', options.personalData],
    ['shop.language', options.language ?? (draft.isNew ? machineLanguage(env) : undefined)],
  ];
  for (const [key, value] of given) {
    try {
      if (value !== undefined) draft.set(key, value);
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

/** Chooses free ports for a further company on the machine. */
async function chooseFreePorts(draft: ConfigDraft, options: InitOptions): Promise<void> {
  if (!draft.isNew || draft.file === DEFAULT_CONFIG_FILE || unitsOf(draft.file) === undefined) return;
  if (!existsSync(path.dirname(draft.file))) return;
  const { webhook, local } = draft.config();
  const free = await freePortsBeside(draft.file, webhook, local);
  if (options.webhookListen === undefined) draft.set('webhook.listen', `127.0.0.1:${free.webhook}`);
  if (options.localListen === undefined) draft.set('local.listen', `127.0.0.1:${free.local}`);
}

/** Gives the group of the POS a socket, unless the file of an earlier set-up says otherwise. */
async function openGroupSocket(draft: ConfigDraft, env: Cli['env']): Promise<void> {
  const socket = await groupSocketOf(draft.file, env);
  if (socket !== undefined && (draft.isNew || !draft.has('local.socket'))) draft.set('local.socket', socket);
}

/** Warns of environment variables that override keys of the file here, because the service does not have them. */
function tellOverrides({ env, stderr }: Cli): void {
  for (const key of ASKED_KEYS) {
    const name = envName(key.replace('.', '_'));
    if (env[name] === undefined) continue;
    stderr.write(
      `${name} is set here: commands in this environment take it in place of ${key} of the file.\n`,
    );
  }
}

/** Returns the address at which callbacks arrive on this machine, or `nowhere` if callbacks are off. */
function callbacksAt(draft: ConfigDraft): unknown {
  return draft.value('webhook.enabled') === false ? 'nowhere' : draft.value('webhook.listen');
}

interface Answering {
  cli: Cli;
  options: InitOptions;
  secrets: Secrets;
  setUp: SetUp;
  terminal: Terminal | undefined;
}

/** Asks the questions for the machine's role at a terminal; without a terminal, tries the given answers. */
async function answer({ cli, options, secrets, setUp, terminal }: Answering): Promise<void> {
  const steps = stepsOf(setUp.draft);
  if (terminal) await new Interview(terminal, setUp, secrets).all(steps);
  else await tryAnswers(steps, { cli, options, secrets, setUp });
}

/** Tries all answers that were given as options, each after those that it depends on. Throws at the first fault. */
async function tryAnswers(
  steps: readonly Step[],
  { cli, options, secrets, setUp }: Omit<Answering, 'terminal'>,
): Promise<void> {
  if (!steps.includes('platform')) return setUp.tryListener('local.listen');
  if ((setUp.draft.value('platform.base_url') ?? SAMPLE_BASE_URL) === SAMPLE_BASE_URL) {
    throw new TillsyncError('usage', "The address of the platform's API is not set.", {
      hint: 'Give it with --base-url.',
    });
  }
  // Ports are tried before any file is made, because systemd would later only say that a job failed.
  await setUp.tryListener('webhook.listen');
  await setUp.tryListener('local.listen');
  // Standard input is read now, so that a fault in it is reported before any file is made.
  const offered = options.tokenStdin ? (await readTokenInput(cli.stdin)).refreshToken : undefined;
  await setUp.reach();
  const state = await setUp.tokenState();
  // If state.db has a token pair, the pair is newer than the token that was once handed to the service.
  const token = offered ?? (state === 'ok' ? undefined : secrets.refreshToken);
  if (token !== undefined) await setUp.useToken(token);
  else await setUp.tryStoredTokens();
  for (const branch of setUp.draft.branches()) await setUp.tryBranch(branch);
}

/** Returns the error with added sentences about what remains stored. */
function toldWhatStays(error: unknown, { draft, hasStoredTokens }: SetUp): unknown {
  if (!(error instanceof TillsyncError) || error.code === 'internal') return error;
  const tokens = hasStoredTokens ? ' The tokens that were handed over are stored.' : '';
  const { code, message, hint, httpStatus, retryAfterMs, retryable } = error;
  const offline = 'To set up without the platform: {tillsync} init --offline';
  const advice = [hint, code === 'platform-unreachable' ? offline : undefined].filter(Boolean).join('\n');
  return new TillsyncError(code, `${message}\n${draft.file} is as it was.${tokens}`, {
    cause: error,
    retryable,
    ...(advice !== '' && { hint: advice }),
    ...(httpStatus !== undefined && { httpStatus }),
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  });
}

/** Result of a set-up, in the form that `--json` prints. */
interface InitReport extends Replaced, AtWork {
  file: string;
  checks: readonly Check[];
  /** How orders arrive. */
  orders: 'callbacks' | 'polling';
  callbackUrl: string | null;
  /** Whether a secret for callbacks was made or kept; null if callbacks are off. */
  webhookSecret: 'made' | 'kept' | null;
  /** Words of a new recovery phrase; null if none was made. */
  phrase: string | null;
}

/** Returns all answers as text, which a person checks before they are written. */
function summaryText(config: Config, branches: Config['branches']): string {
  const { platform, webhook, orders, shop, storage, retention, backup } = config;
  const callbacks = webhook.enabled
    ? `${webhook.callbackUrl || 'no public address'}, arriving at ${webhook.host}:${webhook.port}`
    : 'none; orders come by polling';
  const table = fields({
    ...(isBranch(config)
      ? { '  branch': `${config.link.branch} of the hub at ${config.link.hub}` }
      : {
          '  platform': platform.baseUrl,
          '  branches': branches.map(branchName).join(', ') || 'none',
          '  callbacks': callbacks,
        }),
    '  time zone': orders.timezone,
    '  language': shop.language,
    '  customers': customersKept(retention.personalDataMs),
    '  backups': backup.recipient === '' ? 'not encrypted for a phrase' : 'encrypted for a recovery phrase',
    '  group of the POS': storage.group || 'as it is',
    '  status page': statusPageOf(config) ?? 'at a port that is chosen at each start',
  });
  return `\nYour answers:\n${table.trimEnd()}`;
}

function customersKept(ms: number): string {
  if (ms === 0) return 'stored as long as their orders';
  return `forgotten ${formatDuration(ms)} after the end of their order`;
}

/** Returns warnings about values that are valid but probably not intended. */
function warningsOf({ webhook: { enabled, callbackUrl, path } }: Config): string[] {
  if (!enabled || callbackUrl === '') return [];
  const { pathname } = new URL(callbackUrl);
  if (pathname === path) return [];
  return [
    `The callback address ends in ${pathname}, but tillsync answers at ${path}. Unless a proxy changes the path, use: ${new URL(path, callbackUrl)}`,
  ];
}

function reportText(report: InitReport): string {
  const { file, changed, keptAt, orders, callbackUrl, webhookSecret, phrase } = report;
  const lines = [
    changed ? `${file} is written.` : `${file} says all this already; it was not touched.`,
    ...(keptAt === null ? [] : [`The file before is kept as ${keptAt}.`]),
    orders === 'polling'
      ? 'Orders come by polling, within about two minutes.'
      : `Orders come by callbacks${callbackUrl === null ? '' : ` to ${callbackUrl}, which is registered when tillsync starts`}, and by polling.`,
    ...(webhookSecret === 'made' ? ['A secret for callbacks was made; it is kept in state.db.'] : []),
    ...workLines(report),
  ];
  return `${lines.map(printable).join('\n')}\n${phrase === null ? '' : phraseText(phrase, file)}`;
}

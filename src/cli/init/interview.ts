import { existsSync } from 'node:fs';
import path from 'node:path';
import type { BranchConfig, Config } from '../../config/config-type.ts';
import type { AskedKey, ConfigDraft } from '../../config/edit.ts';
import type { Secrets } from '../../config/secrets.ts';
import { DEFAULT_CONFIG_FILE, SAMPLE_BASE_URL } from '../../config/source.ts';
import { asTyped, hasCode, TillsyncError } from '../../core/errors.ts';
import type { Replaced } from '../../core/files.ts';
import { parseTokenInput, readTokenInput } from '../auth.ts';
import { type Cli, type GlobalOptions, type JsonOption, printable } from '../cli.ts';
import { fields } from '../table.ts';
import { type Check, freePortBeside, machineTimeZone, type SetUp, setTimeZone, unitsOf } from './set-up.ts';
import type { Question, Terminal } from './terminal.ts';

/** What the command line answers; the rest is asked, or stays as the file has it. */
export interface InitOptions extends GlobalOptions, JsonOption {
  baseUrl?: string;
  branch?: BranchConfig[];
  callbackUrl?: string;
  webhookListen?: string;
  localListen?: string;
  timezone?: string;
  directory?: string;
  group?: string;
  tokenStdin?: boolean;
  yes?: boolean;
  offline?: boolean;
  /** `--no-start`. */
  start: boolean;
}

/** Collects `--branch SUBSIDIARY[,EXTERNAL]`; `,EXTERNAL` names a branch by your own id alone. */
export function branchOption(text: string, before: BranchConfig[] = []): BranchConfig[] {
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

/** What a set-up did, as its `--json` document has it. */
export interface InitReport extends Replaced {
  file: string;
  checks: readonly Check[];
  /** How orders come in. */
  orders: 'callbacks' | 'polling';
  callbackUrl: string | null;
  /** The secret of callbacks; null: none is needed. */
  webhookSecret: 'made' | 'kept' | null;
  service: { unit: string; started: boolean } | null;
  statusPage: string | null;
  /** What is left to do, in order; empty: nothing. */
  next: readonly string[];
}

/** Where the status page is, for a browser on this machine; null while its port is not known. */
export function statusPageOf({ local: { host, port } }: Config): string | null {
  if (port === 0) return null;
  const isAny = host === '0.0.0.0' || host === '::';
  const name = isAny ? '127.0.0.1' : host.includes(':') ? `[${host}]` : host;
  return `http://${name}:${port}/`;
}

/** All answers once more, before they are written. */
export function summaryText(config: Config, branches: Config['branches']): string {
  const { platform, webhook, orders, storage } = config;
  const callbacks = webhook.enabled
    ? `${webhook.callbackUrl || 'no public address'}, arriving at ${webhook.host}:${webhook.port}`
    : 'none; orders come by polling';
  const table = fields([
    ['  platform', platform.baseUrl],
    ['  branches', branches.map(branchName).join(', ') || 'none'],
    ['  callbacks', callbacks],
    ['  time zone', orders.timezone],
    ['  group of the POS', storage.group || 'as it is'],
    ['  status page', statusPageOf(config) ?? 'at a port that is chosen at each start'],
  ]);
  return `\nYour answers:\n${table.trimEnd()}`;
}

/** What is allowed and probably not meant. */
export function warningsOf({ webhook: { enabled, callbackUrl, path } }: Config): string[] {
  if (!enabled || callbackUrl === '') return [];
  const { pathname } = new URL(callbackUrl);
  if (pathname === path) return [];
  return [
    `The callback address ends in ${pathname}, but tillsync answers at ${path}. Unless a proxy changes the path, use: ${new URL(path, callbackUrl)}`,
  ];
}

/** A branch by the ids that are known. */
export function branchName({ subsidiaryId, externalId }: Config['branches'][number]): string {
  return [subsidiaryId, externalId].filter((id) => id !== undefined).join(' / ');
}

/** One try: `ok  address https://…: reached`. */
export function checkText({ what, subject, ok, message }: Check): string {
  const mark = ok === null ? '--' : ok ? 'ok' : '!!';
  return printable(`${mark}  ${what}: ${subject}: ${message}`);
}

export function reportText(report: InitReport): string {
  const { file, changed, keptAt, orders, callbackUrl, webhookSecret, service, statusPage, next } = report;
  const lines = [
    changed ? `${file} is written.` : `${file} says all this already; it was not touched.`,
    ...(keptAt === null ? [] : [`The file before is kept as ${keptAt}.`]),
    orders === 'polling'
      ? 'Orders come by polling, within about two minutes.'
      : `Orders come by callbacks${callbackUrl === null ? '' : ` to ${callbackUrl}, which is registered when tillsync starts`}, and by polling.`,
    ...(webhookSecret === 'made' ? ['A secret for callbacks was made; it is kept in state.db.'] : []),
    ...(service?.started ? [`${service.unit} is running, and starts with the machine.`] : []),
    ...(statusPage === null ? [] : [`Status page: ${statusPage}`]),
    ...(next.length === 0 ? [] : ['Next:', ...next.map((step) => `  ${step}`)]),
  ];
  return `${lines.map(printable).join('\n')}\n`;
}

/** What a person can put right by another answer. */
const WRONG_ANSWER = ['usage', 'config-invalid'] as const;
/** What may pass, or be the fault of the line. */
const NO_ANSWER = [
  'platform-unreachable',
  'platform-failed',
  'rate-limited',
  'blocked',
  'forbidden',
  'unauthorized',
] as const;
/** What something else than the platform answers. */
const NO_PLATFORM = ['platform-refused', 'platform-garbled'] as const;

/** Asks a person for everything, trying each answer at once. Throws `aborted` when the person stops. */
export async function interview(terminal: Terminal, setUp: SetUp, secrets: Secrets): Promise<void> {
  do await askBaseUrl(terminal, setUp);
  while ((await askTokens(terminal, setUp, secrets)) === 'another-address');
  await askBranches(terminal, setUp);
  await askCallback(terminal, setUp);
  await askLocalListen(terminal, setUp);
  await askTimeZone(terminal, setUp);
  await askGroup(terminal, setUp);
}

async function askBaseUrl(terminal: Terminal, setUp: SetUp): Promise<void> {
  for (;;) {
    await askValue(
      terminal,
      setUp,
      'platform.base_url',
      {
        label: "Address of the platform's API",
        meaning:
          'As the company panel or the support of the platform names it, such as https://api.example.com.',
      },
      setUp.draft.value('platform.base_url') === SAMPLE_BASE_URL ? '' : undefined,
    );
    const outcome = await attempt(terminal, setUp, () => setUp.reach());
    if (outcome !== 'again') return;
  }
}

async function askTokens(
  terminal: Terminal,
  setUp: SetUp,
  secrets: Secrets,
): Promise<'done' | 'another-address'> {
  let handedIn = secrets.refreshToken;
  for (;;) {
    try {
      const state = await setUp.tokenState();
      if (state === 'ok' && handedIn !== undefined) handedIn = undefined;
      if (state === 'ok') {
        await setUp.tryStoredTokens();
        if (!(await terminal.yes('Hand over other tokens?', false))) return 'done';
      }
      const token = handedIn ?? (await askToken(terminal));
      handedIn = undefined;
      if (token === undefined) {
        const message = asTyped('none yet; hand them over with: {tillsync} auth set');
        setUp.note({ what: 'tokens', subject: 'refresh token', ok: false, message });
        setUp.offline = true;
        return 'done';
      }
      await setUp.useToken(token);
      return 'done';
    } catch (error) {
      if (hasCode(error, 'auth-required', ...WRONG_ANSWER)) tell(terminal, error);
      else if (hasCode(error, ...NO_PLATFORM)) {
        tell(terminal, error);
        terminal.say('What answers at this address does not look like the platform.');
        if (await terminal.yes('Enter another address?', true)) return 'another-address';
      } else if ((await afterFault(terminal, setUp, error)) === 'skipped') continue;
    }
  }
}

async function askToken(terminal: Terminal): Promise<string | undefined> {
  const text = await terminal.secret({
    label: 'Refresh token',
    meaning:
      'From the company panel. Paste it; it is not shown, and it is exchanged at once, so it works nowhere\nelse afterwards. Enter alone: hand it over later.',
  });
  return text === '' ? undefined : parseTokenInput(text).refreshToken;
}

async function askBranches(terminal: Terminal, setUp: SetUp): Promise<void> {
  const { draft } = setUp;
  let branches: BranchConfig[] = [];
  setUp.forgetBranches();
  for (const branch of draft.branches()) {
    const name = branchName(branch);
    const outcome = await attempt(terminal, setUp, () => setUp.tryBranch(branch));
    if (await terminal.yes(`Keep the branch ${name}?`, outcome !== 'again')) branches.push(branch);
  }
  draft.setBranches(branches);
  terminal.say('\nBranches of the company, one after the other; the platform cannot list them.');
  for (;;) {
    const isFirst = branches.length === 0;
    const subsidiaryId = await terminal.ask({
      label: isFirst ? "The platform's id of the branch" : "The platform's id of the next branch",
      meaning: isFirst
        ? 'The subsidiaryId, from the company panel. Enter alone: only your own id is known.'
        : 'Press Enter twice to finish.',
    });
    const externalId = await terminal.ask({
      label: 'Your own id of this branch',
      meaning: 'The externalId, if the branch has one. With both ids every order finds its branch.',
    });
    if (subsidiaryId === '' && externalId === '') {
      if (!isFirst || (await terminal.yes('Go on without a branch? No products are read then.', false)))
        return;
      continue;
    }
    const branch = { ...(subsidiaryId !== '' && { subsidiaryId }), ...(externalId !== '' && { externalId }) };
    const outcome = await attempt(terminal, setUp, async () => {
      draft.setBranches([...branches, branch]);
      await setUp.tryBranch(branch);
    });
    if (outcome === 'again') draft.setBranches(branches);
    else {
      branches = [...branches, branch];
    }
  }
}

async function askCallback(terminal: Terminal, setUp: SetUp): Promise<void> {
  const { draft } = setUp;
  for (;;) {
    const url = await terminal.ask({
      label: 'Public address for order callbacks (optional)',
      meaning:
        'Where the platform reaches this machine from the internet, such as https://shop.example.com/webhook;\nit is registered when tillsync starts. Without one orders come by polling, within about two minutes.\nEnter keeps what stands there; - for none.',
      kept: String(draft.value('webhook.callback_url')),
    });
    if ((await attempt(terminal, setUp, async () => setCallback(draft, url))) === 'again') continue;
    if (url === '') return;
    if (url.startsWith('http://')) {
      terminal.say('This address is not encrypted: orders and the secret could be read on the way.');
    }
    break;
  }
  await askValue(terminal, setUp, 'webhook.listen', {
    label: 'Where callbacks arrive on this machine',
    meaning:
      'host:port. 127.0.0.1 where a proxy with a certificate stands in front; 0.0.0.0 to take them directly.',
  });
}

/** Only where another program is in the way. */
async function askLocalListen(terminal: Terminal, setUp: SetUp): Promise<void> {
  if ((await attempt(terminal, setUp, () => setUp.tryListener('local.listen'))) !== 'again') return;
  await askValue(terminal, setUp, 'local.listen', {
    label: 'Where the status page and the API for the POS are',
    meaning: 'host:port, such as 127.0.0.1:8790.',
  });
}

async function askTimeZone(terminal: Terminal, setUp: SetUp): Promise<void> {
  for (;;) {
    const kept = String(setUp.draft.value('orders.timezone'));
    const zone = await terminal.ask({
      label: 'Time zone of the shop',
      meaning:
        'Used for order dates. Shops in Chile: America/Santiago, or America/Punta_Arenas in Magallanes.',
      kept,
    });
    const outcome = await attempt(terminal, setUp, async () => setTimeZone(setUp.draft, zone));
    if (outcome !== 'again') return;
  }
}

async function askGroup(terminal: Terminal, setUp: SetUp): Promise<void> {
  const { checkGroup } = await import('../../app/storage.ts');
  for (;;) {
    const group = await terminal.ask({
      label: 'Unix group of the point of sale (optional)',
      meaning:
        'Its members may read the mirror and hand over changes. Leave empty to keep the current\ngroup; - for none.',
      kept: String(setUp.draft.value('storage.group')),
    });
    const outcome = await attempt(terminal, setUp, async () => {
      checkGroup(group);
      setUp.draft.set('storage.group', group);
    });
    if (outcome !== 'again') return;
  }
}

async function askValue(
  terminal: Terminal,
  setUp: SetUp,
  key: AskedKey,
  question: Question,
  kept = String(setUp.draft.value(key) ?? ''),
): Promise<void> {
  for (;;) {
    const text = await terminal.ask({ ...question, kept });
    const take = async () => {
      setUp.draft.set(key, text);
      if (key === 'webhook.listen' || key === 'local.listen') await setUp.tryListener(key);
    };
    if ((await attempt(terminal, setUp, take)) !== 'again') return;
  }
}

/** Tells what is wrong with an answer; after a fault of the line the person decides whether it goes on untried. */
async function attempt(
  terminal: Terminal,
  setUp: SetUp,
  action: () => Promise<unknown>,
): Promise<'done' | 'again' | 'skipped'> {
  for (;;) {
    try {
      await action();
      return 'done';
    } catch (error) {
      if (hasCode(error, ...WRONG_ANSWER, ...NO_PLATFORM)) {
        tell(terminal, error);
        return 'again';
      }
      const then = await afterFault(terminal, setUp, error);
      if (then === 'another') return 'again';
      if (then === 'skipped') {
        await action();
        return 'skipped';
      }
    }
  }
}

async function afterFault(
  terminal: Terminal,
  setUp: SetUp,
  error: unknown,
): Promise<'retry' | 'another' | 'skipped'> {
  if (!hasCode(error, ...NO_ANSWER, 'auth-required')) throw error;
  tell(terminal, error);
  for (;;) {
    const label = 'What now? Enter: try again. c: correct the answer. o: go on without the platform.';
    const answer = (await terminal.ask({ label })).toLowerCase();
    if (answer === '') return 'retry';
    if (answer === 'c') return 'another';
    if (answer !== 'o') continue;
    setUp.offline = true;
    return 'skipped';
  }
}

function tell(terminal: Terminal, { message, hint }: TillsyncError): void {
  terminal.say(hint === undefined ? message : `${message}\n${hint}`);
}

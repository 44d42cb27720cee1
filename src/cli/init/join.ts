import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import * as z from 'zod';
import { actAsStorageUser, asRoot } from '../../app/installation.ts';
import { openState } from '../../app/state.ts';
import { checkGroup, prepareStorage, refuseUnsafe, storagePaths } from '../../app/storage.ts';
import { loadConfig, readConfig } from '../../config/config.ts';
import type { Config } from '../../config/config-type.ts';
import { ConfigDraft, replaceFile, setKey } from '../../config/edit.ts';
import { isBranch } from '../../config/roles.ts';
import { configPath, DEFAULT_CONFIG_FILE, isSetUp } from '../../config/source.ts';
import { asTillsyncError, hasCode, TillsyncError } from '../../core/errors.ts';
import { openWhenFree, replaceText } from '../../core/files.ts';
import { whenFree } from '../../core/loop.ts';
import type { SigningKey } from '../../db/signing-keys.ts';
import type { Question } from '../../link/link.ts';
import { type Invitation, readInvitation } from '../../link/server-config.ts';
import { type Cli, printable } from '../cli.ts';
import type { CommonOptions, Result } from '../command.ts';
import { phraseText } from '../phrase-text.ts';
import { freePortBeside, groupSocketOf, joinGroup, machineLanguage } from './machine.ts';
import { SetUp, workLines } from './set-up.ts';
import { askSecret } from './terminal.ts';

const TRY_FOR_MS = 30_000;
const TRY_EVERY_MS = 1_000;
const INVITATION_LENGTH_MAX = 100_000;
/** First port that is tried for the status page of a further store on the machine. */
const FURTHER_PORT = 8789;

/** Options of `init` for a branch. */
export interface JoinOptions extends CommonOptions {
  directory: string | undefined;
  group: string | undefined;
  timezone: string | undefined;
  language: string | undefined;
  localListen: string | undefined;
  newPhrase?: boolean | undefined;
  start: boolean;
}

/**
 * Makes this tillsync a branch of the hub that invited it, then starts the service. The branch's new link key is
 * stored, beside an existing one, before the hub gets its public half. The invitation's key is useless afterwards.
 */
export async function joinHub(cli: Cli, options: JoinOptions, given: string): Promise<Result> {
  const invitation = readInvitation(given === '-' ? await lineOf(cli) : given);
  const file = configPath(options.config, cli.env);
  const caFile = invitation.ca === null ? '' : caFileBeside(file);
  const joined = await branchConfig({ file, env: cli.env }, invitation, caFile, options);
  const made = options.newPhrase
    ? await phraseFor(joined, file)
    : { text: joined, phrase: null, signingKey: undefined };
  const { text, phrase, signingKey } = made;
  const config = loadConfig({ file, env: {}, text });
  refuseOther(file, config);
  await join(cli, invitation, { config, file, signingKey });
  const nowMs = cli.clock.nowMs();
  const draft = asRoot(() => {
    if (invitation.ca !== null) replaceText({ path: caFile, text: invitation.ca, nowMs });
    replaceFile(file, text, (written) => void loadConfig({ file: written, env: {} }), nowMs);
    return ConfigDraft.open({ file, env: {} });
  });
  const { hub, branch } = invitation;
  const setUp = new SetUp({
    cli,
    draft,
    secrets: { webhookSecrets: [] },
    offline: true,
    signal: cli.signal,
    groupBefore: config.storage.group,
  });
  try {
    const work = await setUp.bringToWork({ terminal: undefined, moved: false, mayStart: options.start });
    const first = `This is branch ${branch} of the hub at ${hub} now. ${file} is written.`;
    return {
      json: { branch, hub, file, joined: true, phrase, ...work },
      text: `${[first, ...workLines(work)].map(printable).join('\n')}\n${phrase === null ? '' : phraseText(phrase, file)}`,
      exit: setUp.exit,
    };
  } finally {
    await setUp.close();
  }
}

/** Makes a recovery phrase. Returns the configuration with the phrase's recipient, and the words of the phrase. */
async function phraseFor(
  text: string,
  file: string,
): Promise<{ text: string; phrase: string; signingKey: SigningKey }> {
  const { newRecoveryPhrase } = await import('../../support/recovery-phrase.ts');
  const { shop } = loadConfig({ file, env: {}, text });
  const { phrase, recipient, signingKey } = await newRecoveryPhrase(shop.language);
  return { text: setKey(text, 'backup', 'recipient', recipient), phrase, signingKey };
}

async function lineOf(cli: Cli): Promise<string> {
  const { stdin } = cli;
  if (stdin.isTTY) return askSecret(cli, 'Paste the line of the invitation, then press Enter:');
  let text = '';
  for await (const part of stdin) {
    text += String(part);
    if (text.trim() !== '' && text.includes('\n')) break;
    if (text.length > INVITATION_LENGTH_MAX) break;
  }
  return text;
}

/** Returns the path of the file with the authority of the hub's certificate. */
export function caFileBeside(file: string): string {
  return path.join(path.resolve(path.dirname(file)), `${path.basename(file, '.toml')}.hub-ca.pem`);
}

/**
 * Returns the configuration that the branch will have. Throws `config-invalid` if this tillsync calls a platform
 * itself.
 */
async function branchConfig(
  { file, env }: { file: string; env: Cli['env'] },
  { hub, branch }: Invitation,
  caFile: string,
  options: JoinOptions,
): Promise<string> {
  let text = existsSync(file) ? readFileSync(file, 'utf8') : '';
  const read = readConfig({ file, env: {}, text });
  const isSample = 'config' in read && !isSetUp(read.config);
  if ('config' in read && !isSample && !isBranch(read.config)) {
    throw new TillsyncError('config-invalid', `${file} is of a store with a platform of its own.`, {
      hint: 'Name another file with --config FILE, or move this one away first.',
    });
  }
  const isNew = text.trim() === '' || isSample;
  const saysSocket = !isNew && ConfigDraft.open({ file, env: {} }).has('local.socket');
  if (isNew) {
    text = '# tillsync: configuration of one branch. Every key: docs/reference.md\n';
    const isInstance =
      path.dirname(file) === path.dirname(DEFAULT_CONFIG_FILE) && file !== DEFAULT_CONFIG_FILE;
    if (isInstance) {
      text = setKey(text, 'storage', 'directory', `/var/lib/tillsync@${path.basename(file, '.toml')}`);
      const port = await freePortBeside(file, '127.0.0.1', FURTHER_PORT);
      text = setKey(text, 'local', 'listen', `127.0.0.1:${port}`);
    }
  }
  const wanted: [string, string, string | boolean | undefined][] = [
    ['link', 'hub', hub],
    ['link', 'branch', branch],
    ['link', 'ca_file', caFile === '' ? undefined : caFile],
    // Switched off, so that systemd opens no socket for callbacks, which a branch never gets.
    ['webhook', 'enabled', false],
    ['storage', 'directory', options.directory],
    ['storage', 'group', options.group],
    ['orders', 'timezone', options.timezone],
    ['shop', 'language', options.language ?? (isNew ? machineLanguage(env) : undefined)],
    ['local', 'listen', options.localListen],
    ['local', 'socket', saysSocket ? undefined : await groupSocketOf(file, env)],
  ];
  for (const [section, key, value] of wanted) {
    if (value !== undefined) text = setKey(text, section, key, value);
  }
  return text;
}

/**
 * Throws `config-invalid` if the mirror belongs to another branch, because orders and counts of two branches would be
 * mixed.
 */
function refuseOther(file: string, { link, storage }: Config): void {
  const before = readConfig({ file, env: {} });
  if ('faults' in before || !isBranch(before.config)) return;
  const { branch, hub, otherHubs } = before.config.link;
  const isSame = branch === link.branch && [hub, ...otherHubs].includes(link.hub);
  if (isSame || !existsSync(storagePaths(storage.directory).mirror)) return;
  const moved = `Where that hub is at ${link.hub} now, say so first: link.hub in ${file}.`;
  const same = `Where it is the same shop and the hub lost all, at the hub: sudo tillsync branch invite ${link.branch} --previous-name ${branch}`;
  throw new TillsyncError(
    'config-invalid',
    `This machine is branch ${branch} of the hub at ${hub}; its mirror has the orders of that branch. Nothing was changed.`,
    {
      hint: `Stop tillsync and move what is in ${storage.directory} away, or name another file with --config FILE. ${branch === link.branch ? moved : same}`,
    },
  );
}

/** Joins the hub and stores the branch's link key. Throws `link-refused` or `link-down`. */
async function join(
  cli: Cli,
  invitation: Invitation,
  {
    config,
    file: configFile,
    signingKey,
  }: { config: Config; file: string; signingKey: SigningKey | undefined },
): Promise<void> {
  const { directory, group } = config.storage;
  const { newKey, publicKeyOf } = await import('../../link/nats.ts');
  checkGroup(group);
  // Must happen before this process becomes the service's user, who must be in the group.
  if (group !== '') await joinGroup(group, configFile, cli.env);
  actAsStorageUser({ directory, configFile, writes: true });
  refuseUnsafe(directory);
  const paths = prepareStorage(directory, group === '' ? undefined : group);
  const state = await openWhenFree(cli.clock, () =>
    openState({ path: paths.state, clock: cli.clock, role: 'branch' }),
  );
  try {
    // If the hub's last answer was lost, the hub may already know the proposed key, so that key is proposed again.
    const proposed = state.linkKey.next();
    const own =
      proposed === undefined ? await newKey() : { seed: proposed, publicKey: await publicKeyOf(proposed) };
    await whenFree(cli.clock, () => state.linkKey.propose(own.seed));
    await askToJoin(cli, invitation, own, proposed !== undefined).catch(async (error: unknown) => {
      if (hasCode(error, 'link-refused')) await whenFree(cli.clock, () => state.linkKey.withdraw());
      throw error;
    });
    await whenFree(cli.clock, () => state.linkKey.accept());
    if (signingKey) await whenFree(cli.clock, () => state.signingKeys.keep(signingKey));
  } finally {
    state.close();
  }
}

const JOINED = z.object({ joined: z.literal(true) });

/** Asks the hub to let this branch join. Retries for a while if nobody answers; a refusal is final. */
async function askToJoin(
  cli: Cli,
  { hub, branch, seed, ca, expiresAt }: Invitation,
  own: { seed: string; publicKey: string },
  mayBeKnown: boolean,
): Promise<void> {
  const { NatsBranchLink } = await import('../../link/nats.ts');
  const { readAnswer } = await import('../../link/branch.ts');
  const tls = /^tls:/i.test(hub) ? { ca, serverName: null } : null;
  const ask = async (as: string, question: Question, body: object) => {
    const link = new NatsBranchLink({ url: hub, branch, seed: as, tls });
    try {
      return await link.ask(question, JSON.stringify(body));
    } finally {
      await link.close();
    }
  };
  const isPast = Date.parse(expiresAt) < cli.clock.nowMs();
  const endMs = cli.clock.monotonicMs() + TRY_FOR_MS;
  for (let tries = 1; ; tries++) {
    try {
      const asked = ask(seed, 'join', { publicKey: own.publicKey });
      const answer = await asked.catch((error: unknown) => {
        throw hasCode(error, 'link-refused') ? worthNothing(branch, isPast, error) : error;
      });
      readAnswer(answer, JOINED);
      return;
    } catch (error) {
      // If only an answer was lost, the hub already accepts this branch's key, whatever it answers now.
      const isKnown =
        (tries > 1 || mayBeKnown) &&
        (await ask(own.seed, 'hello', {}).then(
          () => true,
          () => false,
        ));
      if (isKnown) return;
      const isOver = cli.clock.monotonicMs() >= endMs || cli.signal.aborted;
      const isWorthATry = hasCode(error, 'link-down') || (hasCode(error, 'link-refused') && tries > 1);
      if (!isWorthATry || isOver) throw hasCode(error, 'link-down') ? notKnown(error) : error;
      await cli.clock.sleep(TRY_EVERY_MS, cli.signal);
    }
  }
}

/** Returns the error for a lost answer. Only the hub knows whether it accepted the new key. */
function notKnown(cause: unknown): TillsyncError {
  const { message } = asTillsyncError(cause);
  const kept = 'A key that this machine had is kept, and the new one beside it.';
  return new TillsyncError('link-down', `${message} ${kept}`, {
    cause,
    hint: 'Look at the address and the way to the hub, then paste the same line again: {tillsync} init --join -',
  });
}

function worthNothing(branch: string, isPast: boolean, cause: unknown): TillsyncError {
  const why = isPast ? 'it has expired' : 'it was used, a newer one was made, or the branch was removed';
  const message = `The hub does not take this invitation of branch ${branch}: ${why}. Nothing was changed: a key that this machine had is as good as before.`;
  return new TillsyncError('link-refused', message, {
    cause,
    hint: `At the hub, make another: sudo tillsync branch invite ${branch}`,
  });
}

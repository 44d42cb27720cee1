import { randomUUID } from 'node:crypto';
import {
  appendFileSync,
  existsSync,
  lstatSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import * as z from 'zod';
import { asRoot, serviceUserOf } from '../app/installation.ts';
import { openMirror } from '../app/mirror.ts';
import { openState, type State } from '../app/state.ts';
import { prepareStorage, RUNNING, type StoragePaths, storagePaths } from '../app/storage.ts';
import { type ConfigOptions, loadConfig, readConfig } from '../config/config.ts';
import type { Config } from '../config/config-type.ts';
import { isHub, roleOf } from '../config/roles.ts';
import { configError, configPath, isSetUp } from '../config/source.ts';
import { hasCode, TillsyncError } from '../core/errors.ts';
import { freeName, giveToGroup, groupId, openWhenFree, replaceText, stampOf } from '../core/files.ts';
import type { Clock } from '../core/time.ts';
import type { AuditEntry } from '../db/audit.ts';
import type { SigningKey } from '../db/signing-keys.ts';
import { lookInto, makeDirectory, storing } from '../db/sqlite.ts';
import { HUB_COPY, type HubCopy } from '../link/hub-state.ts';
import { SEQ_JUMP } from '../orders/merging/order.ts';
import { newestSeq as highestSeq } from '../orders/reading/mirror-file.ts';
import { lookIntoInbox } from '../outbox/intake/inbox-process.ts';
import { NO_WEBHOOK_MEMORY } from '../platform/webhook-registration.ts';
import {
  ACKS_FILE,
  CONFIG_FILE,
  HUB_FILE,
  type Manifest,
  MIRROR_FILE,
  makeScratch,
  PRODUCT_FILE,
  readBackup,
  STOCK_FILE,
  TOKENS_FILE,
  tokensSchema,
} from './backup.ts';
import type { Differential } from './differential.ts';
import type { Opening } from './encryption.ts';
import { keepNewest } from './kept-changes.ts';
import {
  hasEvent,
  type KnownSince,
  knownSince,
  prepareRestoredMirror,
  type RestoredMirror,
  swapDatabase,
} from './restored-mirror.ts';

const ackSchema = z.object({
  orderId: z.string().min(1),
  key: z.string(),
  seq: z.number().int().optional(),
  without: z.array(z.number().int()).optional(),
});
type Ack = z.infer<typeof ackSchema>;

interface KeptChanges {
  kind: 'stock' | 'products';
  path: string;
}

/**
 * Moves the backup's files of changes into the storage directory for a person, because sending the changes would
 * replace newer values by older ones. Returns the files.
 */
function keepChanges(staging: string, directory: string, stamp: string): KeptChanges[] {
  const kinds = [
    { kind: 'stock', name: STOCK_FILE },
    { kind: 'products', name: PRODUCT_FILE },
  ] as const;
  return kinds
    .filter(({ name }) => existsSync(join(staging, name)))
    .map(({ kind, name }) => {
      const path = join(directory, name.replace('.ndjson', `.from-backup-${stamp}.ndjson`));
      renameSync(join(staging, name), path);
      return { kind, path };
    });
}

/** What is known of the time since the backup, from the mirror here and from differential backups. */
interface KnownElsewhere extends KnownSince {
  /** Whether the feed's last number is unknown, so that the feed has to jump ahead. */
  feedJumps: boolean;
}

/**
 * Collects what happened since the backup: from the mirror that is replaced, which knows most, and from differential
 * backups, in case that mirror is lost. `noted` is the feed's highest number that state.db recorded.
 */
async function knownElsewhere(
  mirror: string,
  { manifest, differentials }: { manifest: Manifest; differentials: readonly Differential[] },
  { noted, clock }: { noted: number; clock: Clock },
): Promise<KnownElsewhere> {
  const { createdAt: since, mirror: backup } = manifest;
  const here = await knownHere(mirror, manifest, clock);
  const isSameHistory = here?.isSameHistory ?? false;
  const all = [...differentials.map(({ known }) => known), ...(here ? [here.known] : [])];
  const newest = Math.max(backup.newestSeq, noted, ...all.map(({ newestSeq }) => newestSeq));
  // Rows from before the full backup are left out, because differential backups also have older rows.
  const later = <T extends { at: string }>(rows: readonly T[]) => rows.filter(({ at }) => at >= since);
  const ofThisShop = [...differentials, ...(isSameHistory && here ? [here] : [])].map(({ known }) => known);
  const acks = ofThisShop.flatMap((known) => known.acks);
  return {
    newestSeq: newest,
    newestSettled: Math.max(0, ...all.map(({ newestSettled }) => newestSettled)),
    feedJumps: !isSameHistory || (here?.known.newestSeq ?? 0) < newest,
    acks: [...new Map(acks.map((ack) => [ack.orderId, ack])).values()],
    prepared: ofThisShop.flatMap((known) => known.prepared),
    unsent: without(
      all.flatMap(({ unsent }) => later(unsent)),
      ({ kind, document, at }) => [kind, document, at],
    ),
    audited: without(
      all.flatMap(({ audited }) => later(audited)),
      ({ auditId, ...action }) => action,
    ),
  };
}

/**
 * Returns what the present mirror got since the backup; undefined if the mirror is missing or unreadable. Throws
 * `storage-busy` if another program keeps the mirror locked, because this data would otherwise be lost.
 */
async function knownHere(
  mirror: string,
  { createdAt: since, mirror: { newestEvent } }: Manifest,
  clock: Clock,
) {
  try {
    return await openWhenFree(clock, () =>
      lookInto(mirror, (db) => ({
        ...knownSince(db, { since, clock }),
        isSameHistory: newestEvent !== null && hasEvent(db, newestEvent),
      })),
    );
  } catch (error) {
    if (hasCode(error, 'storage-busy')) throw error;
    // A mirror that cannot be read may be the reason for the restore.
    return undefined;
  }
}

/** Returns the rows without repetitions: a row is left out if an earlier row has the same values. */
function without<T>(rows: readonly T[], valuesOf: (row: T) => unknown): T[] {
  return [
    ...new Map(rows.toReversed().map((row) => [JSON.stringify(valuesOf(row)), row])).values(),
  ].reverse();
}

/**
 * Throws `usage` for a differential backup of another mirror. An event that both must have decides. Without one, the
 * platform's host decides, which may change.
 */
function refuseForeign(
  fresh: string,
  { manifest, name }: RestoreSource,
  differentials: readonly Differential[],
): void {
  const foreign = differentials.find(({ platform, mark }) => {
    const isOld = mark !== null && mark.seq <= manifest.mirror.newestSeq;
    return isOld ? !lookInto(fresh, (db) => hasEvent(db, mark)) : platform !== manifest.platform;
  });
  if (foreign === undefined) return;
  throw new TillsyncError('usage', `${foreign.name} is of another shop than ${name}. Nothing was changed.`, {
    hint: 'Move it to another directory, and restore again.',
  });
}

/** Throws `storage-corrupt` if the mirror's feed stands elsewhere than the backup says. */
function refuseOtherCounts(fresh: string, { manifest, name }: RestoreSource): void {
  const { newestSeq } = manifest.mirror;
  if (lookInto(fresh, highestSeq) === newestSeq) return;
  const message = `${name} cannot be used: its mirror is not what its list says. Nothing was changed.`;
  throw new TillsyncError('storage-corrupt', message, { hint: 'Use another backup.' });
}

/** Appends unsent changes from after the backup to the backup's files of changes, which a person decides about. */
function keepUnsent(unsent: KnownSince['unsent'], staging: string): void {
  for (const { kind, document } of unsent) {
    appendFileSync(join(staging, kind === 'stock' ? STOCK_FILE : PRODUCT_FILE), `${document}\n`, {
      mode: 0o600,
    });
  }
}

/**
 * Returns the acknowledgements to put into the inbox, where the daemon reads them, so that booked orders stay booked.
 */
function acksToRestore(staging: string, acks: KnownSince['acks'], newestSeq: number): Ack[] {
  const file = join(staging, ACKS_FILE);
  const lines = existsSync(file) ? readFileSync(file, 'utf8').split('\n').filter(Boolean) : [];
  const all: Ack[] = [
    ...lines.map((line) => ackSchema.parse(JSON.parse(line))),
    ...acks.map(({ orderId, seq, without }) => ({
      orderId,
      key: randomUUID(),
      seq: seq ?? undefined,
      ...(without && { without: JSON.parse(without) as number[] }),
    })),
  ];
  const isKnown = (seq: number | undefined) => seq !== undefined && seq <= newestSeq;
  return (
    all
      // The numbers of lines count as of an event that the restored mirror may lack. That order is still to be booked.
      .filter(({ seq, without }) => without === undefined || isKnown(seq))
      .map(({ orderId, key, seq, without }) => ({
        orderId,
        ...(without && { without }),
        key: key.replace(/^ack:/, ''),
        // The number of an event after the backup is left out, because the event gets another number when it arrives again.
        ...(isKnown(seq) && { seq }),
      }))
  );
}

/**
 * - `none`: the backup has no tokens
 * - `taken`: the backup's tokens are used from now on
 * - `own-kept`: this machine keeps its own pair, because it works, or because the backup has the same refused token
 */
type TokensRestored = 'none' | 'taken' | 'own-kept';

/** A branch of the backup's hub, to which later actions of people are applied. */
interface ReplayedBranch {
  branch: string;
  /** Name in the backup. */
  name: string;
  /** Name at the time of the next action. */
  nameNow: string;
  subsidiaryId: string | null;
  /** Null once a person ended the key. */
  key: { publicKey: string; joinedAt: string | null } | null;
  closedAt: string | null;
}

/**
 * Returns the hub of a backup after what people did since, oldest first. An invited or removed branch has no key, and a
 * closed one is closed until it is invited. Names stay those of the backup.
 */
function replayed({ serverConfig, branches, closed }: HubCopy, audited: readonly AuditEntry[]): HubCopy {
  let rows: ReplayedBranch[] = [
    ...branches.map(({ branch, name, subsidiaryId, ...key }) => {
      return { branch, name, nameNow: name, subsidiaryId, key, closedAt: null };
    }),
    ...closed.map((each) => ({ ...each, nameNow: each.name, key: null })),
  ];
  for (const { action, subject, detail, at } of audited) {
    const name = subject?.replace(/^branch /, '') ?? '';
    const named = rows.filter(({ nameNow }) => nameNow === name);
    if (action === 'branch.rename') {
      const nameNow = detail?.replace(/^now /, '') ?? '';
      // During a swap two branches share a name; the earlier one in `rows` is renamed.
      const [renamed] = named;
      const others = rows.filter((each) => each !== renamed && (each.key || each.nameNow !== nameNow));
      rows = renamed ? [...others, { ...renamed, nameNow }] : others;
    } else if (action === 'branch.revoke') {
      for (const each of named) each.key = null;
    } else if (action === 'branch.invite') {
      for (const each of named) Object.assign(each, { key: null, closedAt: null });
    } else if (action === 'branch.close') {
      for (const each of named) Object.assign(each, { key: null, closedAt: at });
      const isNew = named.length === 0 && !rows.some(({ branch }) => branch === name);
      const neverJoined = { branch: name, name, nameNow: name, subsidiaryId: null, key: null, closedAt: at };
      if (isNew) rows.push(neverJoined);
    }
  }
  return {
    serverConfig,
    branches: rows.flatMap(({ branch, name, subsidiaryId, key }) =>
      key ? [{ branch, name, subsidiaryId, ...key }] : [],
    ),
    closed: rows.flatMap(({ branch, nameNow: name, subsidiaryId, closedAt }) =>
      closedAt === null ? [] : [{ branch, name, subsidiaryId, closedAt }],
    ),
  };
}

/**
 * Restores a lost hub's branches with their public keys, except keys that ended since the backup, and which branches
 * are closed. Does nothing if this machine already knows branches. Returns the branches that need not join again.
 */
async function restoreHub(
  staging: string,
  { hub }: Pick<State, 'hub'>,
  audited: readonly AuditEntry[],
  nowMs: number,
): Promise<string[]> {
  const file = join(staging, HUB_FILE);
  if (!existsSync(file) || hub.branches().length > 0) return [];
  const copy = HUB_COPY.parse(JSON.parse(readFileSync(file, 'utf8')));
  const secrets = join(staging, TOKENS_FILE);
  const kept = existsSync(secrets) ? tokensSchema.parse(JSON.parse(readFileSync(secrets, 'utf8'))) : null;
  if (kept?.hubKeys) hub.keepKeys(kept.hubKeys);
  const { hubKeys } = await import('../link/server-file.ts');
  await hubKeys(hub);
  const now = replayed(copy, audited);
  hub.takeOver(now, nowMs);
  return now.branches.map(({ name }) => name);
}

/** Restores the backup's tokens and webhook secrets if this machine has no usable ones. */
function restoreTokens(file: string, state: Pick<State, 'tokens' | 'webhook'>): TokensRestored {
  const { tokens, webhook } = tokensSchema.parse(JSON.parse(readFileSync(file, 'utf8')));
  if (isDeepStrictEqual(state.webhook.read(), NO_WEBHOOK_MEMORY)) {
    state.webhook.update(() => webhook);
  }
  if (tokens === null) return 'none';
  const own = state.tokens.read();
  if (own !== null && own.lockedOut === null) {
    return own.refreshToken === tokens.refreshToken ? 'taken' : 'own-kept';
  }
  if (own?.refreshToken === tokens.refreshToken) return 'own-kept';
  state.tokens.save(tokens, null, tokens.refreshToken);
  return 'taken';
}

const RESTORE_TAKES_AT_MOST_MS = 3_600_000;
const ACKS_AT_ONCE = 5_000;

/** Source of a restore. */
export interface RestoreSource {
  /** Name for the audit, such as the backup's. */
  name: string;
  manifest: Manifest;
  /** Differential backups that belong to the backup, oldest first. */
  differentials?: readonly Differential[];
  /** Key of the recovery phrase that was typed, which signs this machine's backups from now on. */
  signingKey?: SigningKey | undefined;
  /** Writes the files of the manifest into the directory `into`. */
  stage(into: string): Promise<unknown>;
}

export interface RestoreBackupOptions extends RestoreOptions {
  path: string;
  /** Descriptor of the backup. */
  file: number;
  /** Opens an encrypted backup. */
  opening?: Opening | undefined;
  /** Whether a plain file is refused. */
  isSecret?: boolean;
  /** Differential backups that belong to the backup, oldest first. */
  differentials?: readonly Differential[];
}

export interface RestoreOptions {
  config: Config;
  clock: Clock;
  /** Person or program that restores. */
  who: string;
  signal?: AbortSignal | undefined;
}

export interface RestoreReport extends RestoredMirror {
  manifest: Manifest;
  directory: string;
  /** Path at which the old mirror is kept; null if there was none. */
  keptAt: string | null;
  /** Whether the feed had to jump, because its last number is unknown. */
  feedJumped: boolean;
  tokens: TokensRestored;
  /** At a hub: branches that need not join again. */
  branches: string[];
  acks: number;
  changes: KeptChanges[];
  /** Time of the newest differential backup that was taken over (ISO 8601); null if there was none. */
  knownUntil: string | null;
}

/**
 * Replaces the mirror by that of a backup, while the daemon is stopped. The whole backup is read and checked before
 * anything changes. The state of the platform's limits and a working token pair stay. Throws `usage` while the daemon
 * runs, what readBackup throws, `storage-…`.
 */
export async function restoreBackup(options: RestoreBackupOptions): Promise<RestoreReport> {
  const { path, file, opening, isSecret = false, differentials = [], signal } = options;
  const { manifest } = await readBackup(path, { file, opening, isSecret, signal });
  refuseAbsurd(path, manifest, differentials);
  const stage = (into: string) => readBackup(path, { file, opening, isSecret, into, signal });
  const signingKey = opening?.signingKey ?? undefined;
  return await restoreFrom({ name: basename(path), manifest, differentials, stage, signingKey }, options);
}

/** Numbers of the feed that no shop reaches: a hundred orders a second, for a year. */
const SEQ_MAX = 3_000_000_000;
/** Differential backups of one backup know at most of so many restores, each of which takes the feed one jump further. */
const RESTORES_MAX = 10;

/** Throws `storage-corrupt` if the feed would have to go on at a number that no shop's feed comes to. */
function refuseAbsurd(path: string, { mirror }: Manifest, differentials: readonly Differential[]): void {
  const refuse = (name: string, seq: number) => {
    const message = `${name} cannot be used: its order feed stands at ${seq}, which is no number of a shop. Nothing was changed.`;
    return new TillsyncError('storage-corrupt', message, {
      hint: 'Use another backup, or move this file away.',
    });
  };
  if (mirror.newestSeq > SEQ_MAX) throw refuse(path, mirror.newestSeq);
  for (const { name, known } of differentials) {
    const furthest = Math.max(known.newestSeq - mirror.newestSeq, 0);
    if (furthest > RESTORES_MAX * SEQ_JUMP) throw refuse(name, known.newestSeq);
    if (known.newestSettled > SEQ_MAX) throw refuse(name, known.newestSettled);
  }
}

/** Restores as restoreBackup does, from any source. Also throws the errors of `stage`. */
export async function restoreFrom(source: RestoreSource, options: RestoreOptions): Promise<RestoreReport> {
  const { config, clock } = options;
  const { directory, group } = config.storage;
  const paths = prepareStorage(directory, group || undefined);
  const state = await openWhenFree(clock, () =>
    openState({ path: paths.state, clock, role: roleOf(config) }),
  );
  try {
    const fence = state.leases.acquire(RUNNING, RESTORE_TAKES_AT_MOST_MS);
    if (fence === undefined) {
      throw daemonRuns(directory);
    }
    try {
      return await restoreInto({ ...options, source, paths, state });
    } finally {
      state.leases.release(RUNNING, fence);
    }
  } finally {
    state.close();
  }
}

/** Returns the error for a restore beside a running daemon. */
export function daemonRuns(directory: string): TillsyncError {
  return new TillsyncError('usage', `tillsync runs on ${directory}. Nothing was changed.`, {
    hint: 'Stop it first ({stop}), restore, and start it again.',
  });
}

interface Restoring extends RestoreOptions {
  source: RestoreSource;
  paths: StoragePaths;
  state: State;
}

async function restoreInto(restoring: Restoring): Promise<RestoreReport> {
  const { source, config, clock, who, paths, state } = restoring;
  const { manifest, differentials = [] } = source;
  const { directory, group } = config.storage;
  const bytes = manifest.files.reduce((sum, each) => sum + each.bytes, 0);
  const staging = makeScratch(directory, '.restore-', bytes, {
    say: (room, needed) => `${room}; the restore needs ${needed}. Nothing was changed.`,
    hint: 'Free some space and restore again.',
  });
  try {
    await source.stage(staging);
    const nowMs = clock.nowMs();
    const stamp = stampOf(nowMs);
    const fresh = join(staging, MIRROR_FILE);
    refuseOtherCounts(fresh, source);
    refuseForeign(fresh, source, differentials);
    const noted = state.feed.highestSeq() ?? 0;
    const known = await knownElsewhere(paths.mirror, { manifest, differentials }, { noted, clock });
    const { audited, feedJumps: feedJumped } = known;
    const continueAfterSeq = known.newestSeq + (feedJumped ? SEQ_JUMP : 0);
    keepUnsent(known.unsent, staging);
    const restored = prepareRestoredMirror(fresh, {
      continueAfterSeq,
      newestSettled: known.newestSettled,
      prepared: known.prepared,
      audited,
      auditEvent: { who, action: 'restore', subject: source.name, detail: `made ${manifest.createdAt}` },
      clock,
    });
    for (const [kind, name] of [
      ['stock', STOCK_FILE],
      ['product', PRODUCT_FILE],
    ] as const) {
      keepNewest({ file: join(staging, name), kind, mirror: fresh }, { config, clock });
    }
    if (group !== '') giveToGroup(groupId(group), fresh);
    // The inbox is checked before anything changes. An existing inbox has newer content than any backup and stays.
    const acks = acksToRestore(staging, known.acks, manifest.mirror.newestSeq);
    await handOver(acks, restoring);
    const keptAt = freeName(`${paths.mirror}.before-restore-${stamp}`);
    const wasThere = swapDatabase(fresh, paths.mirror, keptAt);
    const { feed } = state;
    if (source.signingKey) state.signingKeys.keep(source.signingKey);
    const changes = keepChanges(staging, directory, stamp);
    const tokens = manifest.hasTokens ? restoreTokens(join(staging, TOKENS_FILE), state) : 'none';
    const branches = isHub(config) ? await restoreHub(staging, state, audited, nowMs) : [];
    // Opening and closing the mirror once creates -wal and -shm, so that the POS can read it before the daemon starts.
    const options = { path: paths.mirror, clock, feed, role: roleOf(config), ...(group !== '' && { group }) };
    await (await openWhenFree(clock, () => openMirror(options))).close();
    return {
      manifest,
      directory,
      keptAt: wasThere ? keptAt : null,
      feedJumped,
      ...restored,
      tokens,
      branches,
      acks: acks.length,
      changes,
      knownUntil:
        differentials
          .map(({ createdAt }) => createdAt)
          .sort()
          .at(-1) ?? null,
    };
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

function handOver(acks: readonly Ack[], { config, paths, clock, signal }: Restoring): Promise<void> {
  const options = { path: paths.inbox, group: config.storage.group || undefined, clock, signal };
  return lookIntoInbox(options, async (ask) => {
    for (let i = 0; i < acks.length; i += ACKS_AT_ONCE) {
      await ask({ do: 'insertAcks', acks: acks.slice(i, i + ACKS_AT_ONCE) });
    }
  });
}

/** Mode of a configuration: readable only by root and the service's group, because addresses may contain passwords. */
const CONFIG_MODE = 0o640;

/**
 * - `kept`: the machine keeps its own file, since the backup has the same or none
 * - `differs`: the machine keeps its own file, although the backup's differs
 * - `restored`: the machine had no file and gets the backup's
 * - `replaced`: the machine gets the backup's file by request
 * - `set-up`: the machine's file was never set up, so it gets the backup's
 */
type ConfigOrigin = 'kept' | 'differs' | 'restored' | 'replaced' | 'set-up';

export interface ConfigForRestore {
  /** The configuration after the restore. */
  config: Config;
  file: string;
  origin: ConfigOrigin;
  /** What the backup's configuration runs, sends and writes that the machine's own does not, one line each. */
  newPowers: string[];
  /**
   * Writes the backup's configuration if it is to be used. Returns where the old one is kept; null if nothing was
   * replaced. Throws `storage-…`.
   */
  write(): string | null;
}

export interface ConfigForRestoreOptions extends ConfigOptions {
  /** Path and descriptor of the backup. */
  backup: string;
  descriptor: number;
  /** Opens an encrypted backup. */
  opening?: Opening | undefined;
  /** Whether a plain file is refused. */
  isSecret: boolean;
  /** Whether the backup's configuration replaces the machine's own. */
  takesIt: boolean;
  clock: Clock;
  signal?: AbortSignal | undefined;
}

/**
 * Chooses the configuration for a restore: the machine's own, or the backup's if requested or if the machine's was
 * never set up. Writes nothing. Throws `config-invalid` and what readBackup throws.
 */
export async function configForRestore(options: ConfigForRestoreOptions): Promise<ConfigForRestore> {
  const { backup, descriptor, opening, isSecret, takesIt, clock, signal, env } = options;
  const file = configPath(options.file, env);
  const read = { file: descriptor, opening, isSecret, text: CONFIG_FILE, signal };
  const { text } = await readBackup(backup, read);
  // Root may be the only user who can read the file, but acts as the storage user if the backup came from the hub.
  const isThere = asRoot(() => existsSync(file));
  if (text === undefined && isThere && takesIt) {
    throw new TillsyncError('usage', 'The backup has no configuration. Nothing was changed.', {
      hint: 'Restore it without --with-config.',
    });
  }
  if (text === undefined && !isThere) {
    const message = `There is no configuration ${file}, and none in the backup.`;
    throw new TillsyncError('config-invalid', message, {
      hint: 'Write one ({tillsync} init), then restore again. Nothing was changed.',
    });
  }
  const own = isThere && !takesIt ? asRoot(() => loadConfig({ file, env })) : undefined;
  const isSame = text === undefined || (isThere && text === asRoot(() => readFileSync(file, 'utf8')));
  if (isSame)
    return {
      config: own ?? asRoot(() => loadConfig({ file, env })),
      file,
      origin: 'kept',
      newPowers: [],
      write: () => null,
    };
  if (own !== undefined && isSetUp(own)) {
    return { config: own, file, origin: 'differs', newPowers: [], write: () => null };
  }
  const result = readConfig({ file, env, text });
  if ('faults' in result) throw configError(result.faults);
  const { config } = result;
  const origin = takesIt && isThere ? 'replaced' : isThere ? 'set-up' : 'restored';
  const write = () =>
    storing(() => {
      makeDirectory(dirname(file), 0o755);
      const owner = { mode: CONFIG_MODE, uid: 0, gid: serviceUserOf(file)?.gid ?? 0 };
      return replaceText({ path: file, text, owner, nowMs: clock.nowMs() }).keptAt;
    });
  const before = isThere ? asRoot(() => readConfig({ file, env })) : undefined;
  const known = before && 'config' in before ? powersOf(before.config) : [];
  const isKnown = ({ what, value }: Power) =>
    known.some((other) => other.what === what && other.value === value);
  const newPowers = powersOf(config)
    .filter((power) => !isKnown(power))
    .map(({ what, value, isAddress }) => `${what}: ${isAddress ? new URL(value).origin : value}`);
  return { config, file, origin, newPowers, write };
}

/** Something that tillsync runs, calls, trusts or writes because the configuration says so. */
interface Power {
  what: string;
  value: string;
  /** Whether `value` is an address with perhaps a secret in it, of which no path is shown. */
  isAddress: boolean;
}

/** Returns what tillsync runs, where it sends to, whom it trusts, and where it writes with this configuration. */
function powersOf({ platform, hub, link, storage, backup, hooks, alarms }: Config): Power[] {
  const words = (command: readonly string[]) => command.join(' ');
  const shown: [string, string][] = [
    ['calls platform.base_url', platform.baseUrl],
    ['trusts platform.ca_file', platform.caFile],
    ['calls hub.nats', hub.nats],
    ['calls link.hub', [link.hub, ...link.otherHubs].join(' ')],
    ['trusts link.ca_file', link.caFile],
    ['writes storage.directory', storage.directory],
    ['lets read storage.group', storage.group],
    ['writes backup.directory', backup.directory],
    ['runs backup.after', words(backup.after)],
    ['runs alarms.command', words(alarms.command)],
    ...hooks.map(({ name, command }): [string, string] => [`runs hook ${name}`, words(command)]),
  ];
  const addresses: [string, string][] = [
    ['calls platform.proxy', platform.proxy],
    ['sends alarms.url', alarms.url],
    ['calls alarms.heartbeat_url', alarms.heartbeatUrl],
    ...hooks.map(({ name, url }): [string, string] => [`sends hook ${name}`, url]),
  ];
  return [
    ...shown.map(([what, value]) => ({ what, value, isAddress: false })),
    ...addresses.map(([what, value]) => ({ what, value, isAddress: true })),
  ].filter(({ value }) => value !== '');
}

/**
 * Throws `usage` if a backup's configuration names a storage directory that is neither empty nor of tillsync, or that
 * belongs to a user or a group that neither this process nor the service is.
 */
export function refuseForeignStorage({ storage }: Config, configFile: string): void {
  const directory = resolve(storage.directory);
  const stats = lstatSync(directory, { throwIfNoEntry: false });
  if (stats === undefined) return;
  const refuse = (why: string) =>
    new TillsyncError(
      'usage',
      `The backup names the storage directory ${directory}, ${why}. Nothing was changed.`,
      {
        hint: 'Restore with a configuration of this machine, without --with-config, or move the directory away.',
      },
    );
  if (!stats.isDirectory()) throw refuse('which is no directory');
  const inside = readdirSync(directory);
  const { state, mirror } = storagePaths(directory);
  const isOurs = existsSync(state) || existsSync(mirror);
  if (inside.length > 0 && !isOurs) throw refuse('in which other files are');
  const service = serviceUserOf(configFile);
  const own = process.geteuid?.() ?? 0;
  const group = storage.group === '' ? [] : [groupId(storage.group)];
  const known = [{ uid: own, gid: process.getegid?.() ?? 0 }, ...(service ? [service] : [])];
  // Without a service, root acts as the owner of its storage, who is known by the owner of the databases.
  if (isOurs) known.push(statSync(existsSync(state) ? state : mirror));
  if (!known.some(({ uid }) => uid === stats.uid)) throw refuse(`which belongs to the user ${stats.uid}`);
  const groups = [...group, ...known.map(({ gid }) => gid)];
  if (!groups.includes(stats.gid)) throw refuse(`which belongs to the group ${stats.gid}`);
}

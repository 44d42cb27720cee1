import { readFileSync, rmSync } from 'node:fs';
import { resolve } from 'node:path';
import { actAsStorageUser, asRoot, requireRights } from '../app/installation.ts';
import { openState } from '../app/state.ts';
import { storagePaths } from '../app/storage.ts';
import { hookNames, readConfig } from '../config/config.ts';
import type { Config } from '../config/config-type.ts';
import { companyHost, roleOf } from '../config/roles.ts';
import { credentialFile, readSecrets, secretVariable, serviceOf } from '../config/secrets.ts';
import { configError, configPath, type Environment } from '../config/source.ts';
import { TillsyncError, typedWords } from '../core/errors.ts';
import { openWhenFree } from '../core/files.ts';
import { whenFree } from '../core/loop.ts';
import { type Clock, formatDuration, isoUtc } from '../core/time.ts';
import type { SigningKey } from '../db/signing-keys.ts';
import type { BackupReport, Manifest } from '../support/backup.ts';
import type { BeforeUpgradeReport } from '../support/before-upgrade.ts';
import type { Differential } from '../support/differential.ts';
import type { Opening, ReadableBy } from '../support/encryption.ts';
import type { ConfigForRestore, RestoreReport } from '../support/restore.ts';
import { type Cli, datedName, EXIT, readAll } from './cli.ts';
import { type Call, command, type Result, sourceOf } from './command.ts';
import { askSecret, confirm } from './init/terminal.ts';
import { phraseText } from './phrase-text.ts';
import { Progress } from './progress.ts';
import { fields } from './table.ts';

export const backup = command({
  description: 'Back up this store',
  examples: [
    'backup /media/usb/tillsync.tar.gz',
    'backup tillsync.tar.gz --force --json',
    'backup /media/usb/tillsync.tar.gz --new-phrase',
  ],
  argument: ['[file]', 'File to write (default: named after the day)'],
  options: {
    '--force': 'Overwrite the file if it exists',
    '--new-phrase': 'Create a recovery phrase, show it once, and encrypt this and later backups with it',
    '--since <time>':
      'Write a differential backup: acknowledgements, unanswered changes and decisions since this time (ISO 8601)',
    '--with-tokens': 'Include the tokens, to move to another machine; stop tillsync here for good first',
  },
  async run(call) {
    const { cli, options, argument = datedName('tillsync-backup', cli.clock) } = call;
    const { force = false, withTokens = false, newPhrase = false, since } = options;
    if (since !== undefined && (withTokens || newPhrase)) {
      throw new TillsyncError('usage', '--since goes with neither --with-tokens nor --new-phrase.');
    }
    const { refuseExisting } = await import('../support/archive.ts');
    const { writeBackup } = await import('../support/backup.ts');
    const { config, file: configFile } = loadedConfig(call);
    const made = newPhrase ? await makePhrase(config, configFile) : undefined;
    if (since !== undefined) {
      const readableBy = whoMayRead(config, configFile, cli.env);
      return await differential(call, { config, configFile, readableBy, since, file: argument });
    }
    const readableBy = made
      ? { recipient: made.recipient, signingKey: made.signingKey }
      : whoMayRead(config, configFile, cli.env);
    const file = await encryptedName(argument, readableBy);
    // An existing file is refused first, because the backup may take minutes.
    refuseExisting(file, force);
    actAsStorageUser({ directory: config.storage.directory, configFile, writes: false });
    const progress = new Progress(cli);
    progress.step('copying and checking the mirror');
    const { clock, signal } = cli;
    const report = await writeBackup({
      config,
      env: cli.env,
      configFile,
      path: file,
      force,
      withTokens,
      clock,
      who: cli.who,
      signal,
      readableBy,
    }).finally(() => progress.end());
    const { bytes, manifest, inboxFault } = report;
    const configKeptAt = made ? await useOrRemove(() => made.use(cli), file) : null;
    const told = warnings(report);
    for (const warning of told) cli.stderr.write(`${warning}\n`);
    return {
      json: {
        file,
        bytes,
        ...manifest,
        isEncrypted: readableBy !== undefined,
        ...(made && { phrase: made.phrase, recipient: made.recipient, configFile, configKeptAt }),
        warnings: told,
        inboxFault: inboxFault?.message ?? null,
      },
      text: `${backupText(file, report, config.retention.personalDataMs)}${made ? phraseText(made.phrase, configFile) : ''}`,
      exit: inboxFault === null ? EXIT.done : EXIT.partial,
    };
  },
});

interface DifferentialCall {
  config: Config;
  configFile: string;
  readableBy: ReadableBy | undefined;
  since: string;
  file: string;
}

async function differential(
  { cli }: { cli: Cli },
  { config, configFile, readableBy, since, file }: DifferentialCall,
): Promise<Result> {
  const sinceMs = Date.parse(since);
  if (Number.isNaN(sinceMs)) {
    throw new TillsyncError('usage', `--since: ${since} is no time such as 2026-11-25T08:00:00Z.`);
  }
  const path = await encryptedName(file, readableBy);
  actAsStorageUser({ directory: config.storage.directory, configFile, writes: false });
  const { writeDifferential } = await import('../support/differential.ts');
  const { clock, signal } = cli;
  const report = await writeDifferential({
    config,
    path,
    since: isoUtc(sinceMs),
    readableBy,
    clock,
    signal,
  });
  const text = fields({
    'differential backup': `${path}, ${report.bytes} bytes, read again and checked`,
    since: isoUtc(sinceMs),
    acknowledgements: report.acks,
    'not sent yet': `${report.unsent} changes`,
  });
  return { json: { file: path, ...report, isEncrypted: readableBy !== undefined }, text };
}

async function encryptedName(file: string, readableBy: ReadableBy | undefined): Promise<string> {
  const { ENCRYPTED } = await import('../support/backup.ts');
  return readableBy && !file.endsWith(ENCRYPTED) ? `${file}${ENCRYPTED}` : file;
}

function backupText(file: string, { bytes, manifest }: BackupReport, personalDataMs: number): string {
  const { mirror, inbox, hasConfig, hasTokens, branches, handedIn } = manifest;
  const handedOver = inbox && inbox.stockChanges + inbox.productChanges + inbox.orderAcks;
  return fields({
    backup: `${file}, ${bytes} bytes, read again and checked`,
    of: manifest.createdAt,
    orders: `${mirror.orders}, newest event ${mirror.newestSeq}`,
    customers: `names, phones and addresses of these orders, until you delete the file${
      personalDataMs > 0
        ? `; delete it within ${formatDuration(personalDataMs)}, when tillsync has forgotten them here`
        : ''
    }`,
    products: mirror.products,
    'not sent yet': `${mirror.unsentChanges} changes in the outbox, ${handedOver ?? 'unknown'} in the inbox`,
    configuration: hasConfig ? 'in it' : 'not in it, for it comes from the environment alone',
    tokens: hasTokens ? 'IN IT: whoever has the file can act for the company' : 'not in it',
    ...(handedIn.length > 0 && {
      secrets: `not in it, and copied by hand for a move: ${handedIn.join(', ')}`,
    }),
    ...(branches !== undefined && { branches: `${branches}, by the public halves of their keys` }),
  });
}

/** Returns the configuration and the path of its file. Throws `config-invalid`. */
function loadedConfig(call: Parameters<typeof sourceOf>[0]): { config: Config; file: string } {
  const read = readConfig(sourceOf(call));
  if ('faults' in read) throw configError(read.faults);
  return read;
}

/**
 * Returns the recipient or passphrase that encrypts backups; undefined if none is set, so that backups are not
 * encrypted.
 */
function whoMayRead(config: Config, configFile: string, env: Environment): ReadableBy | undefined {
  if (config.backup.recipient !== '') return { recipient: config.backup.recipient };
  const read = asRoot(() => readSecrets(env, serviceOf(resolve(configFile)), hookNames(config)));
  const passphrase = 'secrets' in read ? read.secrets.backupPassphrase : undefined;
  return passphrase === undefined ? undefined : { passphrase };
}

/**
 * Makes a recovery phrase. The returned `use` stores its signing key, writes its public half into the configuration file,
 * and returns the path of the copy of the old file.
 */
async function makePhrase(config: Config, configFile: string) {
  const { newRecoveryPhrase } = await import('../support/recovery-phrase.ts');
  const { replaceFile, setKey } = await import('../config/edit.ts');
  const made = await newRecoveryPhrase(config.shop.language);
  const text = asRoot(() => readFileSync(configFile, 'utf8'));
  const edited = setKey(text, 'backup', 'recipient', made.recipient);
  const use = async ({ clock }: Cli) => {
    await keepSigningKey(config, made.signingKey, clock);
    return asRoot(() => replaceFile(configFile, edited, () => {}, clock.nowMs()).keptAt);
  };
  return { ...made, use };
}

/** Stores the key that signs the backups for a new recovery phrase. */
async function keepSigningKey(config: Config, key: SigningKey, clock: Clock): Promise<void> {
  const { state: path } = storagePaths(config.storage.directory);
  const state = await openWhenFree(clock, () => openState({ path, clock, role: roleOf(config) }));
  try {
    await whenFree(clock, () => state.signingKeys.keep(key));
  } finally {
    state.close();
  }
}

/**
 * Runs `use`. If `use` fails, deletes the backup `file`, because its phrase is then never shown and nothing else
 * decrypts the backup.
 */
async function useOrRemove(use: () => Promise<string | null>, file: string): Promise<string | null> {
  try {
    return await use();
  } catch (error) {
    asRoot(() => rmSync(file, { force: true }));
    throw error;
  }
}

function warnings({ manifest, tokensInUse, inboxFault, isSigned }: BackupReport): string[] {
  const found: string[] = [];
  if (isSigned === false) {
    found.push(
      'Not signed: the recovery phrase of backup.recipient was not made on this machine, and restore --phrase refuses the file. For a phrase of this machine: tillsync backup --new-phrase',
    );
  }
  if (manifest.hasTokens) {
    found.push(
      'The file holds the tokens: keep it as safe as a password. Let one machine alone use them; two lock each other out.',
    );
  }
  if (tokensInUse === true) {
    found.push(
      'tillsync runs here and will soon use these tokens up, and then those in the file are worth nothing. To move: stop it, back up again, and do not start it here any more.',
    );
  }
  if (inboxFault !== null) found.push(`The inbox is not in the backup. ${inboxFault.message}`);
  return found;
}

export const restore = command({
  description: 'Restore a backup, on this machine or another',
  examples: [
    'restore tillsync.tar.gz --check',
    'restore /media/usb/tillsync.tar.gz',
    'restore /media/usb/tillsync.tar.gz --with-config',
    'restore /media/usb/tillsync.tar.gz.age --phrase',
    'restore /mnt/nas/backups --phrase',
    'restore /mnt/nas/backups --phrase --yes < phrase.txt',
    'restore --before-upgrade',
  ],
  argument: ['[file]', 'Backup file, or a directory to restore its newest backup'],
  options: {
    '--before-upgrade':
      'Restore the databases from before the last upgrade, after installing the earlier version',
    '--check': 'Check the backup and show its contents; restore nothing',
    '--phrase': 'Ask for the recovery phrase, age identity or passphrase, or read it from standard input',
    '--with-config': 'Also restore the configuration; the current file is saved as .bak-TIME',
    '--yes': "Don't ask before using the backup's configuration",
  },
  more: `
Stop tillsync first. The current data is saved as mirror.db.before-restore-TIME. Changes that were unsent when the backup
was made are put on hold, because the platform may have newer values. To review them, run: tillsync outbox list --state held
Event numbers never repeat: if the mirror here doesn't show the last number, the feed continues 1000000 higher.`,
  async run(call) {
    const { options, argument } = call;
    const { beforeUpgrade: isBefore, ...others } = options;
    if (isBefore) {
      if (argument !== undefined || others.check || others.phrase || others.withConfig || others.yes) {
        throw new TillsyncError(
          'usage',
          '--before-upgrade takes no file and no other option. Nothing was changed.',
        );
      }
      return await beforeUpgrade(call);
    }
    if (argument === undefined) {
      throw new TillsyncError('usage', 'No file was named.', {
        hint: 'Name a backup, or take the databases from before an upgrade: {tillsync} restore --before-upgrade',
      });
    }
    return await restoreFile(call, argument, await openingOf(call, options.phrase ?? false));
  },
});

type RestoreCall = Parameters<typeof sourceOf>[0] & {
  cli: Cli;
  options: {
    check?: boolean | undefined;
    phrase?: boolean | undefined;
    withConfig?: boolean | undefined;
    yes?: boolean | undefined;
  };
};

/** Restores the backup `argument`, or the newest in the directory `argument`. */
async function restoreFile(
  call: RestoreCall,
  argument: string,
  openBy: ((file: string) => Opening) | undefined,
): Promise<Result> {
  const { cli, options } = call;
  const { clock, signal } = cli;
  const { ENCRYPTED, handedIn, isEncrypted, openBackup, readBackup } = await import('../support/backup.ts');
  const { newestBackup } = await import('../support/backup-files.ts');
  const { readDifferentialsFor } = await import('../support/differential.ts');
  const file = newestBackup(argument, cli.clock.nowMs());
  const opening = openBy?.(file);
  const descriptor = openBackup(file);
  // Whoever may write where backups lie can write a plain file, but not one that is encrypted and signed.
  const isSecret = options.phrase === true || file.endsWith(ENCRYPTED) || isEncrypted(descriptor);
  if (options.check) {
    const { manifest } = await readBackup(file, { file: descriptor, opening, isSecret, signal });
    const beside = await readDifferentialsFor(file, openBy, { isSecret, signal });
    return {
      json: { ...manifest, differentials: beside.map(({ name, createdAt }) => ({ name, createdAt })) },
      text: `${file} is whole.\n${describe(manifest)}${beside.map(describeDifferential).join('')}`,
    };
  }
  const { configForRestore, refuseForeignStorage, restoreBackup } = await import('../support/restore.ts');
  const found = await configForRestore({
    ...sourceOf(call),
    backup: file,
    descriptor,
    opening,
    isSecret,
    clock,
    signal,
    takesIt: options.withConfig ?? false,
  });
  const { config, file: configFile, origin } = found;
  // Differentials are read before root becomes the storage user, who may not be permitted to read them.
  const differentials = await readDifferentialsFor(file, openBy, { isSecret, signal });
  if (origin === 'restored' || origin === 'replaced' || origin === 'set-up') {
    refuseForeignStorage(config, configFile);
    if (found.newPowers.length > 0 && !options.yes) await confirmPowers(cli, found.newPowers);
  }
  actAsStorageUser({ directory: config.storage.directory, configFile, writes: true });
  requireRights(config.storage.directory, 'write');
  const report = await restoreBackup({
    path: file,
    file: descriptor,
    opening,
    isSecret,
    differentials,
    config,
    clock,
    signal,
    who: cli.who,
  });
  const configKeptAt = asRoot(() => found.write());
  const { directory, manifest } = report;
  const here = handedIn(config, configFile, cli.env);
  const missingSecrets = manifest.handedIn.filter((name) => !here.includes(name) && !USED_UP.has(name));
  const advice = [
    ...secretAdvice(missingSecrets, configFile),
    ...adviceFor(report, isoUtc(clock.nowMs()).slice(0, 10)),
    ...configAdvice(found, configKeptAt, file),
  ];
  const host = companyHost(config);
  if (host !== manifest.platform) {
    advice.unshift(`The backup is of ${manifest.platform}, but the configuration talks to ${host}.`);
  }
  return {
    json: { ...report, configFile, configuration: origin, configKeptAt, missingSecrets, advice },
    text: `${directory} was restored.\n${describe(manifest)}${advice.map((line) => `${line}\n`).join('')}`,
  };
}

/** Asks a person whether a configuration from a backup may be used, with all that it runs, sends and writes. */
async function confirmPowers(cli: Cli, powers: readonly string[]): Promise<void> {
  const lines = powers.map((power) => `  ${power}\n`).join('');
  await confirm(cli, `With the configuration of the backup, tillsync\n${lines}`, 'Use it?');
}

async function beforeUpgrade(call: Pick<Call, 'cli' | 'options'>): Promise<Result> {
  const { cli } = call;
  const { clock, signal } = cli;
  const { config, file: configFile } = loadedConfig(call);
  actAsStorageUser({ directory: config.storage.directory, configFile, writes: true });
  requireRights(config.storage.directory, 'write');
  const { restoreBeforeUpgrade } = await import('../support/before-upgrade.ts');
  const report = await restoreBeforeUpgrade({ config, clock, signal, who: cli.who });
  const { mirror } = report;
  const advice = [
    ...stateAdvice(report),
    ...(mirror
      ? adviceFor(mirror, isoUtc(clock.nowMs()).slice(0, 10))
      : [`Start tillsync: ${typedWords().start}`]),
  ];
  return {
    json: { ...report, advice },
    text: `${restoredText(report)}${advice.map((line) => `${line}\n`).join('')}`,
  };
}

function restoredText({ directory, mirror, stateKeptAt }: BeforeUpgradeReport): string {
  const names = [...(mirror ? ['mirror.db'] : []), ...(stateKeptAt === null ? [] : ['state.db'])];
  return names.length === 0 ? '' : `${names.join(' and ')} in ${directory}: as before the upgrade.\n`;
}

function stateAdvice({ stateKeptAt }: BeforeUpgradeReport): string[] {
  return stateKeptAt === null
    ? []
    : [`The newer state.db is kept as ${stateKeptAt}; delete it when all is well.`];
}

const PHRASE_BYTES_MAX = 10_000;

/**
 * Returns how a file is opened by a typed phrase or by this machine's passphrase; undefined if there is neither.
 */
async function openingOf(
  call: Parameters<typeof sourceOf>[0] & { cli: Cli },
  isTyped: boolean,
): Promise<((file: string) => Opening) | undefined> {
  const { cli } = call;
  const { openingBy } = await import('../support/encryption.ts');
  if (isTyped) {
    const fault = (found: string) => new TillsyncError('usage', `A phrase is short; found ${found}.`);
    const typed = cli.stdin.isTTY
      ? await askSecret(cli, 'The recovery phrase or passphrase; it is not shown:')
      : await readAll(cli.stdin, PHRASE_BYTES_MAX, fault);
    return openingBy(typed.trim());
  }
  const { file: configFile } = sourceOf(call);
  const path = configPath(configFile, cli.env);
  const read = asRoot(() => readSecrets(cli.env, serviceOf(resolve(path))));
  const own = 'secrets' in read ? read.secrets.backupPassphrase : undefined;
  return own === undefined ? undefined : openingBy(own);
}

function describeDifferential({ name, createdAt, known }: Differential): string {
  return `${name} is whole: ${known.acks.length} acknowledgements, until ${createdAt}.\n`;
}

function describe(manifest: Manifest): string {
  const { createdAt, tillsync, platform, mirror, inbox, hasTokens, branches } = manifest;
  return fields({
    made: `${createdAt} by tillsync ${tillsync}, for ${platform}`,
    orders: `${mirror.orders}, newest event ${mirror.newestSeq}`,
    products: mirror.products,
    'not sent then': `${mirror.unsentChanges} changes in the outbox`,
    'in the inbox then':
      inbox &&
      `${inbox.stockChanges} stocks, ${inbox.productChanges} products, ${inbox.orderAcks} acknowledgements`,
    tokens: hasTokens ? 'in it' : 'not in it',
    ...(branches !== undefined && { branches }),
  });
}

/**
 * Secrets that are not reported as missing after a restore, because they are used only once: the token pair in state.db
 * then replaces them.
 */
const USED_UP: ReadonlySet<string> = new Set(['refresh-token', 'access-token']);

/** Returns sentences that say where to put the secrets that no backup contains. */
function secretAdvice(names: readonly string[], configFile: string): string[] {
  if (names.length === 0) return [];
  const service = serviceOf(resolve(configFile));
  const missing = `In no backup, and not on this machine, are the secrets ${names.join(', ')}. Before the start`;
  if (service === undefined) return [`${missing}, set them: ${names.map(secretVariable).join(', ')}`];
  const files = names.map((name) => credentialFile(service, name)).join(', ');
  return [`${missing}, put them (mode 0600) into ${files}, and run: sudo systemctl daemon-reload`];
}

const TOKENS_ADVICE = {
  none: [],
  taken: [
    'The tokens of the backup are used from now on. Never start tillsync with them on another machine.',
  ],
  'own-kept': ['The tokens of this machine were kept; those of the backup were not used.'],
} as const;

function configAdvice({ origin, file }: ConfigForRestore, keptAt: string | null, backup: string): string[] {
  const again = `${typedWords().tillsync} restore ${backup} --with-config`;
  switch (origin) {
    case 'kept':
      return [];
    case 'differs':
      return [`Kept this machine's settings (${file}). The backup has different ones; to use them: ${again}`];
    case 'restored':
      return [`The settings of the backup were written to ${file}.`];
    case 'replaced':
      return [`The settings of the backup are in ${file} now; those before are kept as ${keptAt}.`];
    case 'set-up':
      return [
        `This machine was not set up, so the settings of the backup are in ${file} now, as with --with-config; the file before is kept as ${keptAt}.`,
      ];
  }
}

/** Returns sentences about a restored mirror alone. */
function mirrorAdvice(report: RestoreReport): string[] {
  const { keptAt, held, feedJumped, continuesAfterSeq, changes, knownUntil } = report;
  const { tillsync } = typedWords();
  const advice: string[] = [];
  if (keptAt !== null) advice.push(`What was here is kept as ${keptAt}; delete it when all is well.`);
  if (held > 0) {
    advice.push(`${held} changes that had not been sent are held: ${tillsync} outbox list --state held`);
  }
  for (const { kind, path } of changes) {
    const again = `${tillsync} push ${kind} ${path}`;
    advice.push(`The POS had handed over ${path}; if it still holds true: ${again}`);
  }
  if (knownUntil !== null) {
    advice.push(`What the POS acknowledged until ${knownUntil} is known, from the differential backup.`);
  }
  if (feedJumped) {
    advice.push(`The order feed goes on above ${continuesAfterSeq}, so that no number comes twice.`);
  }
  return advice;
}

/** Returns sentences about what a person must know or do after a restore. */
function adviceFor(report: RestoreReport, today: string): string[] {
  const { manifest } = report;
  const { tillsync, start } = typedWords();
  const since = manifest.createdAt.slice(0, 10);
  const advice = [...mirrorAdvice(report), ...TOKENS_ADVICE[report.tokens]];
  if (report.branches.length > 0) {
    const names = report.branches.join(', ');
    advice.push(
      `Branches that don't have to join again: ${names}. If one of them must not connect, revoke its key: ${tillsync} branch revoke NAME`,
      `The nats-server needs its configuration here, and the certificate that the branches know: ${tillsync} hub server-config`,
    );
  } else if ((manifest.branches ?? 0) > 0) {
    advice.push(`The branches of this machine were kept: ${tillsync} branch list`);
  }
  const orders = `${tillsync} sync orders --from ${since} --to ${today}`;
  advice.push(
    `Start tillsync: ${start}. What happened since ${since} comes by polling; should an order be missing: ${orders}`,
  );
  return advice;
}

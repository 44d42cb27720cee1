import type { Command } from 'commander';
import { typedWords } from '../core/errors.ts';
import { isoUtc } from '../core/time.ts';
import type { BackupReport, Manifest } from '../support/backup.ts';
import type { RestoreReport } from '../support/restore.ts';
import type { ConfigForRestore } from '../support/restored-config.ts';
import {
  type Cli,
  datedName,
  EXIT,
  type GlobalOptions,
  type JsonOption,
  newResultCommand,
  writeJson,
} from './cli.ts';
import { Progress } from './progress.ts';
import { fields } from './table.ts';

interface BackupCommandOptions extends GlobalOptions, JsonOption {
  force?: boolean;
  withTokens?: boolean;
}

/** `backup`: everything that is worth keeping in one file, beside the running daemon. */
export function backupCommand(cli: Cli): Command {
  return newResultCommand(
    'backup',
    'Write the mirror, what the POS handed over and the configuration into one file, also while tillsync runs',
    ['backup /media/usb/tillsync.tar.gz', 'backup tillsync.tar.gz --force --json'],
  )
    .argument(
      '[file]',
      'the file to write, else one with the day in its name; it is read again and checked before it gets this name',
    )
    .option('--force', 'overwrite the file if it exists')
    .option(
      '--with-tokens',
      'with the tokens, to move to another machine: stop tillsync here first and for good, for a pair of tokens ' +
        'that two machines use locks both out',
    )
    .action((file: string | undefined, _options, command: Command) =>
      backup(cli, file ?? datedName('tillsync-backup', cli.clock), command.optsWithGlobals()),
    );
}

async function backup(cli: Cli, file: string, options: BackupCommandOptions): Promise<void> {
  // Before the work, which may take minutes.
  const { refuseExisting } = await import('../support/archive.ts');
  refuseExisting(file, options.force ?? false);
  const { readConfig } = await import('../config/config.ts');
  const { configError } = await import('../config/source.ts');
  const { writeBackup } = await import('../support/backup.ts');
  const { actAsStorageUser } = await import('../app/installation.ts');
  const read = readConfig({ file: options.config, env: cli.env });
  if ('faults' in read) throw configError(read.faults);
  actAsStorageUser({ directory: read.config.storage.directory, configFile: read.file, writes: false });
  const progress = new Progress({ stream: cli.stderr, clock: cli.clock });
  progress.step('copying and checking the mirror');
  let report: BackupReport;
  try {
    report = await writeBackup({
      config: read.config,
      configFile: read.file,
      path: file,
      force: options.force ?? false,
      withTokens: options.withTokens ?? false,
      clock: cli.clock,
      signal: cli.signal,
    });
  } finally {
    progress.end();
  }
  if (report.inboxFault !== null) cli.endWith(EXIT.partial);
  for (const warning of warnings(report)) cli.stderr.write(`${warning}\n`);
  if (options.json) {
    const { bytes, manifest, inboxFault } = report;
    writeJson(cli, {
      file,
      bytes,
      ...manifest,
      warnings: warnings(report),
      inboxFault: inboxFault?.message ?? null,
    });
  } else cli.stdout.write(text(file, report));
}

function text(file: string, { bytes, manifest }: BackupReport): string {
  const { mirror, inbox, hasConfig, hasTokens } = manifest;
  const handedOver = inbox && inbox.stockChanges + inbox.productChanges + inbox.orderAcks;
  return fields([
    ['backup', `${file}, ${bytes} bytes, read again and checked`],
    ['of', manifest.createdAt],
    ['orders', `${mirror.orders}, newest event ${mirror.newestSeq}`],
    ['products', mirror.products],
    [
      'not sent yet',
      `${mirror.unsentChanges} changes in the outbox, ${handedOver ?? 'unknown'} in the inbox`,
    ],
    ['configuration', hasConfig ? 'in it' : 'not in it, for it comes from the environment alone'],
    ['tokens', hasTokens ? 'IN IT: whoever has the file can act for the company' : 'not in it'],
  ]);
}

function warnings({ manifest, tokensInUse, inboxFault }: BackupReport): string[] {
  const found: string[] = [];
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

interface RestoreOptions extends GlobalOptions, JsonOption {
  check?: boolean;
  withConfig?: boolean;
}

/** `restore`: the mirror of a backup in the place of what is there. */
export function restoreCommand(cli: Cli): Command {
  return newResultCommand(
    'restore',
    'Put a backup in the place of what is here, on this machine or another; tillsync must be stopped',
    [
      'restore tillsync.tar.gz --check',
      'restore /media/usb/tillsync.tar.gz',
      'restore /media/usb/tillsync.tar.gz --with-config',
    ],
  )
    .argument('<file>', 'as `tillsync backup` wrote it; it is checked whole before anything is touched')
    .option('--check', 'only check the file and tell what is in it')
    .option(
      '--with-config',
      "take the configuration of the backup, too; the file that is here is kept beside it as .bak-TIME. Without it, this machine's own stays, unless it was never set up",
    )
    .addHelpText(
      'after',
      `
What was here is kept beside it as mirror.db.before-restore-TIME. Changes that were not sent when the backup was made
are held (tillsync outbox list --state held): the platform may have newer values. The order feed never gives a number
twice: where the mirror here does not show how far it came, it goes on 1000000 further.`,
    )
    .action((file: string, _options, command: Command) => restore(cli, file, command.optsWithGlobals()));
}

async function restore(cli: Cli, file: string, options: RestoreOptions): Promise<void> {
  const { clock, signal } = cli;
  if (options.check) {
    const { readBackup } = await import('../support/backup.ts');
    const { manifest } = await readBackup(file, { signal });
    if (options.json) writeJson(cli, manifest);
    else cli.stdout.write(`${file} is whole.\n${describe(manifest)}`);
    return;
  }
  const { configForRestore } = await import('../support/restored-config.ts');
  const { openBackup } = await import('../support/backup.ts');
  const { restoreBackup } = await import('../support/restore.ts');
  const { actAsStorageUser, asRoot } = await import('../app/installation.ts');
  const { requireRights } = await import('../app/installation.ts');
  const descriptor = openBackup(file);
  const found = await configForRestore({
    ...{ file: options.config, env: cli.env, backup: file, descriptor, clock, signal },
    takesIt: options.withConfig ?? false,
  });
  const { config } = found;
  actAsStorageUser({ directory: config.storage.directory, configFile: found.file, writes: true });
  requireRights(config.storage.directory, 'write');
  const report = await restoreBackup({ path: file, file: descriptor, config, clock, signal });
  const configKeptAt = asRoot(() => found.write());
  const advice = adviceFor(report, isoUtc(clock.nowMs()).slice(0, 10));
  const { host } = new URL(config.platform.baseUrl);
  if (host !== report.manifest.platform) {
    advice.unshift(`The backup is of ${report.manifest.platform}, but the configuration talks to ${host}.`);
  }
  advice.push(...configAdvice(found, configKeptAt, file));
  if (options.json) {
    const configuration = { configFile: found.file, configuration: found.origin, configKeptAt };
    writeJson(cli, { ...report, ...configuration, advice });
  } else {
    cli.stdout.write(`${report.directory} was restored.\n${describe(report.manifest)}`);
    for (const line of advice) cli.stdout.write(`${line}\n`);
  }
}

function describe({ createdAt, tillsync, platform, mirror, inbox, hasTokens }: Manifest): string {
  return fields([
    ['made', `${createdAt} by tillsync ${tillsync}, for ${platform}`],
    ['orders', `${mirror.orders}, newest event ${mirror.newestSeq}`],
    ['products', mirror.products],
    ['not sent then', `${mirror.unsentChanges} changes in the outbox`],
    [
      'in the inbox then',
      inbox &&
        `${inbox.stockChanges} stocks, ${inbox.productChanges} products, ${inbox.orderAcks} acknowledgements`,
    ],
    ['tokens', hasTokens ? 'in it' : 'not in it'],
  ]);
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

/** What a person has to know or do now. */
function adviceFor(report: RestoreReport, today: string): string[] {
  const { keptAt, held, feedJumped, continuesAfterSeq, changes, manifest } = report;
  const since = manifest.createdAt.slice(0, 10);
  return [
    ...(keptAt === null ? [] : [`What was here is kept as ${keptAt}; delete it when all is well.`]),
    ...(held === 0
      ? []
      : [
          `${held} changes that had not been sent are held: ${typedWords().tillsync} outbox list --state held`,
        ]),
    ...changes.map(
      ({ kind, path }) =>
        `The POS had handed over ${path}; if it still holds true: ${typedWords().tillsync} push ${kind} ${path}`,
    ),
    ...(feedJumped
      ? [`The order feed goes on above ${continuesAfterSeq}, so that no number comes twice.`]
      : []),
    ...TOKENS_ADVICE[report.tokens],
    `Start tillsync: ${typedWords().start}. What happened since ${since} comes by polling; should an order be missing: ${typedWords().tillsync} sync orders --from ${since} --to ${today}`,
  ];
}

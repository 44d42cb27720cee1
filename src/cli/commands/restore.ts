import type { Command } from 'commander';
import type { ConfigForRestore } from '../../daemon/backup/config-for-restore.ts';
import type { Manifest } from '../../daemon/backup/manifest.ts';
import type { RestoreReport } from '../../daemon/backup/restore-backup.ts';
import { typedWords } from '../../domain/installation.ts';
import { isoUtc } from '../../domain/time/clock.ts';
import type { Cli } from '../cli.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { writeJson } from '../output.ts';
import { fields } from '../texts/table.ts';

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
    const { readBackup } = await import('../../daemon/backup/read-backup.ts');
    const { manifest } = await readBackup(file, { signal });
    if (options.json) writeJson(cli, manifest);
    else cli.stdout.write(`${file} is whole.\n${describe(manifest)}`);
    return;
  }
  const { configForRestore } = await import('../../daemon/backup/config-for-restore.ts');
  const { openBackup } = await import('../../daemon/backup/read-backup.ts');
  const { restoreBackup } = await import('../../daemon/backup/restore-backup.ts');
  const { actAsStorageUser, asRoot } = await import('../../daemon/storage/storage-user.ts');
  const { requireRights } = await import('../../daemon/storage/rights.ts');
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

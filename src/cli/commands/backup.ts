import type { Command } from 'commander';
import type { BackupReport } from '../../daemon/backup/write-backup.ts';
import type { Cli } from '../cli.ts';
import { EXIT } from '../exit-code.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { writeJson } from '../output.ts';
import { Progress } from '../progress.ts';
import { datedName } from '../target-file.ts';
import { fields } from '../texts/table.ts';

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
  const { refuseExisting } = await import('../../daemon/archive/make-file.ts');
  refuseExisting(file, options.force ?? false);
  const { readConfig } = await import('../../config/config.ts');
  const { configError } = await import('../../config/config-fault.ts');
  const { writeBackup } = await import('../../daemon/backup/write-backup.ts');
  const { actAsStorageUser } = await import('../../daemon/storage/storage-user.ts');
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

import type { Command } from 'commander';
import { TillsyncError } from '../core/errors.ts';
import type { Bundle } from '../support/bundle/bundle.ts';
import {
  type Cli,
  datedName,
  type GlobalOptions,
  type JsonOption,
  newResultCommand,
  writeJson,
} from './cli.ts';
import { Progress } from './progress.ts';
import { table } from './table.ts';

interface BundleCommandOptions extends GlobalOptions, JsonOption {
  force?: boolean;
  withCustomerData?: boolean;
  unit?: string;
  log: string[];
}

/** `bundle`: what support needs to see from afar, in one file that a shop can mail. */
export function bundleCommand(cli: Cli): Command {
  return newResultCommand(
    'bundle',
    'Gather what support needs to see into one file to mail, without secrets and without customers',
    [
      'bundle support.tar.gz',
      'bundle support.tar.gz --log /var/log/tillsync.log',
      'bundle - > support.tar.gz',
    ],
  )
    .argument('[file]', 'the file to write, else one with the day in its name; - is standard output')
    .option('--force', 'overwrite the file if it exists')
    .option('--with-customer-data', 'with orders as received: names, phones, addresses; never with secrets')
    .option('--unit <unit>', 'the systemd unit whose journal goes in, else that of the configuration')
    .option(
      '--log <file>',
      'the end of this log file as well; may be repeated',
      (file, list: string[]) => [...list, file],
      [],
    )
    .action((file: string | undefined, _options, command: Command) =>
      bundle(cli, file ?? datedName('tillsync-bundle', cli.clock), command.optsWithGlobals()),
    );
}

async function bundle(cli: Cli, file: string, options: BundleCommandOptions): Promise<void> {
  const toStdout = file === '-';
  if (toStdout && (options.json || cli.stdout.isTTY)) {
    throw new TillsyncError('usage', 'Standard output can carry the bundle alone, and no terminal can.', {
      hint: 'Name a file, or: tillsync bundle - > FILE',
    });
  }
  // Before the work, which may take minutes.
  const { refuseExisting } = await import('../support/archive.ts');
  if (!toStdout) refuseExisting(file, options.force ?? false);
  const { configPath } = await import('../config/source.ts');
  const { unitOf } = await import('../app/installation.ts');
  const { collectBundle } = await import('../support/bundle/bundle.ts');
  const { packBundle, writeBundle } = await import('../support/bundle/bundle.ts');
  const progress = new Progress({ stream: cli.stderr, clock: cli.clock });
  let collected: Bundle;
  try {
    collected = await collectBundle({
      file: options.config,
      env: cli.env,
      clock: cli.clock,
      random: cli.random,
      signal: cli.signal,
      unit: options.unit ?? unitOf(configPath(options.config, cli.env)) ?? 'tillsync.service',
      logFiles: options.log,
      withCustomerData: options.withCustomerData ?? false,
      onSection: (name) => progress.step(`gathering ${name}`),
    });
  } finally {
    progress.end();
  }
  if (cli.signal.aborted) throw new TillsyncError('aborted', 'Stopped. Nothing was written.');
  const modifiedMs = cli.clock.nowMs();
  if (toStdout) {
    cli.stdout.write(await packBundle(collected, modifiedMs));
    cli.stderr.write(text(file, collected));
    return;
  }
  const where = { path: file, force: options.force ?? false, modifiedMs, signal: cli.signal };
  const bytes = await writeBundle(collected, where);
  const { files, leftOut } = collected;
  const listed = files.map(({ name, what, text, fault }) => ({
    name,
    what,
    bytes: Buffer.byteLength(text),
    fault,
  }));
  if (options.json) writeJson(cli, { file, bytes, files: listed, leftOut });
  else cli.stdout.write(`${text(file, collected)}\n${file}: ${bytes} bytes. To look: tar -xzf ${file}\n`);
}

function text(file: string, { files, leftOut }: Bundle): string {
  const columns = [
    { title: `IN ${file}`, cell: ({ name }: Bundle['files'][number]) => name },
    { title: 'WHAT', cell: ({ what }: Bundle['files'][number]) => what },
  ];
  return `${table(columns, files)}\nLeft out:\n${leftOut.map((each) => `  ${each}\n`).join('')}`;
}

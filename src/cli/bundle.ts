import { unitOf } from '../app/installation.ts';
import { configPath } from '../config/source.ts';
import { TillsyncError } from '../core/errors.ts';
import { datedName } from './cli.ts';
import { command, parsed } from './command.ts';
import { Progress } from './progress.ts';
import { table } from './table.ts';

interface BundleContents {
  files: readonly { name: string; what: string }[];
  leftOut: readonly string[];
}

/** Returns a list of what a bundle contains and leaves out, for the person who mails it. */
export function bundleList(file: string, { files, leftOut }: BundleContents): string {
  const left = leftOut.map((each) => `  ${each}\n`).join('');
  return `${table(files, { [`IN ${file}`]: 'name', WHAT: 'what' })}\nLeft out:\n${left}`;
}

export const bundle = command({
  description: 'Collect diagnostics in one file, without secrets or customer data',
  examples: [
    'bundle support.tar.gz',
    'bundle support.tar.gz --log /var/log/tillsync.log',
    'bundle - > support.tar.gz',
  ],
  argument: ['[file]', 'File to write, or - for standard output (default: named after the day)'],
  options: {
    '--force': 'Overwrite the file if it exists',
    '--with-customer-data': 'Include received orders with customer data',
    '--unit <unit>': "systemd unit whose log to include (default: this configuration's unit)",
    '--log <file>': parsed(
      'Also include the end of this log file; repeatable',
      (file, list: string[] = []) => [...list, file],
      [],
    ),
  },
  async run({ cli, options, argument: file = datedName('tillsync-bundle', cli.clock) }) {
    const { clock, env, random, signal, stdout } = cli;
    const toStdout = file === '-';
    if (toStdout && (options.json || stdout.isTTY)) {
      throw new TillsyncError('usage', 'Standard output can carry the bundle alone, and no terminal can.', {
        hint: 'Name a file, or: tillsync bundle - > FILE',
      });
    }
    const { refuseExisting } = await import('../support/archive.ts');
    const { collectBundle, packBundle, writeBundle } = await import('../support/bundle/bundle.ts');
    const force = options.force ?? false;
    // An existing file is refused first, because collecting may take minutes.
    if (!toStdout) refuseExisting(file, force);
    const progress = new Progress(cli);
    const collected = await collectBundle({
      file: options.config,
      env,
      clock,
      random,
      signal,
      unit: options.unit ?? unitOf(configPath(options.config, env)) ?? 'tillsync.service',
      logFiles: options.log ?? [],
      withCustomerData: options.withCustomerData ?? false,
      onSection: (name) => progress.step(`gathering ${name}`),
    }).finally(() => progress.end());
    if (signal.aborted) throw new TillsyncError('aborted', 'Stopped. Nothing was written.');
    const modifiedMs = clock.nowMs();
    const { files, leftOut } = collected;
    const listed = bundleList(file, collected);
    if (toStdout) {
      stdout.write(await packBundle(collected, modifiedMs));
      return { below: listed };
    }
    const bytes = await writeBundle(collected, { path: file, force, modifiedMs, signal });
    return {
      json: {
        file,
        bytes,
        files: files.map(({ name, what, text, fault }) => ({
          name,
          what,
          bytes: Buffer.byteLength(text),
          fault,
        })),
        leftOut,
      },
      text: `${listed}\n${file}: ${bytes} bytes. To look: tar -xzf ${file}\n`,
    };
  },
});

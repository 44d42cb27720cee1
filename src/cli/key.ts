import { randomBytes } from 'node:crypto';
import type { Command } from 'commander';
import { TillsyncError } from '../core/errors.ts';
import { type Cli, type GlobalOptions, type JsonOption, newResultCommand, writeJson } from './cli.ts';

interface KeyOptions extends GlobalOptions, JsonOption {
  show?: boolean;
  new?: boolean;
  credstore: string;
}

const NAME = 'local-api-key';
const KEY_BYTES = 24;

/** `key`: makes the key of the local API, for the service to take at its next start. */
export function keyCommand(cli: Cli): Command {
  return newResultCommand('key', 'Make the key that the status page and the local API ask for', [
    'key',
    'key --show',
    'key --config /etc/tillsync/second.toml',
  ])
    .option('--show', 'show the key that is there, and make none')
    .option('--new', 'make another one in place of the one that is there')
    .option('--credstore <directory>', 'where systemd looks for credentials', '/etc/credstore')
    .action((_options, command: Command) => key(cli, command.optsWithGlobals()));
}

async function key(cli: Cli, options: KeyOptions): Promise<void> {
  const { credentialFile, readCredential, serviceOf, writeCredential } = await import('../config/secrets.ts');
  const { DEFAULT_CONFIG_FILE } = await import('../config/source.ts');
  const configFile = options.config ?? (cli.env.TILLSYNC_CONFIG || DEFAULT_CONFIG_FILE);
  const service = serviceOf(configFile);
  if (service === undefined) {
    throw new TillsyncError('usage', `No service of systemd reads ${configFile}.`, {
      hint: 'Give a key of your own in the environment variable TILLSYNC_LOCAL_API_KEY.',
    });
  }
  const file = credentialFile(service, NAME, options.credstore);
  const restart = `sudo systemctl restart ${service}`;
  const there = readCredential(file);
  const again = options.config === undefined ? '' : ` --config ${options.config}`;
  if (options.show) {
    if (there !== undefined) return tell(cli, options, { key: there, file, made: false, restart });
    throw new TillsyncError('not-found', `There is no key in ${file}, or this user may not read it.`, {
      hint: `Make one with: sudo tillsync key${again}`,
    });
  }
  if (there !== undefined && !options.new) {
    throw new TillsyncError('usage', `There is a key already, in ${file}. It was left alone.`, {
      hint: `See it with: sudo tillsync key --show${again}. Make another with: sudo tillsync key --new${again}`,
    });
  }
  const made = randomBytes(KEY_BYTES).toString('base64url');
  writeCredential(file, made);
  tell(cli, options, { key: made, file, made: true, restart });
}

interface KeyReport {
  key: string;
  file: string;
  made: boolean;
  restart: string;
}

function tell(cli: Cli, { json }: KeyOptions, report: KeyReport): void {
  if (json) {
    writeJson(cli, report);
    return;
  }
  cli.stdout.write(`${report.key}\n`);
  if (!report.made) return;
  cli.stderr.write(
    `The key is in ${report.file}. From the next start of tillsync on, it is asked of everybody:\n` +
      `  ${report.restart}\n` +
      'The page asks for it once; a program sends it as "x-api-key: KEY" or "Authorization: Bearer KEY".\n',
  );
}

import { randomBytes } from 'node:crypto';
import { CREDSTORE, credentialFile, readCredential, serviceOf, writeCredential } from '../config/secrets.ts';
import { DEFAULT_CONFIG_FILE } from '../config/source.ts';
import { TillsyncError } from '../core/errors.ts';
import { command, withDefault } from './command.ts';

const NAME = 'local-api-key';
const KEY_BYTES = 24;

export const key = command({
  description: 'Make the key that the status page and the local API ask for',
  examples: ['key', 'key --show', 'key --config /etc/tillsync/second.toml'],
  options: {
    '--show': 'show the key that is there, and make none',
    '--new': 'make another one in place of the one that is there',
    '--credstore <directory>': withDefault('where systemd looks for credentials', CREDSTORE),
  },
  async run({ cli, options }) {
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
      if (there !== undefined)
        return { json: { key: there, file, made: false, restart }, text: `${there}\n` };
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
    return {
      json: { key: made, file, made: true, restart },
      text: `${made}\n`,
      below:
        `The key is in ${file}. From the next start of tillsync on, it is asked of everybody:\n` +
        `  ${restart}\n` +
        'The page asks for it once; a program sends it as "x-api-key: KEY" or "Authorization: Bearer KEY".\n',
    };
  },
});

import { type ConfigOptions, readConfig } from '../config/config.ts';
import { keyFile, newKey, storedKey } from '../config/key-file.ts';
import { CREDSTORE, credentialFile, readCredential, serviceOf, writeCredential } from '../config/secrets.ts';
import { DEFAULT_CONFIG_FILE } from '../config/source.ts';
import { TillsyncError } from '../core/errors.ts';
import { isoUtc } from '../core/time.ts';
import { type ApiKey, keyDigest, RIGHTS, type Right } from '../db/api-keys.ts';
import { command, type MakeCommand, type Opt, sourceOf, withDefault, withServices } from './command.ts';
import { table, when } from './table.ts';

const NAME = 'local-api-key';

const own = command({
  description: 'Replace the main API key',
  examples: ['key', 'key --show', 'key --config /etc/tillsync/second.toml'],
  more: '\nAfter the restart, the status page and every program that uses the main key need the new key: give it to them\nfirst. To give one program a key of its own, run: tillsync key add NAME --may RIGHTS\n',
  options: {
    '--show': 'show the key in use, and make none',
    '--new': 'make another one in place of the one that is there',
    '--credstore <directory>': withDefault('where systemd looks for credentials', CREDSTORE),
  },
  async run(call) {
    const { cli, options } = call;
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
      const stored = apiKeyOf(sourceOf(call));
      if (stored !== undefined) return { json: { ...stored, made: false, restart }, text: `${stored.key}\n` };
      throw new TillsyncError('not-found', `There is no key in ${file}, or this user may not read it.`, {
        hint: `Make one with: sudo tillsync key${again}`,
      });
    }
    if (there !== undefined && !options.new) {
      throw new TillsyncError('usage', `There is a key already, in ${file}. It was left alone.`, {
        hint: `See it with: sudo tillsync key --show${again}. Make another with: sudo tillsync key --new${again}`,
      });
    }
    const made = newKey();
    writeCredential(file, made);
    return {
      json: { key: made, file, made: true, restart },
      text: `${made}\n`,
      below:
        `The key is in ${file}. It replaces the present main key at the next start: every program that uses that\n` +
        `key is then refused until it has the new one. A program sends it as "x-api-key: KEY" or "Authorization: Bearer KEY".\n` +
        `To restart tillsync, run: ${restart}\n`,
    };
  },
});

const NAME_OF_KEY = /^[a-z][a-z0-9-]{0,39}$/;
const MAY: Opt<Right[]> = {
  description: `what it may do, of ${RIGHTS.join(', ')}, with commas between`,
  set: (option) => option.argParser(rightsOf).makeOptionMandatory(),
};
const MEANINGS = `
Rights:
  orders  read orders and follow their feed
  ack     acknowledge orders
  stock   hand over stock, and see what became of changes
  prices  hand over prices and texts, and see what became of changes
  screen  read what the status page shows, and /metrics; without orders, no telephone, e-mail or address
  decide  retry, drop and release changes; try alarms and hooks
`;

/** Returns the key that the first start made, with its file; undefined if this user may not read it. */
function apiKeyOf(source: ConfigOptions): { key: string; file: string } | undefined {
  const read = readConfig(source);
  const directory = 'config' in read ? read.config.storage.directory : undefined;
  const key = directory === undefined ? undefined : storedKey(directory);
  return directory === undefined || key === undefined ? undefined : { key, file: keyFile(directory) };
}

function rightsOf(text: string): Right[] {
  const words = text.split(',').map((word) => word.trim());
  const unknown = words.filter((word) => !(RIGHTS as readonly string[]).includes(word));
  if (unknown.length === 0) return RIGHTS.filter((right) => words.includes(right));
  throw new TillsyncError('usage', `--may ${text}: there is no right ${unknown.join(', ')}.`, {
    hint: `There are: ${RIGHTS.join(', ')}.`,
  });
}

const add = command({
  description: 'Make a key with a name for one program or screen, and print it once',
  examples: ['key add till-1 --may orders,ack,stock', 'key add kitchen --may screen'],
  argument: ['<name>', 'of up to 40 small letters, digits and "-", which calls and changes are noted under'],
  options: { '--may <rights>': MAY },
  more: MEANINGS,
  run(call) {
    const { argument: name } = call;
    const { may } = call.options;
    if (!NAME_OF_KEY.test(name)) {
      throw new TillsyncError('usage', `${name} is no name of a key. Nothing was made.`, {
        hint: 'Use up to 40 small letters, digits and "-", and begin with a letter, as in till-1.',
      });
    }
    return withServices(call, async ({ services: { state }, note }) => {
      const key = newKey();
      const at = isoUtc(call.cli.clock.nowMs());
      if (!state.apiKeys.add({ name, may, digest: keyDigest(key, 'utf8'), at })) {
        throw new TillsyncError('conflict', `There is a key ${name}. It was left alone.`, {
          hint: `To make another one in its place, first: {tillsync} key remove ${name}`,
        });
      }
      await note({ action: 'key.add', subject: name, detail: may.join(', ') });
      return {
        json: { name, may, key },
        text: `${key}\n`,
        below: `${name} may: ${may.join(', ')}. The key is shown this once and holds from now on.\n`,
      };
    });
  },
});

const list = command({
  description: 'List the named keys and what each may do',
  examples: ['key list', 'key list --json'],
  run: (call) =>
    withServices(call, async ({ services: { state }, config }) => {
      const keys = state.apiKeys.list();
      if (keys.length === 0) return { json: { keys }, above: 'There are no named keys.\n' };
      const at = (time: string | null) => when(time, config.orders.timezone);
      return {
        json: { keys },
        text: () =>
          table(keys, {
            KEY: 'name',
            MAY: ({ may }: ApiKey) => may.join(', '),
            [`MADE (${config.orders.timezone})`]: ({ madeAt }: ApiKey) => at(madeAt),
            WITHDRAWN: ({ withdrawnAt }: ApiKey) => at(withdrawnAt),
          }),
      };
    }),
});

const remove = command({
  description: 'Withdraw a named key at once; whoever goes on using it is refused and named',
  examples: ['key remove till-1'],
  argument: ['<name>', 'of the key'],
  run: (call) =>
    withServices(call, async ({ services: { state }, note }) => {
      const { argument: name } = call;
      if (!state.apiKeys.withdraw(name, isoUtc(call.cli.clock.nowMs()))) {
        throw new TillsyncError('not-found', `No key ${name} is in use.`, {
          hint: 'See those that are: {tillsync} key list',
        });
      }
      await note({ action: 'key.remove', subject: name });
      return { json: { name, removed: true }, text: `${name} was withdrawn.\n` };
    }),
});

/** The command for the API key with all rights. Its subcommands are for named API keys, which have single rights. */
export const key: MakeCommand = (name, cli) => {
  const made = own(name, cli);
  for (const [word, make] of Object.entries({ add, list, remove })) made.addCommand(make(word, cli));
  return made;
};

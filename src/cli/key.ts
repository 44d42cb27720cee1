import { type ConfigOptions, readConfig } from '../config/config.ts';
import { keyFile, newKey, storedKey } from '../config/key-file.ts';
import { CREDSTORE, credentialFile, readCredential, serviceOf, writeCredential } from '../config/secrets.ts';
import { DEFAULT_CONFIG_FILE } from '../config/source.ts';
import { TillsyncError } from '../core/errors.ts';
import { isoUtc } from '../core/time.ts';
import { type ApiKey, keyDigest, RIGHTS, type Right } from '../db/api-keys.ts';
import {
  type Call,
  command,
  group,
  type Opt,
  type Result,
  sourceOf,
  withDefault,
  withServices,
} from './command.ts';
import { table, when } from './table.ts';

const NAME = 'local-api-key';
const REPLACES =
  '\nAfter the restart, the status page and every program that uses the main key need the new key.\nTo give one program a key of its own, run: tillsync key add NAME --may RIGHTS\n';

const CREDENTIALS = {
  '--credstore <directory>': withDefault('Directory of systemd credentials', CREDSTORE),
};

/** Where systemd gets the main key of the service that reads the configuration. Throws `usage` if no service does. */
function credentialOf({ cli, options }: Call<{ credstore: string }>) {
  const configFile = options.config ?? (cli.env.TILLSYNC_CONFIG || DEFAULT_CONFIG_FILE);
  const service = serviceOf(configFile);
  if (service === undefined) {
    throw new TillsyncError('usage', `No systemd service uses ${configFile}.`, {
      hint: 'Set your own key in the environment variable TILLSYNC_LOCAL_API_KEY.',
    });
  }
  return {
    file: credentialFile(service, NAME, options.credstore),
    restart: `sudo systemctl restart ${service}`,
    again: options.config === undefined ? '' : ` --config ${options.config}`,
  };
}

const create = command({
  description: 'Create a main API key of your own',
  examples: ['key create', 'key create --config /etc/tillsync/second.toml'],
  more: REPLACES,
  options: CREDENTIALS,
  run(call) {
    const { file, restart, again } = credentialOf(call);
    if (readCredential(file) !== undefined) {
      throw new TillsyncError('usage', `A key already exists in ${file}. Nothing was changed.`, {
        hint: `To show it, run: sudo tillsync key show${again}. To replace it, run: sudo tillsync key rotate${again}`,
      });
    }
    return made(file, restart);
  },
});

const rotate = command({
  description: 'Replace the main API key with a new one',
  examples: ['key rotate'],
  more: REPLACES,
  options: CREDENTIALS,
  run(call) {
    const { file, restart } = credentialOf(call);
    return made(file, restart);
  },
});

const show = command({
  description: 'Show the main API key',
  examples: ['key show', 'key show --json'],
  options: CREDENTIALS,
  run(call) {
    const { file, restart, again } = credentialOf(call);
    const there = readCredential(file);
    if (there !== undefined) return { json: { key: there, file, made: false, restart }, text: `${there}\n` };
    const stored = apiKeyOf(sourceOf(call));
    if (stored !== undefined) return { json: { ...stored, made: false, restart }, text: `${stored.key}\n` };
    throw new TillsyncError('not-found', `There is no key in ${file}, or this user may not read it.`, {
      hint: `To create one, run: sudo tillsync key create${again}`,
    });
  },
});

function made(file: string, restart: string): Result {
  const key = newKey();
  writeCredential(file, key);
  return {
    json: { key, file, made: true, restart },
    text: `${key}\n`,
    below:
      `The key is stored in ${file}. After the next start, every program that uses the old key is\n` +
      'rejected until you give it the new one. A program sends it as "x-api-key: KEY" or "Authorization: Bearer KEY".\n' +
      `To restart tillsync, run: ${restart}\n`,
  };
}

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
  description: 'Create a named key for one program and show it once',
  examples: ['key add till-1 --may orders,ack,stock', 'key add kitchen --may screen'],
  argument: ['<name>', 'Up to 40 lower-case letters, digits and "-"; calls and changes are logged with it'],
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
  description: 'List named keys and their rights',
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
  description: 'Revoke a named key immediately',
  examples: ['key remove till-1'],
  argument: ['<name>', 'Name of the key'],
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

export const key = group('Manage keys for the status page and local API', {
  create,
  show,
  rotate,
  add,
  list,
  remove,
});

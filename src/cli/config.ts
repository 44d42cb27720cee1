import { parse } from 'smol-toml';
import { asRoot, viewOfService } from '../app/installation.ts';
import { configWarnings, loadConfig, readSetup } from '../config/config.ts';
import type { Config } from '../config/config-type.ts';
import { replaceFile, setKey, textOf } from '../config/edit.ts';
import { isBranch } from '../config/roles.ts';
import { allowedOf, type ConfigKey, KEYS } from '../config/schema.ts';
import { SECRET_NAMES, type Secrets, secretsByName } from '../config/secrets.ts';
import {
  type ConfigFault,
  configError,
  configPath,
  type Environment,
  isSetUp,
  mayBeSecret,
  nearest,
  notSetUp,
  rawValue,
  readConfigFile,
  shownValue,
  unknownName,
} from '../config/source.ts';
import { asTillsyncError, formatCommands, sameCommandWithSudo, TillsyncError } from '../core/errors.ts';
import { formatDuration } from '../core/time.ts';
import { jsonText } from '../core/values.ts';
import { type AuthReport, authReport } from './auth.ts';
import { EXIT, printable } from './cli.ts';
import { becomeOwner, type Call, command, sourceOf } from './command.ts';
import { hasMoved, isInstalled, startAnew, unitsOf } from './init/machine.ts';
import { table } from './table.ts';

export const check = command({
  description: 'Check the configuration and secrets',
  examples: ['config check', 'config check --config ./config.toml --json'],
  async run(call) {
    const { cli, options } = call;
    const file = configPath(options.config, cli.env);
    const setup = readSetup(sourceOf(call));
    const view = viewOfService(file);
    const faults = [...('faults' in setup ? setup.faults : []), ...(view?.faults ?? [])];
    if ('config' in setup && !isSetUp(setup.config)) {
      const error = notSetUp();
      if (!options.json) throw error;
      const allowed = "the address of the platform's API";
      const faults = [{ origin: file, key: 'platform.base_url', found: 'no platform yet', allowed }];
      return { json: { ok: false, file, faults, remedy: error.hint }, exit: EXIT.usage };
    }
    if ('faults' in setup || faults.length > 0) {
      const { message, hint } = configError(faults);
      const json = { ok: false, file: setup.file, faults };
      return { json, above: `${message}\n${hint}\n`, exit: EXIT.usage };
    }
    const { config, unseen } = setup;
    const given = secretsByName(setup.secrets);
    const names = new Set([...SECRET_NAMES, ...given.keys()]);
    const secrets = Object.fromEntries([...names].map((name) => [name, given.has(name)]));
    const warnings = configWarnings(config);
    const { tokens, message } = await tokensOf(call, config);
    const service = view === undefined ? null : { unit: view.unit, user: view.user };
    const notSeen = [...(view?.canRead === null ? [`${file} as ${view.user}`] : []), ...unseen];
    const there = [...given.keys()];
    const signed = setup.secrets.hookSecrets ?? {};
    const unsigned = config.hooks.flatMap(({ name, url }) => (url === '' || signed[name] ? [] : [name]));
    const lines = [
      `${setup.file} is in order.`,
      ...(view?.canRead ? [`Service: ${view.unit} runs as ${view.user}, which can read it.`] : []),
      `Tokens: ${message}`,
      ...heartbeatLine(config, setup.secrets),
      `Optional secrets from files or the environment: ${there.join(', ') || 'none'}.`,
      ...(unsigned.length === 0
        ? []
        : [`Hooks whose requests are not signed, for there is no secret hook-NAME: ${unsigned.join(', ')}.`]),
      ...(notSeen.length === 0
        ? []
        : [`Not looked at, for want of rights: ${notSeen.join(', ')}. Run: ${sameCommandWithSudo()}`]),
    ];
    return {
      json: { ok: true, file: setup.file, faults: [], warnings, secrets, tokens, service, notSeen, config },
      above: warnings.map((warning) => `Warning: ${warning}\n`).join(''),
      text: `${lines.map(printable).join('\n')}\n`,
    };
  },
});

/** Returns the state of the stored tokens. If it cannot be read, `tokens` is null and `message` says why. */
async function tokensOf(call: Call, config: Config) {
  const { storedTokens } = await import('../app/read-only-services.ts');
  const { clock } = call.cli;
  try {
    becomeOwner(call, config, false);
    const needsNone = isBranch(config);
    const report = authReport(await storedTokens({ config, clock }), clock.nowMs(), needsNone);
    return { tokens: report, message: needsNone ? report.message : tokensText(report, clock.nowMs()) };
  } catch (error) {
    const { message, hint } = asTillsyncError(error);
    return { tokens: null, message: [message, hint].join(' ') };
  }
}

function tokensText(report: AuthReport, nowMs: number): string {
  const { state, refreshExpiresAt, message } = report;
  if (state !== 'ok' || report.needsNewTokens) return message;
  if (refreshExpiresAt === null) return 'stored, with no known end.';
  return `stored, valid for ${formatDuration(Date.parse(refreshExpiresAt) - nowMs)}.`;
}

function heartbeatLine({ alarms }: Config, { heartbeatUrl }: Secrets): string[] {
  const url = heartbeatUrl ?? alarms.heartbeatUrl;
  if (url === '') return [];
  return [`Heartbeat: to ${new URL(url).host} every ${formatDuration(alarms.heartbeatEveryMs)}.`];
}

/** Where the value of a key comes from. */
type Source = 'file' | 'environment' | 'default';

interface ShownKey {
  key: string;
  value: unknown;
  source: Source;
}

export const show = command({
  description: 'Show the settings and where each comes from',
  examples: ['config show', 'config show --all', 'config show --all --json'],
  options: { '--all': 'Also show settings that have their default' },
  run(call) {
    const { options } = call;
    const { file, keys } = effectiveKeys(sourceOf(call));
    const settings = keys.filter(({ source }) => options.all || source !== 'default');
    if (settings.length === 0) return { json: { file, settings }, above: `${file} sets nothing.\n` };
    const rows = settings.map(({ key, value, source }) => ({
      key,
      value: shownValue(key, value),
      source: source === 'file' ? file : source,
    }));
    const isHidden = ({ key, value }: ShownKey) => mayBeSecret(key, jsonText(value) ?? '');
    return {
      json: { file, settings: settings.map((each) => (isHidden(each) ? { ...each, value: null } : each)) },
      text: table(rows, { KEY: 'key', VALUE: 'value', SOURCE: 'source' }),
      ...(!options.all && {
        below: formatCommands('All other settings have their defaults: {tillsync} config show --all\n'),
      }),
    };
  },
});

/** Returns each key with its effective value, as it would be in the file. Throws `config-invalid`. */
function effectiveKeys({ file, env }: { file: string | undefined; env: Environment }): {
  file: string;
  keys: ShownKey[];
} {
  loadConfig({ file, env });
  const raw = readConfigFile(file, env);
  const keys = KEYS.map((key): ShownKey => {
    const { value, origin } = rawValue(raw, env, key);
    if (value === undefined) return { key: key.path, value: key.schema.def.defaultValue, source: 'default' };
    return { key: key.path, value, source: origin === raw.file ? 'file' : 'environment' };
  });
  return { file: raw.file, keys };
}

export const set = command({
  description: 'Change one setting in the file',
  examples: [
    'config set shop.name "Corner shop"',
    'config set stock.safety 1',
    `config set alarms.command '["/usr/local/bin/tell-the-owner"]'`,
  ],
  argument: ['<key-and-value...>', 'Key, then its value as in the file; a text needs no quotes'],
  more: '\nComments and all other lines of the file stay. To use the new value, run: tillsync config apply',
  run(call) {
    const { cli, options } = call;
    const [name = '', typed, ...more] = call.argument;
    if (typed === undefined || more.length > 0) {
      throw new TillsyncError('usage', 'Give one key and one value.', {
        hint: 'Put a value with blanks in quotes: {tillsync} config set shop.name "Corner shop"',
      });
    }
    const { file, faults } = readConfigFile(options.config, cli.env);
    if (faults.length > 0) throw configError(faults);
    const key = KEYS.find(({ path }) => path === name);
    if (key === undefined) throw configError([unknownKey(file, name)]);
    const value = acceptedOf(key, typed, file);
    const { section, path } = key;
    const nowMs = cli.clock.nowMs();
    const { keptAt } = asRoot(() => {
      const text = textOf(file);
      if (text === '') throw notSetUp();
      const changed = setKey(text, section, key.name, value);
      return replaceFile(file, changed, (written) => void loadConfig({ file: written, env: {} }), nowMs);
    });
    const overridden = cli.env[key.variable] !== undefined;
    return {
      json: { file, key: path, value: shownValue(path, value), keptAt },
      text: `${path} is ${shownValue(path, value)} in ${file}.\n`,
      below: formatCommands(
        `${overridden ? `The environment variable ${key.variable} overrides it.\n` : ''}To use it, run: {tillsync} config apply\n`,
      ),
    };
  },
});

function unknownKey(file: string, name: string): ConfigFault {
  const at = name.lastIndexOf('.');
  const [section, last] = [name.slice(0, Math.max(at, 0)), name.slice(at + 1)];
  const ofSection = KEYS.filter((each) => each.section === section);
  if (section !== '' && ofSection.length > 0) {
    return unknownName(
      file,
      `${section}.`,
      last,
      ofSection.map((each) => each.name),
      'key',
    );
  }
  const suggestion = nearest(
    name,
    KEYS.map(({ path }) => path),
  );
  const allowed = 'a key of tillsync config show --all';
  return {
    origin: file,
    key: name,
    found: 'an unknown key',
    allowed,
    ...(suggestion !== undefined && { suggestion }),
  };
}

/** Returns the value that was typed, as TOML or as plain text, whichever the key allows. Throws `config-invalid`. */
function acceptedOf(key: ConfigKey, typed: string, file: string): unknown {
  const values = [...tomlValue(typed), typed];
  const found = values.find((value) => key.schema.safeParse(value).success);
  if (found !== undefined) return found;
  throw configError([
    { origin: file, key: key.path, found: shownValue(key.path, values[0]), allowed: allowedOf(key) },
  ]);
}

function tomlValue(typed: string): unknown[] {
  try {
    return [parse(`value = ${typed}`).value];
  } catch {
    return [];
  }
}

export const apply = command({
  description: 'Check the configuration and restart the service with it',
  examples: ['config apply', 'config apply --config /etc/tillsync/second.toml'],
  async run(call) {
    const { cli, options } = call;
    const file = configPath(options.config, cli.env);
    const { webhook } = loadConfig({ file, env: {} });
    const service = unitsOf(file);
    if (service === undefined || !(await isInstalled(service, cli.env))) {
      throw new TillsyncError('usage', `No systemd service uses ${file}.`, {
        hint: 'Restart the tillsync that uses the file, so that it reads it again.',
      });
    }
    if (process.getuid?.() !== 0) {
      throw new TillsyncError('usage', `Only root may restart ${service.unit}.`, {
        hint: `Run: ${sameCommandWithSudo()}`,
      });
    }
    const fault = await startAnew(service, await hasMoved(service, webhook.port, cli.env), cli.env);
    const json = { file, unit: service.unit, started: fault === undefined };
    if (fault !== undefined) return { json, above: `${fault}\n`, exit: EXIT.failed };
    return { json, text: `${service.unit} is running with ${file}.\n` };
  },
});

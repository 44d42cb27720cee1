import { viewOfService } from '../app/installation.ts';
import { configWarnings, readSetup } from '../config/config.ts';
import type { Config } from '../config/config-type.ts';
import { isBranch } from '../config/roles.ts';
import { SECRET_NAMES, type Secrets, secretsByName } from '../config/secrets.ts';
import { configError, configPath, isSetUp, notSetUp } from '../config/source.ts';
import { asTillsyncError, sameCommandWithSudo } from '../core/errors.ts';
import { formatDuration } from '../core/time.ts';
import { type AuthReport, authReport } from './auth.ts';
import { EXIT, printable } from './cli.ts';
import { becomeOwner, type Call, command, sourceOf } from './command.ts';

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

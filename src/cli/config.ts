import { resolve } from 'node:path';
import type { Command } from 'commander';
import type { Config } from '../config/config-type.ts';
import type { Secrets } from '../config/secrets.ts';
import { asTillsyncError, typedAgain } from '../core/errors.ts';
import { formatDuration } from '../core/time.ts';
import { type AuthReport, authReport } from './auth.ts';
import {
  type Cli,
  EXIT,
  type GlobalOptions,
  type JsonOption,
  newResultCommand,
  printable,
  writeJson,
} from './cli.ts';

/** `config check`: every fault of the configuration at once, and which secrets were handed in. */
export function configCheckCommand(cli: Cli): Command {
  return newResultCommand('check', 'Check configuration and secrets, every fault at once', [
    'config check',
    'config check --config ./config.toml --json',
  ]).action((_options, command: Command) => check(cli, command.optsWithGlobals()));
}

async function check(cli: Cli, options: GlobalOptions & JsonOption): Promise<void> {
  const { configError } = await import('../config/source.ts');
  const { configPath } = await import('../config/source.ts');
  const { serviceOf } = await import('../config/secrets.ts');
  const { isSetUp } = await import('../config/source.ts');
  const { configWarnings, readSetup } = await import('../config/config.ts');
  const { viewOfService } = await import('../app/installation.ts');
  const file = configPath(options.config, cli.env);
  const setup = readSetup({ file: options.config, env: cli.env }, { service: serviceOf(resolve(file)) });
  const view = viewOfService(file);
  const faults = [...('faults' in setup ? setup.faults : []), ...(view?.faults ?? [])];
  if ('config' in setup && !isSetUp(setup.config)) return tellNotSetUp(cli, options, file);
  if ('faults' in setup || faults.length > 0) {
    cli.endWith(EXIT.usage);
    const error = configError(faults);
    if (options.json) writeJson(cli, { ok: false, file: setup.file, faults });
    else cli.stderr.write(`${error.message}\n${error.hint}\n`);
    return;
  }
  const warnings = configWarnings(setup.config);
  const { tokens, message } = await tokensOf(cli, setup.config, file);
  const notSeen = [...(view?.canRead === null ? [`${file} as ${view.user}`] : []), ...setup.unseen];
  if (options.json) {
    const service = view === undefined ? null : { unit: view.unit, user: view.user };
    const found = { secrets: handedIn(setup.secrets), tokens, service, notSeen, config: setup.config };
    writeJson(cli, { ok: true, file: setup.file, faults: [], warnings, ...found });
    return;
  }
  for (const warning of warnings) cli.stderr.write(`Warning: ${warning}\n`);
  const secrets = Object.entries(handedIn(setup.secrets)).flatMap(([name, there]) => (there ? [name] : []));
  const lines = [
    `${setup.file} is in order.`,
    ...(view?.canRead ? [`Service: ${view.unit} runs as ${view.user}, which can read it.`] : []),
    `Tokens: ${message}`,
    `Optional secrets from files or the environment: ${secrets.join(', ') || 'none'}.`,
    ...(notSeen.length === 0
      ? []
      : [`Not looked at, for want of rights: ${notSeen.join(', ')}. Run: ${typedAgain()}`]),
  ];
  cli.stdout.write(`${lines.map(printable).join('\n')}\n`);
}

/** How the stored tokens fare; `tokens` is null where this user may not look. */
async function tokensOf(cli: Cli, config: Config, configFile: string) {
  const { storedTokens } = await import('../app/readers.ts');
  const { becomeStorageUser } = await import('../app/installation.ts');
  try {
    becomeStorageUser({ directory: config.storage.directory, configFile, writes: false });
    const report = authReport(await storedTokens({ config, clock: cli.clock }), cli.clock.nowMs());
    return { tokens: report, message: tokensText(report, cli.clock.nowMs()) };
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

async function tellNotSetUp(cli: Cli, { json }: JsonOption, file: string): Promise<void> {
  const { notSetUp } = await import('../config/source.ts');
  const error = notSetUp();
  if (!json) throw error;
  cli.endWith(EXIT.usage);
  const allowed = "the address of the platform's API";
  const faults = [{ origin: file, key: 'platform.base_url', found: 'no platform yet', allowed }];
  cli.stdout.write(`${JSON.stringify({ ok: false, file, faults, remedy: error.hint }, null, 2)}\n`);
}

function handedIn(secrets: Secrets): Record<string, boolean> {
  return {
    'refresh-token': secrets.refreshToken !== undefined,
    'access-token': secrets.accessToken !== undefined,
    'webhook-secret': secrets.webhookSecrets.length > 0,
    'local-api-key': secrets.localApiKey !== undefined,
    'alarm-url': secrets.alarmUrl !== undefined,
    'alarm-token': secrets.alarmToken !== undefined,
  };
}

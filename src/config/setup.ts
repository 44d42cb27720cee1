import { type ConfigOptions, readConfig } from './config.ts';
import { type ConfigFault, configError } from './config-fault.ts';
import type { Config } from './config-type.ts';
import { readSecrets, type Secrets } from './secrets.ts';

/** What a process needs to know before it starts. */
export interface Setup {
  config: Config;
  secrets: Secrets;
}

export type SetupResult = { file: string } & (Setup | { faults: ConfigFault[] });

/** Configuration and secrets, or a `config-invalid` error that names every fault of both at once. */
export function loadSetup(options: ConfigOptions): Setup {
  const result = readSetup(options);
  if ('faults' in result) throw configError(result.faults);
  return result;
}

/** Configuration and secrets, or every fault of both. */
export function readSetup(options: ConfigOptions): SetupResult {
  const config = readConfig(options);
  const secrets = readSecrets(options.env);
  const { file } = config;
  const faults = [config, secrets].flatMap((result) => ('faults' in result ? result.faults : []));
  if ('faults' in config || 'faults' in secrets) return { file, faults };
  const setup = { file, config: config.config, secrets: secrets.secrets };
  if (setup.secrets.localApiKey === undefined && !isLoopback(setup.config.local.host)) {
    const found = `${setup.config.local.host}, and no local-api-key`;
    const allowed = 'a loopback address, or a local-api-key among the secrets';
    return { file, faults: [{ origin: file, key: 'local.listen', found, allowed }] };
  }
  return setup;
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127\./.test(host);
}

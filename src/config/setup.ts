import { isIPv4 } from 'node:net';
import { type ConfigOptions, readConfig } from './config.ts';
import { type ConfigFault, configError } from './config-fault.ts';
import type { Config } from './config-type.ts';
import { readSecrets, type Secrets, type ServiceSecrets } from './secrets.ts';

/** What a process needs to know before it starts. */
export interface Setup {
  config: Config;
  secrets: Secrets;
  /** Files with secrets of the service that this user may not read. */
  unseen: string[];
}

export type SetupResult = { file: string } & (Setup | { faults: ConfigFault[] });

/** Configuration and secrets, or a `config-invalid` error that names every fault of both at once. */
export function loadSetup(options: ConfigOptions): Setup {
  const result = readSetup(options);
  if ('faults' in result) throw configError(result.faults);
  return result;
}

/** Configuration and secrets, or every fault of both; `of`: with the secrets that a service would be handed. */
export function readSetup(options: ConfigOptions, of?: ServiceSecrets): SetupResult {
  const config = readConfig(options);
  const secrets = readSecrets(options.env, of);
  const { file } = config;
  const faults = [config, secrets].flatMap((result) => ('faults' in result ? result.faults : []));
  if ('faults' in config || 'faults' in secrets) return { file, faults };
  const { unseen } = secrets;
  const setup = { file, config: config.config, secrets: secrets.secrets, unseen };
  const { local } = setup.config;
  const open = [local, ...local.others].find(({ host }) => !isLoopback(host));
  if (setup.secrets.localApiKey === undefined && unseen.length === 0 && open) {
    const found = `${open.host}, and no local-api-key`;
    const allowed =
      'a loopback address, or a local-api-key among the secrets, which `sudo tillsync key` makes';
    return { file, faults: [{ origin: file, key: 'local.listen', found, allowed }] };
  }
  return setup;
}

/** What works and is unwise all the same, each in one or two sentences. */
export function configWarnings({ platform }: Pick<Config, 'platform'>): string[] {
  const { protocol, hostname, host } = new URL(platform.baseUrl);
  if (protocol === 'https:' || isLoopback(hostname.replace(/^\[(.*)\]$/, '$1'))) return [];
  return [
    `platform.base_url begins with http://, so the tokens go to ${host} in clear text: whoever is on the way can read and use them. Use https://.`,
  ];
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIPv4(host) && host.startsWith('127.'));
}

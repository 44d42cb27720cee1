import type { ConfigFault } from '../../config/config-fault.ts';
import type { Config } from '../../config/config-type.ts';
import { HIDDEN } from './redactor.ts';
import type { Section } from './section.ts';

export interface ConfigSectionsOptions {
  file: string;
  config: Config | undefined;
  faults: readonly ConfigFault[];
  /** Names of the secrets that were handed in. */
  handedIn: readonly string[];
}

/** The configuration as it is in force, or all that is wrong with it. */
export function configSections({ file, config, faults, handedIn }: ConfigSectionsOptions): Section[] {
  return [
    {
      name: 'configuration.json',
      what: 'the configuration in force, its faults, and which secrets were handed in; addresses without what may be secret',
      mayNamePeople: false,
      make: () => ({
        document: {
          file,
          faults,
          handedIn: handedIn.map((name) => `${name}: yes`),
          inForce: config && plain(config),
        },
      }),
    },
  ];
}

/** Without user, password, query, or a part of a path that nobody would remember. */
export function plainUrl(text: string): string {
  if (!URL.canParse(text)) return text;
  const url = new URL(text);
  const user = url.username === '' && url.password === '' ? '' : `${HIDDEN}@`;
  const query = [...url.searchParams.keys()].map((key) => `${encodeURIComponent(key)}=${HIDDEN}`).join('&');
  return `${url.protocol}//${user}${url.host}${plainPath(url.pathname)}${query && `?${query}`}`;
}

function plainPath(path: string): string {
  return path
    .split('/')
    .map((part) => (/^(?=.*\d)(?=.*[A-Za-z])[\w.~%-]{12,}$/.test(part) ? HIDDEN : part))
    .join('/');
}

function plain(config: Config): unknown {
  return {
    ...config,
    platform: { ...config.platform, baseUrl: plainUrl(config.platform.baseUrl) },
    webhook: {
      ...config.webhook,
      path: plainPath(config.webhook.path),
      callbackUrl: plainUrl(config.webhook.callbackUrl),
    },
  };
}

import type { Config } from '../../config/config-type.ts';
import type { PlatformLimits } from '../../domain/platform/limits.ts';

/** The platform's rules in a hurry, so that a few seconds show what takes minutes in a store. */
export const DEMO_LIMITS: PlatformLimits = {
  endpointIntervalMs: 200,
  ordersIntervalMs: 4_000,
  windowMs: 300_000,
  requestsPerWindow: 1_000,
  ordersPerWindow: 100,
};

const DAY_MS = 86_400_000;

export interface DemoPlace {
  baseUrl: string;
  directory: string;
  webhookPort: number;
  /** 0, when not given: a free one at every start. */
  localPort?: number;
}

/** A store's configuration for the sandbox at `baseUrl`. */
export function demoConfig({ baseUrl, directory, webhookPort, localPort = 0 }: DemoPlace): Config {
  return {
    platform: {
      baseUrl,
      timeoutMs: 10_000,
      webhookReadMethod: 'GET',
      webhookReadPath: '/webhook',
      webhookActiveField: 'active',
    },
    storage: { directory, group: '' },
    webhook: {
      enabled: true,
      host: '127.0.0.1',
      port: webhookPort,
      path: '/webhook',
      callbackUrl: `http://127.0.0.1:${webhookPort}/webhook`,
      tlsCertFile: '',
      tlsKeyFile: '',
      bodyLimitBytes: 1024 * 1024,
    },
    orders: {
      poll: '*/4 * * * * *',
      timezone: 'America/Santiago',
      lookbackDays: 1,
      wideDays: 30,
      wideEveryMs: 3_600_000,
      pageParameter: '',
      listPath: '',
      fields: {},
    },
    catalog: { sweep: '30 4 * * *', pageSize: 100 },
    branches: [
      { subsidiaryId: 'sub-1', externalId: 'B1' },
      { subsidiaryId: 'sub-2', externalId: 'B2' },
      { subsidiaryId: 'sub-3' },
    ],
    outbox: { lingerMs: 250 },
    stock: { holdBackUnbooked: true, skipUnchanged: true, trustForMs: 600_000, platformDeducts: true },
    guard: { zeroItemsMax: 100, zeroItemsWindowMs: 600_000, priceFactorMax: 10, missingShareMax: 0.5 },
    retention: {
      ...{ eventsMs: 90 * DAY_MS, payloadsMs: 30 * DAY_MS, ordersMs: 400 * DAY_MS },
      ...{ outboxMs: 30 * DAY_MS, quarantineMs: 90 * DAY_MS, maxBytes: 1024 ** 3 },
    },
    local: { host: '127.0.0.1', port: localPort, others: [], socket: '' },
    alarms: {
      ...{ command: [], url: '', name: '', level: 'amber' },
      ...{ settleMs: 60_000, repeatMs: 0, dailyMax: 20, timeoutMs: 30_000 },
    },
    limits: DEMO_LIMITS,
    log: { level: 'silent', pretty: false },
  };
}

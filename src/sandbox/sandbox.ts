import { silentLog } from '../core/log.ts';
import { type SandboxControl, sandboxControl } from './control.ts';
import { buildEndpoints } from './endpoints.ts';
import { Engine, type Rules } from './engine.ts';
import { CallJournal, LimitKeeper, type SandboxAnswer, type SandboxRequest } from './exchange.ts';
import { Faults } from './faults.ts';
import { DEFAULT_SETTINGS, type SandboxEnvironment, type SandboxSettings } from './settings.ts';
import { type SandboxOptions, Shop } from './shop.ts';
import { type IssuedPair, TokenOffice } from './tokens.ts';
import { httpWebhookTransport } from './webhook.ts';

const HOUR_MS = 3_600_000;

const DEFAULT_COMPANY = 'company-1';

/** The simulated platform, which programs in the same process call without a socket. */
export interface SandboxCore {
  /** Processes one call by every rule. The caller itself waits for a slow body (`slowMs`). */
  handle(request: SandboxRequest): Promise<SandboxAnswer>;
  /** Issues a new pair for the company, as its panel does. */
  issueTokens(): IssuedPair;
  readonly control: SandboxControl;
  /** Signs the JWTs (HS256); exposed for tests that verify them. */
  readonly signingSecret: string;
  /** Returns the control of another company on the same platform. */
  controlOf(company: string): SandboxControl;
  /** Ends hanging answers and running notifications. */
  close(): Promise<void>;
}

/** Builds the sandbox in memory, for simulations in the same process and for the server. */
export function createSandbox(options: SandboxOptions): SandboxCore {
  const { clock, random, log = silentLog, limits, seed = {} } = options;
  const settings = settingsOf(options);
  const closing = new AbortController();
  const http = options.webhookTransport ? undefined : httpWebhookTransport();
  const transport = options.webhookTransport ?? http?.send ?? (() => Promise.reject(new Error('closed')));
  const environment: SandboxEnvironment = { clock, random, settings, log, closing: closing.signal };
  const { accessTokenLifetimeMs = HOUR_MS, refreshTokenLifetimeMs = 30 * 24 * HOUR_MS } = options;
  const rules: Rules = {
    tokens: new TokenOffice(environment, accessTokenLifetimeMs, refreshTokenLifetimeMs),
    limits: new LimitKeeper(limits, settings),
    journal: new CallJournal(),
    faults: new Faults(random),
  };
  const shops = new Map<string, Shop>();
  const shopOf = (company: string): Shop => {
    const shop = shops.get(company) ?? new Shop(environment, company, seed, transport);
    shops.set(company, shop);
    return shop;
  };
  const engine = new Engine(environment, rules, buildEndpoints(settings, rules.tokens, shopOf));
  const controlOf = (company: string) => sandboxControl(settings, rules, shopOf(company));
  const control = controlOf(options.company ?? DEFAULT_COMPANY);
  return {
    control,
    controlOf,
    signingSecret: rules.tokens.signingSecret,
    handle: (request) => engine.handle(request),
    issueTokens: () => control.issueTokens(),
    close: async () => {
      closing.abort();
      await http?.close();
    },
  };
}

function settingsOf(options: SandboxOptions): SandboxSettings {
  const settings = { ...DEFAULT_SETTINGS, blockMs: options.limits.windowMs };
  const given = Object.entries(options).filter(
    ([key, value]) => key in DEFAULT_SETTINGS && value !== undefined,
  );
  Object.assign(settings, Object.fromEntries(given));
  settings.shape = { ...DEFAULT_SETTINGS.shape, ...options.shape };
  return settings;
}

import { silentLog } from '../domain/log.ts';
import { CallJournal } from './call-journal.ts';
import { SandboxControl } from './control.ts';
import { Door } from './door.ts';
import { buildEndpoints } from './endpoints.ts';
import { Engine } from './engine.ts';
import type { SandboxAnswer, SandboxRequest } from './exchange.ts';
import { FaultAnswers } from './fault-answers.ts';
import { Faults } from './faults.ts';
import { LimitKeeper } from './limit-keeper.ts';
import type { SandboxOptions } from './options.ts';
import { DEFAULT_SETTINGS, type SandboxSettings } from './settings.ts';
import { Shop } from './shop.ts';
import { type IssuedPair, TokenOffice } from './token-office.ts';
import { httpWebhookTransport } from './webhook-transport.ts';

const HOUR_MS = 3_600_000;
const DEFAULT_COMPANY = 'company-1';

/** The platform without a socket. */
export interface SandboxCore {
  /** Carries one call through every rule; the wait of a slow body (`slowMs`) is left to the caller. */
  handle(request: SandboxRequest): Promise<SandboxAnswer>;
  /** A fresh pair for the company, as its panel generates one. */
  issueTokens(): IssuedPair;
  readonly control: SandboxControl;
  /** Signs the JWTs (HS256); for tests that verify them. */
  readonly signingSecret: string;
  /** The control of another company on the same platform. */
  controlOf(company: string): SandboxControl;
  /** Ends hangs and notifications under way. */
  close(): Promise<void>;
}

/** Builds the platform in memory, for simulations in the same process and for the server around it. */
export function createSandbox(options: SandboxOptions): SandboxCore {
  const { clock, random, log = silentLog } = options;
  const settings = settingsOf(options);
  const closing = new AbortController();
  const ownTransport = options.webhookTransport ? undefined : httpWebhookTransport();
  const transport =
    options.webhookTransport ?? ownTransport?.send ?? (() => Promise.reject(new Error('closed')));
  const tokens = new TokenOffice({
    clock,
    random,
    settings,
    accessTokenLifetimeMs: options.accessTokenLifetimeMs ?? HOUR_MS,
    refreshTokenLifetimeMs: options.refreshTokenLifetimeMs ?? 30 * 24 * HOUR_MS,
  });
  const limits = new LimitKeeper({ limits: options.limits, settings });
  const journal = new CallJournal();
  const faults = new Faults(random);
  const door = new Door({ clock, settings, tokens, limits, journal });
  const faultAnswers = new FaultAnswers({ clock, settings, door, limits, closing: closing.signal });
  const shops = new Map<string, Shop>();
  const seed = options.seed ?? {};
  const shopOf = (company: string): Shop => {
    const known = shops.get(company);
    if (known) return known;
    const shop = new Shop({
      clock,
      random,
      settings,
      company,
      seed,
      transport,
      log,
      closing: closing.signal,
    });
    shops.set(company, shop);
    return shop;
  };
  const endpoints = buildEndpoints({ settings, tokens, shopOf });
  const engine = new Engine({ clock, random, settings, door, faults, faultAnswers, journal, endpoints });
  const controlOf = (company: string) =>
    new SandboxControl({ settings, tokens, limits, journal, faults, shop: shopOf(company) });
  const control = controlOf(options.company ?? DEFAULT_COMPANY);
  return {
    control,
    controlOf,
    signingSecret: tokens.signingSecret,
    handle: (request) => engine.handle(request),
    issueTokens: () => control.issueTokens(),
    close: async () => {
      closing.abort();
      await ownTransport?.close();
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

import type { Log } from '../domain/log.ts';
import type { PlatformLimits } from '../domain/platform/limits.ts';
import type { Clock, Random } from '../domain/time/clock.ts';
import type { SeedOptions } from './catalog-seed.ts';
import type { OrderShape, SandboxSettings } from './settings.ts';
import type { WebhookTransport } from './webhook-transport.ts';

/** How to start a sandbox. The settings among these can be changed later through `control.configure`. */
export interface SandboxOptions extends Partial<Omit<SandboxSettings, 'shape'>> {
  clock: Clock;
  random: Random;
  limits: PlatformLimits;
  log?: Log;
  shape?: Partial<OrderShape>;
  /** Id of the company whose tokens `issueTokens` hands out. */
  company?: string;
  seed?: SeedOptions;
  /** One hour unless told. */
  accessTokenLifetimeMs?: number;
  /** Thirty days unless told. */
  refreshTokenLifetimeMs?: number;
  /** Carries the notifications; real HTTP unless told. */
  webhookTransport?: WebhookTransport;
}

export interface SandboxServerOptions extends SandboxOptions {
  /** Loopback unless told. */
  host?: string;
  /** 0, the default, picks a free one. */
  port?: number;
}

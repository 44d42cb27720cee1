import { whenFree } from '../domain/busy.ts';
import { hasCode, TillsyncError } from '../domain/errors.ts';
import type { Alarms } from '../domain/health/alarm.ts';
import type { Log } from '../domain/log.ts';
import type { CallOptions } from '../domain/platform/call.ts';
import type { Platform, WebhookChange, WebhookState } from '../domain/platform/platform.ts';
import type { WebhookMemoryStore } from '../domain/platform/webhook-memory.ts';
import type { Clock } from '../domain/time/clock.ts';
import { digest, SECRETS_CACHE_MS, type WebhookSecrets } from './webhook-secrets.ts';

const NOT_IMPLEMENTED = 501;

export interface WebhookRegistrationOptions {
  platform: Pick<Platform, 'webhookGet' | 'webhookPut'>;
  secrets: WebhookSecrets;
  store: WebhookMemoryStore;
  /** The public address to register; empty: register nothing by itself. */
  callbackUrl: string;
  alarms: Alarms;
  clock: Clock;
  log: Log;
}

/** Keeps the company's one webhook (document, "PUT /webhook") pointing here with the agreed secret. */
export class WebhookRegistration {
  readonly #options: WebhookRegistrationOptions;

  constructor(options: WebhookRegistrationOptions) {
    this.#options = options;
  }

  show(call?: CallOptions): Promise<WebhookState | null | 'unsupported'> {
    return this.#options.platform.webhookGet(call);
  }

  /**
   * Compares what the platform has with what it should have, and registers when they differ. Where the platform
   * offers no read, what was last registered from here stands in for it.
   */
  async ensure(call?: CallOptions): Promise<'nothing-to-register' | 'equal' | 'registered'> {
    const { callbackUrl, secrets, store, log } = this.#options;
    if (callbackUrl === '') return 'nothing-to-register';
    const secret = secrets.current();
    const last = store.read().registered;
    const sameAsLast =
      last?.callbackUrl === callbackUrl &&
      last.secretDigest === (secret === undefined ? null : digest(secret));
    const seen = await this.#look(call);
    const sameThere =
      seen === 'unsupported' ||
      (seen?.callbackUrl === callbackUrl &&
        seen.active !== false &&
        seen.hasSecret === (secret !== undefined));
    if (sameAsLast && sameThere) {
      this.#options.alarms.lower('webhook.mismatch');
      return 'equal';
    }
    await this.set({ callbackUrl, active: true, ...(secret !== undefined && { secret }) }, call);
    log.info({ callbackUrl, hasSecret: secret !== undefined }, 'webhook registered with the platform');
    return 'registered';
  }

  /** Says whether the platform still sends to us; a difference raises the alarm and changes nothing there. */
  async compare(call?: CallOptions): Promise<void> {
    const { callbackUrl, alarms } = this.#options;
    if (callbackUrl === '') return;
    const seen = await this.#look(call);
    if (seen === 'unsupported') return;
    if (seen?.callbackUrl === callbackUrl && seen.active !== false) {
      alarms.lower('webhook.mismatch');
      return;
    }
    const found = seen ? `${seen.callbackUrl} (active: ${seen.active})` : 'no webhook at all';
    alarms.raise(
      'webhook.mismatch',
      `The platform sends callbacks to ${found}, not to ${callbackUrl}. Somebody changed it; \`{tillsync} webhook set\` puts it back.`,
    );
  }

  /** PUT /webhook, checked against the answer. Throws `platform-refused` when the answer does not agree. */
  async set(change: WebhookChange, call?: CallOptions): Promise<WebhookState> {
    const { platform, store, clock } = this.#options;
    const state = await platform.webhookPut(change, call);
    this.#check(change, state);
    await whenFree(clock, () =>
      store.update((memory) => ({
        ...memory,
        registered: {
          callbackUrl: change.callbackUrl ?? state.callbackUrl ?? '',
          secretDigest:
            change.secret === undefined
              ? (memory.registered?.secretDigest ?? null)
              : change.secret === ''
                ? null
                : digest(change.secret),
        },
      })),
    );
    return state;
  }

  /**
   * Gives the platform a new secret. It is accepted here before the platform hears of it, and the old one goes on
   * being accepted, so no callback is refused at any moment of it, also when the answer is lost.
   */
  async rotateSecret(call?: CallOptions): Promise<WebhookState> {
    const { secrets, callbackUrl, clock } = this.#options;
    const secret = await secrets.begin();
    await clock.sleep(SECRETS_CACHE_MS * 2, call?.signal);
    if (call?.signal?.aborted) throw new TillsyncError('aborted', 'Stopped before the platform was told.');
    const state = await this.set({ ...(callbackUrl !== '' && { callbackUrl }), secret }, call);
    await secrets.commit(secret);
    return state;
  }

  /** As `show`; whatever an unknown address answers, a web page or a refusal, is taken for no read at all. */
  async #look(call?: CallOptions): Promise<WebhookState | null | 'unsupported'> {
    try {
      return await this.show(call);
    } catch (error) {
      const isNoRead =
        hasCode(error, 'platform-refused', 'platform-garbled', 'forbidden') ||
        (hasCode(error, 'platform-failed') && error.httpStatus === NOT_IMPLEMENTED);
      if (!isNoRead) throw error;
      const { code, message } = error;
      this.#options.log.info({ code }, `the webhook cannot be read at the platform: ${message}`);
      return 'unsupported';
    }
  }

  #check(change: WebhookChange, state: WebhookState): void {
    const { alarms } = this.#options;
    const faults: string[] = [];
    if (
      change.callbackUrl !== undefined &&
      state.callbackUrl !== null &&
      state.callbackUrl !== change.callbackUrl
    ) {
      faults.push(`its address is ${state.callbackUrl}`);
    }
    if (change.active !== undefined && state.active !== null && state.active !== change.active) {
      faults.push(`active is ${state.active}; the field that switches it may have another name here`);
    }
    if (
      change.secret !== undefined &&
      state.hasSecret !== null &&
      state.hasSecret !== (change.secret !== '')
    ) {
      faults.push(`hasSecret is ${state.hasSecret}`);
    }
    if (faults.length === 0) {
      alarms.lower('webhook.mismatch');
      return;
    }
    const message = `The platform took the webhook, but ${faults.join(' and ')}.`;
    alarms.raise('webhook.mismatch', message);
    throw new TillsyncError('platform-refused', message, {
      hint: 'Compare with the company panel; platform.webhook_active_field names the field that switches sending.',
    });
  }
}

import { Agent, request } from 'undici';
import * as z from 'zod';
import { webhookPutRequest } from '../platform/schemas.ts';
import { drawChance } from './draws.ts';
import type { Call } from './engine.ts';
import { envelope, failure, invalid, type Reply } from './exchange.ts';
import { platformNowMs, type SandboxEnvironment } from './settings.ts';

interface WebhookRequest {
  url: string;
  headers: Record<string, string>;
  body: string;
  signal: AbortSignal;
}

/** Sends one notification and resolves to its HTTP status; rejects when there is no answer. */
export type WebhookTransport = (request: WebhookRequest) => Promise<number>;

/** Returns a transport over real sockets. It has its own agent, which `close` ends. */
export function httpWebhookTransport(): { send: WebhookTransport; close(): Promise<void> } {
  const agent = new Agent({ keepAliveTimeout: 4000 });
  return {
    send: async ({ url, headers, body, signal }) => {
      const answer = await request(url, { method: 'POST', headers, body, signal, dispatcher: agent });
      await answer.body.dump();
      return answer.statusCode;
    },
    close: () => agent.destroy(),
  };
}

export interface WebhookConfig {
  callbackUrl: string;
  /** Value of the header `x-webhook-secret`; empty if the callbacks carry none. */
  secret: string;
  active: boolean;
}

function text(value: string | boolean | undefined): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

const chance = z.number().min(0).max(1);
const ms = z.number().min(0);

/** Settings for how unreliable the sender is. */
export const webhookBehaviour = z.strictObject({
  /** Probability that a notification is never sent. */
  drop: chance,
  /** Probability that a notification is sent twice. */
  duplicate: chance,
  /** Probability that a notification waits until the next one was sent, or until `reorderMs` has passed. */
  reorder: chance,
  reorderMs: ms,
  /** Probability of a delay, and its shortest and longest time. */
  delay: chance,
  delayMs: z.tuple([ms, ms]).readonly(),
});
export type WebhookBehaviour = z.infer<typeof webhookBehaviour>;

const HONEST: WebhookBehaviour = {
  drop: 0,
  duplicate: 0,
  reorder: 0,
  reorderMs: 5000,
  delay: 0,
  delayMs: [0, 0],
};

/** One notification and its outcome. */
interface Delivery {
  orderId: string;
  status: string;
  /** The platform's wall clock when the notification was due, ISO 8601. */
  at: string;
  /** HTTP status of each try; `failed` for a try without an answer. */
  tries: (number | 'failed')[];
  outcome: 'waiting' | 'confirmed' | 'given-up' | 'dropped' | 'hidden' | 'off';
}

/**
 * The company's one webhook: its configuration and its notifications. Notifications of one order are sent one after the
 * other, unless the behaviour says otherwise; different orders do not wait for each other.
 */
export class WebhookSender {
  readonly #environment: SandboxEnvironment;
  readonly #transport: WebhookTransport;
  readonly #deliveries: Delivery[] = [];
  readonly #tails = new Map<string, Promise<void>>();
  readonly #hidden = new Set<string>();
  #heldBack: (() => void)[] = [];
  behaviour: WebhookBehaviour = HONEST;
  /** The webhook's configuration, which a person can also set in the company's panel, without the API. */
  config: WebhookConfig | null = null;

  constructor(environment: SandboxEnvironment, transport: WebhookTransport) {
    this.#environment = environment;
    this.#transport = transport;
  }

  /** Answers PUT /webhook. Unknown fields, such as a wrong name of the enable flag, are ignored. */
  put(call: Call): Reply {
    const { webhookFlagName: flag, validationStatus } = this.#environment.settings;
    const known = Object.entries(call.body ?? {}).filter(([key]) =>
      ['callbackUrl', 'secret', flag].includes(key),
    );
    const request = webhookPutRequest(flag).safeParse(Object.fromEntries(known));
    if (!request.success) return invalid(validationStatus, request.error);
    const fields: Record<string, string | boolean | undefined> = request.data;
    const callbackUrl = text(fields.callbackUrl) ?? this.config?.callbackUrl;
    if (callbackUrl === undefined) return failure(validationStatus, 'callbackUrl is required');
    const active = fields[flag];
    this.config = {
      callbackUrl,
      secret: text(fields.secret) ?? this.config?.secret ?? '',
      active: typeof active === 'boolean' ? active : (this.config?.active ?? true),
    };
    return this.read();
  }

  /** Answers the webhook read; `data` is null if no webhook is configured. */
  read(): Reply {
    if (!this.config) return envelope(null);
    const { callbackUrl, active, secret } = this.config;
    return envelope({ callbackUrl, active, hasSecret: secret !== '' });
  }

  /** Stops all notifications of the order. */
  hide(orderId: string): void {
    this.#hidden.add(orderId);
  }

  deliveries(): readonly Delivery[] {
    return this.#deliveries;
  }

  /** Resolves when nothing is being sent. */
  async settled(): Promise<void> {
    while (this.#tails.size > 0) await Promise.all(this.#tails.values());
  }

  /** Announces an order's present state. */
  announce(snapshot: { internalOrderId: string; status: string }): void {
    const { random, settings } = this.#environment;
    const at = new Date(platformNowMs(this.#environment)).toISOString();
    const { internalOrderId: orderId, status } = snapshot;
    const delivery: Delivery = { orderId, status, at, tries: [], outcome: 'waiting' };
    this.#deliveries.push(delivery);
    if (!settings.externalPos || !this.config?.active) {
      delivery.outcome = 'off';
    } else if (this.#hidden.has(orderId)) {
      delivery.outcome = 'hidden';
    } else if (drawChance(random, this.behaviour.drop)) {
      delivery.outcome = 'dropped';
    } else {
      const body = JSON.stringify(snapshot);
      const copies = drawChance(random, this.behaviour.duplicate) ? 2 : 1;
      this.#queue(delivery, () => this.#deliver(delivery, body, copies));
    }
  }

  /**
   * Sends a notification after the earlier ones of its order. Delayed and held-back ones leave this queue, so that
   * later ones overtake them.
   */
  #queue(delivery: Delivery, send: () => Promise<void>): void {
    const { random } = this.#environment;
    const strays = drawChance(random, this.behaviour.reorder)
      ? this.#nextIsOut()
      : drawChance(random, this.behaviour.delay)
        ? this.#pause(this.behaviour.delayMs)
        : undefined;
    const key = strays ? `${delivery.orderId} ${this.#deliveries.length}` : delivery.orderId;
    const before = strays ?? this.#tails.get(key) ?? Promise.resolve();
    const tail = before.then(send).finally(() => {
      if (this.#tails.get(key) === tail) this.#tails.delete(key);
    });
    this.#tails.set(key, tail);
  }

  async #deliver(delivery: Delivery, body: string, copies: number): Promise<void> {
    const { clock, settings, closing } = this.#environment;
    for (let copy = 0; copy < copies; copy++) {
      for (const delayMs of [0, ...settings.webhookRetry.delaysMs]) {
        if (delayMs > 0) await clock.sleep(delayMs, closing);
        if (closing.aborted) return;
        const result = await this.#try(body);
        delivery.tries.push(result);
        if (isConfirmed(result)) {
          delivery.outcome = 'confirmed';
          break;
        }
      }
    }
    if (delivery.outcome === 'waiting') delivery.outcome = 'given-up';
    for (const release of this.#heldBack.splice(0)) release();
  }

  async #try(body: string): Promise<number | 'failed'> {
    const { clock, settings, log, closing } = this.#environment;
    const { config } = this;
    if (!config) return 'failed';
    const headers: Record<string, string> = { 'content-type': 'application/json' };
    if (config.secret !== '') headers['x-webhook-secret'] = config.secret;
    const over = new AbortController();
    const signal = AbortSignal.any([over.signal, closing]);
    const timeout = clock.sleep(settings.webhookTimeoutMs, signal).then(() => over.abort());
    try {
      return await this.#transport({ url: config.callbackUrl, headers, body, signal });
    } catch (error) {
      log.debug({ err: error }, 'A notification got no answer.');
      return 'failed';
    } finally {
      over.abort();
      await timeout;
    }
  }

  #nextIsOut(): Promise<void> {
    const { clock, closing } = this.#environment;
    const released = new AbortController();
    this.#heldBack.push(() => released.abort());
    return clock.sleep(this.behaviour.reorderMs, AbortSignal.any([released.signal, closing]));
  }

  #pause([leastMs, mostMs]: readonly [number, number]): Promise<void> {
    const { clock, random, closing } = this.#environment;
    return clock.sleep(leastMs + random.next() * (mostMs - leastMs), closing);
  }
}

function isConfirmed(result: number | 'failed'): boolean {
  return result !== 'failed' && result >= 200 && result < 300;
}

import { webhookPutRequest } from '../platform/schemas/webhook.ts';
import type { Call } from './engine.ts';
import { envelope, failure, type Reply } from './exchange.ts';
import type { SandboxSettings } from './settings.ts';

export interface WebhookConfig {
  callbackUrl: string;
  /** Empty: none. */
  secret: string;
  active: boolean;
}

/** The company's one webhook. */
export class WebhookDesk {
  readonly #settings: SandboxSettings;
  #config: WebhookConfig | null = null;

  constructor(settings: SandboxSettings) {
    this.#settings = settings;
  }

  get config(): WebhookConfig | null {
    return this.#config;
  }

  /** Sets it from outside the API, as someone does in the company panel. */
  set(config: WebhookConfig | null): void {
    this.#config = config;
  }

  /** PUT /webhook. Fields the platform does not know, such as a wrong name of the enable flag, are ignored. */
  put(call: Call): Reply {
    const flag = this.#settings.webhookFlagName;
    const known = Object.entries(call.body ?? {}).filter(([key]) =>
      ['callbackUrl', 'secret', flag].includes(key),
    );
    const request = webhookPutRequest(flag).safeParse(Object.fromEntries(known));
    if (!request.success) {
      return failure(this.#settings.validationStatus, request.error.issues[0]?.message ?? 'Invalid webhook');
    }
    const fields: Record<string, string | boolean | undefined> = request.data;
    const callbackUrl = text(fields.callbackUrl) ?? this.#config?.callbackUrl;
    if (callbackUrl === undefined) return failure(this.#settings.validationStatus, 'callbackUrl is required');
    const active = fields[flag];
    this.#config = {
      callbackUrl,
      secret: text(fields.secret) ?? this.#config?.secret ?? '',
      active: typeof active === 'boolean' ? active : (this.#config?.active ?? true),
    };
    return this.read();
  }

  /** The webhook read: data is null when none is configured. */
  read(): Reply {
    if (!this.#config) return envelope(null);
    const { callbackUrl, active, secret } = this.#config;
    return envelope({ callbackUrl, active, hasSecret: secret !== '' });
  }
}

function text(value: string | boolean | undefined): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

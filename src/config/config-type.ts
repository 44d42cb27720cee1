import type { LogConfig } from '../core/log.ts';
import type { RetentionSettings } from '../orders/retention-rules.ts';
import type { GuardSettings } from '../outbox/guard-rails.ts';
import type { PlatformLimits } from '../platform/platform.ts';

/** Everything an operator may set, checked and frozen. Durations in milliseconds, sizes in bytes. */
export interface Config {
  readonly platform: PlatformConfig;
  readonly storage: StorageConfig;
  readonly webhook: WebhookConfig;
  readonly orders: OrdersConfig;
  readonly catalog: CatalogConfig;
  /** The company's branches, which the platform's API cannot list. */
  readonly branches: readonly BranchConfig[];
  readonly outbox: OutboxConfig;
  readonly stock: StockConfig;
  /** When a hand-over is held back for a person. */
  readonly guard: Readonly<GuardSettings>;
  /** How long what is no longer needed stays in the mirror. */
  readonly retention: RetentionSettings;
  readonly local: LocalConfig;
  readonly alarms: AlarmsConfig;
  readonly limits: Readonly<PlatformLimits>;
  readonly log: LogConfig;
}

export interface PlatformConfig {
  /** Without a slash at its end. */
  readonly baseUrl: string;
  /** From sending a request to the last byte of its answer. */
  readonly timeoutMs: number;
  /** The document does not show how the webhook is read. */
  readonly webhookReadMethod: 'GET' | 'POST';
  readonly webhookReadPath: string;
  /** Name of the enable flag in PUT /webhook, which the document does not show. */
  readonly webhookActiveField: string;
}

export interface StorageConfig {
  /** Absolute path. */
  readonly directory: string;
  /** Unix group, by name or number, whose members may read the mirror; empty: the directory's own. */
  readonly group: string;
}

export interface WebhookConfig {
  /** False: orders come by polling alone. */
  readonly enabled: boolean;
  readonly host: string;
  /** 0 picks a free one. */
  readonly port: number;
  readonly path: string;
  /** The public address to register; empty: register nothing. */
  readonly callbackUrl: string;
  /** PEM files; both empty: plain HTTP, with a proxy in front for the public. */
  readonly tlsCertFile: string;
  readonly tlsKeyFile: string;
  readonly bodyLimitBytes: number;
}

export interface OrdersConfig {
  /** node-cron expression, seconds field allowed. */
  readonly poll: string;
  /** IANA zone whose calendar `startDate` and `endDate` are in. */
  readonly timezone: string;
  readonly lookbackDays: number;
  /** Days of the wide look-back that runs every `wideEveryMs`. */
  readonly wideDays: number;
  readonly wideEveryMs: number;
  /** Name of a page parameter of GET /order/all; empty: none is sent. */
  readonly pageParameter: string;
  /** Dotted path to the list of orders in the answer; empty: it is found by itself. */
  readonly listPath: string;
  /** Further spellings of an order record's fields, by the field's name in camel case. */
  readonly fields: Readonly<Record<string, string[]>>;
}

export interface CatalogConfig {
  /** node-cron expression. */
  readonly sweep: string;
  readonly pageSize: number;
}

export interface BranchConfig {
  readonly subsidiaryId?: string;
  readonly externalId?: string;
}

export interface OutboxConfig {
  readonly lingerMs: number;
}

export interface StockConfig {
  /** Reduce a counted quantity by what online orders took that the POS has not acknowledged yet. */
  readonly holdBackUnbooked: boolean;
  /** Settle a value that the mirror has already without a call. */
  readonly skipUnchanged: boolean;
  /** How long what the platform last said of a stock is believed when a count says the same. */
  readonly trustForMs: number;
  /** Whether the platform takes off its stock what it sells. */
  readonly platformDeducts: boolean;
}

export interface LocalConfig {
  /** Of the first address, the one that links lead to. */
  readonly host: string;
  readonly port: number;
  /** Further addresses. */
  readonly others: readonly { readonly host: string; readonly port: number }[];
  /** Absolute path of a Unix socket for the group of `storage.group`; empty: none. */
  readonly socket: string;
}

/** Who is told when something needs a person, and how often. */
export interface AlarmsConfig {
  /** Program and arguments, run without a shell; empty: none. */
  readonly command: readonly string[];
  /** Gets each message by POST; empty: none. */
  readonly url: string;
  /** How this shop is called in the messages; empty: the name of the machine. */
  readonly name: string;
  /** The mildest that is told. */
  readonly level: 'amber' | 'red';
  /** How long an alarm must be up, or over, before it is told. */
  readonly settleMs: number;
  /** How often an alarm that stays up is told again; 0: never. */
  readonly repeatMs: number;
  /** Messages in one calendar day. */
  readonly dailyMax: number;
  /** For the command to end, and for the address to answer. */
  readonly timeoutMs: number;
}

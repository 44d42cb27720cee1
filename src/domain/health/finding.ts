import type { AlarmKey } from './alarm.ts';
import type { FreshnessSubject } from './freshness.ts';

export type FindingLevel = 'amber' | 'red';

/** What can be wrong: an alarm, a flow in trouble, or what the figures tell. */
export type FindingCode =
  | AlarmKey
  | FreshnessSubject
  | 'auth.none'
  | 'auth.expiring'
  | 'orders.starting'
  | 'outbox.stuck'
  | 'service.down'
  | 'state.unusable'
  | 'storage.full'
  | 'storage.low'
  | 'quarantine';

/** One thing that is wrong. The code stays the same in every version; sentences may be worded anew. */
export interface Finding {
  code: FindingCode;
  level: FindingLevel;
  /** What is wrong, one sentence. */
  message: string;
  /** What to do about it, one sentence. */
  remedy: string;
  /** The words of the part that noticed it; null when there are none. */
  detail: string | null;
  /** How many things it is about; null when that is not the point. */
  count: number | null;
  /** ISO 8601 UTC; null when unknown. */
  since: string | null;
}

export interface FindingSentences {
  level: FindingLevel;
  /** May end in `: {count}`, which is left out when there is no count. */
  message: string;
  remedy: string;
}

/** Worst first, causes before what follows from them: findings are told in this order. */
export const FINDING_SENTENCES: Record<FindingCode, FindingSentences> = {
  'service.down': {
    level: 'red',
    message: 'tillsync does not run, so nothing new comes in or goes out.',
    remedy: 'Start it with: systemctl start tillsync',
  },
  'state.unusable': {
    level: 'red',
    message: 'The file of tokens and limits, state.db, cannot be used, so nothing is fetched or sent.',
    remedy: 'See what is wrong with it with: tillsync doctor',
  },
  'storage.full': {
    level: 'red',
    message: 'The disk is full, so what comes in can soon no longer be kept.',
    remedy: 'Free space on the disk of the storage directory; tillsync goes on by itself.',
  },
  'storage.failing': {
    level: 'red',
    message: 'The disk does not keep what comes in.',
    remedy: 'Free space or repair the disk; tillsync goes on by itself.',
  },
  'auth.locked-out': {
    level: 'red',
    message: 'The platform no longer accepts the tokens, so nothing is fetched or sent.',
    remedy: 'Get new tokens from the company panel and hand them over with: tillsync auth set',
  },
  'auth.none': {
    level: 'red',
    message: 'There are no tokens for the platform yet, so nothing is fetched or sent.',
    remedy: 'Get tokens from the company panel and hand them over with: tillsync auth set',
  },
  'orders.stale': {
    level: 'red',
    message: 'Orders are no longer fetched from the platform.',
    remedy: 'Check the internet connection of this machine; then run: tillsync doctor',
  },
  'orders.unreadable': {
    level: 'red',
    message: 'The platform sends orders that cannot be read.',
    remedy: 'They are kept. Send support what tillsync quarantine list shows.',
  },
  'inbox.damaged': {
    level: 'red',
    message: 'The inbox through which the POS hands over changes cannot be used.',
    remedy: 'Have whoever looks after the POS check inbox.db, its directory and its permissions.',
  },
  'outbox.stuck': {
    level: 'amber',
    message: 'Stock and price changes wait too long to be sent: {count}.',
    remedy: 'Check the internet connection of this machine; then run: tillsync doctor',
  },
  'platform.blocked': {
    level: 'amber',
    message: 'The platform has blocked the token for a while.',
    remedy: 'Wait; it ends by itself. Make sure that no other program uses the same token.',
  },
  'platform.forbidden': {
    level: 'amber',
    message: 'The platform refuses some of the calls for good.',
    remedy: "Ask the platform's support which rights the token lacks.",
  },
  'orders.more-pages': {
    level: 'amber',
    message: 'The platform holds back a part of the orders.',
    remedy: 'Set orders.page_parameter in the configuration, or poll fewer days.',
  },
  'webhook.silent': {
    level: 'amber',
    message: 'Orders arrive only by polling, up to two minutes late.',
    remedy: 'Check the way of the callbacks with: tillsync webhook test',
  },
  'webhook.mismatch': {
    level: 'amber',
    message: "The platform's webhook is not the one that is configured here.",
    remedy: 'Compare and set it with: tillsync webhook show, tillsync webhook set',
  },
  'webhook.unreadable': {
    level: 'amber',
    message: 'A callback could not be read as an order.',
    remedy: 'It is kept. Send support what tillsync quarantine list shows.',
  },
  'outbox.rejected': {
    level: 'amber',
    message: 'Changes that the platform refused: {count}.',
    remedy: 'Look why, put it right, then retry or drop them.',
  },
  'outbox.held': {
    level: 'amber',
    message: 'Changes that look like a mistake and wait for a decision: {count}.',
    remedy: 'Look at them, then release or drop them.',
  },
  'catalog.incomplete': {
    level: 'amber',
    message: 'The catalogue could not be read whole.',
    remedy: 'It is tried again by itself; if it stays, run: tillsync sync products',
  },
  'storage.low': {
    level: 'amber',
    message: 'The disk is nearly full.',
    remedy: 'Free space on the disk of the storage directory before it is full.',
  },
  'mirror.reader-holds-wal': {
    level: 'amber',
    message: 'A program keeps the mirror open for too long, so its log grows.',
    remedy: 'Close the program that is named, or have it read in shorter steps.',
  },
  'mirror.too-large': {
    level: 'amber',
    message: 'The mirror is larger than it may be, and all that is left in it is needed.',
    remedy: 'Raise retention.max_bytes, shorten retention.orders, or have the POS acknowledge its orders.',
  },
  quarantine: {
    level: 'amber',
    message: 'Kept, but not understood: {count}.',
    remedy: 'Look at it with: tillsync quarantine list',
  },
  'auth.expiring': {
    level: 'amber',
    message: 'The refresh token ends soon.',
    remedy: 'Renew it with: tillsync auth refresh',
  },
  'orders.starting': {
    level: 'amber',
    message: 'No orders have been fetched yet.',
    remedy: 'Wait a few minutes after the first start; if it stays, run: tillsync doctor',
  },
  auth: {
    level: 'amber',
    message: 'The access to the platform is in trouble.',
    remedy: 'It is tried again by itself; if it stays, run: tillsync doctor',
  },
  'orders.poll': {
    level: 'amber',
    message: 'The last try to fetch orders did not work.',
    remedy: 'It is tried again by itself; if it stays, run: tillsync doctor',
  },
  'orders.webhook': {
    level: 'amber',
    message: 'Callbacks work only in part.',
    remedy: 'Orders still come by polling. Check with: tillsync webhook show',
  },
  'outbox.push': {
    level: 'amber',
    message: 'The last try to send changes did not work.',
    remedy: 'It is tried again by itself; if it stays, run: tillsync doctor',
  },
  'catalog.sweep': {
    level: 'amber',
    message: 'The last try to read the catalogue did not work.',
    remedy: 'It is tried again by itself; if it stays, run: tillsync sync products',
  },
};

/** Things a person must hear of once, and once more when they are over. */
export type AlarmKey =
  | 'auth.locked-out'
  | 'auth.none'
  | 'auth.other-company'
  | 'platform.blocked'
  | 'platform.forbidden'
  | 'orders.stale'
  | 'orders.unreadable'
  | 'orders.more-pages'
  | 'webhook.silent'
  | 'webhook.refused'
  | 'webhook.unreadable'
  | 'webhook.mismatch'
  | 'storage.failing'
  | 'storage.full'
  | 'storage.low'
  | 'mirror.reader-holds-wal'
  | 'mirror.too-large'
  | 'clock.wrong'
  | 'clock.off'
  | 'mirror.locked'
  | 'catalog.incomplete'
  | 'outbox.rejected'
  | 'outbox.held'
  | 'inbox.damaged'
  | 'inbox.locked';

/** Raising an alarm that is up already changes nothing but its message; lowering one that is down, nothing. */
export interface Alarms {
  raise(key: AlarmKey, message: string): void;
  lower(key: AlarmKey): void;
}

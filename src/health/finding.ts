import type { AlarmKey, FindingLevel, FreshnessSubject } from '../core/alarm.ts';

/** What can be wrong: an alarm, a flow in trouble, or what the figures tell. */
export type FindingCode =
  | AlarmKey
  | FreshnessSubject
  | 'auth.none'
  | 'auth.expiring'
  | 'orders.starting'
  | 'orders.resuming'
  | 'service.down'
  | 'setup.missing'
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
  /** What to do about it, one sentence; empty where it ends with what is told before it. */
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
    message: 'tillsync is not running. No orders arrive and no changes are sent.',
    remedy: 'To start it, run: {start}',
  },
  'setup.missing': {
    level: 'amber',
    message: 'tillsync is not set up yet.',
    remedy: 'Run: {tillsync} init',
  },
  'state.unusable': {
    level: 'red',
    message: 'The file of tokens and limits, state.db, cannot be used. Nothing is fetched or sent.',
    remedy: 'To see what is wrong, run: {tillsync} doctor',
  },
  'storage.full': {
    level: 'red',
    message: 'The disk is full. New orders can soon not be saved.',
    remedy: 'Free space on the disk of {storage}. tillsync then continues on its own.',
  },
  'storage.failing': {
    level: 'red',
    message: 'Writing to the disk failed.',
    remedy: 'Free space on the disk of {storage}, or repair it. tillsync then continues on its own.',
  },
  'clock.wrong': {
    level: 'red',
    message: "This machine's clock is wrong by more than half a day.",
    remedy: 'Set it right, and have it kept right: sudo timedatectl set-ntp true',
  },
  'mirror.locked': {
    level: 'red',
    message: 'Another program keeps the mirror locked, so nothing that comes in can be kept.',
    remedy: 'End the program that is named; tillsync goes on by itself.',
  },
  'auth.locked-out': {
    level: 'red',
    message: 'The platform no longer accepts the tokens. Nothing is fetched or sent.',
    remedy: 'Create a new token in the company panel, then run {tillsync} auth set and paste it.',
  },
  'auth.other-company': {
    level: 'red',
    message: 'Orders of another company arrive: the tokens may be those of another shop.',
    remedy:
      'Give this shop its own tokens: {tillsync} auth set. If it does belong to the other company now: {tillsync} auth set --other-company',
  },
  'auth.none': {
    level: 'red',
    message: 'There are no tokens for the platform yet. Nothing is fetched or sent.',
    remedy: 'Create a token in the company panel, then run {tillsync} auth set and paste it.',
  },
  'platform.blocked': {
    level: 'amber',
    message: 'The platform has blocked the token for some minutes.',
    remedy: 'Wait until it ends. Make sure that no other program uses the same token.',
  },
  'orders.unreadable': {
    level: 'red',
    message: 'The platform sends orders that cannot be read.',
    remedy: 'They are saved. Send support the output of: {tillsync} quarantine list',
  },
  'orders.incomplete': {
    level: 'red',
    message: 'Orders came of which a part cannot be read.',
    remedy:
      'Look at each in the company panel before it is prepared. What was read: {tillsync} order show NUMBER',
  },
  'orders.stale': {
    level: 'red',
    message: 'Orders are no longer fetched from the platform.',
    remedy: 'Check the internet connection of this machine, then run: {tillsync} doctor',
  },
  'orders.unbooked': {
    level: 'amber',
    message: 'Orders wait that the POS has not acknowledged.',
    remedy:
      'Look whether the POS runs, and take them by hand if need be. One that was taken by hand: {tillsync} feed ack ORDER_ID',
  },
  'orders.unassigned': {
    level: 'amber',
    message: 'Orders name no store, or one that is not in the configuration, so no branch prepares them.',
    remedy:
      'See whose they are: {tillsync} order show NUMBER. A branch that is missing: add its ids to [[branches]], then run: {restart}',
  },
  'orders.sums': {
    level: 'amber',
    message: 'Orders came whose lines do not add up to their amount: one may be missing, or there twice.',
    remedy: 'Compare each with the company panel: {tillsync} order show NUMBER',
  },
  'inbox.damaged': {
    level: 'red',
    message: 'The inbox, where the POS writes its changes, cannot be used.',
    remedy: 'Ask the POS vendor to check inbox.db, its directory and its permissions.',
  },
  'inbox.locked': {
    level: 'red',
    message: 'A program keeps the inbox locked, so changes of the POS do not get through.',
    remedy: 'Close or restart the program that is named.',
  },
  'hub.unassigned': {
    level: 'amber',
    message:
      'Orders name a branch that is not in the configuration. They are in the mirror here, and go to no branch.',
    remedy:
      'Add the branch that is named to [[branches]], then run: {restart}. Or say whose they are: {tillsync} branch assign NAME --store STORE',
  },
  'hub.unapplied': {
    level: 'amber',
    message: 'Branches could not take in all that came down to them. It is kept there.',
    remedy: 'At each branch that is named, look at it with: {tillsync} quarantine list',
  },
  'hub.certificate': {
    level: 'amber',
    message: 'The certificate of the hub ends soon, or branches would not take it.',
    remedy: 'Put a good certificate and its key in place; the server reads them by itself.',
  },
  'hub.misuse': {
    level: 'amber',
    message: 'A branch does what tillsync does not do by itself: somebody else may have its key.',
    remedy:
      'Look at the branch that is named. To end its key, then give it another: {tillsync} branch remove NAME; {tillsync} branch invite NAME',
  },
  'hub.server': {
    level: 'amber',
    message: 'The nats-server does not run with the configuration that tillsync wrote for it.',
    remedy:
      'Write it once more: {tillsync} hub server-config; then start the server with it: sudo systemctl restart tillsync-nats',
  },
  'hub.branches': {
    level: 'amber',
    message: 'Something is wrong at branches.',
    remedy: 'To see all of them, the worst first, run: {tillsync} branch list',
  },
  'hub.link': {
    level: 'amber',
    message:
      'The connection between the hub and its branches is down. What waits stays and follows by itself.',
    remedy: 'Check the nats-server and the network between, then run: {tillsync} doctor',
  },
  'hub.refused': {
    level: 'red',
    message: 'The hub does not take this branch: its key is not known there, or another machine has it.',
    remedy: 'Do what the detail says. What waits stays here and follows then.',
  },
  'outbox.full': {
    level: 'amber',
    message: 'So many changes of a branch wait that more of them stay in the inbox.',
    remedy: 'They follow by themselves. Have the POS hand over what changed, and not its whole stock.',
  },
  'outbox.stuck': {
    level: 'amber',
    message: 'Stock and price changes have waited too long to be sent: {count}.',
    remedy: 'Check the internet connection of this machine, then run: {tillsync} doctor',
  },
  'platform.forbidden': {
    level: 'amber',
    message: 'The platform does not permit some of the calls.',
    remedy: "Ask the platform's support which rights the token lacks.",
  },
  'clock.off': {
    level: 'amber',
    message: "This machine's clock is not right.",
    remedy: 'Have it kept right: sudo timedatectl set-ntp true',
  },
  'orders.more-pages': {
    level: 'amber',
    message: 'The platform sends only a part of the orders.',
    remedy: 'Set orders.page_parameter in the configuration, or poll fewer days.',
  },
  'webhook.refused': {
    level: 'amber',
    message: 'Callbacks are refused, so orders arrive only by polling.',
    remedy: 'See them with: {tillsync} callbacks tail',
  },
  'webhook.silent': {
    level: 'amber',
    message: 'Orders arrive only by polling, up to two minutes late.',
    remedy: 'To test the callback address, run: {tillsync} webhook test',
  },
  'webhook.mismatch': {
    level: 'amber',
    message: "The platform's webhook is not the one that is configured here.",
    remedy: 'Compare with {tillsync} webhook show, then run: {tillsync} webhook set',
  },
  'webhook.unreadable': {
    level: 'amber',
    message: 'A callback could not be read as an order.',
    remedy: 'It is saved. Send support the output of: {tillsync} quarantine list',
  },
  'outbox.rejected': {
    level: 'amber',
    message: 'Changes that the platform rejected: {count}.',
    remedy: 'See why, correct it, then retry or drop them.',
  },
  'outbox.held': {
    level: 'amber',
    message: 'Changes that look like a mistake and need a decision: {count}.',
    remedy: 'Check them, then release or drop them.',
  },
  'stock.differs': {
    level: 'amber',
    message: 'The platform has other stocks than the POS counted.',
    remedy:
      'See all with: {tillsync} diff stock. Have the POS hand over what it has of them, or put them right in the company panel.',
  },
  'hooks.lagging': {
    level: 'amber',
    message: 'Events of orders do not get through to a hook.',
    remedy:
      'See why with {tillsync} hooks list, try it with {tillsync} hooks test NAME, or pass over the event with {tillsync} hooks skip NAME.',
  },
  'catalog.incomplete': {
    level: 'amber',
    message: 'Only a part of the catalogue could be read.',
    remedy: 'tillsync retries. If it stays, run: {tillsync} sync products',
  },
  'catalog.unmapped-ordered': {
    level: 'amber',
    message: 'An order has a product that has no id of yours, so the POS cannot tell what it is.',
    remedy: 'Take the order by hand, and give the product its id in the company panel.',
  },
  'catalog.unmapped': {
    level: 'amber',
    message: 'Products are for sale that have no id of yours, so the POS would not know them in an order.',
    remedy: 'List them with {tillsync} catalog unmapped, and give them their ids in the company panel.',
  },
  'storage.low': {
    level: 'amber',
    message: 'The disk is nearly full.',
    remedy: 'Free space on the disk of {storage} before it is full.',
  },
  'mirror.reader-holds-wal': {
    level: 'amber',
    message: 'A program keeps the database mirror.db open for too long, so its write log grows.',
    remedy: 'Close that program, or ask its vendor to read in shorter steps.',
  },
  'mirror.too-large': {
    level: 'amber',
    message: 'The database mirror.db is larger than its limit, and everything in it is still needed.',
    remedy: 'Raise retention.max_bytes, shorten retention.orders, or have the POS acknowledge its orders.',
  },
  'customers.not-forgotten': {
    level: 'amber',
    message: 'Customers whose time is over could not be deleted.',
    remedy: 'Close the program that reads mirror.db, or repair the disk. tillsync tries again every hour.',
  },
  quarantine: {
    level: 'amber',
    message: 'Messages that could not be read and were set aside: {count}.',
    remedy: 'To see them, run: {tillsync} quarantine list',
  },
  'auth.expiring': {
    level: 'amber',
    message: 'The refresh token expires soon.',
    remedy: 'To renew it, run: {tillsync} auth refresh',
  },
  'orders.resuming': {
    level: 'amber',
    message: 'New tokens are in place; orders are fetched with the next poll.',
    remedy: 'Wait for two minutes; if it stays, run: {tillsync} doctor',
  },
  'orders.starting': {
    level: 'amber',
    message: 'No orders have been fetched yet.',
    remedy: 'Wait a few minutes after the first start. If it stays, run: {tillsync} doctor',
  },
  auth: {
    level: 'amber',
    message: 'Access to the platform has a problem.',
    remedy: 'tillsync retries. If it stays, run: {tillsync} doctor',
  },
  'orders.poll': {
    level: 'amber',
    message: 'The last attempt to fetch orders failed.',
    remedy: 'tillsync retries. If it stays, run: {tillsync} doctor',
  },
  'orders.webhook': {
    level: 'amber',
    message: 'Callbacks work only in part.',
    remedy: 'Orders still arrive by polling. To check, run: {tillsync} webhook show',
  },
  'outbox.push': {
    level: 'amber',
    message: 'The last attempt to send changes failed.',
    remedy: 'tillsync retries. If it stays, run: {tillsync} doctor',
  },
  'catalog.sweep': {
    level: 'amber',
    message: 'The last attempt to read the catalogue failed.',
    remedy: 'tillsync retries. If it stays, run: {tillsync} sync products',
  },
};

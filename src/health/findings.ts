import {
  backupsFail,
  type Cause,
  changesWait,
  counted,
  endsSoon,
  type FindingCheck,
  type FindingCode,
  type FindingRow,
  hasDisk,
  hasNoTokens,
  isBlocked,
  isLockedOut,
  linkIs,
  neverCalled,
  ordersAre,
  troubleOf,
} from './facts.ts';

export type { FindingCheck, FindingCode, FindingRow };

/** Longer than tillsync's longest pause between two tries. */
const CHANGES_FOLLOW_WITHIN_MS = 6 * 60_000;
const NO_TOKENS = ['auth.locked-out', 'auth.none'] as const;
/** A daemon that does not run explains these findings: they began at its end or later. */
const NOT_RUNNING = ['service.down'] as const;

const TRIES_AGAIN =
  'It is tried again by itself; if it stays, see what is wrong with the way to the platform.';
const CONNECTION = 'Check the internet connection of this machine, and what else is wrong here.';

/** Remedies when calls to the platform keep failing for one reason. */
const WITHOUT_AN_ANSWER: Partial<Record<Cause, string>> = {
  refuses:
    "The platform's server takes no connections: ask its support whether it is down, and check platform.base_url.",
  'no-name': 'Check the spelling of platform.base_url, and the DNS of this machine.',
  'no-dns': 'The name server that this machine asks gives no answer: check the router and its DNS.',
  'no-line': 'This machine is in no network that leads out: check its cable or Wi-Fi, and the router.',
  silent:
    "The platform's server does not answer. Where other sites open on this machine, ask its support; else check the router.",
  slow: 'The platform gives no whole answer in time: ask its support. A line that is too slow does the same.',
  'certificate-date':
    "Check this machine's clock. Where it is right, tell the platform's support that its certificate has expired.",
  'certificate-trust':
    'Something between here and the platform shows a certificate of its own: ask who looks after the network.',
  'no-right': 'Create a new token in the company panel, then run {tillsync} auth set and paste it.',
  fault: 'The platform answers with a fault: ask its support. tillsync tries again by itself.',
  refused: 'The platform refuses the call: send its support and ours the output of {tillsync} doctor',
};

/** The one table of findings, worst first and causes before consequences. Findings are shown in this order. */
export const FINDINGS: Record<FindingCode, FindingRow> = {
  'service.down': {
    level: 'red',
    when: ({ running }) => (running === false ? {} : undefined),
    sent: 'never',
    check: 'service',
    message: 'tillsync is not running. No orders arrive and no changes are sent.',
    remedy: 'To start it, run: {start}',
  },
  'setup.missing': {
    level: 'amber',
    when: ({ isSetUp }) => (isSetUp === false ? {} : undefined),
    isToldBeforeSetUp: true,
    sent: 'never',
    check: 'alarms',
    message: 'tillsync is not set up yet.',
    remedy: 'Run: {tillsync} init',
  },
  'state.unusable': {
    level: 'red',
    when: ({ stateFault }) => (stateFault ? { detail: stateFault } : undefined),
    isToldBeforeSetUp: true,
    check: 'storage.state',
    message: 'The file of tokens and limits, state.db, cannot be used. Nothing is fetched or sent.',
    remedy: 'To see what is wrong, run: {tillsync} doctor',
  },
  'storage.full': {
    level: 'red',
    when: (facts) => hasDisk('storage.full', facts),
    isToldBeforeSetUp: true,
    check: 'storage.disk',
    message: 'The disk is full. New orders can soon not be saved.',
    remedy: 'Free space on the disk of {storage}. tillsync then continues on its own.',
  },
  'storage.failing': {
    level: 'red',
    isToldBeforeSetUp: true,
    check: 'alarms',
    message: 'Writing to the disk failed.',
    remedy: 'Free space on the disk of {storage}, or repair it. tillsync then continues on its own.',
  },
  'clock.wrong': {
    level: 'red',
    lasted: true,
    check: 'alarms',
    message: "This machine's clock is wrong by more than half a day.",
    remedy: 'Set it right, and have it kept right: sudo timedatectl set-ntp true',
  },
  'mirror.locked': {
    level: 'red',
    check: 'alarms',
    message: 'Another program keeps the mirror locked, so nothing that comes in can be kept.',
    remedy: 'End the program that is named; tillsync goes on by itself.',
  },
  'auth.locked-out': {
    level: 'red',
    when: isLockedOut,
    check: 'tokens',
    message: 'The platform no longer accepts the tokens. Nothing is fetched or sent.',
    remedy: 'Create a new token in the company panel, then run {tillsync} auth set and paste it.',
  },
  'auth.other-company': {
    level: 'red',
    check: 'alarms',
    message: 'Orders of another company arrive: the tokens may be those of another shop.',
    remedy:
      'Give this shop its own tokens: {tillsync} auth set. If it does belong to the other company now: {tillsync} auth set --other-company',
  },
  'auth.none': {
    level: 'red',
    when: hasNoTokens,
    check: 'tokens',
    message: 'There are no tokens for the platform yet. Nothing is fetched or sent.',
    remedy: 'Create a token in the company panel, then run {tillsync} auth set and paste it.',
  },
  'platform.blocked': {
    level: 'amber',
    when: isBlocked,
    check: 'platform.limits',
    message: 'The platform has blocked the token for some minutes.',
    remedy: 'Wait until it ends. Make sure that no other program uses the same token.',
  },
  'orders.unreadable': {
    level: 'red',
    check: 'orders',
    message: 'The platform sends orders that cannot be read.',
    remedy: 'They are saved. Send support the output of: {tillsync} quarantine list',
  },
  'orders.incomplete': {
    level: 'red',
    check: 'orders',
    message: 'Orders came of which a part cannot be read.',
    remedy:
      'Look at each in the company panel before it is prepared. What was read: {tillsync} order show NUMBER',
  },
  'orders.stale': {
    level: 'red',
    when: (facts) => ordersAre('orders.stale', facts),
    lasted: true,
    hiddenBy: ['orders.resuming', ...NO_TOKENS, ...NOT_RUNNING],
    growsOld: true,
    check: 'orders',
    inDoctor: CONNECTION,
    message: 'Orders are no longer fetched from the platform.',
    remedy: 'Check the internet connection of this machine, then run: {tillsync} doctor',
    remedies: WITHOUT_AN_ANSWER,
  },
  'orders.unbooked': {
    level: 'amber',
    hiddenBy: [...NOT_RUNNING],
    growsOld: true,
    check: 'orders.booked',
    message: 'Orders wait that the POS has not acknowledged.',
    remedy:
      'Look whether the POS runs, and take them by hand if need be. One that was taken by hand: {tillsync} feed ack ORDER_ID',
  },
  'orders.unassigned': {
    level: 'amber',
    check: 'orders',
    message: 'Orders name no store, or one that is not in the configuration, so no branch prepares them.',
    remedy:
      'See whose they are: {tillsync} order show NUMBER. A branch that is missing: add its ids to [[branches]], then run: {restart}',
  },
  'orders.sums': {
    level: 'amber',
    check: 'orders',
    message: 'Orders came whose lines do not add up to their amount: one may be missing, or there twice.',
    remedy: 'Compare each with the company panel: {tillsync} order show NUMBER',
  },
  'orders.code-missing': {
    level: 'amber',
    sent: 'never',
    check: 'orders',
    message: 'Numbers of orders are missing, also after a look far back.',
    remedy:
      'Look for them in the company panel. One that is there and not here: {tillsync} sync orders --from DAY --to DAY',
  },
  'orders.fields': {
    level: 'amber',
    sent: 'never',
    check: 'orders',
    message: 'The platform sends orders with other fields than before.',
    remedy:
      'Look whether the newest orders are whole at the POS, and send support the names. It ends by itself after a day.',
  },
  'inbox.damaged': {
    level: 'red',
    check: 'alarms',
    message: 'The inbox, where the POS writes its changes, cannot be used.',
    remedy: 'Ask the POS vendor to check inbox.db, its directory and its permissions.',
  },
  'inbox.locked': {
    level: 'red',
    check: 'alarms',
    message: 'A program keeps the inbox locked, so changes of the POS do not get through.',
    remedy: 'Close or restart the program that is named.',
  },
  'hub.unassigned': {
    level: 'amber',
    check: 'hub',
    message:
      'Orders name a branch that is not in the configuration. They are in the mirror here, and go to no branch.',
    remedy:
      'Add the branch that is named to [[branches]], then run: {restart}. Or say whose they are: {tillsync} branch assign NAME --store STORE',
  },
  'hub.unapplied': {
    level: 'amber',
    check: 'hub',
    message: 'Branches could not take in all that came down to them. It is kept there.',
    remedy: 'At each branch that is named, look at it with: {tillsync} quarantine list',
  },
  'hub.certificate': {
    level: 'amber',
    check: 'hub.certificate',
    message: 'The certificate of the hub ends soon, or branches would not take it.',
    remedy: 'Put a good certificate and its key in place; the server reads them by itself.',
  },
  'hub.misuse': {
    level: 'amber',
    check: 'hub',
    message: 'A branch does what tillsync does not do by itself: somebody else may have its key.',
    remedy:
      'Look at the branch that is named. To end its key, then give it another: {tillsync} branch remove NAME; {tillsync} branch invite NAME',
  },
  'hub.server': {
    level: 'amber',
    check: 'hub',
    message: 'The nats-server does not run with the configuration that tillsync wrote for it.',
    remedy:
      'Write it once more: {tillsync} hub server-config; then start the server with it: sudo systemctl restart tillsync-nats',
  },
  'hub.branches': {
    level: 'amber',
    check: 'hub.branches',
    message: 'Something is wrong at branches.',
    remedy: 'To see all of them, the worst first, run: {tillsync} branch list',
  },
  'hub.link': {
    level: 'amber',
    when: (facts) => linkIs('hub.link', facts),
    check: 'hub',
    inDoctor: 'Check the nats-server and the network between.',
    message:
      'The connection between the hub and its branches is down. What waits stays and follows by itself.',
    remedy: 'Check the nats-server and the network between, then run: {tillsync} doctor',
    remedies: {
      refuses:
        'The nats-server takes no connections: start it at the hub: sudo systemctl start tillsync-nats',
      'no-name': 'Check the spelling of link.hub, or hub.nats at the hub, and the DNS of this machine.',
      'no-dns': 'The name server that this machine asks gives no answer: check the router and its DNS.',
      'no-line': 'This machine is in no network that leads out: check its cable or Wi-Fi, and the router.',
      silent: "The hub's machine gives no answer: check that it is on, its firewall, and the VPN between.",
      'certificate-date':
        "Check this machine's clock. Where it is right, the hub's certificate has expired: renew it at the hub.",
      'certificate-trust':
        'The hub shows a certificate that this machine does not trust: name the file of its authority in link.ca_file, or invite the branch again.',
    },
  },
  'hub.refused': {
    level: 'red',
    when: (facts) => linkIs('hub.refused', facts),
    check: 'hub',
    message: 'The hub does not take this branch: its key is not known there, or another machine has it.',
    remedy: 'Do what the detail says. What waits stays here and follows then.',
  },
  'outbox.full': {
    level: 'amber',
    check: 'alarms',
    message: 'So many changes of a branch wait that more of them stay in the inbox.',
    remedy: 'They follow by themselves. Have the POS hand over what changed, and not its whole stock.',
  },
  'outbox.stuck': {
    level: 'amber',
    when: changesWait,
    hiddenBy: ['orders.resuming', ...NO_TOKENS, ...NOT_RUNNING],
    growsOld: true,
    sent: 'red',
    follows: { code: 'orders.stale', withinMs: CHANGES_FOLLOW_WITHIN_MS },
    check: 'outbox',
    inDoctor: CONNECTION,
    message: 'Stock and price changes have waited too long to be sent: {count}.',
    remedy: 'Check the internet connection of this machine, then run: {tillsync} doctor',
    remedies: WITHOUT_AN_ANSWER,
  },
  'platform.forbidden': {
    level: 'amber',
    check: 'platform.limits',
    message: 'The platform does not permit some of the calls.',
    remedy: "Ask the platform's support which rights the token lacks.",
  },
  'platform.limits-shared': {
    level: 'amber',
    check: 'platform.limits',
    message: "Another program spends the company's limits at the platform, so orders and changes wait.",
    remedy: 'Find the program that uses the same company, such as a second tillsync, and end it.',
  },
  'clock.off': {
    level: 'amber',
    lasted: true,
    check: 'alarms',
    message: "This machine's clock is not right.",
    remedy: 'Have it kept right: sudo timedatectl set-ntp true',
  },
  'orders.more-pages': {
    level: 'amber',
    check: 'orders',
    message: 'The platform sends only a part of the orders.',
    remedy: 'Set orders.page_parameter in the configuration, or poll fewer days.',
  },
  'webhook.refused': {
    level: 'amber',
    check: 'webhook.arriving',
    message: 'Callbacks are refused, so orders arrive only by polling.',
    remedy: 'See them with: {tillsync} callbacks tail',
  },
  'webhook.external-pos': {
    level: 'amber',
    when: neverCalled,
    hiddenBy: ['webhook.refused', 'webhook.mismatch'],
    check: 'webhook.arriving',
    message:
      'The platform has never sent a callback, so orders arrive only by polling, up to two minutes late.',
    remedy:
      "Test the address with {tillsync} webhook test. Where it passes, ask the platform's support: is the option for an external POS switched on for your company?",
  },
  'webhook.silent': {
    level: 'amber',
    hiddenBy: ['webhook.refused', 'webhook.external-pos'],
    check: 'webhook.arriving',
    message: 'Orders arrive only by polling, up to two minutes late.',
    remedy: 'To test the callback address, run: {tillsync} webhook test',
  },
  'webhook.mismatch': {
    level: 'amber',
    check: 'webhook.registered',
    message: "The platform's webhook is not the one that is configured here.",
    remedy: 'Compare with {tillsync} webhook show, then run: {tillsync} webhook set',
  },
  'webhook.unreadable': {
    level: 'amber',
    check: 'webhook.arriving',
    message: 'A callback could not be read as an order.',
    remedy: 'It is saved. Send support the output of: {tillsync} quarantine list',
  },
  'outbox.rejected': {
    level: 'amber',
    when: ({ outbox }) => (outbox ? counted(outbox.rejected) : undefined),
    check: 'outbox',
    message: 'Changes that the platform rejected: {count}.',
    remedy: 'See why with {tillsync} outbox list --state rejected, correct it, then retry or drop them.',
  },
  'outbox.held': {
    level: 'amber',
    when: ({ outbox }) => (outbox ? counted(outbox.held) : undefined),
    check: 'outbox',
    message: 'Changes that look like a mistake and need a decision: {count}.',
    remedy: 'Check them with {tillsync} outbox list --state held, then release or drop them.',
  },
  'stock.differs': {
    level: 'amber',
    check: 'stock.differs',
    message: 'The platform has other stocks than the POS counted.',
    remedy:
      'See all with: {tillsync} diff stock. Have the POS hand over what it has of them, or put them right in the company panel. Where the panel is right: {tillsync} stock forget --all-differing.',
  },
  'alarms.untold': {
    level: 'amber',
    check: 'alarms',
    message: 'An alarm could not be told to one of its receivers.',
    remedy: 'Try the receivers, which say what is wrong: {tillsync} alarms test',
  },
  'hooks.lagging': {
    level: 'amber',
    hiddenBy: [...NOT_RUNNING],
    check: 'hooks',
    message: 'Events of orders do not get through to a hook.',
    remedy:
      'See why with {tillsync} hooks list, try it with {tillsync} hooks test NAME, or pass over the event with {tillsync} hooks skip NAME.',
  },
  'local.wrong-key': {
    level: 'amber',
    check: 'alarms',
    message: 'A program asks here with a wrong key, and is given nothing.',
    remedy: 'Give it the right one, which {tillsync} key --show tells, or find out who tries keys.',
  },
  'catalog.incomplete': {
    level: 'amber',
    hiddenBy: [...NO_TOKENS],
    check: 'catalog',
    message: 'Only a part of the catalogue could be read.',
    remedy: 'tillsync retries. If it stays, run: {tillsync} sync products',
  },
  'catalog.unmapped-ordered': {
    level: 'amber',
    check: 'catalog.mapped',
    message: 'An order has a product that has no id of yours, so the POS cannot tell what it is.',
    remedy: 'Take the order by hand, and give the product its id in the company panel.',
  },
  'catalog.unmapped': {
    level: 'amber',
    check: 'catalog.mapped',
    message: 'Products are for sale that have no id of yours, so the POS would not know them in an order.',
    remedy: 'List them with {tillsync} catalog unmapped, and give them their ids in the company panel.',
  },
  'storage.low': {
    level: 'amber',
    when: (facts) => hasDisk('storage.low', facts),
    isToldBeforeSetUp: true,
    check: 'storage.disk',
    message: 'The disk is nearly full.',
    remedy: 'Free space on the disk of {storage} before it is full.',
  },
  'mirror.reader-holds-wal': {
    level: 'amber',
    check: 'alarms',
    message: 'A program keeps the database mirror.db open for too long, so its write log grows.',
    remedy: 'Close that program, or ask its vendor to read in shorter steps.',
  },
  'mirror.too-large': {
    level: 'amber',
    check: 'alarms',
    message: 'The database mirror.db is larger than its limit, and everything in it is still needed.',
    remedy: 'Raise retention.max_bytes, shorten retention.orders, or have the POS acknowledge its orders.',
  },
  'customers.not-forgotten': {
    level: 'amber',
    check: 'alarms',
    message: 'Customers whose time is over could not be deleted.',
    remedy: 'Close the program that reads mirror.db, or repair the disk. tillsync tries again every hour.',
  },
  'backup.old': {
    level: 'amber',
    when: backupsFail,
    lasted: true,
    hiddenBy: [...NOT_RUNNING],
    check: 'backup',
    message: 'No backup has come about for more than an hour after one was due.',
    remedy: 'See that there is room where backup.directory is, then make one: {tillsync} backup',
  },
  backup: {
    level: 'amber',
    when: (facts) => troubleOf('backup', facts),
    hiddenBy: ['backup.old', ...NOT_RUNNING],
    sent: 'never',
    check: 'backup',
    message: 'The last backup failed.',
    remedy: 'tillsync tries again every hour. To make one now, run: {tillsync} backup',
  },
  quarantine: {
    level: 'amber',
    when: (facts) => counted(facts.quarantine) ?? undefined,
    sent: 'never',
    check: 'quarantine',
    message: 'Messages that could not be read and were set aside: {count}.',
    remedy: 'To see them, run: {tillsync} quarantine list',
  },
  'auth.expiring': {
    level: 'amber',
    when: endsSoon,
    hiddenBy: [...NO_TOKENS],
    sent: 'never',
    check: 'tokens',
    message: 'The refresh token expires soon.',
    remedy: 'To renew it, run: {tillsync} auth refresh',
  },
  'orders.resuming': {
    level: 'amber',
    when: (facts) => ordersAre('orders.resuming', facts),
    hiddenBy: [...NO_TOKENS, ...NOT_RUNNING],
    sent: 'never',
    check: 'orders',
    inDoctor: 'Wait for two minutes; if it stays, see what else is wrong here.',
    message: 'New tokens are in place; orders are fetched with the next poll.',
    remedy: 'Wait for two minutes; if it stays, run: {tillsync} doctor',
  },
  'orders.starting': {
    level: 'amber',
    when: (facts) => ordersAre('orders.starting', facts),
    hiddenBy: [...NO_TOKENS, ...NOT_RUNNING],
    sent: 'never',
    check: 'orders',
    inDoctor: 'Wait a few minutes after the first start; if it stays, see what else is wrong here.',
    message: 'No orders have been fetched yet.',
    remedy: 'Wait a few minutes after the first start. If it stays, run: {tillsync} doctor',
  },
  auth: {
    level: 'amber',
    when: (facts) => troubleOf('auth', facts),
    hiddenBy: [...NO_TOKENS, ...NOT_RUNNING],
    sent: 'never',
    check: 'tokens',
    inDoctor: TRIES_AGAIN,
    message: 'Access to the platform has a problem.',
    remedy: 'tillsync retries. If it stays, run: {tillsync} doctor',
  },
  'orders.poll': {
    level: 'amber',
    when: (facts) => troubleOf('orders.poll', facts),
    hiddenBy: [
      'orders.stale',
      'orders.unreadable',
      'orders.more-pages',
      'orders.starting',
      ...NO_TOKENS,
      ...NOT_RUNNING,
    ],
    sent: 'never',
    check: 'orders',
    inDoctor: TRIES_AGAIN,
    message: 'The last attempt to fetch orders failed.',
    remedy: 'tillsync retries. If it stays, run: {tillsync} doctor',
  },
  'orders.webhook': {
    level: 'amber',
    when: (facts) => troubleOf('orders.webhook', facts),
    hiddenBy: [
      'webhook.refused',
      'webhook.external-pos',
      'webhook.silent',
      'webhook.mismatch',
      'webhook.unreadable',
      ...NOT_RUNNING,
    ],
    sent: 'never',
    check: 'webhook.arriving',
    message: 'Callbacks work only in part.',
    remedy: 'Orders still arrive by polling. To check, run: {tillsync} webhook show',
  },
  'outbox.push': {
    level: 'amber',
    when: (facts) => troubleOf('outbox.push', facts),
    hiddenBy: [...NO_TOKENS, ...NOT_RUNNING],
    sent: 'never',
    check: 'changes',
    inDoctor: TRIES_AGAIN,
    message: 'The last attempt to send changes failed.',
    remedy: 'tillsync retries. If it stays, run: {tillsync} doctor',
  },
  'catalog.sweep': {
    level: 'amber',
    when: (facts) => troubleOf('catalog.sweep', facts),
    hiddenBy: ['catalog.incomplete', ...NO_TOKENS, ...NOT_RUNNING],
    sent: 'never',
    check: 'catalog',
    message: 'The last attempt to read the catalogue failed.',
    remedy: 'tillsync retries. If it stays, run: {tillsync} sync products',
  },
};

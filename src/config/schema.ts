import * as z from 'zod';
import { LOG_LEVELS } from '../core/log.ts';
import { LANGUAGES } from '../core/values.ts';
import * as value from './values.ts';

interface About {
  about: string;
  /** Value that the sample shows instead of the default. */
  example?: unknown;
  /** True if `tillsync init` asks for the value. */
  isAsked?: boolean;
  /** The default in words, if it depends on the machine. */
  default?: string;
  /** Name in the file, if it cannot be derived from the property's name. */
  name?: string;
  /** Path of a section in the file, if it is not the property's name. */
  path?: string;
}

const abouts = z.registry<About>();

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const MIB = 1024 ** 2;

/** Declares a key: its allowed values, its default (undefined makes it required) and its purpose. */
function key<S extends z.ZodType>(
  schema: S,
  fallback: unknown,
  about: string,
  more: Omit<About, 'about'> = {},
): z.ZodPrefault<S> {
  const made = z.prefault(schema, fallback as z.input<S>);
  abouts.add(made, { about, ...more });
  return made;
}

function section<T extends z.core.$ZodShape>(about: string, shape: T, path?: string) {
  return z.object(shape).register(abouts, { about, ...(path !== undefined && { path }) });
}

/** Placeholder for the platform's address in the sample. */
export const SAMPLE_BASE_URL = 'https://api.example.com';

/**
 * Every key of the file, with its default. The name of a property ends with the unit of its value, such as `Ms` or
 * `Bytes`.
 */
export const FILE = z.object({
  platform: z.object({
    baseUrl: key(value.baseUrl, undefined, "Address of the platform's API.", {
      example: SAMPLE_BASE_URL,
      isAsked: true,
    }),
    timeoutMs: key(
      value.duration(SECOND, 10 * MINUTE),
      '30s',
      'Maximum time for one answer of the platform.',
    ),
    proxy: key(
      value.optionalUrl,
      '',
      'Proxy for calls to the platform (example: "http://proxy.example:3128"). Empty: HTTPS_PROXY and NO_PROXY of the environment. Set a proxy with a password there.',
    ),
    caFile: key(
      value.optionalPath,
      '',
      "PEM file of another certificate authority to trust for the platform (example: that of a proxy that inspects traffic). The machine's authorities (/etc/ssl/certs) are always trusted.",
    ),
  }),
  quirks: section(
    "Details that the platform's document doesn't show. Set them only if its support tells you to.",
    {
      webhookReadMethod: key(
        value.oneOf('GET', 'POST'),
        'GET',
        "HTTP method for reading the webhook's configuration.",
      ),
      webhookReadPath: key(value.urlPath, '/webhook', "Path for reading the webhook's configuration."),
      webhookActiveField: key(
        value.fieldName,
        'active',
        'Field of PUT /webhook that switches sending on and off.',
      ),
      pageParameter: key(
        value.optionalFieldName,
        '',
        'Page parameter of GET /order/all, if its answer comes in pages. Empty: the answer is complete.',
      ),
      listPath: key(
        value.optionalDottedPath,
        '',
        'Path of the list of orders in the answer (example: "data.orders"). Empty: every list whose records look like orders.',
      ),
    },
    'platform.quirks',
  ),
  storage: z.object({
    directory: key(
      value.absolutePath,
      '/var/lib/tillsync',
      'Directory of mirror.db, inbox/inbox.db and state.db. The POS reads mirror.db here. After a change, run: sudo tillsync config apply. The service cannot write below /home, /root and /tmp.',
    ),
    group: key(
      value.optionalGroup,
      '',
      'Unix group that may read the mirror, for the POS. Empty: the group of the directory.',
    ),
  }),
  shop: section('How tillsync presents this shop on the status page, in commands and in alarms.', {
    name: key(value.shortLine, '', 'Name of this shop. Empty: the name of the machine.'),
    currency: key(
      value.optionalCurrency,
      '',
      'Currency of prices and amounts (example: "CLP"). Empty: none is shown.',
    ),
    language: key(
      value.oneOf(...LANGUAGES),
      'en',
      "Language of alarms, `tillsync status` and `tillsync doctor`. JSON, the log and all codes are always in English. The status page uses the browser's language.",
    ),
  }),
  webhook: z.object({
    enabled: key(
      value.boolean,
      true,
      'Whether tillsync receives callbacks. false: orders arrive only by polling.',
    ),
    listen: key(
      value.listen,
      '127.0.0.1:8787',
      'Address for callbacks. Keep the loopback address behind a proxy that has the certificate.',
    ),
    path: key(value.urlPath, '/webhook', 'Path of the address for callbacks.'),
    callbackUrl: key(
      value.optionalUrl,
      '',
      'Public address for callbacks, which tillsync registers at the platform at each start. Empty: nothing is registered.',
      { isAsked: true },
    ),
    tlsCertFile: key(
      value.optionalPath,
      '',
      'PEM file of a certificate, to receive callbacks over HTTPS without a proxy. Needs tls_key_file.',
    ),
    tlsKeyFile: key(value.optionalPath, '', 'PEM file of its key.'),
    bodyLimitBytes: key(
      value.byteSize(1024, 64 * MIB),
      '1MiB',
      'Maximum size of a callback. A larger one is rejected with 413.',
      {
        name: 'body_limit',
      },
    ),
  }),
  orders: z.object({
    poll: key(
      value.cron,
      '*/2 * * * *',
      'Schedule of polls as a cron expression: minute hour day month weekday, or six fields with seconds first. The platform allows one poll every two minutes; a faster schedule waits.',
    ),
    timezone: key(
      value.timeZone,
      // This is a function, so that the default is computed only if it is needed. Computing it takes longer than
      // reading all other keys.
      () => Intl.DateTimeFormat().resolvedOptions().timeZone,
      "Time zone of the platform's order dates, and of its times without a zone.",
      { example: 'America/Santiago', isAsked: true, default: 'that of the machine' },
    ),
    lookbackDays: key(
      value.wholeNumber(0, 365),
      1,
      'Days before today that each poll includes. If they have more than 5,000 orders, only every tenth minute; other polls fetch today.',
    ),
    wideDays: key(
      value.wholeNumber(0, 366),
      30,
      'Days before today that a wide poll includes, for orders that change late. Open orders of earlier days, up to 366 days back, are fetched by their days.',
    ),
    wideEveryMs: key(value.duration(MINUTE, 30 * DAY), '1h', 'Time between two wide polls.'),
    fields: key(
      value.orderFields,
      {},
      'Other names for the fields of an order, tried before the known ones. Set them if `tillsync quarantine list` shows unreadable orders, or if `orders.incomplete` is reported.',
      {
        example: { order_id: ['orderNumber'], customer_email: ['buyer.mail'], 'item.quantity': ['units'] },
      },
    ),
    statuses: key(
      value.statusWords,
      {},
      'Platform words for the statuses of its document. An unknown word never replaces a known status.',
      { example: { PENDIENTE: 'pending' } },
    ),
  }),
  catalog: z.object({
    sweep: key(
      value.cron,
      '30 4 * * *',
      'Schedule for reading the whole catalogue, as a cron expression. A missed reading starts with the service.',
    ),
    pageSize: key(value.wholeNumber(1, 1000), 100, 'Products per page of GET /product/list.'),
  }),
  branches: key(
    value.branches,
    [],
    "The branches, one table each: subsidiary_id is the platform's ID, external_id your own. The platform's API cannot list them.",
    { example: [{ subsidiary_id: 'sub-1', external_id: 'B1' }], isAsked: true },
  ),
  hub: section(
    "Only for the hub of a company with a tillsync in each branch. See docs/chain.md. In [[branches]] of the hub, may_price = true lets a branch change prices, names and visibility; watched = false leaves a branch out of the hub's health.",
    {
      nats: key(
        value.optionalNatsUrl,
        '',
        'Address of the nats-server of this hub (example: "nats://127.0.0.1:4222"). Empty: not a hub.',
      ),
      publicUrl: key(
        value.optionalNatsUrl,
        '',
        'Address at which branches reach that server (example: "tls://hub.example.com:4222"), part of each invitation. Empty: the value of nats.',
      ),
    },
  ),
  link: section(
    'Only for a branch of such a company. `tillsync init --join INVITATION` writes this section. A branch has no [platform], no [[branches]] and no platform secrets.',
    {
      hub: key(
        value.natsUrls,
        '',
        'Address of the hub\'s server (example: "tls://hub.example.com:4222"), or a list of addresses to try in turn. Empty: not a branch.',
      ),
      branch: key(value.optionalBranchName, '', 'Name of this branch at the hub.'),
      caFile: key(
        value.optionalPath,
        '',
        "PEM file of the authorities to trust for the hub's server. Empty: the machine's authorities.",
      ),
    },
  ),
  outbox: z.object({
    lingerMs: key(
      value.duration(0, MINUTE),
      '250ms',
      'Time that a stock or price change waits for others, to be sent in one batch.',
    ),
  }),
  stock: z.object({
    holdBackUnbooked: key(
      value.oneOf('auto', true, false),
      'auto',
      'Whether tillsync reserves the units in orders that your POS hasn\'t booked yet: it deducts them from each count, so that no unit sells twice. "auto": in each branch whose POS acknowledges orders, if both IDs of the branch are set in [[branches]]; `tillsync status` shows what is missing. true: in every branch. false: never.',
    ),
    onDifference: key(
      value.oneOf('tell', 'send'),
      'tell',
      'What to do if the platform has a different stock than the last POS count, for example after an edit in the company panel. "tell": report it (stock.differs). "send": send the count again.',
    ),
    editHoldMs: key(
      value.duration(0, 30 * DAY),
      '30m',
      'Time for which an edit of an acknowledged order stays reserved, unless the POS acknowledges the order again. For a POS that acknowledges each order only once: later counts contain the edit.',
    ),
    lookBelow: key(
      value.wholeNumber(0, 1_000),
      3,
      "If callbacks don't arrive, tillsync reads the platform's stock before it sends a count of this many units or fewer. Units missing there belong to an order that no poll has fetched yet, and are reserved. 0: never.",
    ),
    skipUnchanged: key(value.boolean, true, 'Whether to skip values that the platform already has.'),
    trustForMs: key(
      value.duration(0, 30 * DAY),
      '10m',
      "Time for which the platform's last value is trusted. After it, tillsync sends an equal value too, because someone may have edited it in the company panel.",
    ),
    platformDeducts: key(
      value.boolean,
      true,
      'Whether the platform deducts sold units from its stock. false: tillsync sends the stock again after each order; this needs hold_back_unbooked = true.',
    ),
    safety: key(
      value.safety,
      0,
      'Safety stock: units of every product that are never offered online. A branch can have its own (safety = N in [[branches]]), and a product too: tillsync stock safety SKU N',
    ),
  }),
  guard: section(
    'Limits above which tillsync puts changes on hold for your approval, because they look like a mistake. 0 switches a guard off.',
    {
      zeroItemsMax: key(
        value.wholeNumber(0, 1_000_000),
        100,
        'Stocks that may go to zero within ten minutes.',
      ),
      zeroShareMax: key(
        value.decimal(0, 1),
        0.3,
        "Share (0 to 1) of a branch's stocks above zero that may go to zero within ten minutes. Applies from ten stocks on.",
      ),
      priceFactorMax: key(
        value.decimal(0, 1_000_000),
        10,
        'Factor by which a price may rise or fall in one change.',
      ),
      missingShareMax: key(
        value.decimal(0, 1),
        0.5,
        'Share (0 to 1) of the known stocks that a full inventory may lack.',
      ),
    },
  ),
  retention: section(
    'Time for which old data stays in mirror.db; "0d": forever. Needed data is never deleted: the newest event and payload of each order, open orders, and orders that the POS hasn\'t acknowledged.',
    {
      eventsMs: key(
        value.keepFor,
        '90d',
        'Earlier events of closed orders, and unreadable data. A POS that was off for longer still gets the newest event of each order.',
      ),
      payloadsMs: key(
        value.keepFor,
        '30d',
        'Earlier payloads of orders, which `tillsync order replay` can process again.',
      ),
      ordersMs: key(
        value.keepFor,
        '400d',
        'Closed orders, counted from their last change. Must be longer than polls look back.',
      ),
      outboxMs: key(
        value.keepFor,
        '30d',
        'Changes that are done or superseded. Rejected changes stay until you decide.',
      ),
      personalDataMs: key(
        value.keepFor,
        '0d',
        'Customer data, counted from the end of the order (example: "60d"): names, phones, addresses, e-mails and comments. The order itself stays. To delete it now, run: tillsync customer forget --order ORDER',
      ),
      maxBytes: key(
        value.byteSize(16 * MIB, 1024 ** 4),
        '1GiB',
        'Size above which the oldest payloads, events and unreadable data are deleted sooner.',
      ),
    },
  ),
  backup: section(
    'Automatic backups of the mirror, POS changes and this file; each is read again and checked. To make one now, run: tillsync backup FILE',
    {
      directory: key(
        value.optionalPath,
        '',
        'Directory for backups, preferably on another disk. Several shops can share it. Empty: backups in storage.directory. After a change, run: sudo tillsync config apply',
      ),
      everyMs: key(value.duration(0, 30 * DAY), '1d', 'Time between two backups. "0s": never.'),
      differentialEveryMs: key(
        value.duration(0, HOUR),
        '30s',
        'Time between two differential backups: acknowledgements, unanswered changes and decisions since the last backup. "0s": never. backup.after gets these files too.',
      ),
      recipient: key(
        value.optionalRecipient,
        '',
        'age recipient that all backups are encrypted for; `tillsync backup --new-phrase` sets it. Empty: backups are encrypted only if the secret backup-passphrase is set.',
      ),
      keep: key(value.wholeNumber(1, 1_000), 7, 'Number of backups to keep for this shop.'),
      after: key(
        value.commandLine,
        [],
        'Program with arguments that copies each backup to another place (example: ["/usr/bin/rclone", "copyto"]); no shell is used. It gets the backup\'s path as its last argument, runs as tillsync\'s user, and is retried every hour until it exits with 0.',
      ),
    },
  ),
  local: section('Status page, local API for the POS, /metrics, /healthz and /readyz.', {
    listen: key(
      value.listenList,
      '127.0.0.1:8788',
      'Address of the status page and local API, or a list (example: ["127.0.0.1:8788", "192.168.1.5:8788"]). Every request needs the API key, even from this machine.',
    ),
    socket: key(
      value.optionalSocketPath,
      '',
      'Unix socket of the same API for storage.group, without a key (example: "/run/tillsync/api.sock"). Empty: none.',
    ),
  }),
  alarms: section(
    'Where alarms are sent if orders stop, tokens or changes are rejected, or the disk fills up: one message for each alarm, and one when it clears. To test it, run: tillsync config test-alarms',
    {
      command: key(
        value.commandLine,
        [],
        'Program with arguments that sends alarms (example: ["/usr/local/bin/tell-the-owner", "--urgent"]); no shell is used. It runs as tillsync\'s user and gets the alarm as JSON on standard input and in TILLSYNC_ALARM_STATE (raised, healed, reminder, muted, test), _KEY, _LEVEL, _MESSAGE, _DETAIL, _REMEDY, _SINCE, _AT, _SHOP and _TEXT (everything in one line).',
      ),
      url: key(
        value.optionalUrl,
        '',
        'Address that receives the same JSON by POST. If the address contains a secret, as for chat services, set the secret alarm-url instead. The secret alarm-token is sent as "Authorization: Bearer".',
      ),
      heartbeatUrl: key(
        value.optionalUrl,
        '',
        'Address of a monitoring service (example: healthchecks.io or Uptime Kuma) that alerts you if this machine stops. tillsync calls it while nothing is red, and with /fail (Uptime Kuma: status=down) otherwise. Anyone who has the address can imitate this shop, so prefer the secret heartbeat-url.',
      ),
      heartbeatEveryMs: key(
        value.duration(SECOND, HOUR),
        '1m',
        'Time between two heartbeats; also sent at a start and when something turns red or clears.',
      ),
      level: key(
        value.oneOf('amber', 'red'),
        'amber',
        'Lowest level that is sent: "amber" (check today) or "red" (orders or changes are not getting through).',
      ),
      settleMs: key(
        value.duration(0, HOUR),
        '1m',
        'Time that an alarm must last, or be clear, before it is sent.',
      ),
      repeatMs: key(
        value.duration(0, 30 * DAY),
        '0s',
        'Time after which a lasting alarm is sent again (example: "24h"). "0s": never.',
      ),
      dailyMax: key(
        value.wholeNumber(1, 1000),
        20,
        'Maximum messages a day. One more says that the rest are sent tomorrow.',
      ),
      unbookedAfterMs: key(
        value.duration(0, DAY),
        '10m',
        'Time that a paid, open order may wait for the acknowledgement of the POS; after three times as long, the alarm is red. Applies only if a POS acknowledges orders. "0s": no alarm.',
      ),
      posSilentAfterMs: key(
        value.autoOrDuration(0, 30 * DAY),
        'auto',
        'Time without a sign of life after which a POS raises pos.silent. A sign is a batch, an acknowledgement, a request to the API (not from a browser or a screen), or a row in pos_alive. "auto": two hours of the day in which the POS gave a sign other than an acknowledgement in two of the last three weeks, at the same hour of the same weekday; so nights and closed days never count. A duration (example: "30m"): at any hour, for a POS that never sleeps. "0s": never.',
      ),
    },
  ),
  hooks: key(
    value.hooks,
    [],
    'Receivers of events, one table each. name: identifies the hook; a renamed hook starts again. url: address that receives the event and its order as JSON by POST, signed with the secret hook-NAME if it is set. If the address contains a token, set the secret hook-NAME-url instead. Or command: program with arguments that gets the same JSON on standard input and exits with 0; no shell is used. events: "order" (default) for each event of an order; for a kitchen, "order.prepare" once when an order is paid and due, "order.changed" when its lines, time or place change later, "order.undone" when it is cancelled or moves to another branch; "change.rejected" for each rejected change. prepare_before: time before it is due at which a scheduled order is prepared. statuses: only orders in these statuses, and orders are prepared from the first of them on; [] for all. from: where a new hook starts, "now" or "start". timeout: time for one attempt. To test it, run: tillsync hooks test NAME',
    {
      example: [
        {
          name: 'printer',
          url: 'http://192.168.1.20:9000/orders',
          command: [],
          events: ['order.prepare', 'order.changed', 'order.undone'],
          prepare_before: '20m',
          statuses: [],
          from: 'now',
          timeout: '30s',
        },
      ],
    },
  ),
  limits: section("The platform's published limits. Change them only if the platform does.", {
    endpointIntervalMs: key(value.duration(1, HOUR), '1s', 'Minimum time between two calls of one endpoint.'),
    ordersIntervalMs: key(value.duration(1, DAY), '2m', 'Minimum time between two polls of orders.'),
    windowMs: key(value.duration(1, DAY), '5m', 'Time window in which calls are counted.'),
    requestsPerWindow: key(
      value.wholeNumber(1, 1_000_000),
      1000,
      'Maximum calls in one window, over all endpoints.',
    ),
    ordersPerWindow: key(value.wholeNumber(1, 1_000_000), 100, 'Maximum polls of orders in one window.'),
  }),
  log: z.object({
    level: key(
      value.oneOf(...LOG_LEVELS),
      'info',
      'Lowest level that is logged: fatal, error, warn, info, debug, trace or silent.',
    ),
  }),
});

/** A key of the configuration file. */
export interface ConfigKey extends About {
  /** Path of the key, such as `orders.poll` or `branches`. */
  path: string;
  /** Section of the key in the file; '' for `branches` and `hooks`, which have none. */
  section: string;
  /** Property of the section in the configuration; '' if it has none. */
  part: string;
  /** Name of the key in the file. */
  name: string;
  /** Name of the property in the configuration. */
  property: string;
  /** Environment variable that overrides the key. */
  variable: string;
  /** Schema with the default as it would be in the file. A default of undefined means that the key is required. */
  schema: z.ZodPrefault<z.ZodType>;
}

/** Returns the environment variable of a key; without `key`, the beginning of the names of the section's variables. */
export function envName(section: string, key?: string): string {
  return ['TILLSYNC', section.replace('.', '_'), key]
    .filter((part) => part)
    .join('_')
    .toUpperCase();
}

function keyOf(part: string, section: string, property: string, schema: z.ZodPrefault<z.ZodType>): ConfigKey {
  const found = abouts.get(schema) ?? { about: '' };
  const snake = property.replace(/Ms$/, '').replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  const name = found.name ?? snake;
  const path = section === '' ? name : `${section}.${name}`;
  return { ...found, path, section, part, name, property, variable: envName(section, name), schema };
}

function pathOf(name: string, schema: z.ZodType): string {
  return abouts.get(schema)?.path ?? name;
}

/** Purpose of each section, by its path in the file; '' if its keys explain it. */
export const SECTIONS: ReadonlyMap<string, string> = new Map(
  Object.entries(FILE.shape).flatMap(([name, schema]) =>
    schema instanceof z.ZodObject ? [[pathOf(name, schema), abouts.get(schema)?.about ?? '']] : [],
  ),
);

/** All keys, in the order in which the sample lists them. */
export const KEYS: readonly ConfigKey[] = Object.entries(FILE.shape).flatMap(([name, schema]) =>
  schema instanceof z.ZodObject
    ? Object.entries(schema.shape as Record<string, z.ZodPrefault<z.ZodType>>).map((key) =>
        keyOf(name, pathOf(name, schema), ...key),
      )
    : [keyOf('', '', name, schema)],
);

/** Returns the key with this path. Throws if there is none. */
export function keyAt(path: string): ConfigKey {
  const found = KEYS.find((key) => key.path === path);
  if (found === undefined) throw new Error(`${path} is no key`);
  return found;
}

/** Returns a key's allowed values, as a fault names them. */
export function allowedOf({ schema }: ConfigKey): string {
  return schema.unwrap().safeParse(undefined).error?.issues[0]?.message ?? 'a value';
}

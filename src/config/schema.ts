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
    baseUrl: key(value.baseUrl, undefined, "The address of the commerce platform's API.", {
      example: SAMPLE_BASE_URL,
      isAsked: true,
    }),
    timeoutMs: key(value.duration(SECOND, 10 * MINUTE), '30s', 'How long one answer may take.'),
    proxy: key(
      value.optionalUrl,
      '',
      'A proxy on the way to the platform, such as "http://proxy.example:3128". Empty: as HTTPS_PROXY and NO_PROXY of the environment say, where one with a password belongs.',
    ),
    caFile: key(
      value.optionalPath,
      '',
      'PEM file of a further authority that may sign the certificate of the platform, such as of a proxy that looks into the traffic. Those of the machine (/etc/ssl/certs) are trusted in any case.',
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
      'Where mirror.db, inbox/inbox.db and state.db live. The POS reads mirror.db here. After a change by hand: sudo systemctl daemon-reload, which lets the service write there; it cannot below /home, /root and /tmp.',
    ),
    group: key(
      value.optionalGroup,
      '',
      'Unix group whose members, such as the POS, may read the mirror. Empty: the group of the directory.',
    ),
  }),
  shop: section('What people are shown on the status page, by commands and in messages.', {
    name: key(
      value.shortLine,
      '',
      'What this shop is called. Empty: alarms.name, else the name of the machine.',
    ),
    currency: key(
      value.optionalCurrency,
      '',
      'The currency of prices and amounts. Empty: they are shown without one.',
    ),
    language: key(
      value.oneOf(...LANGUAGES),
      'en',
      'The language of alarms, `tillsync status` and `tillsync doctor`; what they print with --json, the log and all codes are in English. The status page speaks that of the browser.',
    ),
  }),
  webhook: z.object({
    enabled: key(value.boolean, true, 'false: orders come by polling alone.'),
    listen: key(
      value.listen,
      '127.0.0.1:8787',
      'Where callbacks arrive. Keep the loopback address when a proxy with a certificate stands in front.',
    ),
    path: key(value.urlPath, '/webhook', 'The path of the address at which callbacks arrive.'),
    callbackUrl: key(
      value.optionalUrl,
      '',
      'The public address of this receiver, registered with the platform at start, for orders at once. Empty: nothing is registered.',
      { isAsked: true },
    ),
    tlsCertFile: key(
      value.optionalPath,
      '',
      'PEM file of a certificate, for serving HTTPS without a proxy; with tls_key_file or not at all.',
    ),
    tlsKeyFile: key(value.optionalPath, '', 'PEM file of its key.'),
    bodyLimitBytes: key(value.byteSize(1024, 64 * MIB), '1MiB', 'A larger callback is refused with 413.', {
      name: 'body_limit',
    }),
  }),
  orders: z.object({
    poll: key(
      value.cron,
      '*/2 * * * *',
      'When orders are polled: minute hour day month weekday, or six fields with seconds first. The platform allows one poll in two minutes; a quicker expression only waits for its turn.',
    ),
    timezone: key(
      value.timeZone,
      // This is a function, so that the default is computed only if it is needed. Computing it takes longer than
      // reading all other keys.
      () => Intl.DateTimeFormat().resolvedOptions().timeZone,
      "Whose calendar the platform's order dates are in, and whose clock its times without a zone.",
      { example: 'America/Santiago', isAsked: true, default: 'that of the machine' },
    ),
    lookbackDays: key(
      value.wholeNumber(0, 365),
      1,
      'How many days back each poll looks; where these have more than 5,000 orders, every tenth minute, and the polls between ask for the running day.',
    ),
    wideDays: key(
      value.wholeNumber(0, 366),
      30,
      'How many days back a wider look goes, for orders that change late. Open orders of earlier days, up to 366 days back, are requested by their days, in turn.',
    ),
    wideEveryMs: key(value.duration(MINUTE, 30 * DAY), '1h', 'How often the wider look is taken.'),
    fields: key(
      value.orderFields,
      {},
      'Other names for the fields of an order in the answer, looked for before the known ones. Only needed when `tillsync quarantine list` shows answers that could not be read, or the finding `orders.incomplete` says that a part of an order cannot be read.',
      {
        example: { order_id: ['orderNumber'], customer_email: ['buyer.mail'], 'item.quantity': ['units'] },
      },
    ),
    statuses: key(
      value.statusWords,
      {},
      'Words of the platform for statuses of its document. A word that is neither there nor here replaces no status of the document.',
      { example: { PENDIENTE: 'pending' } },
    ),
  }),
  catalog: z.object({
    sweep: key(
      value.cron,
      '30 4 * * *',
      'When the products of every branch are read anew; also at a start when it was missed, or never done.',
    ),
    pageSize: key(value.wholeNumber(1, 1000), 100, 'Products in one page.'),
  }),
  branches: key(
    value.branches,
    [],
    "The branches, one table each with the platform's internal id, your own id of it, or both. The platform's API cannot list them.",
    { example: [{ subsidiary_id: 'sub-1', external_id: 'B1' }], isAsked: true },
  ),
  hub: section(
    "Only for a company with a tillsync in each branch: in the one that talks to the platform. See docs/chain.md. In its [[branches]], may_price = true lets a branch change prices, names and visibility, and watched = false keeps a branch out of the hub's health.",
    {
      nats: key(
        value.optionalNatsUrl,
        '',
        'The nats-server beside it, such as "nats://127.0.0.1:4222". Empty: this is no hub.',
      ),
      publicUrl: key(
        value.optionalNatsUrl,
        '',
        'Where branches reach that server, such as "tls://hub.example.com:4222"; an invitation says it. Empty: as nats says.',
      ),
    },
  ),
  link: section(
    'Only in a branch of such a company; `tillsync init --join INVITATION` writes it. A branch has no [platform], no [[branches]] and no secret of the platform.',
    {
      hub: key(
        value.natsUrls,
        '',
        'The server of the hub, such as "tls://hub.example.com:4222", or a list of its addresses, which are tried in turn. Empty: this is no branch.',
      ),
      branch: key(value.optionalBranchName, '', 'What the hub calls this branch.'),
      caFile: key(
        value.optionalPath,
        '',
        'PEM file of the authority that signed the certificate of that server; it may hold several. Empty: one that this machine knows.',
      ),
    },
  ),
  outbox: z.object({
    lingerMs: key(
      value.duration(0, MINUTE),
      '250ms',
      'How long a stock or price change may wait for others before its batch leaves.',
    ),
  }),
  stock: z.object({
    holdBackUnbooked: key(
      value.oneOf('auto', true, false),
      'auto',
      'Whether what online orders took and the POS has not acknowledged yet is taken off every count it hands over, so that an older count cannot sell a piece twice. "auto": in each branch whose POS acknowledges orders, through the inbox or over HTTP, once both ids of the branch stand in [[branches]]; tillsync status tells of each branch what is missing. true: in every branch, whatever it acknowledges. false: never.',
    ),
    onDifference: key(
      value.oneOf('tell', 'send'),
      'tell',
      'Where the platform has another stock than the POS counted last, as when somebody edited it in the panel. "tell": it is told (stock.differs), and stays until the POS counts again. "send": the count is sent again.',
    ),
    editHoldMs: key(
      value.duration(0, 30 * DAY),
      '30m',
      'For so long an edit of an acknowledged order is taken off counts, unless the POS acknowledges the order again: a count that comes later contains the edit. For a POS that acknowledges each order once.',
    ),
    lookBelow: key(
      value.wholeNumber(0, 1_000),
      3,
      'Before a count of so many or fewer is sent, the platform is asked what it has, where callbacks are off or do not come: what is missing there is an order that no poll has brought yet, and is kept back. 0: never.',
    ),
    skipUnchanged: key(value.boolean, true, 'A value that the mirror has already is not sent again.'),
    trustForMs: key(
      value.duration(0, 30 * DAY),
      '10m',
      "How long the platform's last word on a stock or a product is believed: a count or a price that says the same later is sent all the same, for somebody may have edited it in the panel meanwhile.",
    ),
    platformDeducts: key(
      value.boolean,
      true,
      'Whether the platform takes off its stock what it sells. false: each order has the stocks that it took sent again, which needs hold_back_unbooked = true.',
    ),
    safety: key(
      value.safety,
      0,
      'Safety stock: so many of every stock are never offered online, so that the last ones in the shop are not sold twice. A branch can have its own, with safety = N in its table of [[branches]], and a product too: tillsync stock safety SKU N.',
    ),
  }),
  guard: section(
    'Hand-overs that look like a mistake wait for a person (tillsync outbox release, tillsync outbox discard). 0 switches a guard off.',
    {
      zeroItemsMax: key(
        value.wholeNumber(0, 1_000_000),
        100,
        'So many stocks may go to zero within the window.',
      ),
      zeroShareMax: key(
        value.decimal(0, 1),
        0.3,
        'Share, from 0 to 1, of the stocks above zero of a branch that may go to zero within the window. It speaks from ten zeros on.',
      ),
      priceFactorMax: key(
        value.decimal(0, 1_000_000),
        10,
        'So many times higher or lower a price may become at once.',
      ),
      missingShareMax: key(
        value.decimal(0, 1),
        0.5,
        'Share of the known stock, from 0 to 1, that a full inventory may lack.',
      ),
    },
  ),
  retention: section(
    'How long what is no longer needed stays in mirror.db; "0d": for ever. Nothing goes that is still needed: the newest event and payload of each order, open orders, and, where the POS acknowledges orders, those it has not.',
    {
      eventsMs: key(
        value.keepFor,
        '90d',
        'Earlier events of an order whose life has ended. A POS that was away for longer still gets the newest of each order.',
      ),
      payloadsMs: key(
        value.keepFor,
        '30d',
        'Earlier notifications, which tillsync order replay can read again.',
      ),
      ordersMs: key(
        value.keepFor,
        '400d',
        'Orders whose life has ended, since their last change. Longer than polls look back.',
      ),
      outboxMs: key(
        value.keepFor,
        '30d',
        'Changes that arrived or were superseded. Rejected ones stay until a person decides.',
      ),
      personalDataMs: key(
        value.keepFor,
        '0d',
        'Names, phones, addresses, e-mails and comments, since the end of their order, such as "60d"; the order itself stays, and nothing unread is kept for longer. `tillsync customer forget --order ORDER` does it at once.',
      ),
      maxBytes: key(
        value.byteSize(16 * MIB, 1024 ** 4),
        '1GiB',
        'Above this size the oldest notifications, events and quarantine entries go sooner.',
      ),
    },
  ),
  backup: section(
    'Backups that tillsync makes by itself: the mirror, what the POS handed over and this file, each read again and checked. By hand: tillsync backup FILE',
    {
      directory: key(
        value.optionalPath,
        '',
        'Where they are kept; better on another disk than storage.directory. Empty: backups in storage.directory. Several shops may use one. After a change by hand: sudo systemctl daemon-reload, which lets the service write there.',
      ),
      everyMs: key(value.duration(0, 30 * DAY), '1d', 'How often one is made. "0s": never.'),
      differentialEveryMs: key(
        value.duration(0, HOUR),
        '30s',
        'How often what came since the last backup, and nobody else has, is written beside it if there is something new: acknowledgements, changes without an answer, what operators did. "0s": never. backup.after gets that file too.',
      ),
      recipient: key(
        value.optionalRecipient,
        '',
        'For whom backups are encrypted, those by hand among them: a recipient of age, such as `tillsync backup --new-phrase` writes here. Empty: they are not, unless there is a secret backup-passphrase.',
      ),
      keep: key(value.wholeNumber(1, 1_000), 7, 'How many are kept of this shop; older ones are deleted.'),
      after: key(
        value.commandLine,
        [],
        'A program and its arguments that takes each backup elsewhere, such as ["/usr/bin/rclone", "copyto"]; no shell reads them. The path of the backup is added as its last argument. It runs as the user of tillsync, gets nothing secret, and is tried again every hour until it ends with 0.',
      ),
    },
  ),
  local: section('Status page, local API for the POS, /metrics, /healthz and /readyz.', {
    listen: key(
      value.listenList,
      '127.0.0.1:8788',
      'One address, or a list such as ["127.0.0.1:8788", "192.168.1.5:8788"]. Every request needs the API key, from this machine too.',
    ),
    socket: key(
      value.optionalSocketPath,
      '',
      'A Unix socket for the same API, which the group of storage.group may use without a key, such as "/run/tillsync/api.sock". Empty: none.',
    ),
  }),
  alarms: section(
    'Who is told when something needs a person: orders stop, tokens are refused, changes are refused, the disk fills. Each alarm once, and once more when it is over. Try it with: tillsync config test-alarms',
    {
      command: key(
        value.commandLine,
        [],
        'A program and its arguments, such as ["/usr/local/bin/tell-the-owner", "--urgent"]; no shell reads them. It gets the message as JSON on standard input and in TILLSYNC_ALARM_STATE (raised, healed, reminder, muted, test), _KEY, _LEVEL, _MESSAGE, _DETAIL, _REMEDY, _SINCE, _AT, _SHOP and _TEXT (all of it in one line), and nothing secret. It runs as the user of tillsync.',
      ),
      url: key(
        value.optionalUrl,
        '',
        'An address that gets the same JSON by POST. One that holds a secret, as those of chat services do, is handed in as the secret alarm-url instead; a secret alarm-token is sent as "Authorization: Bearer".',
      ),
      heartbeatUrl: key(
        value.optionalUrl,
        '',
        'An address of a service outside, such as healthchecks.io or Uptime Kuma, that tells somebody when this machine falls silent: asked by GET while nothing is red, with /fail at its end (Uptime Kuma: status=down) when something is. Who has it can speak for this shop, so it is better handed in as the secret heartbeat-url.',
      ),
      heartbeatEveryMs: key(
        value.duration(SECOND, HOUR),
        '1m',
        'How often; at once at a start, and when something becomes red or is over.',
      ),
      level: key(
        value.oneOf('amber', 'red'),
        'amber',
        'The mildest that is told: "amber" (look at it today) or "red" (orders or changes do not get through).',
      ),
      settleMs: key(
        value.duration(0, HOUR),
        '1m',
        'How long an alarm must be up, or over, before it is told; what comes and goes more quickly is not.',
      ),
      repeatMs: key(
        value.duration(0, 30 * DAY),
        '0s',
        'How often an alarm that stays up is told again, such as "24h". "0s": never.',
      ),
      dailyMax: key(
        value.wholeNumber(1, 1000),
        20,
        'So many messages in one day; one more then says that the others wait until tomorrow.',
      ),
      unbookedAfterMs: key(
        value.duration(0, DAY),
        '10m',
        'How long an open, paid order may wait for the POS to acknowledge it; after three times as long the alarm is red. Only where a POS acknowledges. "0s": for ever.',
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
    'Receivers of events, one table each. name: identifies its place in the feed; a renamed hook starts again. url: an address that gets the event and its order as JSON by POST, signed with the secret hook-NAME if there is one; an address with a token belongs in the secret hook-NAME-url, which replaces url. Or command: a program and its arguments, which gets the same JSON on standard input and exits with 0 when it is done; no shell reads them, and it runs as the user of tillsync. events: "order" for each event of an order; for a kitchen, "order.prepare" once when an order is paid and due, "order.changed" when its lines, time or place change after that, "order.undone" when it is cancelled or moves to another branch; "change.rejected" for each rejected change of a stock or product; default ["order"]. prepare_before: how long before it is due a scheduled order is prepared. statuses: only events of orders in these, and orders are prepared from the first of these on; [] for all. from: where a new hook starts, "now" or "start". timeout: how long one try may take. To try it, run: tillsync hooks test NAME',
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
  limits: section("The platform's published limits. Change them only when the platform does.", {
    endpointIntervalMs: key(value.duration(1, HOUR), '1s', 'Between two calls of one endpoint.'),
    ordersIntervalMs: key(value.duration(1, DAY), '2m', 'Between two polls of orders.'),
    windowMs: key(value.duration(1, DAY), '5m', 'The window in which calls are counted.'),
    requestsPerWindow: key(
      value.wholeNumber(1, 1_000_000),
      1000,
      'Calls of all endpoints together in one window.',
    ),
    ordersPerWindow: key(value.wholeNumber(1, 1_000_000), 100, 'Polls of orders in one window.'),
  }),
  log: z.object({
    level: key(value.oneOf(...LOG_LEVELS), 'info', 'fatal, error, warn, info, debug, trace or silent.'),
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

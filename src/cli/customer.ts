import { readdirSync } from 'node:fs';
import path from 'node:path';
import { storagePaths } from '../app/storage.ts';
import type { Config } from '../config/config-type.ts';
import { configPath } from '../config/source.ts';
import { counted, formatCommands, TillsyncError, typedWords } from '../core/errors.ts';
import { isoUtc } from '../core/time.ts';
import { isEnded } from '../orders/merging/order.ts';
import { type Found, findPeople, type Person, readWho, type Who } from '../orders/merging/person.ts';
import { getReceived, listReceived } from '../orders/reading/order-queries.ts';
import { type Cli, EXIT, readAll } from './cli.ts';
import { type Call, command, group, type Result, withReaders, withServices } from './command.ts';
import { Terminal } from './init/terminal.ts';
import { namedOrder } from './order.ts';
import { table, when } from './table.ts';

const WHO: readonly ['[who]', string] = [
  '[who]',
  'E-mail, phone number or name (default: ask for it, so that the shell does not store it)',
];
const MORE = `
A name must match in whole words, in any order; accents don't matter. Phone numbers match with and without the country
code. Without [who], scripts can send it on standard input.
`;
const WHO_BYTES_MAX = 1_000;

async function whoOf({ cli, argument }: Call<unknown, string | undefined>): Promise<Who> {
  return readWho(argument ?? (await askedWho(cli)));
}

async function askedWho(cli: Cli): Promise<string> {
  if (cli.stdin.isTTY !== true) {
    return readAll(
      cli.stdin,
      WHO_BYTES_MAX,
      () => new TillsyncError('usage', 'This is too long for a name.'),
    );
  }
  const terminal = new Terminal(cli);
  try {
    return await terminal.ask({ label: 'Who? An e-mail, a phone number or a name' });
  } finally {
    terminal.close();
  }
}

const find = command({
  description: 'Find a person and their orders',
  examples: ['customer find', 'customer find ana@example.com', 'customer find "Ana Soto" --json'],
  argument: WHO,
  more: MORE,
  async run(call) {
    const who = await whoOf(call);
    return withReaders(call, ({ mirror }, config) => {
      const found = mirror.read((db) => findPeople(db, who));
      if (isNobody(found)) return { json: found, above: NOBODY };
      return {
        json: found,
        text: [peopleText(found, config), ...restLines(found).map((line) => `${line}\n`)].join(''),
        below: nextText(found),
      };
    });
  },
});

const NOBODY = 'The mirror has no such person. Orders whose customer was forgotten are not searched.\n';

function isNobody({ people, mentions }: Found): boolean {
  return people.length === 0 && mentions.length === 0;
}

function peopleText({ people }: Pick<Found, 'people'>, { orders: { timezone } }: Config): string {
  const persons = table(
    people,
    {
      NAME: ({ names }) => names.join(', ') || null,
      'E-MAIL': ({ emails }) => emails.join(', ') || null,
      PHONE: ({ phones }) => phones.join(', ') || null,
      ORDERS: ({ orders }) => orders.length,
      [`FIRST (${timezone})`]: ({ orders }) => when(orders[0]?.createdAt ?? null, timezone),
      LAST: ({ orders }) => when(orders.at(-1)?.createdAt ?? null, timezone),
    },
    ['ORDERS'],
  );
  const [only] = people;
  if (only === undefined || people.length > 1) return persons;
  const orders = table(
    only.orders,
    {
      CODE: 'code',
      ORDER: 'orderId',
      STATUS: 'status',
      [`CREATED (${timezone})`]: ({ createdAt }) => when(createdAt, timezone),
      NAME: 'name',
    },
    ['CODE'],
  );
  return `${persons}\n${orders}`;
}

/**
 * Returns lines about other orders and texts that name the person. `export` leaves out their content, and `forget` only
 * reports those that remain.
 */
function restLines({ related, mentions }: Pick<Found, 'related' | 'mentions'>): string[] {
  const others = related.map(
    ({ code, orderId, name }) => `order ${code ?? orderId}, of ${name ?? 'nobody by name'}`,
  );
  const places = mentions.map(({ id, state, orderId }) =>
    orderId === null ? `quarantine, ${id}` : `the text of order ${orderId} (${state}, ${id})`,
  );
  return [
    ...(others.length > 0 ? [`The same e-mail or phone number is also in: ${others.join('; ')}.`] : []),
    ...(places.length > 0 ? [`Further texts name it: ${[...new Set(places)].join('; ')}.`] : []),
  ];
}

function nextText({ people }: Found): string {
  const [only] = people;
  const { tillsync } = typedWords();
  if (only === undefined) return `To read one: ${tillsync} order received ID\n`;
  if (people.length > 1) return `Name one by e-mail or phone number: ${tillsync} customer find\n`;
  return `To hand over what is stored: ${tillsync} customer export\nTo forget the person: ${tillsync} customer forget\n`;
}

/**
 * Returns the person who was found. If several were found, returns a result that lists them, because their data must
 * not be mixed. Throws `not-found`.
 */
function onePerson(found: Found, action: string, config: Config): { person: Person } | { several: Result } {
  const { people } = found;
  const [person] = people;
  if (person === undefined)
    throw new TillsyncError('not-found', `${NOBODY.trimEnd()} Nothing was ${action}.`);
  if (people.length === 1) return { person };
  const without = people.find(({ emails, phones }) => emails.length + phones.length === 0);
  const told = [
    `${people.length} people have this name. Nothing was ${action}.`,
    'Name one by e-mail or phone number.',
    ...(without === undefined
      ? []
      : [
          `One without either, order by order: {tillsync} customer forget --order ${without.orders[0]?.orderId}`,
        ]),
  ];
  const above = `${peopleText(found, config)}${told.map(formatCommands).join('\n')}\n`;
  return { several: { json: { people }, above, exit: EXIT.usage } };
}

const exportPerson = command({
  description: "Export one person's data as JSON",
  examples: ['customer export > person.json', 'customer export ana@example.com > person.json'],
  argument: WHO,
  more: MORE,
  async run(call) {
    const who = await whoOf(call);
    return withReaders(call, ({ mirror }, config) => {
      const found = mirror.read((db) => findPeople(db, who));
      const one = onePerson(found, 'exported', config);
      if ('several' in one) return one.several;
      const { orders, ...person } = one.person;
      const document = mirror.read((db) => {
        const exported = orders.map(({ orderId }) => {
          const order = mirror.orders.get(orderId);
          const entries = listReceived(db, { orderId }, { limit: 10_000, quarantinedOnly: false });
          const received = entries.map(({ id }) => getReceived(db, id));
          return { order, history: mirror.orders.history(orderId), received };
        });
        // Only the id of a quarantined answer is exported, because the answer contains other people's data.
        const quarantined = found.mentions.filter(({ state }) => state === 'quarantined');
        return { ...person, orders: exported, quarantined: quarantined.map(({ id }) => id) };
      });
      const exportedAt = isoUtc(call.cli.clock.nowMs());
      const json = { exportedAt, ...document };
      return { json, text: () => `${JSON.stringify(json, null, 2)}\n` };
    });
  },
});

const forget = command({
  description: "Delete one person's data now; keep the orders",
  examples: [
    'customer forget',
    'customer forget +56912345678',
    'customer forget ana@example.com --open',
    'customer forget --order 1005',
  ],
  argument: WHO,
  options: {
    '--order <order>': "Delete the customer's data of this order only (number or ID)",
    '--open': 'Include open orders, which then can no longer be delivered',
  },
  more: `${MORE}
If several people have the name, nothing is deleted. Later polls and callbacks don't restore the data; a new order does.
With --order, data in quarantine that names the order or its customer is deleted too.
The platform, the POS and all copies still have the data; the command lists the copies it knows.
`,
  run(call) {
    const { order } = call.options;
    if (order === undefined) return forgetPerson(call);
    if (call.argument !== undefined) throw new TillsyncError('usage', 'Give a person or --order, not both.');
    return forgetOrder(call, order);
  },
});

type ForgetCall = Call<{ open?: boolean | undefined }, string | undefined>;

async function forgetPerson(call: ForgetCall): Promise<Result> {
  const who = await whoOf(call);
  return withServices(call, async ({ services: { mirror }, config, progress }) => {
    const { Audit } = await import('../db/audit.ts');
    const { backupsOf } = await import('../daemon/backups.ts');
    const { cli, options } = call;
    const found = mirror.read((db) => findPeople(db, who));
    const one = onePerson(found, 'forgotten', config);
    if ('several' in one) return one.several;
    const { orders } = one.person;
    const open = options.open ? [] : orders.filter(({ status }) => !isEnded(status));
    const ended = orders.filter((order) => !open.includes(order));
    let forgotten = 0;
    for (const [i, { orderId }] of ended.entries()) {
      progress.step(`forgetting order ${i + 1} of ${ended.length}`);
      const auditEvent = { who: cli.who, action: 'order.forget', subject: `order ${orderId}` } as const;
      const isNew = await mirror.customers.forget(orderId, (db) =>
        new Audit({ db, clock: cli.clock }).note({
          ...auditEvent,
          detail: 'With all others of this person.',
        }),
      );
      if (isNew) forgotten += 1;
    }
    progress.step('rewriting the mirror without them');
    const isClean = await mirror.customers.clean();
    progress.end();
    const mentions = mirror.read((db) =>
      found.mentions.filter(({ id }) => getReceived(db, id) !== undefined),
    );
    const copies = [
      ...copiesOf(storagePaths(config.storage.directory).mirror),
      ...(await backupsOf(config, configPath(call.options.config, cli.env), cli.clock.nowMs())),
    ];
    const told = [
      `${counted(forgotten, 'order')} without this person from now on.`,
      ...open.map(
        ({ code, orderId, status }) =>
          `Order ${code ?? orderId} is not over (${status ?? 'no status'}) and still has the person; when it is: {tillsync} customer forget`,
      ),
      ...(isClean
        ? []
        : [
            'A program reads the mirror, so bytes of the person are still in mirror.db-wal. The running tillsync tries again within a day; to try now, with any order of them: {tillsync} customer forget --order ORDER',
          ]),
      ...restLines({ related: found.related, mentions }),
      ...copies.map((copy) => `This copy still has the person: ${copy}`),
      'Backups elsewhere from before today still have the person, too.',
    ];
    const isWhole = isClean && open.length === 0;
    const openIds = open.map(({ orderId }) => orderId);
    return {
      json: { forgotten, open: openIds, isClean, copies, related: found.related, mentions },
      text: `${told.map(formatCommands).join('\n')}\n`,
      exit: isWhole ? EXIT.done : EXIT.partial,
    };
  });
}

function forgetOrder(call: ForgetCall, order: string): Promise<Result> {
  return withServices(call, async ({ services: { mirror }, config }) => {
    const { Audit } = await import('../db/audit.ts');
    const { who, clock } = call.cli;
    const { orderId, code, status } = namedOrder(mirror, order, config.orders.timezone);
    const name = `Order ${code ?? orderId}`;
    if (!isEnded(status) && !call.options.open) {
      throw new TillsyncError('usage', `${name} is not over: its status is ${status ?? 'unknown'}.`, {
        hint: `Wait for its end, or forget its customer all the same: {tillsync} customer forget --order ${orderId} --open`,
      });
    }
    const auditEvent = { who, action: 'order.forget', subject: `order ${orderId}` } as const;
    const isNew = await mirror.customers.forget(orderId, (db) => new Audit({ db, clock }).note(auditEvent));
    const isClean = await mirror.customers.clean();
    const copies = copiesOf(storagePaths(config.storage.directory).mirror);
    const rest = isClean
      ? []
      : [
          `A program reads the mirror, so bytes of the customer are still in mirror.db-wal. The running tillsync tries again within a day; to try now: ${typedWords().tillsync} customer forget --order ${orderId}${isEnded(status) ? '' : ' --open'}`,
        ];
    const told = [
      isNew ? `${name}: its customer is forgotten.` : `${name}: its customer was forgotten before.`,
      ...rest,
      ...copies.map(
        (copy) => `This copy still has the customer; delete it when you need it no more: ${copy}`,
      ),
      'Backups from before today still have the customer.',
    ];
    return {
      json: { orderId, code, forgotten: isNew, isClean, copies },
      text: `${told.join('\n')}\n`,
      exit: isClean ? EXIT.done : EXIT.partial,
    };
  });
}

/** Returns the copies of the mirror that tillsync made before upgrades and restores. */
function copiesOf(mirror: string): string[] {
  const [directory, name] = [path.dirname(mirror), path.basename(mirror)];
  return readdirSync(directory)
    .filter((each) => each.startsWith(`${name}.`))
    .map((each) => path.join(directory, each));
}

export const customer = group("Find, export or forget one person's data", {
  find,
  export: exportPerson,
  forget,
});

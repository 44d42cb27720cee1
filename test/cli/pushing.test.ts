/** Tests src/cli/push.ts, src/cli/submit.ts, src/cli/product.ts and src/app/outbox-sender.ts. */

import { writeFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openServices } from '../../src/app/services.ts';
import { silentLog } from '../../src/core/log.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { openWorkplace, SECRET, until, type Workplace } from '../support/workplace.ts';
import { commandsAt } from './invoke.ts';

let place: Workplace;
let at: ReturnType<typeof commandsAt>;

beforeAll(async () => {
  place = await openWorkplace(21);
  at = commandsAt(place);
  expect((await at.run(['sync', 'catalog'])).code).toBe(0);
});
afterAll(async () => {
  expect(place.sandbox.control.violations()).toEqual([]);
  await place.close();
});

const stockCalls = () =>
  place.sandbox.control.calls('product.stock.batch').length +
  place.sandbox.control.calls('product.stock.put').length;

/** Returns every stock of branch sub-1 that a change can name, as the platform has it. */
function inventory(): { externalId: string; sku: number; qty: number }[] {
  return place.sandbox.control
    .products()
    .flatMap(({ children }) => children)
    .flatMap(({ sku, stocks, integrations }) =>
      integrations
        .filter(({ subsidiaryId }) => subsidiaryId === 'sub-1')
        .flatMap(({ extId, productIdPosA, productCodePosB }) => {
          const externalId = extId ?? productIdPosA ?? productCodePosB;
          const stock = stocks.find(({ subsidiaryId }) => subsidiaryId === 'sub-1');
          return externalId === null || !stock ? [] : [{ externalId, sku, qty: stock.qty }];
        }),
    );
}

describe('a file of stock quantities', () => {
  test('goes in one call, each bad line named, and the rest settled without a daemon', async () => {
    const before = stockCalls();
    const { code, document, stderr } = await at.json(
      ['push', 'stock', '-', '--wait'],
      [
        'external_id;qty',
        'A-1001-1;11',
        'B-1003-1;x',
        'B-1003-1;--1',
        'B-1003-1;Infinity',
        'B-1003-1;3',
        ';4',
        'E-1002;4',
        'no-such;4',
        'B-1003-1;1.2.3',
      ].join('\n'),
    );
    expect(code).toBe(3);
    expect(document).toMatchObject({ items: 9, unreadable: 5, done: 2, rejected: 2, pending: 0 });
    expect(document.problems.map((each: { line: number }) => each.line)).toEqual([3, 4, 5, 7, 10, 8, 9]);
    expect(stderr).toContain('line 3: qty "x" is not a number.');
    expect(stderr).toContain('line 8: externalId E-1002 is sold in several places');
    expect(stderr).toContain('line 9: The platform knows no product with externalId no-such.');
    expect(stderr).toContain('No daemon is sending');
    expect(place.sandbox.control.stockOf(1001, 'sub-1')).toBe(11);
    expect(place.sandbox.control.stockOf(1003, 'sub-1')).toBe(3);
    expect(stockCalls() - before).toBe(1);
  });

  test('waits in line without --wait, and an older change is followed to the one that replaced it', async () => {
    const first = await at.json(['push', 'stock', '-'], '[{"externalId":"A-1001-1","qty":20}]');
    expect(first).toMatchObject({ code: 0, document: { pending: 1, done: 0 } });
    expect(first.stderr).toContain(
      'tillsync is not running: it sends the queued changes when it runs again.',
    );
    expect(place.sandbox.control.stockOf(1001, 'sub-1')).toBe(11);
    const second = await at.json(
      ['push', 'stock', '-', '--wait'],
      '{"sku":1001,"subsidiaryId":"sub-1","qty":22}\n',
    );
    expect(second).toMatchObject({ code: 0, document: { items: 1, done: 1, problems: [] } });
    expect(place.sandbox.control.stockOf(1001, 'sub-1')).toBe(22);
  });

  test.each([
    ['quantity', 'externalId,quantity\nA-1001-1,5\n'],
    ['not separated', 'externalId|qty\nA-1001-1|5\n'],
    ['no item', 'externalId,qty\n'],
    ['neither externalId nor sku', 'qty\n5\n'],
  ])('of which nothing can be read is wrong usage: %s', async (message, text) => {
    const result = await at.json(['push', 'stock', '-'], text);
    expect(result).toMatchObject({ code: 2, document: { error: { code: 'usage' } } });
    expect(result.stderr).toContain(message);
  });

  test('that is UTF-16, missing, or cut in the middle says so', async () => {
    const file = path.join(place.directory, 'counts.csv');
    writeFileSync(file, Buffer.from('\ufeffexternalId,qty\nA-1001-1,5\n', 'utf16le'));
    expect((await at.run(['push', 'stock', file])).stderr).toContain('not UTF-8');
    const missing = await at.run(['push', 'stock', path.join(place.directory, 'no.csv')]);
    expect(missing.code).toBe(2);
    expect(missing.stderr).toContain('ENOENT');
    writeFileSync(path.join(place.directory, 'counts.json'), '[{"externalId":"A-1001-1","qty":23},{"exter');
    const cut = await at.json(['push', 'stock', path.join(place.directory, 'counts.json')]);
    expect(cut).toMatchObject({
      code: 3,
      document: { pending: 1, problems: [{ index: 1, code: 'cut', state: 'rejected' }] },
    });
  });

  test('is only shown with --dry-run', async () => {
    const before = (await at.json(['outbox', 'list', '--limit', '1'])).document.changes[0].changeId;
    const { code, document } = await at.json(
      ['push', 'stock', '-', '--dry-run'],
      'externalId,qty\nA-1001-1,1\nE-1002,1\nB-1003-1,3\nnew,1\nA-1005-1,x\n',
    );
    expect(code).toBe(3);
    expect(document).toMatchObject({ items: 5, unreadable: 1, send: 1, unchanged: 1, read: 1, rejected: 1 });
    expect(document.calls).toBe(1);
    const verdicts = document.changes.map(({ line, verdict }: { line: number; verdict: string }) => [
      line,
      verdict,
    ]);
    expect(verdicts).toEqual([
      [2, 'send'],
      [3, 'rejected'],
      [4, 'unchanged'],
      [5, 'read'],
    ]);
    expect(document.changes[0].why).toContain('The mirror has 22');
    expect((await at.json(['outbox', 'list', '--limit', '1'])).document.changes[0].changeId).toBe(before);
    expect((await at.run(['push', 'stock', '-', '--dry-run', '--wait'], '[]')).code).toBe(2);
  });
});

describe('many', () => {
  test('101 items take two calls', async () => {
    const all = place.sandbox.control
      .products()
      .flatMap(({ children }) => children)
      .flatMap(({ sku, stocks, integrations }) =>
        stocks
          .filter(({ subsidiaryId }) => integrations.some((each) => each.subsidiaryId === subsidiaryId))
          .map(({ subsidiaryId, qty }) => ({ sku, subsidiaryId, qty: qty + 1000 })),
      )
      .slice(0, 101);
    expect(all.length).toBe(101);
    await at.run(['push', 'stock', '-', '--wait'], '[{"externalId":"A-1001-1","qty":23}]');
    const before = place.sandbox.control.calls('product.stock.batch').length;
    const { document } = await at.json(['push', 'stock', '-', '--wait'], JSON.stringify(all));
    expect(document).toMatchObject({ items: 101, done: 101, problems: [] });
    const calls = place.sandbox.control.calls('product.stock.batch').length - before;
    expect(calls).toBeLessThanOrEqual(2);
    for (const { sku, subsidiaryId, qty } of all) {
      expect(place.sandbox.control.stockOf(sku, subsidiaryId)).toBe(qty);
    }
  });

  test('100,000 items are read, and each bad one is named', { tags: ['bulk'] }, async () => {
    const lines = ['externalId,qty'];
    for (let i = 0; i < 100_000; i++) lines.push(`TILL-${i},${i % 1000 === 999 ? 'x' : 1 + (i % 7)}`);
    const { code, document } = await at.json(['push', 'stock', '-', '--dry-run'], lines.join('\n'));
    expect(code).toBe(3);
    expect(document).toMatchObject({ items: 100_000, unreadable: 100, read: 99_900 });
    expect(document.problems[99].line).toBe(100_001);
    expect(document.changes).toHaveLength(99_900);
  });

  test('to zero are held as a whole, whatever the parts they are taken in', async () => {
    const services = await openServices({
      config: { ...place.config, guard: { ...place.config.guard, zeroItemsMax: 50 } },
      secrets: { refreshToken: place.refreshToken, webhookSecrets: [SECRET] },
      clock: systemClock,
      random: seededRandom(1),
      log: silentLog,
    });
    const zeros = inventory().slice(1, 61);
    const filler = (n: number) => Array.from({ length: n }, () => ({ externalId: 'A-1001-1', qty: 5 }));
    const items = [
      ...zeros.slice(0, 30).map(({ externalId }) => ({ externalId, qty: 0, subsidiaryId: 'sub-1' })),
      ...filler(600),
      ...zeros.slice(30).map(({ externalId }) => ({ externalId, qty: 0, subsidiaryId: 'sub-1' })),
    ];
    const accepted = await services.outbox.submitMany(
      items.map((change) => ({ kind: 'stock', change })),
      'cli',
    );
    await services.close();
    const held = accepted.filter(({ state }) => state === 'held');
    expect(held).toHaveLength(60);
    expect(
      (await at.run(['outbox', 'discard', ...new Set(held.map((one) => String(one.changeId)))])).code,
    ).toBe(0);
  });
});

describe('what was typed, or exported from a spreadsheet', () => {
  test.each([
    [['stock', 'set', '--external-id', 'A-1001-1', '--qty', '1,5'], 'the decimal sign is a point: 1.5'],
    [
      ['stock', 'set', '--external-id', 'A-1001-1', '--qty', '1.500'],
      'may mean 1500 or 1.5; write 1500, or 1.5000',
    ],
    [['product', 'set', '--sku', '1001', '--price', '1.990'], 'may mean 1990 or 1.99'],
  ])('%j is asked about', async (words, told) => {
    const result = await at.run(words);
    expect(result).toMatchObject({ code: 2, stdout: '' });
    expect(result.stderr).toContain(told);
  });

  test('a file of a Spanish Excel arrives as it was meant', async () => {
    const text = Buffer.from(
      'sep=;\r\nCódigo;Cantidad;Ubicación\r\nA-1001-1  ;1.501,5;Ñuñoa\r\n',
      'latin1',
    ).toString('latin1');
    const file = path.join(place.directory, 'excel.csv');
    writeFileSync(file, text, 'latin1');
    const refused = await at.json(['push', 'stock', file, '--branch', 'sub-1', '--wait']);
    expect(refused.code).toBe(3);
    expect(refused.document.problems).toMatchObject([
      { line: 3, message: expect.stringContaining('--decimal comma') },
    ]);
    const taken = await at.json(['push', 'stock', file, '--branch', 'sub-1', '--decimal', 'comma', '--wait']);
    expect(taken, taken.stderr).toMatchObject({ code: 0, document: { done: 1 } });
    expect(taken.stderr).toContain('read as Windows-1252');
    expect(taken.stderr).toContain('Columns that are passed over: "Ubicación".');
    expect(place.sandbox.control.stockOf(1001, 'sub-1')).toBe(1501.5);
    const empty = await at.run(['push', 'stock', '-', '--format', 'csv'], '\n');
    expect(empty.stderr).toContain('The file has no header.');
  });
});

describe('a whole inventory', () => {
  test('sends only what differs', async () => {
    await at.run(['push', 'stock', '-', '--wait'], '[{"externalId":"A-1001-1","qty":5}]');
    const counted = inventory();
    const different = counted.slice(0, 3);
    const lines = counted.map(({ externalId, qty }) => `${externalId},${qty}`);
    for (const [i, { externalId, qty }] of different.entries()) lines[i] = `${externalId},${qty + 7}`;
    const text = `externalId,qty\n${lines.join('\n')}\n`;
    const preview = await at.json(['push', 'stock', '-', '--full', '--branch', 'sub-1', '--dry-run'], text);
    expect(preview).toMatchObject({
      code: 0,
      document: { send: 3, unchanged: 0, inventory: { different: 3, missing: 0, hold: null } },
    });
    const before = stockCalls();
    const { code, document } = await at.json(
      ['push', 'stock', '-', '--full', '--branch', 'sub-1', '--wait'],
      text,
    );
    expect({ code, ...document }).toMatchObject({ code: 0, done: 3, inventory: { different: 3 } });
    expect(stockCalls() - before).toBe(1);
    for (const { sku, qty } of different) {
      expect(place.sandbox.control.stockOf(sku, 'sub-1')).toBe(qty + 7);
    }
  });

  test('sends what the mirror is not sure of, and does not call it different', async () => {
    const doubted = inventory()[5];
    const doubt = (uncertain: number) => {
      const db = new Database(path.join(place.storage, 'mirror.db'));
      db.prepare('UPDATE _stocks SET uncertain = ? WHERE sku = ? AND subsidiary_id = ?').run(
        ...[uncertain, String(doubted?.sku), 'sub-1'],
      );
      db.close();
    };
    doubt(1);
    const text = `externalId,qty\n${inventory()
      .map(({ externalId, qty }) => `${externalId},${qty}`)
      .join('\n')}`;
    const { code, stdout } = await at.run(
      ['push', 'stock', '-', '--full', '--branch', 'sub-1', '--dry-run'],
      text,
    );
    expect(code).toBe(0);
    expect(stdout).toContain('0 differ from the mirror');
    expect(stdout).toContain('1 say what it has, but the platform or your last count may differ');
    expect(stdout).toContain('Would be sent: 1 in 1 call.');
    expect(stdout).toMatch(
      /The mirror has \d+; an answer of the platform was lost, so it may have another value\./,
    );
    const sent = await at.json(['push', 'stock', '-', '--full', '--branch', 'sub-1', '--wait'], text);
    expect(sent).toMatchObject({ code: 0, document: { done: 1, inventory: { different: 0, unsure: 1 } } });
    doubt(0);
  });

  describe('that does not name everything', () => {
    const full = ['push', 'stock', '-', '--full', '--branch', 'sub-1'];
    const csv = (counted: { externalId: string; qty: number | string }[]) =>
      `externalId,qty\n${counted.map(({ externalId, qty }) => `${externalId},${qty}`).join('\n')}\n`;
    /** Returns the inventory without its last three stocks, and these three, of which the first is zero already. */
    const lacking = async () => {
      const [sold] = inventory().slice(-3);
      await at.run(
        ['push', 'stock', '-', '--branch', 'sub-1', '--wait'],
        csv([{ externalId: sold?.externalId ?? '', qty: 0 }]),
      );
      const all = inventory();
      return { named: all.slice(0, -3), unnamed: all.slice(-3) };
    };
    const onPlatform = (counted: { sku: number }[]) =>
      counted.map(({ sku }) => place.sandbox.control.stockOf(sku, 'sub-1'));

    test('says what stays on sale, and leaves it so', async () => {
      const { named, unnamed } = await lacking();
      const { code, stdout } = await at.run(full, csv(named));
      expect(code).toBe(0);
      expect(stdout).toContain(`Not named are 3 of ${named.length + 3} known stocks: sku:`);
      expect(stdout).toContain('2 of them keep their quantity and stay on sale.');
      expect(stdout).toContain('--missing zero');
      expect(onPlatform(unnamed)).toEqual(unnamed.map(({ qty }) => qty));
      expect((await at.run(['push', 'stock', '--help'])).stdout).toMatch(/--missing <what>/);
      const bare = await at.run(['push', 'stock', '-', '--missing', 'zero'], csv(named));
      expect(bare).toMatchObject({ code: 2, stdout: '' });
    });

    test('sets it to zero where that is said, shown beforehand', async () => {
      const { named, unnamed } = await lacking();
      const preview = await at.json([...full, '--missing', 'zero', '--dry-run'], csv(named));
      expect(preview).toMatchObject({
        code: 0,
        document: {
          send: 2,
          inventory: { different: 0, missing: 3, missingNotZero: 2, missingBecome: 'zero' },
        },
      });
      const told = (await at.run([...full, '--missing', 'zero', '--dry-run'], csv(named))).stdout;
      expect(told).toContain('2 of them go to 0');
      expect(told).toMatch(/ - +sent .* qty 0 +The file does not name it\. The mirror has \d/);
      expect(onPlatform(unnamed)).toEqual(unnamed.map(({ qty }) => qty));
      const sent = await at.json([...full, '--missing', 'zero', '--wait'], csv(named));
      expect(sent).toMatchObject({ code: 0, document: { done: 2 } });
      expect(onPlatform(unnamed)).toEqual([0, 0, 0]);
      expect(onPlatform(named)).toEqual(named.map(({ qty }) => qty));
      await at.run(['push', 'stock', '-', '--branch', 'sub-1', '--wait'], csv(unnamed));
    });

    test('sets it to zero beside an article that is not sold online, too', async () => {
      const { named, unnamed } = await lacking();
      const text = csv([...named, { externalId: 'IN-THE-STORE-ONLY', qty: 4 }]);
      const result = await at.json([...full, '--missing', 'zero', '--dry-run'], text);
      expect(result.document).toMatchObject({ send: 2, inventory: { missingNotZero: 2, unclear: 0 } });
      expect(onPlatform(unnamed)).toEqual(unnamed.map(({ qty }) => qty));
    });

    test('sets nothing to zero that a line may have counted that cannot be read', async () => {
      const { named, unnamed } = await lacking();
      const text = csv([...named, { externalId: unnamed[1]?.externalId ?? '', qty: 'x' }]);
      const result = await at.run([...full, '--missing', 'zero', '--wait'], text);
      expect(result.code).toBe(3);
      expect(result.stdout).toContain('a line that cannot be used or placed may be what is missing');
      expect(onPlatform(unnamed)).toEqual(unnamed.map(({ qty }) => qty));
    });

    test('holds zeros that are too many for a person', async () => {
      const { named, unnamed } = await lacking();
      const env = { ...place.env, TILLSYNC_GUARD_ZERO_ITEMS_MAX: '1' };
      const held = await commandsAt({ env }).json([...full, '--missing', 'zero', '--wait'], csv(named));
      expect(held).toMatchObject({ code: 3, document: { held: 2, done: 0 } });
      expect(held.document.problems).toMatchObject([
        { state: 'held', unnamed: expect.stringMatching(/^sku /) },
        {},
      ]);
      expect(onPlatform(unnamed)).toEqual(unnamed.map(({ qty }) => qty));
      const ids = held.document.problems.map(({ changeId }: { changeId: number }) => String(changeId));
      expect((await at.run(['outbox', 'discard', ...ids])).code).toBe(0);
    });
  });

  test('does not pass over a line for which an older value is still in line', async () => {
    const [{ externalId, sku, qty } = { externalId: '', sku: 0, qty: 0 }] = inventory();
    await at.run(
      ['push', 'stock', '-', '--branch', 'sub-1'],
      JSON.stringify([{ externalId, qty: qty + 50 }]),
    );
    const text = inventory().map((each) => `${each.externalId},${each.qty}`);
    const result = await at.json(
      ['push', 'stock', '-', '--full', '--branch', 'sub-1', '--wait'],
      `externalId,qty\n${text.join('\n')}`,
    );
    expect(result).toMatchObject({ code: 0, document: { inventory: { different: 0, unsure: 1 }, done: 1 } });
    expect(place.sandbox.control.stockOf(sku, 'sub-1')).toBe(qty);
  });

  test('that lacks too much is held for a person, and released by one', async () => {
    const [first] = inventory();
    const text = JSON.stringify([{ externalId: first?.externalId, qty: 77 }]);
    const held = await at.json(['push', 'stock', '-', '--full', '--branch', 'sub-1', '--wait'], text);
    expect(held).toMatchObject({ code: 3, document: { held: 1, done: 0, problems: [{ state: 'held' }] } });
    const { document } = await at.json(['outbox', 'list', '--state', 'held']);
    expect(document.changes).toMatchObject([{ heldGuard: 'missing-share', body: { qty: 77 } }]);
    const released = await at.json(['outbox', 'release', '--guard', 'missing-share']);
    expect(released).toMatchObject({ code: 0, document: { released: 1 } });
  });

  test('is refused before there is a catalogue to compare it with', async () => {
    const other = await openWorkplace(22);
    const result = await commandsAt(other).run(['push', 'stock', '-', '--full'], 'sku,qty\n1,1\n');
    await other.close();
    expect(result.code).toBe(1);
    expect(result.stderr).toMatch(/tillsync .*--config \S+ sync catalog/);
  });
});

test('a file of product changes is merged by product and sent', async () => {
  const { code, document } = await at.json(
    ['push', 'products', '-', '--wait'],
    'sku,price,name,show\n1001,4321,,\n1001,,Nuevo nombre,\n1003,12.5,,maybe\n1004,,,\n',
  );
  expect(code).toBe(3);
  expect(document).toMatchObject({ items: 4, unreadable: 2, done: 2 });
  const product = place.sandbox.control.products().find(({ children }) => children[0]?.sku === 1001);
  expect(product).toMatchObject({ name: 'Nuevo nombre', children: [{ price: 4321 }] });
});

describe('waiting', () => {
  test('is left to a daemon that sends', { tags: ['bulk'] }, async () => {
    const daemon = await place.run();
    const alone = 'No daemon is sending';
    const set = (qty: number) =>
      at.run(['stock', 'set', '--external-id', 'A-1001-1', '--qty', String(qty), '--wait']);
    await until('the daemon sends', async () => !(await set(31)).stderr.includes(alone));
    const sent = await set(32);
    expect(await daemon.end('SIGTERM')).toBe(0);
    expect(sent.code).toBe(0);
    expect(sent.stderr).not.toContain(alone);
    expect(place.sandbox.control.stockOf(1001, 'sub-1')).toBe(32);
  });

  test('ends at Ctrl-C with the change in line, and without tokens with 4', { tags: ['bulk'] }, async () => {
    const { control } = place.sandbox;
    control.setFault({ kind: 'status', endpoint: 'product.stock.put' });
    control.setFault({ kind: 'status', endpoint: 'product.stock.batch' });
    const stop = new AbortController();
    const running = at.run(['push', 'stock', '-', '--wait'], '[{"externalId":"A-1001-1","qty":40}]', stop);
    await until(
      'it was tried',
      () =>
        control.calls('product.stock.batch').at(-1)?.status === 500 ||
        control.calls('product.stock.put').at(-1)?.status === 500,
    );
    stop.abort();
    const stopped = await running;
    expect(stopped.code).toBe(130);
    expect(stopped.stderr).toContain('Still queued: 1 change.');
    control.clearFaults();
    control.expireAccessTokens();
    control.revokeRefreshTokens();
    const locked = await at.run(['push', 'stock', '-', '--wait'], '[{"externalId":"A-1001-1","qty":41}]');
    expect(locked.code).toBe(4);
    expect(locked.stderr).toContain('Still queued: 1 change.');
    const pair = control.issueTokens();
    expect((await at.run(['auth', 'set'], pair.refreshToken)).code).toBe(0);
    expect(
      (await at.json(['push', 'stock', '-', '--wait'], '[{"externalId":"A-1001-1","qty":42}]')).code,
    ).toBe(0);
    expect(control.stockOf(1001, 'sub-1')).toBe(42);
  });
});

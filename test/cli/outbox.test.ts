import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openWorkplace, type Workplace } from '../support/workplace.ts';
import { commandsAt } from './invoke.ts';

let place: Workplace;
let at: ReturnType<typeof commandsAt>;

beforeAll(async () => {
  place = await openWorkplace(41);
  at = commandsAt(place);
  expect((await at.run(['sync', 'catalog'])).code).toBe(0);
});
afterAll(() => place.close());

describe('a single change', () => {
  test.each([
    [['--external-id', 'A-1001-1', '--qty', '1,5'], 'qty "1,5" is not a number'],
    [['--external-id', 'A-1001-1', '--qty', 'NaN'], 'is not a number'],
    [['--external-id', 'A-1001-1', '--qty', 'Infinity'], 'is not a number'],
    [['--external-id', 'A-1001-1', '--qty', '-x'], 'is not a number'],
    [['--external-id', 'A-1001-1', '--qty', '1e3'], 'is not a number'],
    [['--external-id', 'A-1001-1', '--qty', '0.1000000000000000055511'], 'is not a number'],
    [['--external-id', 'A-1001-1', '--qty', '5', '--show', 'yes'], 'neither true nor false'],
    [['--sku', '007', '--qty', '5'], 'sku "007"'],
    [['--qty', '5'], 'Neither externalId nor sku'],
    [['--external-id', 'A-1001-1'], 'required option'],
  ])('of stock is taken exactly as typed or not at all: %j', async (words, message) => {
    const result = await at.run(['stock', 'set', ...words]);
    expect(result).toMatchObject({ code: 2, stdout: '' });
    expect(result.stderr).toContain(message);
  });

  test('of a product needs something to change', async () => {
    expect((await at.run(['product', 'set', '--sku', '1001'])).stderr).toContain('None of price');
    expect((await at.run(['product', 'set', '--sku', '1001', '--price', 'cheap'])).code).toBe(2);
    expect((await at.json(['outbox', 'list'])).document.changes).toEqual([]);
  });

  test('arrives, and a refused or ambiguous one says why', async () => {
    const price = await at.json(['product', 'set', '--sku', '1001', '--price', '4321.5', '--wait']);
    expect(price).toMatchObject({ code: 0, document: { state: 'done' } });
    const { control } = place.sandbox;
    expect(control.products()[0]?.children[0]?.price).toBe(4321.5);
    const ambiguous = await at.json(['stock', 'set', '--external-id', 'E-1002', '--qty', '4']);
    expect(ambiguous).toMatchObject({ code: 3, document: { state: 'rejected' } });
    expect(ambiguous.document.candidates).toHaveLength(3);
    const named = ['stock', 'set', '--external-id', 'E-1002', '--qty', '4', '--subsidiary-id', 'sub-2'];
    expect((await at.run([...named, '--wait'])).code).toBe(0);
    expect(control.stockOf(1002, 'sub-2')).toBe(4);
  });
});

describe('the outbox', () => {
  test('is listed by state and kind', async () => {
    const { document } = await at.json(['outbox', 'list', '--state', 'rejected']);
    expect(document.counts).toMatchObject({ pending: 0, rejected: 1 });
    expect(document.changes).toMatchObject([{ kind: 'stock', body: { externalId: 'E-1002', qty: 4 } }]);
    expect((await at.json(['outbox', 'list', '--kind', 'product'])).document.changes).toHaveLength(1);
    const found = async (...words: string[]) =>
      (await at.json(['outbox', 'list', ...words])).document.changes.length;
    expect(await found('--target', 'E-1002')).toBe(2);
    expect(await found('--target', 'E-9999')).toBe(0);
    expect(await found('--reference', 'nobody')).toBe(0);
    expect(await found('--since', '2199-01-01')).toBe(0);
    expect(await found('--since', '2020-01-01')).toBeGreaterThan(1);
    expect((await at.run(['outbox', 'list', '--state', 'gone'])).code).toBe(2);
    expect((await at.run(['outbox', 'list'])).stdout).toMatch(/^CHANGE +KIND +STATE/);
  });

  test('retries what was rejected once it can be told what it is for', async () => {
    const { document } = await at.json(['outbox', 'list', '--state', 'rejected']);
    const { changeId } = document.changes[0];
    const still = await at.run(['outbox', 'retry', String(changeId)]);
    expect(still.code).toBe(1);
    expect(still.stderr).toContain('is sold in several places');
    const later = ['stock', 'set', '--external-id', 'LATER-1', '--qty', '3'];
    const unknown = await at.json([...later, '--wait']);
    expect(unknown).toMatchObject({ code: 3, document: { state: 'rejected' } });
    const [template] = place.sandbox.control.products();
    const [child] = template?.children ?? [];
    if (!template || !child) throw new Error('The sandbox has no products.');
    const integrations = child.integrations
      .slice(0, 1)
      .map((each) => ({ ...each, productIdPosA: 'LATER-1' }));
    const children = [{ ...child, sku: 9001, integrations }];
    place.sandbox.control.putProduct({ ...template, id: 'later', name: 'Later', children });
    await at.run(['sync', 'catalog']);
    const retried = await at.json(['outbox', 'retry', '--all']);
    expect(retried.code).toBe(3);
    const [ambiguous, found] = retried.document.changes;
    expect(ambiguous).toMatchObject({ ok: false });
    expect(found).toMatchObject({ changeId: unknown.document.changeId, ok: true });
    expect(found.message).toMatch(/handed over again as change \d+, which is pending/);
  });

  test('discards what has not left, and says of each what cannot be discarded', async () => {
    const [waiting] = (await at.json(['outbox', 'list', '--state', 'pending'])).document.changes;
    const result = await at.json(['outbox', 'discard', String(waiting.changeId), '1', '999']);
    expect(result.code).toBe(3);
    expect(result.document.changes.map(({ ok }: { ok: boolean }) => ok)).toEqual([true, false, false]);
    expect((await at.run(['outbox', 'discard', 'x'])).code).toBe(2);
    expect((await at.run(['outbox', 'retry'])).code).toBe(2);
    expect((await at.run(['outbox', 'release', '--all', '--guard', 'zero-items'])).code).toBe(2);
  });

  test('discards rejected changes together, by a part of what the list says in BY', async () => {
    const csv = ['external_id;sku;qty', 'A-1001-1;1002;1', 'A-1001-1;1003;1'];
    expect((await at.run(['push', 'stock', '-'], csv.join('\n'))).code).toBe(3);
    const discard = (...words: string[]) => at.run(['outbox', 'discard', '--state', 'rejected', ...words]);
    expect((await discard('--origin', 'standard')).stdout).toBe('0 changes discarded.\n');
    expect((await discard('--origin', 'standard input')).stdout).toBe('2 changes discarded.\n');
    expect((await discard('1')).code).toBe(2);
    expect((await at.run(['outbox', 'discard', '--origin', 'inbox', '7'])).code).toBe(2);
  });

  test('releases a price that a guard holds', async () => {
    const held = await at.json(['product', 'set', '--sku', '1001', '--price', '99500', '--wait']);
    expect(held).toMatchObject({ code: 3, document: { state: 'held' } });
    const id = String(held.document.changeId);
    expect(await at.run(['outbox', 'release', id])).toMatchObject({
      code: 0,
      stdout: `Change ${id} was released.\n`,
    });
    expect((await at.run(['outbox', 'release', id])).code).toBe(1);
  });
});

describe('outbox undo', () => {
  const set = (sku: string, qty: number) => `A-${sku}-1;${qty}`;
  const push = (qty: number, ...more: string[]) =>
    at.run(['push', 'stock', '-', '--wait', ...more], ['external_id;qty', set('1001', qty)].join('\n'));

  test('hands over what a wrong inventory replaced, with a preview, and is audited', async () => {
    const { control } = place.sandbox;
    const qty = () => control.stockOf(1001, 'sub-1');
    expect((await push(17)).code).toBe(0);
    const since = new Date(Date.now()).toISOString();
    expect((await push(0)).code).toBe(0);
    expect(qty()).toBe(0);
    const which = ['outbox', 'undo', '--file', 'standard input', '--since', since];
    const preview = await at.run([...which, '--dry-run']);
    expect(preview).toMatchObject({ code: 0 });
    expect(preview.stdout).toMatch(/sku:1001@sub-1 +qty 0 +qty 17 +handed over/);
    expect(qty()).toBe(0);
    const undone = await at.json(which);
    expect(undone).toMatchObject({ code: 0, document: { handedOver: 1, left: 0 } });
    const [change] = (await at.json(['outbox', 'list', '--state', 'pending'])).document.changes;
    expect(change).toMatchObject({
      body: { qty: 17 },
      reference: `undo of file standard input, since ${since}`,
    });
    const audit = await at.run(['audit']);
    expect(audit.stdout).toContain('outbox.undo');
    expect((await at.run(['outbox', 'undo'])).code).toBe(2);
    const unknown = await at.run(['outbox', 'undo', '--file', 'other.csv', '--dry-run']);
    expect(unknown.stderr).toMatch(
      /Nothing from a file other\.csv can be undone\. What is held: .* outbox list --state held\. Who handed what over: .* outbox list; then/,
    );
    // The first undo changed the value, so a second one reports `changed-since`.
    const again = await at.json([...which, '--dry-run']);
    expect(again).toMatchObject({ code: 3, document: { lines: [{ verdict: 'changed-since' }] } });
  });
});

describe('order ack', () => {
  test('takes ids as words, lines or JSON, and says which orders nobody heard of', async () => {
    const order = place.sandbox.control.createOrder().internalOrderId;
    await at.run(['sync', 'orders']);
    const first = await at.json(['order', 'ack', order, 'unheard-1']);
    expect(first).toMatchObject({
      code: 3,
      document: { results: [{ orderId: order, state: 'new' }, { state: 'unheard' }] },
    });
    expect(first.stderr).toContain('unheard-1: noted');
    const again = await at.run(['order', 'ack'], `${order}\r\n\nunheard-2\n`);
    expect(again).toMatchObject({
      code: 3,
      stdout: '0 orders acknowledged, 1 were before, 1 noted that the mirror does not have yet.\n',
    });
    for (const input of [JSON.stringify([order]), JSON.stringify([`  ${order}    `])]) {
      expect((await at.json(['order', 'ack', '-'], input)).document.results).toEqual([
        { orderId: order, state: 'known' },
      ]);
    }
  });

  test('leaves out the lines that it names, and refuses what is no line', async () => {
    const [first, second] = [0, 1].map(() => place.sandbox.control.createOrder().internalOrderId);
    await at.run(['sync', 'orders']);
    const typed = await at.json(['order', 'ack', String(first), '--without', '1']);
    expect(typed).toMatchObject({ code: 0, document: { results: [{ orderId: first, state: 'new' }] } });
    const input = JSON.stringify([
      { orderId: second, without: [1, 99] },
      { orderId: second, without: '1' },
    ]);
    const { code, stderr } = await at.json(['order', 'ack'], input);
    expect(code).toBe(3);
    expect(stderr).toContain('The order has no line 99');
    expect(stderr).toContain('without is no list of line numbers: "1"');
    expect(await at.run(['order', 'ack', String(second), '--without', '0'])).toMatchObject({ code: 2 });
    const { stdout } = await at.run(['order', 'explain', String(first)]);
    expect(stdout).toContain('It is still to be booked: the POS left out line 1.');
  });

  test('is as of an event, and takes the rest where one lies ahead or is no number', async () => {
    const [first, second, third] = [0, 1, 2].map(() => place.sandbox.control.createOrder().internalOrderId);
    await at.run(['sync', 'orders']);
    const newest = (await at.json(['order', 'events', '--limit', '1'])).document.newestSeq;
    const input = JSON.stringify([
      { orderId: first, seq: newest + 1 },
      { orderId: second, seq: newest },
      { orderId: third, seq: '7' },
    ]);
    const { code, stderr, document } = await at.json(['order', 'ack'], input);
    expect(code).toBe(3);
    expect(document.results.map((each: { state: string }) => each.state)).toEqual([
      ...['rejected', 'new', 'rejected'],
    ]);
    expect(stderr).toContain(`${first}: not acknowledged. Event ${newest + 1} lies ahead`);
    expect(stderr).toContain(`${third}: not acknowledged. seq is no whole number of 0 or more: "7"`);
    const worded = await at.json(['order', 'ack', String(first), '--seq', String(newest)]);
    expect(worded.document.results).toEqual([{ orderId: first, state: 'new' }]);
  });

  test.each(['', '[1]', '[""]', '["a"', '["\\ud800"]', '{"a":1}\u0000'])(
    'takes nothing of %j',
    async (input) => {
      const result = await at.run(['order', 'ack'], input);
      expect(result).toMatchObject({ code: 2, stdout: '' });
      expect(result.stderr).toContain('No order was acknowledged');
    },
  );
});

test('a branch is named by either id, and one that is not configured is refused at once', async () => {
  const set = (branch: string) =>
    at.json(['stock', 'set', '--external-id', 'E-1002', '--qty', '6', '--branch', branch, '--wait']);
  const done = await set('sub-1');
  expect(done).toMatchObject({ code: 0, document: { state: 'done' } });
  expect(place.sandbox.control.stockOf(1002, 'sub-1')).toBe(6);
  const unknown = await set('B7');
  expect(unknown.code).toBe(2);
  expect(unknown.document.error).toMatchObject({ code: 'usage', hint: expect.stringContaining('sub-1') });
});

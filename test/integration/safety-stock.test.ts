import { afterEach, beforeEach, expect, it } from 'vitest';
import type { Config } from '../../src/config/config-type.ts';
import { silentLog } from '../../src/core/log.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { type Daemon, startDaemon } from '../../src/daemon/daemon.ts';
import { commandsAt } from '../cli/invoke.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { openWorkplace, SECRET, until, type Workplace } from '../support/workplace.ts';

let place: Workplace;
let daemon: Daemon;

beforeEach(async () => {
  place = await openWorkplace(37);
  daemon = await started({});
  await until('the catalogue is swept', () => daemon.services.stores.read(({ lookup }) => lookup.isComplete));
});
afterEach(async () => {
  await daemon.stop();
  expect(place.sandbox.control.violations()).toEqual([]);
  await place.close();
});

/** Returns the configuration as the commands read it from their file. */
const base = (): Config => ({ ...place.config, stock: { ...place.config.stock, holdBackUnbooked: false } });

/** Starts the daemon with the `changed` settings. */
function started(changed: Partial<Config>): Promise<Daemon> {
  return startDaemon({
    config: { ...base(), ...changed },
    secrets: { refreshToken: place.refreshToken, webhookSecrets: [SECRET] },
    clock: systemClock,
    random: seededRandom(3),
    log: silentLog,
  });
}

async function restart(changed: Partial<Config>): Promise<void> {
  await daemon.stop();
  daemon = await started(changed);
}

const withSafety = (safety: number) => ({ stock: { ...base().stock, safety } });
/** Returns the platform's quantities in both branches. */
const offered = () => ['sub-1', 'sub-2'].map((branch) => place.sandbox.control.stockOf(1002, branch));
const has = (...wanted: number[]) =>
  until(`the platform has ${wanted}`, () => JSON.stringify(offered()) === JSON.stringify(wanted));

it('the platform gets the new numbers when the configuration or a person keeps back another number', async () => {
  const counts = ['sub-1', 'sub-2'].map((subsidiaryId) => ({
    kind: 'stock' as const,
    change: { sku: '1002', subsidiaryId, qty: 10 },
  }));
  const accepted = await daemon.services.outbox.submit(counts, 'http');
  expect(accepted.map(({ state, message }) => [state, message])).toEqual([
    ['pending', null],
    ['pending', null],
  ]);
  await has(10, 10);

  await restart(withSafety(2));
  await has(8, 8);
  const branches = place.config.branches.map((branch) =>
    branch.subsidiaryId === 'sub-1' ? { ...branch, safety: 5 } : branch,
  );
  const configured = { ...withSafety(2), branches };
  await restart(configured);
  await has(5, 8);

  // Sets the rule as a person does in another process, which shares the mirror with the running daemon.
  await daemon.services.stores.write(({ safety }) => safety.set({ sku: '1002', subsidiaryId: null, qty: 9 }));
  await has(1, 1);
  await restart(configured);
  await has(1, 1);
  await daemon.services.stores.write(({ safety }) => safety.remove({ sku: '1002', subsidiaryId: null }));
  await has(5, 8);

  // The next rule does not give back stock that is sold online in the meantime.
  place.sandbox.control.createOrder({ subsidiaryId: 'sub-2', items: [{ sku: 1002, qty: 3 }] });
  await has(5, 5);
  await until('the order is here', () =>
    daemon.services.stores.read(({ db }) => db.prepare('SELECT count(*) FROM orders').pluck().get() === 1),
  );
  await restart({ ...configured, ...withSafety(1) });
  await has(5, 6);
  await restart({});
  await has(10, 7);
});

it('the command sets, shows and removes it, and what it changes is seen everywhere', async () => {
  const at = commandsAt(place);
  const target = { sku: '1002', subsidiaryId: 'sub-1' };
  await daemon.services.outbox.submit([{ kind: 'stock', change: { ...target, qty: 10 } }], 'http');
  await until('it is there', () => offered()[0] === 10);

  const set = await at.json(['stock', 'safety', '1002', '3', '--branch', 'sub-1']);
  expect(set.document).toEqual({
    ...target,
    qty: 3,
    stocks: [{ ...target, counted: 10, reserved: 0, safety: 3, offered: 7 }],
  });
  const mirrored = "SELECT qty FROM stocks WHERE sku = '1002' AND subsidiary_id = 'sub-1'";
  await until('the platform has less, and says so', () =>
    daemon.services.stores.read(({ db }) => db.prepare(mirrored).pluck().get() === 7),
  );
  expect(offered()[0]).toBe(7);
  const list = await at.json(['stock', 'safety']);
  expect(list.document.rules).toEqual([{ ...target, qty: 3, from: 'command' }]);
  const [shown] = (await at.json(['product', 'show', '--sku', '1002'])).document.products;
  const stocks = shown.skus.find(({ sku }: { sku: string }) => sku === '1002').stocks;
  expect(stocks).toContainEqual(expect.objectContaining({ qty: 7, counted: 10, safety: 3, offered: 7 }));
  const text = (await at.run(['product', 'show', '--sku', '1002'])).stdout;
  expect(text).toMatch(/QTY +SHOW +COUNTED +KEPT BACK +OFFERED/);
  expect((await at.run(['outbox', 'list'])).stdout).toContain('the safety stock of 3 is kept back.');

  const preview = await at.json(
    ['push', 'stock', '-', '--dry-run', '--branch', 'sub-1'],
    '[{"sku":1002,"qty":12}]',
  );
  expect(preview.document.changes).toMatchObject([{ verdict: 'send', values: { qty: 9 } }]);
  expect(preview.document.changes[0].why).toContain('Of 12 the safety stock of 3 is kept back.');
  const typed = await at.run(['stock', 'set', '--sku', '1002', '--branch', 'sub-1', '--qty', '12', '--wait']);
  expect(typed.stdout).toContain('The safety stock of 3 is kept back, so no more than 9 are offered.');
  expect(offered()[0]).toBe(9);

  expect((await at.run(['stock', 'safety', '1002', '--remove'])).code).toBe(1);
  expect((await at.run(['stock', 'safety', '1002', '--remove', '--branch', 'sub-1'])).code).toBe(0);
  await until('all is offered', () => offered()[0] === 12);
  for (const wrong of [
    ['1002', 'x'],
    ['1002', '-1'],
    ['1002', '1', '2'],
    ['--remove'],
    ['1002', '1', '--remove'],
  ]) {
    expect((await at.run(['stock', 'safety', ...wrong])).code, wrong.join(' ')).toBe(2);
  }
});

it('a whole inventory is compared with what is offered', async () => {
  const at = commandsAt(place);
  // The configuration file of the commands names fewer branches than the daemon's own configuration.
  expect((await at.run(['sync', 'catalog'])).code).toBe(0);
  expect((await at.run(['stock', 'safety', 'no-such', '1'])).code).toBe(1);
  await at.run(['stock', 'safety', '1002', '3']);
  const push = (qty: number, ...more: string[]) =>
    at.json(['push', 'stock', '-', '--full', '--branch', 'sub-1', ...more], `[{"sku":1002,"qty":${qty}}]`);
  await daemon.services.outbox.submit(
    [{ kind: 'stock', change: { sku: '1002', subsidiaryId: 'sub-1', qty: 10 } }],
    'http',
  );
  await until('it is there', () => offered()[0] === 7);
  await until('nothing waits', () => {
    const { pending, sending } = daemon.services.outbox.counts();
    return pending + sending === 0;
  });
  expect((await push(10, '--dry-run')).document.inventory).toMatchObject({
    different: 0,
    unsure: 0,
    unchanged: 1,
  });
  expect((await push(7, '--dry-run')).document.inventory).toMatchObject({ different: 1 });
});

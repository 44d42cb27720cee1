import { readFileSync, writeFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { readChange } from '../../src/outbox/intake/change.ts';
import { prepareRestoredMirror } from '../../src/support/restored-mirror.ts';
import { commandsAt } from '../cli/invoke.ts';
import { product } from '../outbox/outbox-fixture.ts';
import { type BranchStore, type HubStore, openChain } from './chain-rig.ts';

/** Tests what a POS and a person submit at a branch, which is the same as at a store without a hub. */

const TEA = product('p1', 'Tea', [
  { sku: '10', stocks: { 'sub-1': ['A', 5], 'sub-2': ['A', 7] } },
  { sku: '11', stocks: { 'sub-1': ['B', 3] } },
]);
const BREAD = product('p3', 'Bread', [{ sku: '30', stocks: { 'sub-1': ['D', 0], 'sub-2': ['E', 9] } }]);
/** TEA with a second id of the POS. */
const TWO_IDS = {
  ...TEA,
  children: TEA.children.map((sku) => ({
    ...sku,
    integrations: sku.integrations.map((each) => ({ ...each, productIdPosA: `P-${each.extId}` })),
  })),
};

const OUTBOX = "SELECT target, json_extract(body, '$.qty') AS qty, state FROM outbox ORDER BY target";
const at = (branch: BranchStore) =>
  commandsAt({ env: { PATH: process.env.PATH ?? '', TILLSYNC_CONFIG: branch.configFile } });

function accept(branch: BranchStore, values: object[]) {
  const items = values.map((value) => readChange('stock', value));
  const how = { source: 'inbox', guards: branch.services.config.guard } as const;
  return branch.services.stores.write(({ intake }) => intake.accept(items, how));
}

/** Returns the stock changes that wait at the hub to be sent to the platform. */
const pending = (hub: HubStore) => hub.rows(`SELECT * FROM (${OUTBOX}) WHERE state = 'pending'`);

it('takes each name of one stock for the same, whoever names the branch', async () => {
  const { hub, branches, settle } = await openChain();
  await hub.sweep([TWO_IDS]);
  await settle();
  const [branch] = branches;
  const accepted = await accept(branch, [
    { sku: 10, qty: 9 },
    { sku: 10, subsidiaryExternalId: 'B1', qty: 8 },
    { externalId: 'A', subsidiaryExternalId: 'B1', qty: 7 },
    { externalId: 'P-A', subsidiaryId: 'sub-1', qty: 6 },
    { sku: 10, subsidiaryExternalId: 'B1', qty: 0 },
  ]);
  expect(accepted.map(({ state, message }) => message ?? state)).toEqual(Array(5).fill('pending'));
  expect(branch.rows(OUTBOX)).toEqual([{ target: 'sku:10@sub-1', qty: 0, state: 'pending' }]);
  await settle();
  expect(hub.rows(OUTBOX)).toEqual([{ target: 'sku:10@sub-1', qty: 0, state: 'pending' }]);
});

it('does so before the catalogue has come, and of what it does not have', async () => {
  const { hub, branches, settle } = await openChain();
  const [branch] = branches;
  const counts = [
    { externalId: 'A', subsidiaryExternalId: 'B1', qty: 8 },
    { externalId: 'A', qty: 0 },
  ];
  await accept(branch, counts);
  expect(branch.rows(OUTBOX)).toEqual([{ target: 'ext:A', qty: 0, state: 'pending' }]);
  await hub.sweep([TEA]);
  await settle();
  expect(pending(hub)).toEqual([{ target: 'sku:10@sub-1', qty: 0, state: 'pending' }]);
  await accept(branch, [
    { externalId: 'new', subsidiaryId: 'sub-1', qty: 8 },
    { externalId: 'new', qty: 0 },
  ]);
  expect(branch.rows(`SELECT * FROM (${OUTBOX}) WHERE state = 'pending'`)).toEqual([
    { target: 'ext:new', qty: 0, state: 'pending' },
  ]);
});

it('leaves it to the hub to refuse the stock of another branch', async () => {
  const { hub, branches, settle } = await openChain();
  await hub.sweep([TEA]);
  await settle();
  const [branch] = branches;
  await accept(branch, [
    { externalId: 'A', subsidiaryId: 'sub-2', qty: 8 },
    { externalId: 'A', subsidiaryExternalId: 'B2', qty: 8 },
  ]);
  await settle();
  const why = (name: string) => ({
    message: `Branch B1 may change only its own stock, not that of ${name}.`,
  });
  expect(branch.rows('SELECT message FROM outbox ORDER BY change_id')).toEqual([why('sub-2'), why('B2')]);
  expect(pending(hub)).toEqual([]);
});

it('compares a whole inventory with the stocks of the branch, and hands all of it up', async () => {
  const { hub, branches, settle } = await openChain();
  const [branch] = branches;
  const { run, json } = at(branch);
  const push = ['push', 'stock', '-', '--full', '--missing', 'zero'];
  // The hub has not completed its first sweep yet.
  await settle();
  const early = await run(push, 'external_id;qty\nA;5\n');
  expect(early).toMatchObject({ code: 1, stdout: '' });
  expect(early.stderr).toContain('It comes from the hub');
  await hub.sweep([TEA, BREAD]);
  await settle();
  for (const [branchOption, qty] of [
    [[], 5],
    [['--branch', 'B1'], 6],
    [['--branch', 'sub-1'], 7],
  ] as const) {
    const pushed = await json([...push, ...branchOption], `external_id;qty\nA;${qty}\n`);
    expect(pushed, pushed.stderr).toMatchObject({
      code: 0,
      document: { pending: 3, inventory: { known: 3, missing: 2, missingNotZero: 2 } },
    });
    await settle();
    expect(pending(hub)).toEqual([
      { target: 'sku:10@sub-1', qty, state: 'pending' },
      { target: 'sku:11@sub-1', qty: 0, state: 'pending' },
      { target: 'sku:30@sub-1', qty: 0, state: 'pending' },
    ]);
  }
  const other = await run([...push, '--branch', 'B2'], 'external_id;qty\nA;5\n');
  expect(other).toMatchObject({ code: 2 });
  expect(other.stderr).toContain('names no configured branch');
});

it('knows that the catalogue is whole by the word of the hub, and confirms no quantity by it', async () => {
  const { hub, branches, clock, settle } = await openChain();
  const [branch] = branches;
  const isComplete = () => branch.services.stores.read(({ lookup }) => lookup.isComplete);
  await hub.sweep([TEA]);
  await branch.follower.hello();
  await hub.publish();
  expect(isComplete()).toBe(false);
  await branch.follow();
  expect(isComplete()).toBe(false);
  await settle();
  expect(isComplete()).toBe(true);
  const read = 'SELECT subsidiary_id AS id, as_of_seq AS seq FROM _sweeps';
  expect(branch.rows(read)).toEqual([{ id: null, seq: 0 }]);
  expect(branch.rows('SELECT DISTINCT confirmed_seq AS seq FROM _stock_beliefs')).toEqual([{ seq: 0 }]);
  // This backup of the branch is restored below.
  const backup = `${branch.mirrorFile}.backup`;
  branch.services.mirror.read((db) => db.prepare('VACUUM INTO ?').run(backup));
  const continueAfterSeq = branch.services.mirror.orders.newestSeq();
  await branch.stop();
  const auditEvent = { who: 'a person', action: 'restore' } as const;
  prepareRestoredMirror(backup, { continueAfterSeq, audited: [], clock, auditEvent });
  branch.loseMirror();
  writeFileSync(branch.mirrorFile, readFileSync(backup));
  await branch.start();
  expect(isComplete()).toBe(false);
  await settle();
  expect(isComplete()).toBe(true);
});

it('keeps no safety stock back, and says where it is set', async () => {
  const { hub, branches, settle } = await openChain();
  await hub.sweep([TEA]);
  await settle();
  const [branch] = branches;
  const { run, json } = at(branch);
  for (const words of [['5'], ['5', '--branch', 'B1'], ['--remove']]) {
    const { code, stdout, stderr } = await run(['stock', 'safety', '1001', ...words]);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain('Run the command at the hub.');
  }
  expect(branch.rows('SELECT * FROM stock_safety')).toEqual([]);
  expect((await json(['config', 'check'])).document.warnings).toEqual([]);
  writeFileSync(branch.configFile, `${readFileSync(branch.configFile, 'utf8')}\n[stock]\nsafety = 3\n`);
  const shown = await json(['stock', 'safety']);
  expect(shown).toMatchObject({ code: 0, document: { rules: [], stocks: [] } });
  const checked = await json(['config', 'check']);
  expect(checked).toMatchObject({ code: 0, document: { ok: true } });
  expect(checked.document.warnings).toEqual([expect.stringMatching(/stock\.safety.*only its hub/)]);
  // Adds a safety stock rule, as if a person had made it before this tillsync became a branch.
  await branch.services.stores.write(({ safety }) => safety.set({ sku: '10', subsidiaryId: null, qty: 4 }));
  const left = await run(['stock', 'safety']);
  expect(left.stdout).toMatch(/10 .*4 .*command/);
  expect(left.stderr).toContain('At a branch none of this holds');
  const count = 'external_id;qty\nA;9\n';
  const previewed = await json(['push', 'stock', '-', '--dry-run'], count);
  expect(previewed.document.changes).toMatchObject([{ values: { qty: 9 }, why: 'The mirror has 5.' }]);
  const { stdout } = await run(['stock', 'set', '--external-id', 'A', '--qty', '9', '--branch', 'B1']);
  expect(stdout).toMatch(/is queued\.\n$/);
});

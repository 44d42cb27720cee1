import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { copyFileSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { connect, nkeyAuthenticator } from '@nats-io/transport-node';
import { identityToRecipient } from 'age-encryption';
import Database from 'better-sqlite3';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { HubKeys } from '../../src/link/hub-state.ts';
import { NatsBranchLink, NatsHubLink } from '../../src/link/nats.ts';
import { invitationText, readInvitation } from '../../src/link/server-config.ts';
import { identityOf } from '../../src/support/recovery-phrase.ts';
import { type BranchPlace, ChainPlace, rowsOf } from '../support/chain-place.ts';
import { freePort } from '../support/free-port.ts';
import { hasNatsServer } from '../support/nats-server.ts';
import { limitMs } from '../support/shared-config.ts';
import { type DaemonProcess, runCommand, until } from '../support/workplace.ts';

const BRANCHES = `[[branches]]
subsidiary_id = "sub-1"
external_id = "B1"
`;

interface Status {
  alarms: { key: string; message: string }[];
  freshness: { subject: string; state: string; message: string }[];
}

describe.skipIf(!hasNatsServer)('a hub that looks after its branches', () => {
  let chain: ChainPlace;
  let branch: BranchPlace;
  let daemon: DaemonProcess;

  const statusOf = async (env: Record<string, string>) =>
    JSON.parse((await runCommand(env, ['status', '--json'])).stdout) as Status;
  const ordersOf = (storage: string) =>
    rowsOf<{ order_id: string }>(storage, 'SELECT order_id FROM orders').map(({ order_id }) => order_id);

  beforeAll(async () => {
    chain = await ChainPlace.open(21, BRANCHES);
    await chain.startHub();
    branch = await chain.join('B1');
    daemon = await chain.start(branch);
  }, limitMs(120_000));

  afterAll(() => chain.close());

  it(
    'refuses a used invitation at once, and the key that the machine has stays good',
    async () => {
      const seeds = () => rowsOf(branch.storage, 'SELECT seed FROM link_key', 'state.db');
      const before = seeds();
      let startedMs = performance.now();
      let again = await chain.joinAs(branch);
      // The hub refuses it until the server, which reads its configuration each second, does.
      await until('the server refuses it', async () => {
        expect(again.code).toBe(1);
        if (!again.stderr.includes('was used already')) return true;
        startedMs = performance.now();
        again = await chain.joinAs(branch);
        return false;
      });
      expect(again.stderr).toMatch(/does not take this invitation of branch B1: it was used/);
      expect(again.stderr).toMatch(/branch invite B1/);
      expect(performance.now() - startedMs).toBeLessThan(limitMs(12_000));
      expect(seeds()).toEqual(before);
    },
    limitMs(60_000),
  );

  it(
    'keeps the key of a machine that works while another invitation is open or its address is wrong, and the new one joins late',
    async () => {
      const linkState = async () => {
        const { freshness } = await statusOf(branch.env);
        return freshness.find(({ subject }) => subject === 'hub.link')?.state;
      };
      const seeds = () =>
        rowsOf<{ seed: string; next_seed: string | null }>(
          branch.storage,
          'SELECT seed, next_seed FROM link_key',
          'state.db',
        );
      const [before] = seeds();
      const refused = await chain.hub.command('branch', 'invite', 'B1', '--expires-in', '31d');
      expect(refused).toMatchObject({ code: 2 });
      expect(refused.stderr).toMatch(/--expires-in 31d is not a duration from 1m to 30d/);
      const { stdout } = await chain.hub.command('branch', 'invite', 'B1', '--expires-in', '3d', '--json');
      const { invitation, expiresAt } = JSON.parse(stdout) as { invitation: string; expiresAt: string };
      expect(Date.parse(expiresAt) - Date.now()).toBeGreaterThan(2.9 * 86_400_000);
      const told = readInvitation(invitation);
      // Nothing listens at this address.
      const wrong = invitationText({ ...told, hub: `nats://127.0.0.1:${await freePort()}` });
      const config = readFileSync(branch.configFile, 'utf8');
      writeFileSync(branch.configFile, config.replace(told.hub, readInvitation(wrong).hub));
      const lost = await chain.joinAs({ ...branch, invitation: wrong });
      writeFileSync(branch.configFile, config);
      expect(lost.code).not.toBe(0);
      expect(lost.stderr).toMatch(/A key that this machine had is kept/);
      const [after] = seeds();
      expect(after?.seed).toBe(before?.seed);
      await daemon.end('SIGTERM');
      daemon = await chain.start(branch);
      await until('the key of before is good', async () => (await linkState()) === 'ok', 30_000);
      const late = await chain.joinAs({ ...branch, invitation });
      expect(late.code, late.stderr).toBe(0);
      expect(seeds()).toEqual([{ seed: after?.next_seed, next_seed: null }]);
      await daemon.end('SIGTERM');
      daemon = await chain.start(branch);
      await until('the new key is good', async () => (await linkState()) === 'ok', 30_000);
    },
    limitMs(150_000),
  );

  it(
    'gives a joining branch a key that the server knows when the invitation is printed, and a phrase if asked to',
    async () => {
      const other = chain.branchAt('other', await chain.invite('B1'));
      // `branch invite` itself notifies the server, without the daemon.
      expect(readFileSync(chain.serverFile, 'utf8')).toContain('DOWN.B1');
      const joined = await chain.joinAs(other);
      expect(joined.code, joined.stderr).toBe(0);
      const isTold = async () => {
        const { freshness } = await statusOf(branch.env);
        const link = freshness.find(({ subject }) => subject === 'hub.link');
        return link?.state === 'failing' && /does not know the key of branch B1/.test(link.message);
      };
      await until('the first machine is told', isTold, 60_000);
      await daemon.end('SIGTERM');
      const fresh = chain.branchAt('B1', await chain.invite('B1'));
      const { code, stdout, stderr } = await chain.joinAs(fresh, '--new-phrase', '--json');
      expect(code, stderr).toBe(0);
      // The words are shown once, and open the backups.
      const { phrase } = JSON.parse(stdout) as { phrase: string };
      const recipient = await identityToRecipient(identityOf(phrase) ?? '');
      const config = readFileSync(fresh.configFile, 'utf8');
      expect(config).toContain(`recipient = "${recipient}"`);
      expect(config).not.toContain(phrase.split(' ').slice(0, 3).join(' '));
      branch = fresh;
      daemon = await chain.start(branch);
    },
    limitMs(150_000),
  );

  it(
    'hears one of two machines with one key, and the other one says so',
    async () => {
      const linkOf = async (env: Record<string, string>) =>
        (await statusOf(env)).freshness.find(({ subject }) => subject === 'hub.link');
      // The hub accepts the process that reported its start last.
      await until('the first one is heard', async () => (await linkOf(branch.env))?.state === 'ok', 30_000);
      const twin = chain.branchAt('twin', '');
      copyFileSync(path.join(branch.storage, 'state.db'), path.join(twin.storage, 'state.db'));
      const text = readFileSync(branch.configFile, 'utf8')
        .replace(branch.storage, twin.storage)
        .replace(/listen = .*/, `listen = "127.0.0.1:${await freePort()}"`);
      writeFileSync(twin.configFile, text);
      // The copied daemon's lease is deleted, as if the copy came from a machine that was off.
      const db = new Database(path.join(twin.storage, 'state.db'));
      db.exec('DELETE FROM leases');
      db.close();
      const second = await chain.start(twin);
      await until('the second one is heard', async () => (await linkOf(twin.env))?.state === 'ok', 30_000);
      await until(
        'the first one says so',
        async () => (await linkOf(branch.env))?.state === 'failing',
        60_000,
      );
      expect((await linkOf(branch.env))?.message).toMatch(/Another machine works as branch B1/);
      await second.end('SIGTERM');
      await daemon.end('SIGTERM');
      daemon = await chain.start(branch);
      await until(
        'the first one is heard again',
        async () => (await linkOf(branch.env))?.state === 'ok',
        30_000,
      );
    },
    limitMs(150_000),
  );

  it(
    'tells at the hub what status and doctor say at the branch, as text and as JSON',
    async () => {
      const here = async (...words: string[]) => runCommand(branch.env, words);
      const there = async (word: string, ...words: string[]) =>
        chain.hub.command('branch', word, 'B1', ...words);
      // The page's address carries the key, which stays on its machine.
      const plain = (text: string) =>
        text
          .replace(/#key=\S+/, '#key=')
          .replace(/\d+[smhd]\b( \d+[smhd]\b)?/g, 'T')
          .replace(/\d{4}-[\d:.TZ-]+/g, 'AT');
      const asked = await there('status');
      expect(asked.code, asked.stderr).toBe(0);
      // The state may have changed between the two calls.
      const areSame = async () =>
        plain((await there('status')).stdout) === plain((await here('status')).stdout);
      await until('both say the same', areSame, 30_000);
      expect(asked.stdout).toMatch(/hub and branches: +OK/);
      const key = readFileSync(path.join(branch.storage, 'api-key'), 'utf8').trim();
      expect(key).not.toBe('');
      expect(asked.stdout).not.toContain(key);
      const document = JSON.parse((await there('status', '--json')).stdout);
      expect(Object.keys(document)).toEqual(Object.keys(JSON.parse((await here('status', '--json')).stdout)));
      expect(document).toMatchObject({ running: true, storage: branch.storage });
      const [ownChecks, checks] = [await here('doctor', '--json'), await there('doctor', '--json')];
      expect(checks.code).toBe(ownChecks.code);
      const levels = ({ stdout }: { stdout: string }) =>
        (JSON.parse(stdout) as { checks: { id: string; level: string }[] }).checks.map(
          ({ id, level }) => `${id} ${level}`,
        );
      expect(levels(checks)).toEqual(levels(ownChecks));
      expect((await there('doctor')).stdout).toMatch(/^ok {3}Hub and branches .*The link works/m);
    },
    limitMs(90_000),
  );

  it(
    'gets the bundle of a branch, without its key',
    async () => {
      const file = path.join(chain.directory, 'bundle-B1.tar.gz');
      const asked = await chain.hub.command('branch', 'bundle', 'B1', '--file', file, '--json');
      expect(asked.code, asked.stderr).toBe(0);
      const { bytes, files } = JSON.parse(asked.stdout) as { bytes: number; files: { name: string }[] };
      expect(bytes).toBe(statSync(file).size);
      const packed = execFileSync('tar', ['-tzf', file], { encoding: 'utf8' }).trim().split('\n');
      expect(packed).toEqual(files.map(({ name }) => `tillsync-bundle/${name}`));
      const text = execFileSync('tar', ['-xzOf', file], { encoding: 'utf8', maxBuffer: 2 ** 26 });
      expect(text).toContain('"hub.link"');
      expect(text).not.toMatch(/SU[A-Z2-7]{56}/);
      expect(readdirSync(branch.storage).filter((name) => name.startsWith('.asked'))).toEqual([]);
      const again = await chain.hub.command('branch', 'bundle', 'B1', '--file', file);
      expect(again.code).toBe(2);
      const text2 = await chain.hub.command('branch', 'bundle', 'B1', '--file', file, '--force');
      expect(text2.stdout).toMatch(/To look: tar -xzf/);
    },
    limitMs(90_000),
  );

  it(
    'says within seconds that a branch does not answer, with what the hub knows of it',
    async () => {
      const asked = async () => {
        const startedMs = performance.now();
        const { code, stdout, stderr } = await chain.hub.command('branch', 'status', 'B1', '--json');
        const { error } = JSON.parse(stdout) as { error: { code: string; message: string } };
        expect(stderr).toContain(error.message);
        return { code, error, tookMs: performance.now() - startedMs };
      };
      daemon.child.kill('SIGSTOP');
      const stopped = await asked();
      daemon.child.kill('SIGCONT');
      await daemon.end('SIGKILL' as NodeJS.Signals);
      const gone = await asked();
      for (const { code, error } of [stopped, gone]) {
        expect(code).toBe(1);
        expect(error.code).toBe('link-down');
        expect(error.message).toMatch(
          /^Branch B1 does not answer\. It was seen last .* ago \(20.*\), with tillsync .*\. (It had all|Entries that wait).* Changes that waited there: 0\.$/,
        );
      }
      expect(stopped.tookMs).toBeLessThan(limitMs(20_000));
      expect(gone.tookMs).toBeLessThan(limitMs(8_000));
      expect((await chain.hub.command('branch', 'doctor', 'B7')).code).toBe(1);
    },
    limitMs(90_000),
  );

  it(
    'gets an answer that is larger than a message may be, in parts',
    async () => {
      const url = `nats://127.0.0.1:${chain.port}`;
      const [key] = rowsOf<{ seed: string }>(branch.storage, 'SELECT seed FROM link_key', 'state.db');
      const [{ keys } = { keys: '{}' }] = rowsOf<{ keys: string }>(
        chain.hub.storage,
        'SELECT keys FROM hub',
        'state.db',
      );
      const there = new NatsBranchLink({ url, branch: 'B1', seed: key?.seed ?? '', tls: null });
      const here = new NatsHubLink({ url, seed: (JSON.parse(keys) as HubKeys).hub, user: '@hub', tls: null });
      const bytes = randomBytes(9_000_000);
      there.answer(async () => bytes);
      // The first question connects the branch, which listens for the hub's questions from then on.
      await there.ask('hello', '{}');
      const got = await here.ask('B1', 'bundle', '{"json":true}');
      expect(Buffer.compare(got, bytes)).toBe(0);
      await there.close();
      await expect(here.ask('B1', 'status', '{}')).rejects.toMatchObject({ code: 'link-down' });
      await here.close();
      daemon = await chain.start(branch);
    },
    limitMs(60_000),
  );

  it(
    'lets no branch ask another one, or answer for it',
    async () => {
      const seed =
        rowsOf<{ seed: string }>(branch.storage, 'SELECT seed FROM link_key', 'state.db')[0]?.seed ?? '';
      const connection = await connect({
        servers: `nats://127.0.0.1:${chain.port}`,
        authenticator: nkeyAuthenticator(new TextEncoder().encode(seed)),
        inboxPrefix: '_INBOX.B1',
      });
      const refused: string[] = [];
      void (async () => {
        for await (const { type, ...status } of connection.status()) {
          if (type === 'error' && 'error' in status) refused.push(String(status.error.message));
        }
      })();
      for (const subject of ['ctl.B2.status', 'ctl.B1.status', 'up.B2.answer.1', '_INBOX.@hub.1']) {
        connection.publish(subject, '{}');
      }
      for (const subject of ['ctl.*.status', 'ctl.>', 'up.B1.answer.*', '_INBOX.@hub.>']) {
        connection.subscribe(subject, { callback: () => {} });
      }
      await connection.flush();
      await until('all are refused', () => refused.length === 8);
      await connection.close();
      expect(refused.filter((why) => !/permissions violation/i.test(why))).toEqual([]);
    },
    limitMs(30_000),
  );

  it(
    'sends orders of no known branch where a person assigns them, and the alarm ends',
    async () => {
      const { hub } = chain;
      const [one, two] = ['sub-2', 'sub-2'].map((subsidiaryId) =>
        hub.sandbox.control.createOrder({ subsidiaryId }),
      );
      const alarm = async () =>
        (await statusOf(hub.env)).alarms.find(({ key }) => key === 'hub.unassigned')?.message;
      await until('the alarm is up', async () => (await alarm()) !== undefined, 60_000);
      const { unassigned } = JSON.parse((await hub.command('branch', 'list', '--json')).stdout) as {
        unassigned: { orderId: string; store: string }[];
      };
      expect(unassigned.map(({ orderId }) => orderId).sort()).toEqual(
        [one?.internalOrderId, two?.internalOrderId].sort(),
      );
      expect((await hub.command('branch', 'assign', 'B1')).code).toBe(2);
      expect((await hub.command('branch', 'assign', 'B7', '--store', 'x')).code).toBe(1);
      const store = unassigned[0]?.store ?? '';
      const assigned = await hub.command('branch', 'assign', 'B1', '--store', store, '--json');
      expect(JSON.parse(assigned.stdout)).toEqual({
        branch: 'B1',
        store,
        order: null,
        orders: 2,
        unassigned: [],
      });
      await until('both are at the branch', () =>
        [one, two].every((order) => ordersOf(branch.storage).includes(order?.internalOrderId ?? '')),
      );
      const later = hub.sandbox.control.createOrder({ subsidiaryId: 'sub-2' });
      await until('a later one too', () => ordersOf(branch.storage).includes(later.internalOrderId));
      await until('the alarm ended', async () => (await alarm()) === undefined, 40_000);
    },
    limitMs(150_000),
  );

  it(
    'has in its audit who invited, assigned and removed',
    async () => {
      const { hub } = chain;
      expect((await hub.command('branch', 'revoke', 'B1')).code).toBe(0);
      const { audit } = JSON.parse((await hub.command('audit', '--json')).stdout) as {
        audit: { action: string; subject: string; who: string; detail: string }[];
      };
      const deeds = audit.filter(({ action }) => action.startsWith('branch.'));
      expect(deeds.map(({ action }) => action)).toEqual([
        ...['branch.revoke', 'branch.assign'],
        ...Array.from({ length: 4 }, () => 'branch.invite'),
      ]);
      expect(deeds[1]).toMatchObject({ detail: 'branch B1' });
      expect(deeds.every(({ who }) => who.startsWith('cli '))).toBe(true);
      expect(JSON.stringify(audit)).not.toMatch(/tillsync-ey|SU[A-Z2-7]{50}/);
    },
    limitMs(30_000),
  );
});

/** Tests src/link/copies.ts, src/link/branch-copy.ts and src/daemon/link-loops.ts with a real server. */

import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { identityToRecipient } from 'age-encryption';
import Database from 'better-sqlite3';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { stampMs, stampOf } from '../../src/core/files.ts';
import { noteBackup } from '../../src/support/backup-files.ts';
import { readDifferential } from '../../src/support/differential.ts';
import { decryptionBy } from '../../src/support/encryption.ts';
import { identityOf, newRecoveryPhrase } from '../../src/support/recovery-phrase.ts';
import { type BranchPlace, ChainPlace, rowsOf } from '../support/chain-place.ts';
import { hasNatsServer } from '../support/nats-server.ts';
import { limitMs } from '../support/shared-config.ts';
import { type DaemonProcess, runCommand, until } from '../support/workplace.ts';

const DIFFERENTIAL = /\.differential\.tar\.gz\.age\.[0-9a-f]{64}$/;
const WHOLE = /^tillsync-b1-\d{8}T\d{6}Z\.tar\.gz\.age\.[0-9a-f]{64}$/;

describe.skipIf(!hasNatsServer)('the backups of a branch at its hub', () => {
  let chain: ChainPlace;
  let hub: DaemonProcess;
  let b1: BranchPlace;
  let b2: BranchPlace;
  let phrase: string;

  const backups = ({ storage }: BranchPlace) => path.join(storage, 'backups');
  const heldOf = (branch: string) => {
    const directory = path.join(chain.hub.storage, 'copies', branch);
    return existsSync(directory) ? readdirSync(directory) : [];
  };
  const wholeOf = (branch: string) => heldOf(branch).filter((name) => WHOLE.test(name));

  /** Returns the acknowledged orders in the differential backups that the hub has of a branch. */
  async function ackedAtHub(branch: string): Promise<string[]> {
    const found: string[] = [];
    for (const name of heldOf(branch).filter((each) => DIFFERENTIAL.test(each))) {
      const file = path.join(chain.hub.storage, 'copies', branch, name);
      // A newer backup may have just replaced this file.
      const read = await readDifferential(file, { decrypt: decryptionBy(phrase, file) }).catch(
        () => undefined,
      );
      found.push(...(read?.known.acks ?? []).map(({ orderId }) => orderId));
    }
    return found;
  }

  /** Makes a whole backup as the daemon does once a day, with the branch off. */
  async function backUp(place: BranchPlace): Promise<void> {
    mkdirSync(backups(place), { recursive: true });
    const stamp = stampOf(Date.now());
    const db = new Database(path.join(place.storage, 'mirror.db'));
    noteBackup(db, stampMs(stamp));
    db.close();
    const made = await chain.commandAt(
      place,
      'backup',
      path.join(backups(place), `tillsync-b1-${stamp}.tar.gz`),
    );
    expect(made.code, made.stderr).toBe(0);
  }

  const restore = (place: BranchPlace, words: string, ...options: string[]) =>
    runCommand(place.env, ['restore', '--from-hub', '--json', ...options], words);
  const highestSeq = ({ storage }: BranchPlace) =>
    rowsOf<{ seq: number }>(storage, 'SELECT max(seq) AS seq FROM order_events')[0]?.seq ?? 0;
  const filesOf = ({ storage }: BranchPlace) =>
    readdirSync(storage)
      .filter((name) => !name.startsWith('state.db'))
      .map((name) => `${name} ${statSync(path.join(storage, name)).size}`);
  const doctor = async (place: BranchPlace) => {
    const { stdout } = await chain.commandAt(place, 'doctor', '--only', 'backup', '--json');
    return JSON.parse(stdout).checks[0] as { facts: { atHub: string | null } };
  };

  beforeAll(async () => {
    ({ chain, hub, b1, b2 } = await ChainPlace.openRunning(47));
    const made = await newRecoveryPhrase('en');
    ({ phrase } = made);
    await chain.stop(b1);
    await backUp(b1);
    appendFileSync(b1.configFile, `[backup]\nrecipient = "${made.recipient}"\ndifferential_every = "1s"\n`);
    await chain.start(b1);
  }, limitMs(180_000));

  afterAll(() => chain.close());

  it(
    'an encrypted backup and what came since lie at the hub, and a plain one never leaves the branch',
    async () => {
      const isMade = () => readdirSync(backups(b1)).some((name) => /\.differential\..*age$/.test(name));
      await until('what came since is written', isMade);
      await chain.stop(b1);
      expect(heldOf('B1')).toEqual([]);
      await backUp(b1);
      await chain.start(b1);
      await until(
        'both are at the hub',
        () => heldOf('B1').filter((name) => !name.endsWith('.part')).length === 2,
      );
      expect(wholeOf('B1')).toHaveLength(1);
      for (const name of heldOf('B1')) {
        const bytes = readFileSync(path.join(chain.hub.storage, 'copies/B1', name));
        expect(bytes.subarray(0, 32).toString('latin1')).toMatch(/^age-encryption.org\/v1\n-> X25519/);
      }
      expect(heldOf('B2')).toEqual([]);
    },
    limitMs(120_000),
  );

  it(
    'a copy that is cut leaves the older one whole at the hub',
    async () => {
      const [older = ''] = wholeOf('B1');
      const large = path.join(backups(b1), `tillsync-b1-${stampOf(Date.now() + 1_000)}.tar.gz.age`);
      writeFileSync(large, `age-encryption.org/v1\n-> X25519 ${'x'.repeat(5_000_000)}`);
      await until('a part is at the hub', () => heldOf('B1').some((name) => name.endsWith('.part')));
      await hub.end('SIGKILL');
      await chain.stop(b1);
      rmSync(large);
      expect(wholeOf('B1')).toEqual([older]);
      hub = await chain.startHub();
      const checked = await restore(b1, phrase, '--check');
      expect(checked.code, checked.stderr).toBe(0);
      expect(JSON.parse(checked.stdout)).toMatchObject({ differentials: [{}], mirror: { orders: 1 } });
      await chain.start(b1);
    },
    limitMs(120_000),
  );

  it(
    'a dead machine: the next one has the orders and what was acknowledged, and no number twice',
    async () => {
      const since = chain.orderFor('sub-1');
      await chain.arrives(b1, since);
      chain.acknowledge(b1, since);
      const acked = (place: BranchPlace) =>
        rowsOf(place.storage, `SELECT 1 FROM order_acks WHERE order_id = '${since}'`).length === 1;
      await until('it is acknowledged', () => acked(b1));
      await until('the hub has that', async () => (await ackedAtHub('B1')).includes(since));
      await until('the branch says so', async () => typeof (await doctor(b1)).facts.atHub === 'string');
      const highest = highestSeq(b1);
      await chain.kill(b1);

      for (const lost of [b1.storage, b1.configFile]) renameSync(lost, `${lost}.lost`);
      const next = chain.branchAt('B1', await chain.invite('B1'));
      expect((await chain.joinAs(next)).code).toBe(0);
      const empty = filesOf(next);
      const other = (await newRecoveryPhrase('en')).phrase;
      const wrong = await restore(next, other);
      expect(wrong.code).not.toBe(0);
      expect(wrong.stderr).toMatch(/This phrase does not open .*Nothing was changed/);
      expect(filesOf(next)).toEqual(empty);

      const restored = await restore(next, phrase, '--with-config');
      expect(restored.code, restored.stderr).toBe(0);
      expect(JSON.parse(restored.stdout).continuesAfterSeq).toBeGreaterThan(highest);
      await chain.start(next);
      await chain.arrives(next, since);
      await until('the acknowledgement is known', () => acked(next));
      const fresh = chain.orderFor('sub-1');
      await chain.arrives(next, fresh);
      const numbers = `SELECT seq FROM order_events WHERE order_id IN ('${since}', '${fresh}')`;
      for (const { seq } of rowsOf<{ seq: number }>(next.storage, numbers)) {
        expect(seq).toBeGreaterThan(highest);
      }
      expect(readFileSync(next.configFile, 'utf8')).toMatch(/^recipient = "age1/m);
    },
    limitMs(180_000),
  );

  it(
    'another branch has nothing of it, and a machine that works is refused',
    async () => {
      const running = await restore(b2, phrase);
      expect(running.stderr).toContain('tillsync runs on');
      await chain.stop(b2);
      const foreign = await restore(b2, phrase);
      expect(foreign.code).not.toBe(0);
      expect(foreign.stderr).toContain('The hub has no copy of this branch. Nothing was changed.');
      expect(heldOf('B2')).toEqual([]);
    },
    limitMs(60_000),
  );

  it(
    'a machine that joins with a new phrase shows it once, and encrypts for it',
    async () => {
      const place = chain.branchAt('B2-next', await chain.invite('B2'));
      const { code, stdout, stderr } = await chain.joinAs(place, '--new-phrase', '--json');
      expect(code, stderr).toBe(0);
      const words: string = JSON.parse(stdout).phrase;
      const recipient = await identityToRecipient(identityOf(words) ?? '');
      const config = readFileSync(place.configFile, 'utf8');
      expect(config).toContain(`recipient = "${recipient}"`);
      expect(config).not.toContain(words.split(' ').slice(0, 3).join(' '));
    },
    limitMs(60_000),
  );
});

/** Tests src/support/restore.ts with the package: a machine that died, and the bare one in its place. */

import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openMirror } from '../../../src/app/mirror.ts';
import { systemClock } from '../../../src/core/system-clock.ts';
import { newRecoveryPhrase } from '../../../src/support/recovery-phrase.ts';
import { benchEntry, benchOrder } from '../../bench/mirror-samples.ts';
import { limitMs } from '../../support/shared-config.ts';
import { keepSigningKey } from '../../support/signing-key.ts';
import { MAIN, NODE } from '../../support/workplace.ts';
import { debianWithServices } from './clean-debian.ts';
import { builtPackage, Machine } from './machine.ts';

const ORDERS = 100_000;
const AT_ONCE = 500;
const SHOP_STANDS_STILL_MS = 60_000;

const root = debianWithServices('bookworm');
if (!root) it.skip('a clean Debian 12: mmdebstrap or its mirror is missing (apt-get install -y mmdebstrap)');

describe.skipIf(!root)(`a dead machine with ${ORDERS} orders`, () => {
  let machine: Machine;
  let directory: string;
  let phrase: string;

  beforeAll(async () => {
    directory = mkdtempSync(path.join(tmpdir(), 'tillsync-dead-'));
    const storage = path.join(directory, 'storage');
    const bag = path.join(directory, 'bag');
    mkdirSync(path.join(bag, 'backups'), { recursive: true });
    copyFileSync(builtPackage(), path.join(bag, 'tillsync.deb'));
    const made = await newRecoveryPhrase('en');
    phrase = made.phrase;
    const config = path.join(directory, 'config.toml');
    writeFileSync(
      config,
      `[platform]
base_url = "http://127.0.0.1:9"
[backup]
recipient = "${made.recipient}"
[orders]
timezone = "America/Santiago"
[[branches]]
subsidiary_id = "sub-1"
`,
    );
    const mirror = openMirror({ path: path.join(storage, 'mirror.db'), clock: systemClock });
    for (let first = 0; first < ORDERS; first += AT_ONCE)
      await mirror.save(Array.from({ length: AT_ONCE }, (_, i) => benchEntry(first + i)));
    await mirror.close();
    keepSigningKey(storage, made.signingKey);
    const backup = path.join(bag, 'backups/tillsync-till-20260601T080000Z.tar.gz');
    execFileSync(NODE, [MAIN, 'backup', backup, '--config', config], {
      env: { PATH: process.env.PATH, TILLSYNC_STORAGE_DIRECTORY: storage },
      stdio: 'pipe',
    });
    machine = await Machine.start('systemd', { root: root as string, file: bag });
  }, limitMs(180_000));

  afterAll(async () => {
    await machine?.stop();
    rmSync(directory, { recursive: true });
  });

  it('is replaced within a minute by a bare Debian, from the package, the backup and the phrase', () => {
    const beganMs = performance.now();
    machine.run('apt-get install -y /root/bag/tillsync.deb');
    machine.run('systemctl stop tillsync.socket tillsync.service');
    const installedMs = performance.now();
    machine.run(`echo "${phrase}" | tillsync restore /root/bag/backups --phrase --yes`);
    const restoredMs = performance.now();
    machine.run('systemctl start tillsync');
    const newest = String(benchOrder(ORDERS - 1).internalOrderId);
    const key = 'require("node:fs").readFileSync("/var/lib/tillsync/api-key", "utf8").trim()';
    const ask = `fetch("http://127.0.0.1:8788/v1/orders/${newest}", { headers: { "x-api-key": ${key} } }).then((answer) => (answer.ok ? answer.text() : "")).then(console.log)`;
    machine.until(`/usr/lib/tillsync/node -e '${ask}' | grep -q ${newest}`);
    const seconds = (fromMs: number, toMs: number) => ((toMs - fromMs) / 1_000).toFixed(1);
    const endedMs = performance.now();
    console.info(
      `install ${seconds(beganMs, installedMs)} s, restore ${seconds(installedMs, restoredMs)} s, start and answer ${seconds(restoredMs, endedMs)} s`,
    );
    expect(endedMs - beganMs).toBeLessThan(limitMs(SHOP_STANDS_STILL_MS));
  });
});

import { execFileSync } from 'node:child_process';
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type BranchPlace, ChainPlace, rowsOf } from '../support/chain-place.ts';
import { hasNatsServer } from '../support/nats-server.ts';
import { limitMs } from '../support/shared-config.ts';
import { type DaemonProcess, runCommand, until } from '../support/workplace.ts';

/**
 * Makes a certificate for localhost, signed by a new certificate authority. With `again`, the authority of the first
 * call signs a certificate with that name and duration.
 */
function makeCertificate(
  directory: string,
  again?: { name: string; days: number },
): { cert: string; key: string; ca: string } {
  const { name, days } = again ?? { name: 'localhost', days: 60 };
  const at = (file: string) => path.join(directory, file);
  const openssl = (...words: string[]) => execFileSync('openssl', words, { cwd: directory, stdio: 'ignore' });
  const keyOf = (name: string) => ['-newkey', 'rsa:2048', '-nodes', '-keyout', at(name)];
  if (!again)
    openssl('req', '-x509', ...keyOf('ca.key'), '-out', at('ca.pem'), '-days', '90', '-subj', '/CN=chain');
  openssl('req', ...keyOf('hub.key'), '-out', at('hub.csr'), '-subj', `/CN=${name}`);
  writeFileSync(at('names'), `subjectAltName=DNS:${name}`);
  const signed = ['-CA', at('ca.pem'), '-CAkey', at('ca.key'), '-CAcreateserial', '-days', String(days)];
  openssl('x509', '-req', '-in', at('hub.csr'), ...signed, '-out', at('hub.pem'), '-extfile', at('names'));
  return { cert: at('hub.pem'), key: at('hub.key'), ca: at('ca.pem') };
}

const hasOpenssl = (() => {
  try {
    execFileSync('openssl', ['version'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
})();

describe.skipIf(!hasNatsServer || !hasOpenssl)('a branch on another machine', () => {
  let chain: ChainPlace;
  let branch: BranchPlace;
  let daemon: DaemonProcess;
  let hubDaemon: DaemonProcess;

  beforeAll(async () => {
    const branches =
      '[[branches]]\nsubsidiary_id = "sub-1"\nexternal_id = "B1"\n[[branches]]\nsubsidiary_id = "sub-2"\nexternal_id = "B2"\n';
    chain = await ChainPlace.open(12, branches);
  }, limitMs(60_000));

  afterAll(() => chain.close());

  /** Returns the doctor's checks of the hub, once the server answered them: on a busy machine it may take too long. */
  const hubChecks = async () => {
    let found: Record<string, { level: string; remedy: string }> = {};
    await until('the server answers the doctor', async () => {
      const { stdout } = await chain.hub.command('doctor', '--json', '--only', 'hub');
      const { checks } = JSON.parse(stdout) as { checks: { id: string; level: string; remedy: string }[] };
      found = Object.fromEntries(checks.map(({ id, ...rest }) => [id, rest]));
      return found['hub.certificate']?.level !== 'skipped';
    });
    return found;
  };

  it(
    'is not reached before a server that began without TLS is started anew, and the doctor says so',
    async () => {
      const { hub, directory, serverFile, port } = chain;
      const before = readFileSync(hub.configFile, 'utf8');
      const opened = before.replace('[hub]\n', `[hub]\npublic_url = "tls://localhost:${port}"\n`);
      writeFileSync(hub.configFile, opened);
      const without = await hub.command('hub', 'server-config', serverFile);
      expect(without.code).toBe(2);
      expect(without.stderr).toContain('--tls-cert');
      const { cert, key, ca } = makeCertificate(directory);
      const words = ['--tls-cert', cert, '--tls-key', key, '--tls-ca', ca];
      const written = await hub.command('hub', 'server-config', serverFile, ...words);
      expect(written.code, written.stderr).toBe(0);
      hubDaemon = await chain.startHub();
      expect(await hubChecks()).toMatchObject({
        'hub.certificate': { level: 'fail', remedy: expect.stringContaining(`nats-server -c ${serverFile}`) },
        'hub.way': { level: 'fail' },
      });
      await chain.server.kill();
      await chain.startServer();
      expect(await hubChecks()).toMatchObject({
        'hub.certificate': { level: 'ok' },
        'hub.way': { level: 'ok' },
      });
    },
    limitMs(120_000),
  );

  it(
    'is reached by TLS alone, with the authority that the invitation brings',
    async () => {
      const { hub } = chain;
      branch = await chain.join('B1');
      daemon = await chain.start(branch);
      const { internalOrderId } = hub.sandbox.control.createOrder({ subsidiaryId: 'sub-1' });
      const isThere = () =>
        rowsOf(branch.storage, `SELECT 1 FROM orders WHERE order_id = '${internalOrderId}'`).length === 1;
      await until('the order is there', isThere, 30_000);
    },
    limitMs(120_000),
  );

  it(
    'has a doctor and a status that speak of the link and of no tokens',
    async () => {
      const report = JSON.parse((await runCommand(branch.env, ['doctor', '--json'])).stdout) as {
        checks: { id: string; level: string; message: string }[];
      };
      const wrong = report.checks.filter(({ level }) => level === 'fail' || level === 'warn');
      expect(wrong.filter(({ id }) => id !== 'service' && id !== 'version')).toEqual([]);
      expect(report.checks.find(({ id }) => id === 'hub')).toMatchObject({ level: 'ok' });
      expect(report.checks.find(({ id }) => id === 'platform.network')).toMatchObject({ level: 'skipped' });
      const status = await runCommand(branch.env, ['status']);
      expect(status.stdout).toMatch(/hub and branches: +OK/);
      expect(status.stdout).not.toMatch(/token/i);
      const sync = await runCommand(branch.env, ['sync', 'orders']);
      expect(sync.code).toBe(2);
      expect(sync.stderr).toMatch(/only its hub calls the platform/);
    },
    limitMs(60_000),
  );

  it.each(['branch', 'hub'])(
    'is reached again once a file that the %s misses is there',
    async (side) => {
      const isBranch = side === 'branch';
      const file = path.join(chain.directory, isBranch ? 'B1.hub-ca.pem' : 'ca.pem');
      const storage = isBranch ? branch.storage : chain.hub.storage;
      const link = () => {
        const sql = "SELECT state, message FROM freshness WHERE subject = 'hub.link'";
        return rowsOf<{ state: string; message: string }>(storage, sql)[0];
      };
      await (isBranch ? daemon : hubDaemon).end('SIGTERM');
      renameSync(file, `${file}.away`);
      const started = await (isBranch ? chain.start(branch) : chain.startHub());
      if (isBranch) daemon = started;
      await until('it says what is missing', () => link()?.message === `${file} cannot be read (ENOENT).`);
      renameSync(`${file}.away`, file);
      await until('the link works', () => link()?.state === 'ok');
      // Each of the branch's loops that need the link has failed once. The hub's loop goes on without the link.
      expect(started.log().match(/a loop failed/g) ?? []).toHaveLength(isBranch ? 2 : 0);
    },
    60_000,
  );

  it('sees the seed of no key in its logs', async () => {
    const seed = /SU[A-Z2-7]{56}/;
    expect(daemon.log()).not.toMatch(seed);
    expect(chain.server.log()).not.toMatch(seed);
    expect(readFileSync(chain.serverFile, 'utf8')).not.toMatch(seed);
  });

  const alarms = () =>
    rowsOf<{ key: string; level: string | null; message: string }>(
      chain.hub.storage,
      "SELECT key, level, message FROM alarms WHERE key = 'hub.certificate'",
    );

  it(
    'is thrown out though the files hold a certificate for another name, and no other branch is',
    async () => {
      await until('nothing is told any more', () => alarms().length === 0);
      makeCertificate(chain.directory, { name: 'elsewhere', days: 60 });
      // The hub may read one new and one old file between the two writes, so another message may come first.
      await until('it is told', () => alarms()[0]?.message.includes('elsewhere') ?? false);
      expect(alarms()).toMatchObject([{ level: 'amber' }]);
      const two = await chain.join('B2');
      await chain.start(two);
      await until('a branch that joins then is known', () => chain.hasCaughtUp('B2', two), 30_000);
      const removed = await chain.hub.command('branch', 'revoke', 'B1');
      expect(removed.stdout + removed.stderr).not.toMatch(/has not heard/);
      await until('its connection is refused', () => /authentication error/i.test(chain.server.log()));
      expect(daemon.child.exitCode).toBeNull();
      const { internalOrderId } = chain.hub.sandbox.control.createOrder({ subsidiaryId: 'sub-2' });
      const isThere = () =>
        rowsOf(two.storage, `SELECT 1 FROM orders WHERE order_id = '${internalOrderId}'`).length === 1;
      await until('B2 goes on', isThere, 30_000);
    },
    limitMs(120_000),
  );

  it(
    'has a hub that tells of the end of its certificate two weeks before',
    async () => {
      makeCertificate(chain.directory, { name: 'localhost', days: 5 });
      await until('it is told', () => /ends at/.test(alarms()[0]?.message ?? ''));
      expect(alarms()[0]).toMatchObject({ level: 'amber' });
      makeCertificate(chain.directory, { name: 'localhost', days: 60 });
      await until('it is over', () => alarms().length === 0);
    },
    limitMs(60_000),
  );
});

import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type BranchPlace, ChainPlace, rowsOf } from '../support/chain-place.ts';
import { hasNatsServer } from '../support/nats-server.ts';
import { type DaemonProcess, runCommand, until } from '../support/workplace.ts';

/** A certificate for localhost, signed by an authority of our own. */
function makeCertificate(directory: string): { cert: string; key: string; ca: string } {
  const at = (name: string) => path.join(directory, name);
  const openssl = (...words: string[]) => execFileSync('openssl', words, { cwd: directory, stdio: 'ignore' });
  const keyOf = (name: string) => ['-newkey', 'rsa:2048', '-nodes', '-keyout', at(name)];
  openssl('req', '-x509', ...keyOf('ca.key'), '-out', at('ca.pem'), '-days', '2', '-subj', '/CN=chain');
  openssl('req', ...keyOf('hub.key'), '-out', at('hub.csr'), '-subj', '/CN=localhost');
  writeFileSync(at('names'), 'subjectAltName=DNS:localhost');
  const signed = ['-CA', at('ca.pem'), '-CAkey', at('ca.key'), '-CAcreateserial', '-days', '2'];
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

  beforeAll(async () => {
    const branches = '[[branches]]\nsubsidiary_id = "sub-1"\nexternal_id = "B1"\n';
    chain = await ChainPlace.prepare(12, branches, (port) => `public_url = "tls://localhost:${port}"\n`);
  }, 60_000);

  afterAll(() => chain.close());

  it('is reached by TLS alone, with the authority that the invitation brings', async () => {
    const { hub, directory, serverFile } = chain;
    const without = await hub.command('hub', 'server-config', serverFile);
    expect(without.code).toBe(2);
    expect(without.stderr).toContain('--tls-cert');
    const { cert, key, ca } = makeCertificate(directory);
    const words = ['--tls-cert', cert, '--tls-key', key, '--tls-ca', ca];
    const written = await hub.command('hub', 'server-config', serverFile, ...words);
    expect(written.code, written.stderr).toBe(0);
    await chain.startServer();
    await chain.startHub();
    branch = await chain.join('B1');
    daemon = await chain.start(branch);
    const { internalOrderId } = hub.sandbox.control.createOrder({ subsidiaryId: 'sub-1' });
    const isThere = () =>
      rowsOf(branch.storage, `SELECT 1 FROM orders WHERE order_id = '${internalOrderId}'`).length === 1;
    await until('the order is there', isThere, 30_000);
  }, 120_000);

  it('has a doctor and a status that speak of the link and of no tokens', async () => {
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
  }, 60_000);

  it('sees the seed of no key in its logs', async () => {
    const seed = /SU[A-Z2-7]{56}/;
    expect(daemon.log()).not.toMatch(seed);
    expect(chain.server.log()).not.toMatch(seed);
    expect(readFileSync(chain.serverFile, 'utf8')).not.toMatch(seed);
  });
});

import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freePort } from '../../src/demo/sandbox-platform.ts';
import { hasNatsServer, type NatsServer, startNatsServer } from '../support/nats-server.ts';
import {
  type DaemonProcess,
  openWorkplace,
  runCommand,
  runDaemon,
  until,
  type Workplace,
} from '../support/workplace.ts';

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
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-hub-tls-'));
  const storage = path.join(directory, 'B1');
  const configFile = path.join(directory, 'B1.toml');
  const env = { PATH: process.env.PATH ?? '', TILLSYNC_CONFIG: configFile };
  let hub: Workplace;
  let server: NatsServer;
  let branch: DaemonProcess | undefined;
  let port: number;

  beforeAll(async () => {
    mkdirSync(storage);
    hub = await openWorkplace(12);
    port = await freePort();
    const before = readFileSync(hub.configFile, 'utf8').split('[[branches]]')[0];
    const own = `[hub]\nnats = "nats://127.0.0.1:${port}"\npublic_url = "tls://localhost:${port}"\n`;
    const branches = '[[branches]]\nsubsidiary_id = "sub-1"\nexternal_id = "B1"\n';
    writeFileSync(hub.configFile, `${before}${own}${branches}`);
  }, 60_000);

  afterAll(async () => {
    branch?.child.kill('SIGKILL');
    await server?.kill();
    await hub?.close();
    rmSync(directory, { recursive: true, force: true });
  });

  it('is reached by TLS alone, with the authority that the invitation brings', async () => {
    const file = path.join(directory, 'nats/server.conf');
    const without = await hub.command('hub', 'server-config', file);
    expect(without.code).toBe(2);
    expect(without.stderr).toContain('--tls-cert');
    const { cert, key, ca } = makeCertificate(directory);
    const words = ['--tls-cert', cert, '--tls-key', key, '--tls-ca', ca];
    const written = await hub.command('hub', 'server-config', file, ...words);
    expect(written.code, written.stderr).toBe(0);
    server = await startNatsServer(file, port);
    await hub.run();
    const invited = await hub.command('branch', 'invite', 'B1', '--json');
    const { invitation } = JSON.parse(invited.stdout) as { invitation: string };
    const how = ['--directory', storage, '--local-listen', `127.0.0.1:${await freePort()}`];
    const joined = await runCommand(env, ['init', '--join', '-', ...how], `${invitation}\n`);
    expect(joined.code, joined.stderr).toBe(0);
    writeFileSync(
      configFile,
      `${readFileSync(configFile, 'utf8')}\n[log]\nlevel = "debug"\npretty = false\n`,
    );
    branch = await runDaemon(env, new Set(), []);
    hub.sandbox.control.setWebhook({
      callbackUrl: hub.config.webhook.callbackUrl,
      secret: 'workplace-secret',
      active: true,
    });
    const { internalOrderId } = hub.sandbox.control.createOrder({ subsidiaryId: 'sub-1' });
    const orders = () => {
      const db = new Database(path.join(storage, 'mirror.db'), { readonly: true });
      try {
        return db.prepare<[], string>('SELECT order_id FROM orders').pluck().all();
      } finally {
        db.close();
      }
    };
    await until('the order is there', () => orders().includes(internalOrderId), 30_000);
  }, 120_000);

  it('has a doctor and a status that speak of the link and of no tokens', async () => {
    const report = JSON.parse((await runCommand(env, ['doctor', '--json'])).stdout) as {
      checks: { id: string; level: string; message: string }[];
    };
    const wrong = report.checks.filter(({ level }) => level === 'fail' || level === 'warn');
    expect(wrong.filter(({ id }) => id !== 'service' && id !== 'version')).toEqual([]);
    expect(report.checks.find(({ id }) => id === 'hub')).toMatchObject({ level: 'ok' });
    expect(report.checks.find(({ id }) => id === 'platform.network')).toMatchObject({ level: 'skipped' });
    const status = await runCommand(env, ['status']);
    expect(status.stdout).toMatch(/hub and branches: +OK/);
    expect(status.stdout).not.toMatch(/token/i);
    const sync = await runCommand(env, ['sync', 'orders']);
    expect(sync.code).toBe(2);
    expect(sync.stderr).toMatch(/only its hub calls the platform/);
  }, 60_000);

  it('sees the seed of no key in its logs', async () => {
    const seed = /SU[A-Z2-7]{56}/;
    expect(branch?.log()).not.toMatch(seed);
    expect(server.log()).not.toMatch(seed);
    expect(readFileSync(path.join(directory, 'nats/server.conf'), 'utf8')).not.toMatch(seed);
  });
});

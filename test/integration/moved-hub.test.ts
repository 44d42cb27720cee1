import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type BranchPlace, ChainPlace, rowsOf } from '../support/chain-place.ts';
import { freePort } from '../support/free-port.ts';
import { hasNatsServer } from '../support/nats-server.ts';
import { limitMs } from '../support/shared-config.ts';
import { type DaemonProcess, until } from '../support/workplace.ts';

/** Makes a certificate authority, and a certificate for localhost that it signs. */
function makeCertificate(directory: string): { cert: string; key: string; ca: string } {
  mkdirSync(directory, { recursive: true });
  const at = (file: string) => path.join(directory, file);
  const openssl = (...words: string[]) => execFileSync('openssl', words, { cwd: directory, stdio: 'ignore' });
  const keyOf = (file: string) => ['-newkey', 'rsa:2048', '-nodes', '-keyout', at(file)];
  openssl(
    'req',
    '-x509',
    ...keyOf('ca.key'),
    '-out',
    at('ca.pem'),
    '-days',
    '90',
    '-subj',
    `/CN=${path.basename(directory)}`,
  );
  openssl('req', ...keyOf('hub.key'), '-out', at('hub.csr'), '-subj', '/CN=localhost');
  writeFileSync(at('names'), 'subjectAltName=DNS:localhost');
  const signed = ['-CA', at('ca.pem'), '-CAkey', at('ca.key'), '-CAcreateserial', '-days', '60'];
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

describe.skipIf(!hasNatsServer || !hasOpenssl)('a hub that moves', () => {
  let chain: ChainPlace;
  let branch: BranchPlace;
  let hub: DaemonProcess;
  let nextPort: number;
  let first: ReturnType<typeof makeCertificate>;
  let next: ReturnType<typeof makeCertificate>;

  const withHub = (change: (text: string) => string) =>
    writeFileSync(chain.hub.configFile, change(readFileSync(chain.hub.configFile, 'utf8')));
  /** Writes the hub's addresses into the file of the branch, as a person does, and restarts the branch. */
  const nameHub = async (...ports: number[]) => {
    const hubs = JSON.stringify(ports.map((port) => `tls://localhost:${port}`));
    const text = readFileSync(branch.configFile, 'utf8').replace(/^hub = .*/m, `hub = ${hubs}`);
    writeFileSync(branch.configFile, text);
    await chain.stop(branch);
    await chain.start(branch);
  };
  const serverConfig = async ({ cert, key, ca }: typeof first) => {
    const words = ['--tls-cert', cert, '--tls-key', key, '--tls-ca', ca];
    const written = await chain.hub.command('hub', 'server-config', chain.serverFile, ...words);
    expect(written.code, written.stderr).toBe(0);
  };
  const comes = async () => {
    const { internalOrderId } = chain.hub.sandbox.control.createOrder({ subsidiaryId: 'sub-1' });
    const sql = `SELECT 1 FROM orders WHERE order_id = '${internalOrderId}'`;
    await until('the order is there', () => rowsOf(branch.storage, sql).length === 1, 60_000);
  };

  beforeAll(async () => {
    chain = await ChainPlace.prepare(16, '[[branches]]\nsubsidiary_id = "sub-1"\nexternal_id = "B1"\n');
    first = makeCertificate(path.join(chain.directory, 'first'));
    next = makeCertificate(path.join(chain.directory, 'next'));
    nextPort = await freePort();
    withHub((text) => text.replace('[hub]\n', `[hub]\npublic_url = "tls://localhost:${chain.port}"\n`));
    await serverConfig(first);
    await chain.startServer();
    hub = await chain.startHub();
    branch = await chain.join('B1');
    await chain.start(branch);
    await until('the branch is there', () => chain.hasCaughtUp('B1', branch), 30_000);
  }, limitMs(120_000));

  afterAll(() => chain.close());

  it(
    'is found at the next address of link.hub, with a certificate of the authority beside the one of before',
    async () => {
      const [, caFile = ''] = /^ca_file = "(.*)"/m.exec(readFileSync(branch.configFile, 'utf8')) ?? [];
      appendFileSync(caFile, readFileSync(next.ca));
      await nameHub(chain.port, nextPort);
      await comes();
      await hub.end('SIGTERM');
      await chain.server.kill();
      withHub((text) => text.replaceAll(`:${chain.port}"`, `:${nextPort}"`));
      await serverConfig(next);
      await chain.startServer(nextPort);
      hub = await chain.startHub();
      await comes();
    },
    limitMs(120_000),
  );

  it(
    'is found there after a restart of the branch too, whose doctor looks at the new address',
    async () => {
      await chain.stop(branch);
      await chain.start(branch);
      await comes();
      const { stdout } = await chain.commandAt(branch, 'doctor', '--json', '--only', 'hub');
      const { checks } = JSON.parse(stdout) as { checks: { id: string; level: string; message: string }[] };
      expect(checks.find(({ id }) => id === 'hub.way')).toMatchObject({
        level: 'ok',
        message: expect.stringContaining(`tls://localhost:${nextPort}`),
      });
    },
    limitMs(120_000),
  );

  it(
    'is found though a server of before still answers at the old address',
    async () => {
      const again = await freePort();
      await nameHub(nextPort, again);
      await comes();
      await hub.end('SIGTERM');
      // The old server keeps running with its own file, but no hub answers behind it.
      const { server } = chain;
      withHub((text) => text.replaceAll(`:${nextPort}"`, `:${again}"`));
      chain.serverFile = path.join(chain.directory, 'moved/server.conf');
      await serverConfig(next);
      await chain.startServer(again);
      hub = await chain.startHub();
      await comes();
      await server.kill();
    },
    limitMs(180_000),
  );
});

/** Tests src/support/doctor/hub.ts. */

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { TLSSocket } from 'node:tls';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { ServerConfigPlace } from '../../src/link/hub-state.ts';
import { certificateOutcome, lookAt, serverOutcome, wayOutcome } from '../../src/support/doctor/hub.ts';
import type { ServiceUnit } from '../../src/support/doctor/unit.ts';

const DAY_MS = 86_400_000;
const PUBLIC = 'tls://hub.example.com:4222';
const START = 'sudo systemctl enable tillsync-nats && sudo systemctl restart tillsync-nats';
const signal = new AbortController().signal;

let directory: string;
let now: number;
let server: Server | undefined;
const at = (name: string) => path.join(directory, name);
const tlsOf = (name: string) => ({
  certFile: at(`${name}.pem`),
  keyFile: at(`${name}.key`),
  caFile: at('ca.pem'),
});

/** Options of openssl for an elliptic-curve key, which is made in a hundredth of the time of an RSA key. */
const QUICK_KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1'];

/** Makes a certificate for hub.example.com, signed by the test's own certificate authority. */
function makeCertificate(name: string): void {
  const subject = [...QUICK_KEY, '-nodes', '-days', '30', '-subj', '/CN=hub', '-keyout', at(`${name}.key`)];
  const signed = [
    '-CA',
    at('ca.pem'),
    '-CAkey',
    at('ca.key'),
    '-addext',
    'subjectAltName=DNS:hub.example.com',
  ];
  execFileSync('openssl', ['req', '-x509', ...subject, ...signed, '-out', at(`${name}.pem`)], {
    stdio: 'ignore',
  });
}

beforeAll(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'tillsync-hub-checks-'));
  const ca = [...QUICK_KEY, '-nodes', '-days', '90', '-subj', '/CN=chain', '-keyout', at('ca.key')];
  execFileSync('openssl', ['req', '-x509', ...ca, '-out', at('ca.pem')], { stdio: 'ignore' });
  makeCertificate('hub');
  makeCertificate('renewed');
  writeFileSync(at('server.conf'), '');
  now = Date.now();
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));
afterEach(() => server?.close());

/** Starts a server that greets like nats-server, and uses TLS if it has a certificate. Returns its address. */
async function greet(info: object | string, certificate?: string): Promise<string> {
  server = createServer((socket) => {
    socket.on('error', () => {});
    const text = typeof info === 'string' ? info : `INFO ${JSON.stringify(info)} \r\n`;
    socket.write(text);
    if (certificate === undefined) return;
    const { certFile, keyFile } = tlsOf(certificate);
    const options = { isServer: true, cert: readFileSync(certFile), key: readFileSync(keyFile) };
    new TLSSocket(socket, options).on('error', () => {});
  });
  await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
  return `nats://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const OURS = { version: '2.10.27', server_name: 'tillsync', tls_required: true };
const look = (url: string, calledAs = PUBLIC) => lookAt(url, { caFile: at('ca.pem'), calledAs }, signal);

describe('nats-server', () => {
  const place = (): ServerConfigPlace => ({ file: at('server.conf'), storeDirectory: directory, tls: null });
  const unit: ServiceUnit = {
    name: 'tillsync-nats.service',
    activeState: 'active',
    unitFileState: 'disabled',
    mainPid: 1,
    restarts: 0,
  };
  const outcome = async (url: string) => serverOutcome(url, place(), await look(url), null);

  test('with its name and a version that is new enough is well', async () => {
    expect(await outcome(await greet(OURS, 'hub'))).toMatchObject({
      level: 'ok',
      facts: { version: '2.10.27' },
    });
  });

  test.each([
    ['2.9.10', 'fail'],
    ['2.10.26', 'fail'],
    ['2.10.28', 'ok'],
    ['2.11.0-RC.1', 'ok'],
    ['3.0.0', 'ok'],
  ])('of version %s: %s', async (version, level) => {
    const found = await outcome(await greet({ ...OURS, version, tls_required: false }));
    expect(found.level).toBe(level);
    if (level === 'fail') {
      expect(found.message).toContain(`is ${version}, which is too old`);
      expect(found.remedy).toContain('sudo apt install tillsync-hub');
    }
  });

  test('that is of somebody else, or none at all, is not taken for it', async () => {
    const url = await greet({ version: '2.10.27', server_name: 'NDX2' });
    const other = await outcome(url);
    expect(other).toMatchObject({
      level: 'fail',
      message: expect.stringContaining('Another nats-server (2.10.27)'),
    });
    expect(other.remedy).toContain(`sudo systemctl disable --now nats-server && ${START}`);
    // The other server is reported as long as it has the port, even if our server's file is missing.
    expect(
      serverOutcome(url, { ...place(), file: at('gone.conf') }, await look(url), null).message,
    ).toContain('Another nats-server (2.10.27)');
    server?.close();
    for (const text of ['SSH-2.0-OpenSSH_9.2\r\n', 'INFO {\r\n', 'INFO {"version":1}\r\n']) {
      const url = await greet(text);
      expect((await outcome(url)).message).toBe(
        `The nats-server does not run. What answers at ${url} is no nats-server.`,
      );
      server?.close();
    }
  });

  test('that does not run, has no configuration, or not starts with the machine: the command that helps', async () => {
    const url = await greet(OURS);
    server?.close();
    const down = await look(url);
    expect(serverOutcome(url, place(), down, null)).toMatchObject({
      level: 'fail',
      message: `The nats-server does not run. Nothing answers at ${url} (ECONNREFUSED).`,
      remedy: expect.stringContaining(`nats-server -c ${at('server.conf')}`),
    });
    // The service is installed, but reads the file in another place.
    expect(serverOutcome(url, place(), down, unit).remedy).toBe(
      `Write the server's configuration where tillsync-nats reads it: tillsync hub server-config /var/lib/tillsync/nats/server.conf; then start it with: ${START}`,
    );
    expect(serverOutcome(url, undefined, down, unit).remedy).toBe(
      'Write it with: tillsync hub server-config',
    );
    expect(serverOutcome(url, { ...place(), file: at('gone.conf') }, down, unit).remedy).toContain(
      'hub server-config',
    );
  });
});

describe('the certificate for branches', () => {
  const outcome = (
    seen: Awaited<ReturnType<typeof look>>,
    { url = PUBLIC, tls = tlsOf('hub'), nowMs = now } = {},
  ) => certificateOutcome(url, place(tls), seen, nowMs);
  const place = (tls: ServerConfigPlace['tls']) => ({
    file: at('server.conf'),
    storeDirectory: directory,
    tls,
  });

  test('is well as long as the server shows it, and a warning says in time that it ends', async () => {
    const seen = await look(await greet(OURS, 'hub'));
    expect(outcome(seen)).toMatchObject({
      level: 'ok',
      message: expect.stringMatching(/good until \d{4}-\d\d-\d\d\.$/),
    });
    expect(outcome(seen, { nowMs: now + 17 * DAY_MS })).toMatchObject({
      level: 'warn',
      message: expect.stringContaining('12 more days'),
    });
    expect(outcome(seen, { nowMs: now + 31 * DAY_MS })).toMatchObject({
      level: 'fail',
      message: expect.stringContaining('ended at'),
    });
    expect(outcome(seen, { nowMs: now - DAY_MS }).message).toContain('is not valid before');
  });

  test('for another name, with another key, or of no form is wrong', async () => {
    const seen = { error: new Error('not looked at') };
    expect(outcome(seen, { url: 'tls://shop.example.com:4222' }).message).toBe(
      `hub.public_url says shop.example.com, and the certificate in ${at('hub.pem')} is for DNS:hub.example.com.`,
    );
    const mixed = { ...tlsOf('hub'), keyFile: at('renewed.key') };
    expect(outcome(seen, { tls: mixed }).message).toContain('does not belong to the certificate');
    writeFileSync(at('broken.pem'), 'no certificate');
    expect(outcome(seen, { tls: { ...tlsOf('hub'), certFile: at('broken.pem') } }).message).toContain(
      'no PEM files',
    );
    expect(certificateOutcome(PUBLIC, place(null), seen, now)).toMatchObject({
      level: 'fail',
      remedy: expect.stringContaining('--tls-cert FILE'),
    });
    expect(certificateOutcome('', place(null), seen, now).level).toBe('skipped');
  });

  test('that a server without TLS does not show needs a restart of it', async () => {
    expect(outcome(await look(await greet({ ...OURS, tls_required: false })))).toMatchObject({
      level: 'fail',
      message: 'The nats-server runs without TLS, as its configuration was before.',
      remedy: `End it, and start it anew: nats-server -c ${at('server.conf')}`,
    });
  });

  test('that was renewed and is not shown yet, or whose authority branches do not know', async () => {
    const url = await greet(OURS, 'hub');
    expect(outcome(await look(url), { tls: tlsOf('renewed') })).toMatchObject({
      level: 'fail',
      remedy: 'Have it read its files again: sudo systemctl reload tillsync-nats',
    });
    const unknown = await lookAt(url, { calledAs: PUBLIC }, signal);
    expect(outcome(unknown)).toMatchObject({
      level: 'fail',
      remedy: expect.stringContaining('--tls-ca FILE'),
    });
  });
});

describe('the way between hub and branches', () => {
  const at4222 = {
    hub: { nats: 'nats://127.0.0.1:4222', publicUrl: PUBLIC },
    link: { hub: '', otherHubs: [], branch: '', caFile: '' },
  };

  test('that is closed: a hub may only not see itself, a branch cannot do without', async () => {
    const url = await greet(OURS);
    server?.close();
    const seen = await look(url);
    expect(wayOutcome(at4222, seen)).toMatchObject({
      level: 'warn',
      remedy: expect.stringContaining('sudo ufw allow 4222/tcp'),
    });
    const branch = { ...at4222, link: { hub: url, otherHubs: [], branch: 'B1', caFile: '' } };
    expect(wayOutcome(branch, seen)).toMatchObject({
      level: 'fail',
      message: `Nothing answers at ${url} (ECONNREFUSED).`,
    });
  });

  test('that is open, with a certificate that a branch takes or does not', async () => {
    const url = await greet(OURS, 'hub');
    expect(wayOutcome(at4222, await look(url)).level).toBe('ok');
    const wrong = await look(url, 'tls://shop.example.com:4222');
    expect(wayOutcome(at4222, wrong)).toMatchObject({
      level: 'fail',
      message: expect.stringContaining('not trusted'),
    });
  });

  test('that is open without TLS, where TLS is asked for', async () => {
    const seen = await look(await greet({ ...OURS, tls_required: false }));
    expect(wayOutcome(at4222, seen)).toMatchObject({
      level: 'fail',
      message: `The server at ${PUBLIC} shows no certificate: it speaks without TLS.`,
    });
    const branch = (hub: string) => ({ ...at4222, link: { hub, otherHubs: [], branch: 'B1', caFile: '' } });
    expect(wayOutcome(branch(PUBLIC), seen).level).toBe('fail');
    expect(wayOutcome(branch('nats://127.0.0.1:4222'), seen).level).toBe('ok');
  });
});

import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
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

const ORDER_EVERY_MS = 100;

describe.skipIf(!hasNatsServer)('what happens, under load, when', () => {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-hub-load-'));
  const serverFile = path.join(directory, 'nats/server.conf');
  const storage = path.join(directory, 'B1');
  let hub: Workplace;
  let branch: DaemonProcess | undefined;
  let server: NatsServer;
  let port: number;
  let isOver = false;
  let load: Promise<void>;
  let made: string[] = [];

  function rows<T>(sql: string): T[] {
    const db = new Database(path.join(storage, 'mirror.db'), { readonly: true });
    try {
      return db.prepare<[], T>(sql).all();
    } finally {
      db.close();
    }
  }

  /** What was ordered so far is at the branch, each once and in its order. */
  async function expectWhole(): Promise<void> {
    const wanted = [...made];
    const there = () =>
      new Set(rows<{ id: string }>('SELECT order_id AS id FROM orders').map(({ id }) => id));
    await until('all orders are at the branch', () => wanted.every((id) => there().has(id)), 90_000);
    const doubled = 'SELECT order_id, status FROM order_events GROUP BY 1, 2 HAVING count(*) > 1';
    expect(rows(doubled)).toEqual([]);
    expect(rows('SELECT * FROM quarantine')).toEqual([]);
  }

  beforeAll(async () => {
    hub = await openWorkplace(14);
    port = await freePort();
    const before = readFileSync(hub.configFile, 'utf8').split('[[branches]]')[0];
    const own = `[hub]\nnats = "nats://127.0.0.1:${port}"\n[[branches]]\nsubsidiary_id = "sub-1"\nexternal_id = "B1"\n`;
    writeFileSync(hub.configFile, `${before}${own}`);
    const written = await hub.command('hub', 'server-config', serverFile, '--json');
    expect(written.code, written.stderr).toBe(0);
    server = await startNatsServer(serverFile, port);
    await hub.run();
    const { callbackUrl } = hub.config.webhook;
    hub.sandbox.control.setWebhook({ callbackUrl, secret: 'workplace-secret', active: true });
    mkdirSync(storage);
    const env = { PATH: process.env.PATH ?? '', TILLSYNC_CONFIG: path.join(directory, 'B1.toml') };
    const invited = await hub.command('branch', 'invite', 'B1', '--json');
    const { invitation } = JSON.parse(invited.stdout) as { invitation: string };
    const how = ['--directory', storage, '--local-listen', `127.0.0.1:${await freePort()}`];
    const joined = await runCommand(env, ['init', '--join', '-', ...how], `${invitation}\n`);
    expect(joined.code, joined.stderr).toBe(0);
    const log = '\n[log]\nlevel = "debug"\npretty = false\n';
    writeFileSync(env.TILLSYNC_CONFIG, `${readFileSync(env.TILLSYNC_CONFIG, 'utf8')}${log}`);
    branch = await runDaemon(env, new Set(), []);
    load = (async () => {
      while (!isOver) {
        const { internalOrderId } = hub.sandbox.control.createOrder({ subsidiaryId: 'sub-1' });
        made = [...made, internalOrderId];
        await setTimeout(ORDER_EVERY_MS);
      }
    })();
    await until('the first order is at the branch', () => rows('SELECT 1 FROM orders').length > 0, 60_000);
  }, 180_000);

  afterAll(async () => {
    isOver = true;
    await load;
    branch?.child.kill('SIGKILL');
    await server?.kill();
    await hub?.close();
    rmSync(directory, { recursive: true, force: true });
  });

  it('nats-server is killed', async () => {
    await server.kill();
    await setTimeout(1_000);
    server = await startNatsServer(serverFile, port);
    await expectWhole();
  }, 120_000);

  it("the server's files are lost", async () => {
    await server.kill();
    rmSync(path.join(directory, 'nats/jetstream'), { recursive: true });
    server = await startNatsServer(serverFile, port);
    await expectWhole();
  }, 120_000);

  it('the server is restarted in order', async () => {
    server.signal('SIGTERM');
    await server.ended;
    server = await startNatsServer(serverFile, port);
    await expectWhole();
  }, 120_000);

  it('the server reads its configuration again', async () => {
    for (let times = 0; times < 5; times++) {
      server.signal('SIGHUP');
      await setTimeout(200);
    }
    await expectWhole();
    expect(server.log()).toMatch(/Reloaded server configuration/);
  }, 120_000);

  it('the clients are thrown out', async () => {
    // So quick an end is not given to clients by themselves: the test need not wait for the server's two minutes.
    server.signal('SIGUSR2');
    await until('it throws them out', () => /lame duck/i.test(server.log()), 30_000);
    await setTimeout(1_000);
    await server.kill();
    server = await startNatsServer(serverFile, port);
    await expectWhole();
  }, 120_000);
});

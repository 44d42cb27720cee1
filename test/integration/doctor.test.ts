import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, rmSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { invoke } from '../cli/invoke.ts';
import { freePort } from '../support/free-port.ts';
import { limitMs } from '../support/shared-config.ts';
import { type DaemonProcess, openWorkplace, until, type Workplace } from '../support/workplace.ts';

const canMount = process.getuid?.() === 0 && spawnSync('unshare', ['--mount', 'true']).status === 0;
const canChangeUser = process.getuid?.() === 0 && existsSync('/usr/bin/setpriv');
const POS = 61_003;

interface Report {
  code: number | null;
  checks: Map<string, { level: string; message: string; remedy: string | null }>;
}

let place: Workplace;
let line: Line;
let daemon: DaemonProcess | undefined;

/** The connection to the platform, which can be cut and restored. */
class Line {
  readonly port: number;
  readonly #to: number;
  readonly #sockets = new Set<Socket>();
  #server: Server | undefined;

  constructor(port: number, to: number) {
    this.port = port;
    this.#to = to;
  }

  async plug(): Promise<void> {
    const server = createServer((socket) => {
      const other = connect(this.#to, '127.0.0.1');
      for (const [one, next] of [
        [socket, other],
        [other, socket],
      ] as const) {
        this.#sockets.add(one);
        one.on('error', () => next.destroy()).on('close', () => next.destroy());
        one.pipe(next);
      }
    });
    this.#server = server;
    await new Promise<void>((resolve) => server.listen(this.port, '127.0.0.1', resolve));
  }

  async pull(): Promise<void> {
    const closed = new Promise((resolve) => this.#server?.close(resolve) ?? resolve(undefined));
    for (const socket of this.#sockets) socket.destroy();
    this.#sockets.clear();
    await closed;
  }
}

async function doctor(...words: string[]): Promise<Report> {
  const { code, stdout } = await invoke(['doctor', '--json', ...words], { env: place.env });
  const { checks } = JSON.parse(stdout) as {
    checks: { id: string; level: string; message: string; remedy: string }[];
  };
  return { code, checks: new Map(checks.map(({ id, ...rest }) => [id, rest])) };
}

/** Returns the ids of checks with a warning or a failure. */
function wrong({ checks }: Report): string[] {
  return [...checks].filter(([, { level }]) => level === 'warn' || level === 'fail').map(([id]) => id);
}

async function verdict(): Promise<{ level: string; codes: string[] }> {
  const answer = await fetch(`${daemon?.localUrl}/v1/status`);
  const { verdict: said } = (await answer.json()) as {
    verdict: { level: string; findings: { code: string }[] };
  };
  return { level: said.level, codes: said.findings.map(({ code }) => code) };
}

async function headline(): Promise<string> {
  return (await invoke(['status'], { env: place.env })).stdout.split('\n')[1] ?? '';
}

const isGreen = async () => (await verdict()).level === 'green';
const says = (code: string) => async () => (await verdict()).codes.includes(code);

beforeEach(async () => {
  place = await openWorkplace(31);
  line = new Line(await freePort(), Number(new URL(place.sandbox.url).port));
  await line.plug();
  place.env.TILLSYNC_PLATFORM_BASE_URL = `http://127.0.0.1:${line.port}`;
});
afterEach(async () => {
  await daemon?.end('SIGTERM');
  daemon = undefined;
  await line.pull();
  expect(place.sandbox.control.violations()).toEqual([]);
  await place.close();
});

async function start(): Promise<void> {
  daemon = await place.run();
  place.sandbox.control.createOrder();
  await until('all is well', isGreen);
}

describe('what goes wrong', () => {
  it(
    'is told by the page, the status and the doctor alike, and is over when it is over',
    async () => {
      const { control } = place.sandbox;
      await start();
      await until('the catalogue is there', async () => (await doctor('--only', 'catalog')).code === 0);
      const well = await doctor();
      expect({ code: well.code, wrong: wrong(well) }).toEqual({ code: 0, wrong: [] });
      for (const id of [
        'platform.products',
        'platform.product',
        'webhook.registered',
        'platform.clock',
        'webhook.public',
      ]) {
        expect(well.checks.get(id)?.level, id).toBe('ok');
      }

      await line.pull();
      await until('the page says that orders are not fetched', says('orders.poll'));
      const cut = await doctor();
      expect(cut.code).toBe(1);
      expect(cut.checks.get('platform.network')).toMatchObject({
        level: 'fail',
        message: expect.stringContaining('(ECONNREFUSED)'),
        remedy: expect.stringContaining('address and its port'),
      });
      expect(cut.checks.get('platform.products')?.level).toBe('skipped');
      expect(await headline()).toMatch(
        /^Working, but needs attention today: The last attempt to fetch orders failed\./,
      );
      await line.plug();
      await until('orders are fetched again', isGreen, 30_000);
      expect((await doctor('--only', 'platform')).code).toBe(0);

      control.revokeRefreshTokens();
      expect((await invoke(['auth', 'refresh'], { env: place.env })).code).toBe(4);
      await until('the page asks for tokens', says('auth.locked-out'));
      const locked = await doctor();
      expect(locked.code).toBe(4);
      expect(locked.checks.get('tokens')).toMatchObject({
        level: 'fail',
        remedy: expect.stringMatching(/tillsync .*--config \S+ auth set/),
      });
      expect(await headline()).toMatch(/^Action needed now: The platform no longer accepts the tokens/);
      place.env.TILLSYNC_REFRESH_TOKEN = place.sandbox.issueTokens().refreshToken;
      expect((await invoke(['auth', 'refresh'], { env: place.env })).code).toBe(0);
      await until('the new tokens are taken', isGreen, 30_000);
      expect((await doctor('--only', 'tokens')).code).toBe(0);

      control.setWebhookBehaviour({ drop: 1 });
      await until('the page says that callbacks are silent', async () => {
        control.createOrder();
        return says('webhook.external-pos')();
      });
      const silent = await doctor();
      expect({ code: silent.code, wrong: wrong(silent) }).toEqual({ code: 3, wrong: ['webhook.arriving'] });
      expect(silent.checks.get('webhook.arriving')?.remedy).toMatch(/tillsync .*--config \S+ webhook test/);
      expect(await headline()).toMatch(
        /^Working, but needs attention today: The platform has never sent a callback/,
      );
      control.setWebhookBehaviour({ drop: 0 });
      // An order that a poll found while callbacks were lost still counts as unannounced at the next poll.
      await until('callbacks come again', async () => {
        control.createOrder();
        return isGreen();
      });
      expect((await doctor('--only', 'webhook.arriving')).code).toBe(0);

      const before = control.webhook();
      control.setWebhook(null);
      const gone = await doctor('--only', 'webhook.registered');
      expect(gone.checks.get('webhook.registered')?.message).toContain('It has none');
      control.setWebhook(before);
      expect((await doctor('--only', 'webhook.registered')).code).toBe(0);

      control.configure({ clockSkewMs: 300_000 });
      const skewed = await doctor('--only', 'platform');
      expect({ code: skewed.code, wrong: wrong(skewed) }).toEqual({ code: 3, wrong: ['platform.clock'] });
      expect(skewed.checks.get('platform.clock')?.message).toMatch(
        /clock is (5m|4m 59s|5m 1s) behind the platform's/,
      );
      control.configure({ clockSkewMs: 0 });
      expect((await doctor('--only', 'platform')).code).toBe(0);
    },
    limitMs(90_000),
  );

  it('is told when tillsync does not run, and what was deleted beside the mirror is made anew', async () => {
    await start();
    await daemon?.end('SIGTERM');
    daemon = undefined;
    rmSync(path.join(place.storage, 'mirror.db-wal'));
    rmSync(path.join(place.storage, 'mirror.db-shm'));
    const callsBefore = place.sandbox.control.calls().length;
    const stopped = await doctor();
    // `doctor` makes only calls that read, and leaves GET /order/all to the poll.
    const calls = place.sandbox.control.calls().slice(callsBefore);
    expect(calls.map(({ endpoint }) => endpoint)).toEqual(['product.list', 'product.get', 'webhook.get']);
    expect({ code: stopped.code, wrong: wrong(stopped) }).toEqual({
      code: 1,
      wrong: ['storage.files', 'service'],
    });
    expect(stopped.checks.get('storage.files')?.message).toContain('were missing');
    expect(existsSync(path.join(place.storage, 'mirror.db-shm'))).toBe(true);
    expect(stopped.checks.get('platform.products')?.level).toBe('ok');
    expect(stopped.checks.get('webhook.receiver')?.level).toBe('skipped');
    expect(wrong(await doctor('--offline'))).toEqual(['service']);
    expect(await headline()).toMatch(/^Action needed now: tillsync is not running/);
  });
});

describe.skipIf(!canMount)('a disk that runs full', () => {
  it(
    'is told by the page, the status and the doctor, and is over when there is room',
    async () => {
      mkdirSync(place.storage, { mode: 0o2750 });
      execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=2g,mode=2750', 'tmpfs', place.storage]);
      try {
        await start();
        const resize = (size: string) => execFileSync('mount', ['-o', `remount,size=${size}`, place.storage]);
        resize('300m');
        expect(await verdict()).toMatchObject({ level: 'amber', codes: ['storage.low'] });
        expect((await doctor('--only', 'storage')).code).toBe(3);
        // Fills the disk to the last page, so that nothing more can be written.
        resize('8m');
        const filler = path.join(place.storage, 'filler');
        expect(spawnSync('dd', ['if=/dev/zero', `of=${filler}`, 'bs=4k']).status).not.toBe(0);
        place.sandbox.control.createOrder();
        await until('the page says that the disk is full', says('storage.full'));
        const full = await doctor();
        expect(full.code).toBe(1);
        expect(full.checks.get('storage.disk')).toMatchObject({
          level: 'fail',
          message: expect.stringMatching(/^The disk is full\. .* Only 0 B of 8 MiB are free\.$/),
        });
        expect(await headline()).toMatch(/^Action needed now: The disk is full/);
        rmSync(filler);
        resize('2g');
        place.sandbox.control.createOrder();
        await until('the doctor finds nothing any more', async () => (await doctor()).code === 0, 30_000);
        await until('the verdict is green', isGreen);
      } finally {
        await daemon?.end('SIGTERM');
        daemon = undefined;
        execFileSync('umount', ['--lazy', place.storage]);
      }
    },
    limitMs(60_000),
  );
});

describe.skipIf(!canChangeUser)('another user', () => {
  it('is told what it may not look into, and who may', async () => {
    await start();
    execFileSync('chmod', ['755', place.directory]);
    const words = ['--reuid', `${POS}`, '--regid', `${POS}`, '--clear-groups', process.execPath];
    const main = path.resolve(import.meta.dirname, '../../src/cli/main.ts');
    const { status, stdout } = spawnSync('setpriv', [...words, main, 'doctor'], {
      env: place.env,
      encoding: 'utf8',
    });
    // A check without the permission to read was skipped, so the result is not "all well".
    expect(status).toBe(3);
    expect(stdout).toMatch(/^skip Tokens +.*(permission|belongs to another user)/im);
    expect(stdout.match(/-> .*tillsync .*doctor/g)).toHaveLength(1);
    expect(stdout).toMatch(/^ok +Service/m);
  });
});

import { once } from 'node:events';
import { appendFileSync, chmodSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import type { AlarmKey } from '../../src/core/alarm.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { openWorkplace, until, type Workplace } from '../support/workplace.ts';

/** Time limit for an alarm message. Facts are checked only every 15 seconds. */
const FOUND_WITHIN_MS = 40_000;
const TOKEN = 'token-for-the-alarm-service';

interface Told {
  state: string;
  key: string;
  [field: string]: unknown;
}

let place: Workplace;
let server: Server;
let posted: { told: Told; headers: IncomingHttpHeaders }[];
let answerWith: number;
let program: string;
let heardFile: string;

beforeEach(async () => {
  place = await openWorkplace(11);
  posted = [];
  answerWith = 204;
  server = createServer((request, response) => {
    let text = '';
    request.on('data', (chunk) => {
      text += chunk;
    });
    request.on('end', () => {
      if (answerWith < 300) posted.push({ told: JSON.parse(text), headers: request.headers });
      response.writeHead(answerWith).end();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  heardFile = path.join(place.directory, 'heard');
  program = path.join(place.directory, 'tell');
  writeFileSync(
    program,
    `#!/bin/sh\n{ cat; env | sort | sed 's/^/env /'; echo "arg $1"; } >> ${heardFile}\nexit "$(cat ${heardFile}.exit 2>/dev/null || echo 0)"\n`,
  );
  chmodSync(program, 0o755);
});
afterEach(async () => {
  await place.close();
  server.close();
});

function configure(more = ''): void {
  const { port } = server.address() as AddressInfo;
  appendFileSync(
    place.configFile,
    `[alarms]\ncommand = ["${program}", "a b; $(c)"]\nurl = "http://127.0.0.1:${port}/hook?key=hidden-in-the-address"\nsettle = "500ms"\n${more}`,
  );
  place.env.TILLSYNC_SHOP_NAME = 'Shop 7';
  place.env.TILLSYNC_ALARM_TOKEN = TOKEN;
}

function configureDailyMax(most: number): void {
  const text = readFileSync(place.configFile, 'utf8');
  writeFileSync(place.configFile, text.replace(/daily_max = \d+/, `daily_max = ${most}`));
}

/** Begins or ends the cause of an alarm in the databases, from outside the daemon. */
async function beside(act: 'raise' | 'lower', key: AlarmKey): Promise<void> {
  if (key === 'platform.forbidden') return forbid(act === 'raise');
  const mirror = openMirror({ path: path.join(place.storage, 'mirror.db'), clock: systemClock });
  if (act === 'raise') mirror.health.note(key, `${key} for this test.`);
  else mirror.health.note(key, null);
  await mirror.close();
}

/** Inserts or deletes the block that repeated 403 answers of one endpoint cause while other endpoints are answered. */
function forbid(isForbidden: boolean): void {
  const state = new Database(path.join(place.storage, 'state.db'));
  state.exec(
    isForbidden
      ? "INSERT INTO blocks (scope, endpoint, from_mono_ms, duration_ms, message) VALUES ('product.stock.put', 'product.stock.put', 0, 0, 'No rights')"
      : "DELETE FROM blocks WHERE scope = 'product.stock.put'",
  );
  state.close();
}

const lines = () => (existsSync(heardFile) ? readFileSync(heardFile, 'utf8').trim().split('\n') : []);
const heard = () =>
  lines()
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line) as Told);
const brief = (all: readonly Told[]) => all.map(({ state, key }) => `${state} ${key}`);
const bothHeard = (count: number) =>
  until(
    `both heard ${count} messages`,
    () => heard().length >= count && posted.length >= count,
    FOUND_WITHIN_MS,
  );

describe('alarms to a command and an address', () => {
  it('come once, are neither repeated nor forgotten over a kill, and come again when healed', async () => {
    configure();
    const first = await place.run();
    await beside('raise', 'platform.forbidden');
    await beside('raise', 'mirror.too-large');
    const taken = () => first.log().match(/an alarm was told/g)?.length ?? 0;
    await until('both have taken both', () => taken() === 4, FOUND_WITHIN_MS);
    await first.end('SIGKILL');
    const second = await place.run();
    await beside('lower', 'mirror.too-large');
    await bothHeard(3);
    await second.end('SIGTERM');
    const third = await place.run();
    await beside('raise', 'mirror.too-large');
    await bothHeard(4);
    await third.end('SIGTERM');

    const told = [
      'raised platform.forbidden',
      'raised mirror.too-large',
      'healed mirror.too-large',
      'raised mirror.too-large',
    ];
    expect(brief(heard())).toEqual(told);
    expect(brief(posted.map((each) => each.told))).toEqual(told);
  });

  it('carry what a person needs, and no secret', async () => {
    configure();
    const daemon = await place.run();
    await beside('raise', 'platform.forbidden');
    await bothHeard(1);
    const [told] = heard();
    expect(told).toMatchObject({
      level: 'amber',
      shop: 'Shop 7',
      detail: 'Rejected calls: product.stock.put (403: No rights).',
    });
    expect(told?.message).toMatch(/doesn't permit some calls/);
    expect(told?.text).toMatch(/^\[AMBER\] Shop 7: .*\(platform\.forbidden, since \d\d:\d\d\)$/);
    expect(posted[0]?.told).toMatchObject({ key: 'platform.forbidden', since: told?.since });
    expect(posted[0]?.headers.authorization).toBe(`Bearer ${TOKEN}`);
    await until('the command has ended', () => lines().includes('arg a b; $(c)'));
    expect(lines()).toContain('env TILLSYNC_ALARM_KEY=platform.forbidden');
    expect(lines()).toContain(`env TILLSYNC_ALARM_TEXT=${told?.text}`);

    answerWith = 500;
    await beside('raise', 'customers.not-forgotten');
    await until('the failure is in the log', () => daemon.log().includes('answered 500'));
    await daemon.end('SIGTERM');
    const given = [TOKEN, place.refreshToken, place.env.TILLSYNC_WEBHOOK_SECRET as string];
    for (const secret of given) expect(lines().join('\n')).not.toContain(secret);
    for (const secret of [...given, 'hidden-in-the-address']) expect(daemon.log()).not.toContain(secret);
  });

  it('stop at the daily cap, over a restart, and say so', async () => {
    configure('daily_max = 2\n');
    const first = await place.run();
    await beside('raise', 'platform.forbidden');
    await bothHeard(1);
    await first.end('SIGTERM');
    const second = await place.run();
    await beside('raise', 'mirror.too-large');
    await bothHeard(2);
    await beside('raise', 'customers.not-forgotten');
    await bothHeard(3);
    await beside('lower', 'platform.forbidden');
    await second.end('SIGTERM');
    expect(brief(heard()).slice(2)).toEqual(['muted alarms.daily-max']);
    expect(posted).toHaveLength(3);
    // With a higher maximum, both messages are sent, so they were only held back by the maximum.
    configureDailyMax(9);
    const third = await place.run();
    await bothHeard(5);
    await third.end('SIGTERM');
    const heldBack = ['healed platform.forbidden', 'raised customers.not-forgotten'];
    expect(brief(heard()).slice(3).sort()).toEqual(heldBack);
    expect(
      brief(posted.map((each) => each.told))
        .slice(3)
        .sort(),
    ).toEqual(heldBack);
  });

  it('tell that the platform refuses the tokens, and that new ones were handed over', async () => {
    configure();
    place.env.TILLSYNC_REFRESH_TOKEN = 'never-given-by-the-platform';
    // Only the alarm about tokens is compared, because the catalogue, unreadable meanwhile, may recover later.
    const ofTokens = () => brief(heard()).filter((told) => told.endsWith(' auth.locked-out'));
    const daemon = await place.run();
    await until('the refusal was told', () => ofTokens().length === 1);
    expect(brief(heard())).toEqual(['raised auth.locked-out']);
    place.env.TILLSYNC_REFRESH_TOKEN = place.refreshToken;
    await daemon.end('SIGTERM');
    const again = await place.run();
    await until('its end was told', () => ofTokens().length === 2);
    await again.end('SIGTERM');
    expect(ofTokens()).toEqual(['raised auth.locked-out', 'healed auth.locked-out']);
  });

  it('are tried by the running tillsync, as its user and in its surroundings', async () => {
    configure();
    place.env.LANG = 'C.daemon';
    const daemon = await place.run();
    place.env.LANG = 'C.command';
    const tried = await place.command('config', 'test-alarms', '--json');
    expect(tried).toMatchObject({ code: 0 });
    expect(JSON.parse(tried.stdout)).toMatchObject({ ok: true, by: 'daemon' });
    expect(brief(heard())).toEqual(['test alarms.test']);
    expect(lines()).toContain('env LANG=C.daemon');
    chmodSync(program, 0o644);
    const denied = await place.command('config', 'test-alarms');
    expect(denied.code).toBe(1);
    expect(denied.stdout).toMatch(/FAILED +the command tell: .*cannot be started: permission denied/);
    rmSync(program);
    expect((await place.command('config', 'test-alarms')).stdout).toContain('the program is not there');
    await daemon.end('SIGTERM');
  });

  it('can be tried: tillsync config test-alarms', async () => {
    expect(await place.command('config', 'test-alarms')).toMatchObject({ code: 2 });
    configure();
    expect(await place.command('config', 'test-alarms')).toMatchObject({ code: 0 });
    expect(brief(heard())).toEqual(['test alarms.test']);
    expect(posted).toHaveLength(1);
    writeFileSync(`${heardFile}.exit`, '3');
    const failed = await place.command('config', 'test-alarms', '--json');
    expect(failed.code).toBe(1);
    expect(JSON.parse(failed.stdout)).toMatchObject({
      ok: false,
      results: [
        { receiver: 'command', ok: false, message: 'The alarm command ended with 3.' },
        { receiver: 'url', ok: true },
      ],
    });
    expect(failed.stdout + failed.stderr).not.toContain('hidden-in-the-address');
  });
});

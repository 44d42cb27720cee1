import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, statSync } from 'node:fs';
import path from 'node:path';
import type { BrowserContextOptions } from 'playwright-core';
import { systemClock } from '../../../src/core/system-clock.ts';
import { DemoPos } from '../../../src/demo/demo-pos.ts';
import { API_KEY } from '../../support/api-key.ts';
import { seededRandom } from '../../support/fake-clock.ts';
import { ROOT, until } from '../../support/workplace.ts';
import { letFare } from './branch-board.ts';
import { launchBrowser, openPage, openStore, type PageStore } from './browser-rig.ts';

/** `npm run pictures` takes the README's pictures of the page of a busy store and of a hub, each with a sandbox. */
const PLACE = path.join(ROOT, 'src/page/pictures');
const PNGQUANT = '/usr/bin/pngquant';
const HOUR_MS = 3_600_000;
/** Orders in each of the last hours, newest first: a lunch and a dinner. */
const ORDERS_AN_HOUR = [5, 9, 7, 3, 1, 1, 0, 0, 0, 0, 0, 0, 1, 2, 3, 6, 11, 9, 5, 2];
const OPEN = ['picker-pending', 'inProcess', 'inProcess', 'ready', 'routed', 'pending'];
const TRADE_MS = 15_000;
const BRANCHES = [
  'apoquindo',
  'concepcion',
  'las-condes',
  'providencia',
  'talca',
  'temuco',
  'valdivia',
  'vina',
];

const DESKTOP = { viewport: { width: 1280, height: 760 }, colorScheme: 'light' } as const;
const PHONE = {
  viewport: { width: 390, height: 844 },
  deviceScaleFactor: 2,
  isMobile: true,
  hasTouch: true,
  colorScheme: 'dark',
} as const;

mkdirSync(PLACE, { recursive: true });
const random = seededRandom(5);
const browser = await launchBrowser();
const store = await openStore({ accessTokenLifetimeMs: 60_000, name: 'Café Central', currency: 'CLP' });
try {
  await fill(store);
  await take('page-desktop-light', DESKTOP, 'green');
  await take('page-phone-dark', PHONE, 'green');
  store.place.sandbox.control.revokeRefreshTokens();
  store.place.sandbox.control.expireAccessTokens();
  await take('page-desktop-red', { ...DESKTOP, viewport: { width: 1280, height: 620 } }, 'red');
} finally {
  await store.close();
}
const hub = await openStore({ name: 'Café Central', currency: 'CLP', branches: BRANCHES });
try {
  await letFare(hub, BRANCHES, {
    'las-condes': { seen: 96, behind: 31, behindFor: 95, waiting: 212, oldest: 94 },
    temuco: { finding: 'outbox.rejected', rejected: 3 },
    valdivia: null,
  });
  const { page, close } = await openPage(browser, hub.url, { timezoneId: 'America/Santiago', ...DESKTOP });
  await keep('page-branches', (path) =>
    page.locator('.branches').screenshot({ path, animations: 'disabled' }),
  );
  await close();
} finally {
  await hub.close();
  await browser.close();
}

/** Makes orders of the last hours, the newest of them open, and a POS that sells. */
async function fill({ place, daemon }: PageStore): Promise<void> {
  const { control } = place.sandbox;
  const nowMs = systemClock.nowMs();
  await until('callbacks are asked for', () => control.webhook() !== null);
  for (const [hour, orders] of [...ORDERS_AN_HOUR.entries()].reverse()) {
    for (let i = 0; i < orders; i++) {
      const createdAtMs = nowMs - (hour + 1 - (i + random.next()) / orders) * HOUR_MS;
      const { internalOrderId } = control.createOrder({ createdAtMs, status: 'payment-approved' });
      const open = hour === 0 ? OPEN[i % OPEN.length] : hour === 1 ? OPEN[i + 1] : undefined;
      control.advanceOrder(internalOrderId, open ?? (random.next() < 0.05 ? 'cancel' : 'dispatched'));
    }
    await until(
      'the orders of this hour are here',
      () => place.mirrorRows().length === control.orders().length,
    );
  }
  const pos = new DemoPos({ localUrl: () => daemon.localUrl, key: API_KEY, clock: systemClock, random });
  await pos.trade(AbortSignal.timeout(TRADE_MS));
  await pos.close();
}

async function take(name: string, context: BrowserContextOptions, level: string): Promise<void> {
  const { page, close } = await openPage(browser, store.url, { timezoneId: 'America/Santiago', ...context });
  await page.locator(`.verdict-${level}`).waitFor();
  await keep(name, (file) => page.screenshot({ path: file, animations: 'disabled' }));
  await close();
}

/** Takes a picture and compresses it. */
async function keep(name: string, shoot: (file: string) => Promise<unknown>): Promise<void> {
  const file = path.join(PLACE, `${name}.png`);
  await shoot(file);
  if (existsSync(PNGQUANT)) {
    execFileSync(PNGQUANT, ['--force', '--strip', '--quality=60-95', '--output', file, file]);
  }
  console.info(`${file}: ${Math.round(statSync(file).size / 1024)} kB`);
}

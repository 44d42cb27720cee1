/** Tests src/page/views/why-view.ts, and how each state of the page looks. */
import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { formatCommands } from '../../../src/core/errors.ts';
import type { Finding } from '../../../src/health/facts.ts';
import { FINDINGS } from '../../../src/health/findings.ts';
import type { StatusAnswer } from '../../../src/page/api.ts';
import { limitMs } from '../../support/shared-config.ts';
import { until } from '../../support/workplace.ts';
import { letFare } from './branch-board.ts';
import { hasChromium, launchBrowser, openPage, openStore, type PageStore } from './browser-rig.ts';

/**
 * `TILLSYNC_PICTURES` is a directory for a picture of each look. Without it, only a few looks are checked, but each
 * pair of choices, such as dark and Spanish, occurs in one of them.
 */
const PICTURES = process.env.TILLSYNC_PICTURES;
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

const WIDTHS = [
  ['1280', { viewport: { width: 1280, height: 800 } }],
  ['390', { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true }],
] as const;
const SCHEMES = ['light', 'dark'] as const;
const LOCALES = ['en-US', 'es-CL'] as const;

const LOOKS = WIDTHS.flatMap(([width, size]) =>
  SCHEMES.flatMap((colorScheme) =>
    LOCALES.map((locale) => ({
      name: `${width}-${colorScheme}-${locale.slice(0, 2)}`,
      context: { ...size, colorScheme, locale, timezoneId: 'America/Santiago', bypassCSP: true },
    })),
  ),
);

const BRANCHES = ['providencia', 'las-condes', 'talca', 'temuco', 'valdivia'];
const since = (minutes: number) => new Date(Date.now() - minutes * 60_000).toISOString();

const isPair = (name: string) =>
  ['1280-light-en', '1280-dark-es', '390-light-es', '390-dark-en'].includes(name);
const LOOKED_AT = PICTURES === undefined ? LOOKS.filter(({ name }) => isPair(name)) : LOOKS;

/** Four findings that may occur together; each text is the product's own. */
const FOUR: readonly Finding[] = (
  [
    ['orders.stale', 14, 'connect ECONNREFUSED 203.0.113.7:443'],
    ['outbox.rejected', 95, null],
    ['stock.differs', 180, null],
    ['hooks.lagging', 33, 'The hook kitchen has not taken event 4711, for it answered 500.'],
  ] as const
).map(([code, minutes, detail]) => {
  const { message, remedy, flow } = FINDINGS[code];
  const told = { message: message.replace(': {count}', ''), remedy: formatCommands(remedy) };
  return { ...told, code, level: 'amber', since: since(minutes), count: null, detail, flow };
});

/** A state of a store whose page is checked. `until` waits until the page shows this state. */
interface State {
  name: string;
  open(): Promise<PageStore>;
  /** Brings the store into this state. */
  make?(store: PageStore): Promise<void>;
  answer?(status: StatusAnswer): StatusAnswer;
  until(page: Page): Promise<unknown>;
}

const level = (wanted: string) => (page: Page) => page.locator(`.verdict-${wanted}`).waitFor();

const STATES: readonly State[] = [
  {
    name: 'well',
    open: () => openStore({ name: 'Café Central', currency: 'CLP' }),
    make: trade,
    async until(page) {
      await level('green')(page);
      await page.locator('.card').first().waitFor();
    },
  },
  {
    name: 'amber-four',
    open: () => openStore({ name: 'Café Central', currency: 'CLP' }),
    make: trade,
    answer: (status) => ({ ...status, verdict: { level: 'amber', findings: [...FOUR] } }),
    async until(page) {
      await level('amber')(page);
      await page.locator('.card').first().waitFor();
    },
  },
  {
    name: 'red',
    open: () => openStore({ name: 'Café Central', currency: 'CLP', accessTokenLifetimeMs: 3_000 }),
    async make(store) {
      await trade(store);
      store.place.sandbox.control.revokeRefreshTokens();
      store.place.sandbox.control.expireAccessTokens();
    },
    until: level('red'),
  },
  {
    name: 'key',
    open: () => openStore({ name: 'Café Central', localApiKey: 'llave-1' }),
    until: (page) => page.getByRole('dialog').waitFor(),
  },
  {
    name: 'hub',
    open: () => openStore({ name: 'Café Central', currency: 'CLP', branches: BRANCHES }),
    make: (store) =>
      letFare(store, BRANCHES, {
        'las-condes': { seen: 96, behind: 31, behindFor: 95, waiting: 212, oldest: 94 },
        temuco: { finding: 'outbox.rejected', rejected: 3 },
        valdivia: null,
      }),
    until: (page) => page.locator('.branches tbody tr').first().waitFor(),
  },
  {
    name: 'order-why',
    open: () => openStore({ name: 'Café Central', currency: 'CLP' }),
    make: explained,
    async until(page) {
      await page.locator('.card', { hasText: '#11' }).click();
      await page.locator('.sheet .buttons .quiet').click();
      await page.locator('.timeline li').nth(1).waitFor();
    },
  },
  {
    name: 'stock-why',
    open: () => openStore({ name: 'Café Central', currency: 'CLP' }),
    make: explained,
    async until(page) {
      await page.locator('#search').fill('1001');
      await page.locator('.product .why').first().click();
      await page.locator('.timeline li').nth(1).waitFor();
    },
  },
  { name: 'first-day', open: () => openStore({ name: 'Café Central' }), until: level('green') },
];

/** Makes orders in every stage, as at lunch. */
async function trade({ place: { sandbox } }: PageStore): Promise<void> {
  const { control } = sandbox;
  await until('callbacks are asked for', () => control.webhook() !== null);
  const statuses = ['pending', 'pending', 'pending', 'payment-approved', 'picker-pending', 'inProcess'];
  for (const [i, status] of [...statuses, 'ready', 'routed', 'dispatched', 'shippingError'].entries()) {
    control.createOrder({ status, createdAtMs: Date.now() - (i + 1) * 240_000 });
  }
}

/** Makes an order that the POS acknowledges after it has changed, and a stock that the POS counts. */
async function explained(store: PageStore): Promise<void> {
  const { control } = store.place.sandbox;
  await trade(store);
  const order = control.createOrder({ status: 'payment-approved', createdAtMs: Date.now() });
  const has = (status: string) => () =>
    store.place.mirrorRows().some((row) => row.order_id === order.internalOrderId && row.status === status);
  await until('the order is here', has('payment-approved'));
  control.advanceOrder(order.internalOrderId, 'picker-pending');
  await until('the order has changed', has('picker-pending'));
  await store.post('/orders/ack', [order.internalOrderId]);
  const catalogue = async () => {
    const answer = await fetch(`${new URL(store.url).origin}/v1/products?sku=1001`, {
      headers: { connection: 'close' },
    });
    return ((await answer.json()) as { products: unknown[] }).products.length > 0;
  };
  await until('the catalogue is read', catalogue);
  await store.post('/stock', [{ externalId: 'A-1001-1', qty: 12, reference: 'till-7/88' }]);
}

describe.skipIf(!hasChromium)('the page, however it is looked at', () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launchBrowser();
    if (PICTURES !== undefined) mkdirSync(PICTURES, { recursive: true });
  });
  afterAll(() => browser?.close());

  it.each(STATES)(
    'page, $name: read by everyone, nothing wider than the screen',
    { timeout: limitMs(120_000) },
    async (state) => {
      const store = await state.open();
      try {
        await state.make?.(store);
        for (const { name, context } of LOOKED_AT) {
          const faults = await lookAt(store, state, context, name);
          expect(faults, `${state.name} ${name}`).toEqual([]);
        }
      } finally {
        await store.close();
      }
    },
  );

  async function lookAt(
    store: PageStore,
    state: State,
    context: BrowserContextOptions,
    name: string,
  ): Promise<string[]> {
    const { page, complaints, close } = await openPage(browser, 'about:blank', context, false);
    try {
      const { answer } = state;
      if (answer) {
        await page.route(/\/v1\/status$/, async (route) => {
          const response = await route.fetch();
          await route.fulfill({ response, json: answer((await response.json()) as StatusAnswer) });
        });
      }
      await page.goto(store.url);
      await state.until(page);
      await page.locator('.flow, dialog[open]').first().waitFor();
      if (PICTURES !== undefined) {
        const file = path.join(PICTURES, `${state.name}-${name}.png`);
        await page.screenshot({ path: file, fullPage: true, animations: 'disabled' });
      }
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      await page.evaluate(AXE);
      const faults = await page.evaluate(async () => {
        const { axe } = window as unknown as { axe: typeof import('axe-core') };
        const { violations } = await axe.run(document);
        return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' ')}`);
      });
      // Without the API key each call is refused with 401, which the browser logs as an error.
      const strange = complaints.filter((each) => state.name !== 'key' || !each.includes('401'));
      return [...faults, ...strange, ...(wide > 0 ? [`${wide} px too wide`] : [])];
    } finally {
      await close();
    }
  }
});

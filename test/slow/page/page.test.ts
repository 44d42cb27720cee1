import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { keyDigest } from '../../../src/db/api-keys.ts';
import { API_KEY } from '../../support/api-key.ts';
import { sampleNotification } from '../../support/order-samples.ts';
import { limitMs } from '../../support/shared-config.ts';
import { SECRET } from '../../support/workplace.ts';
import {
  CHROMIUM,
  hasChromium,
  launchBrowser,
  type OpenedPage,
  openPage,
  openStore,
  type PageStore,
  type PageStoreOptions,
} from './browser-rig.ts';

if (!hasChromium) {
  console.warn(`Not tested: there is no ${CHROMIUM}. Install it (apt-get install -y chromium).`);
}

let browser: Browser;
let store: PageStore;
let opened: OpenedPage;
let page: Page;

async function open(options: PageStoreOptions = {}, context = {}, address?: string) {
  store = await openStore(options);
  await look(context, address);
}

async function look(context = {}, address = store.url) {
  opened = await openPage(browser, address, context);
  ({ page } = opened);
}

const verdict = () => page.locator('.verdict');
const level = (name: 'green' | 'amber' | 'red') => page.locator(`.verdict-${name}`).waitFor();
const stage = (name: string) => page.locator('.stage', { has: page.getByRole('heading', { name }) });
const control = () => store.place.sandbox.control;

describe.skipIf(!hasChromium)('the status page in Chromium', () => {
  beforeAll(async () => {
    browser = await launchBrowser();
  });
  afterAll(() => browser?.close());
  afterEach(async () => {
    await opened?.close();
    await store?.close();
  });

  describe('of a store where all is well', () => {
    beforeEach(() => open());

    it('says so, small, from nowhere else, and without a complaint', async () => {
      await level('green');
      expect(await verdict().textContent()).toContain('All is well');
      expect(opened.firstPaintBytes).toBeGreaterThan(1_000);
      expect(opened.firstPaintBytes).toBeLessThan(100_000);
      console.info(`first paint: ${opened.firstPaintBytes} bytes`);
      for (const address of opened.asked)
        expect(address.startsWith(new URL(store.url).origin), address).toBe(true);
      expect(opened.complaints).toEqual([]);
    });

    it('shows orders as they arrive and move on', async () => {
      await level('green');
      const { code, internalOrderId } = control().createOrder({ status: 'picker-pending' });
      const card = page.getByRole('button', { name: `#${code}` });
      await stage('New')
        .locator(card)
        .waitFor({ timeout: limitMs(5_000) });
      control().advanceOrder(internalOrderId, 'ready');
      await stage('Ready')
        .locator(card)
        .waitFor({ timeout: limitMs(5_000) });
      control().advanceOrder(internalOrderId, 'dispatched');
      await stage('Ended')
        .locator(card)
        .waitFor({ timeout: limitMs(5_000) });
      expect(await card.count()).toBe(1);
      await card.click();
      const dialog = page.getByRole('dialog');
      await dialog.getByText('delivered').waitFor();
      await page.keyboard.press('Escape');
      await dialog.waitFor({ state: 'hidden' });
      expect(await card.evaluate((element) => element === document.activeElement)).toBe(true);
      expect(opened.complaints).toEqual([]);
    });

    it('finds orders by code, text and day', async () => {
      await level('green');
      const day = new Date(Date.now() - 3 * 86_400_000);
      const old = control().createOrder({ createdAtMs: day.getTime(), status: 'dispatched' });
      const order = control().createOrder({ status: 'ready', deliveryType: 'delivery', isScheduled: false });
      await page.getByRole('button', { name: `#${order.code}` }).waitFor();
      const found = page.locator('.found-orders .card');
      const search = page.getByRole('searchbox', { name: 'Search orders' });
      await search.fill(`#${old.code}`);
      await found.getByText(`#${old.code}`).waitFor();
      expect(await found.count()).toBe(1);
      await search.fill(order.user.email);
      await found.getByText(`#${order.code}`).waitFor();
      await found.first().click();
      const dialog = page.getByRole('dialog');
      for (const fact of [order.user.phoneNumber, order.address?.address ?? '', order.store.externalId]) {
        await dialog.getByText(fact).first().waitFor();
      }
      await page.keyboard.press('Escape');
      await search.fill('');
      await page.locator('.stages').waitFor();
      const iso = new Intl.DateTimeFormat('sv-SE', { timeZone: 'America/Santiago' }).format(day);
      await page.getByLabel('Day of the order').fill(iso);
      await found.getByText(`#${old.code}`).waitFor();
      expect(await found.count()).toBe(1);
      await search.fill('nobody at all');
      await page.getByText('Nothing was found.').waitFor();
    });

    it('keeps scheduled orders apart, and puts first what no POS takes', async () => {
      await level('green');
      const at = (minutes: number) => new Date(Date.now() + minutes * 60_000).toISOString();
      const wish = { subsidiaryId: 'sub-1', status: 'picker-pending', isScheduled: false } as const;
      const orderAt = async (seconds: number) => {
        const order = control().createOrder({ ...wish, createdAtMs: Date.now() + seconds * 1_000 });
        await stage('New')
          .getByRole('button', { name: `#${order.code}` })
          .waitFor();
        return order;
      };
      const [first, second, third] = [await orderAt(-3), await orderAt(-2), await orderAt(-1)];
      control().createOrder({ ...wish, isScheduled: true, patch: { scheduledDate: at(90) } });
      await stage('Scheduled').getByText(/^due /).waitFor();
      const codes = () => stage('New').locator('.card strong').allTextContents();
      await expect.poll(codes).toEqual([third, second, first].map(({ code }) => `#${code}`));
      await store.post('/orders/ack', [second.internalOrderId]);
      await expect.poll(codes).toEqual([first, third, second].map(({ code }) => `#${code}`));
      expect(
        await stage('New')
          .getByText(/^not taken since \d/)
          .count(),
      ).toBe(2);
    });

    it('finds products by a part of their name', async () => {
      const [product] = control().products();
      const search = page.getByRole('searchbox', { name: 'Search the catalogue' });
      await search.fill(product?.name.slice(1, 6) ?? '');
      await page
        .locator('.product', { hasText: product?.name ?? 'none' })
        .first()
        .waitFor();
      await search.fill('nothing is called that');
      await page.getByText('Nothing was found.').waitFor();
      await search.fill('');
      await page.locator('.product').waitFor({ state: 'hidden' });
    });

    it('lets no text become markup', async () => {
      await level('green');
      const nasty = '<img src=x onerror="document.title=1"><script>document.title=2</script>';
      const order = sampleNotification(4711, {
        createdAt: new Date().toISOString(),
        user: { firstName: nasty, lastName: '$&', email: '', phoneNumber: '' },
      });
      const answer = await fetch(store.daemon.webhookUrl ?? '', {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'x-webhook-secret': SECRET },
        body: JSON.stringify(order),
      });
      expect(answer.status).toBe(200);
      await page.getByRole('button', { name: '#4711' }).click();
      await page.getByRole('dialog').getByText('onerror').waitFor();
      expect(await page.title()).toMatch(/ – All is well$/);
      expect(await page.locator('main img, dialog img, main script').count()).toBe(0);
      expect(opened.complaints).toEqual([]);
    });
  });

  describe('of a store in trouble', () => {
    it('turns red without tokens, says what to do, and comes back', async () => {
      await open({ accessTokenLifetimeMs: 6_000 });
      await level('green');
      control().revokeRefreshTokens();
      control().expireAccessTokens();
      await level('red');
      expect(await verdict().textContent()).toContain('tillsync auth set');
      await store.handOverTokens();
      await level('green');
    });

    it('says when nobody answers, and comes back by itself', async () => {
      await open();
      await level('green');
      await store.stop();
      await level('red');
      expect(await verdict().textContent()).toContain('not responding');
      await store.restart();
      await level('green');
    });

    it('says that there are no orders only once it has read them', async () => {
      await open();
      await page.route('**/v1/board', (route) => route.fulfill({ status: 502, body: 'Bad Gateway' }));
      await page.reload();
      await level('green');
      await stage('Ready').waitFor();
      expect(await page.locator('.stage').allTextContents()).not.toContainEqual(
        expect.stringMatching(/None|0/),
      );
      await page.unroute('**/v1/board');
      await stage('Ready').getByText('None').waitFor();
    });

    it('says so, too, when a proxy answers in its place', async () => {
      await open();
      await level('green');
      await page.route('**/v1/**', (route) => route.fulfill({ status: 502, body: 'Bad Gateway' }));
      await level('red');
      expect(await verdict().textContent()).toContain('not responding');
      await page.unroute('**/v1/**');
      await level('green');
    });

    it('asks for the key, and takes no name from it, when a proxy refuses with a realm of its own', async () => {
      await open();
      await level('green');
      const headers = { 'www-authenticate': 'Basic realm="100% Proxy"' };
      await page.route('**/v1/status', (route) => route.fulfill({ status: 401, headers, body: 'No.' }));
      await page.reload();
      expect(await page.getByRole('heading', { level: 1 }).textContent()).not.toContain('Proxy');
      await page.unroute('**/v1/status');
      await page.route('**/v1/status', (route) =>
        route.fulfill({
          status: 401,
          headers: { 'www-authenticate': 'Bearer realm="100% Proxy"' },
          json: { error: { code: 'unauthorized', message: 'The key is needed.', hint: null } },
        }),
      );
      await page.reload();
      await page.getByRole('dialog').waitFor();
    });

    it('says that an order could not be read, and only of one that is gone that it is', async () => {
      await open();
      await level('green');
      const { code, internalOrderId } = control().createOrder({ status: 'ready' });
      const card = page.getByRole('button', { name: `#${code}` });
      const answers = [
        [500, 'storage-busy', 'The mirror is busy.', 'That failed: The mirror is busy.'],
        [404, 'not-found', 'There is none.', 'This order is no longer kept.'],
      ] as const;
      for (const [status, error, message, text] of answers) {
        const json = { error: { code: error, message, hint: null } };
        await page.route(`**/v1/orders/${internalOrderId}`, (route) => route.fulfill({ status, json }));
        await card.click();
        await page.getByRole('dialog').getByText(text).waitFor();
        await page.keyboard.press('Escape');
      }
    });

    it('shows what was refused and why; a person retries and discards', async () => {
      await open();
      await store.post('/stock', [{ externalId: 'NOT-THERE', qty: 3 }]);
      await level('amber');
      await verdict().getByRole('button', { name: 'Show them' }).click();
      const change = page.locator('.change', { hasText: 'NOT-THERE' });
      expect(await change.textContent()).toContain('knows no product');
      await change.getByRole('button', { name: 'Retry' }).click();
      await page.getByText('is queued again').waitFor();
      await change.getByRole('button', { name: 'Discard' }).click();
      const dialog = page.getByRole('dialog');
      await dialog.getByRole('button', { name: 'Cancel' }).click();
      await dialog.waitFor({ state: 'hidden' });
      expect(await change.count()).toBe(1);
      await change.getByRole('button', { name: 'Discard' }).click();
      await dialog.getByRole('button', { name: 'Discard change' }).click();
      await page.getByText('was discarded').waitFor();
      await change.waitFor({ state: 'hidden' });
      await level('green');
    });
  });

  describe('of a store with a key', () => {
    const localApiKey = 'llave-ñandú-1';

    const keyField = () => page.getByRole('dialog').getByLabel('Key', { exact: true });
    const remembered = () =>
      page.evaluate(() => [
        ...[JSON.stringify(sessionStorage), JSON.stringify(localStorage)],
        ...[document.cookie, location.href],
      ]);

    it('asks for it before it shows anything, says when it is wrong, and keeps it in the tab alone', async () => {
      await open({ localApiKey });
      await page.getByRole('dialog').getByText('tillsync key show').waitFor();
      await keyField().fill('wrong');
      await keyField().press('Enter');
      await page.getByRole('dialog').getByText('This key is wrong').waitFor();
      expect(await page.locator('.flows, .board, .outbox').count()).toBe(0);
      await keyField().fill(localApiKey);
      await keyField().press('Enter');
      await level('green');
      const kept = await remembered();
      expect(kept[0]).toContain(localApiKey);
      expect(kept.slice(1).join()).not.toContain('llave');
      expect(opened.asked.join()).not.toContain('llave');
    });

    it('takes it from a link, keeps it in the browser, and leaves none in the address', async () => {
      await open();
      await level('green');
      const [, kept, , href] = await remembered();
      expect(kept).toContain(API_KEY);
      expect(href).toBe(`${new URL(store.url).origin}/`);
      expect(opened.asked.join()).not.toContain(API_KEY);
    });

    it('remembers it on a screen that is told to', async () => {
      await open({ localApiKey });
      await keyField().fill(localApiKey);
      await page.getByLabel('Remember it on this screen').check();
      await keyField().press('Enter');
      await level('green');
      expect((await remembered())[1]).toContain(localApiKey);
      await page.evaluate(() => sessionStorage.clear());
      await page.reload();
      await level('green');
    });

    it('says of a key without the right "screen" that it lacks it, and never that there are no orders', async () => {
      await open({ localApiKey }, { locale: 'es-CL' });
      store.daemon.services.state.apiKeys.add({
        name: 'till-1',
        may: ['orders'],
        digest: keyDigest('key-of-till-1', 'utf8'),
        at: '2026-01-15T12:00:00.000Z',
      });
      const field = page.getByRole('dialog').getByLabel('Clave', { exact: true });
      const lacking = page.getByRole('dialog').getByText('falta el permiso «screen»');
      await field.fill('key-of-till-1');
      await field.press('Enter');
      await lacking.waitFor();
      // Until now the page remembered such a key.
      await page.evaluate(() => {
        localStorage.setItem('tillsync.key', 'key-of-till-1');
        localStorage.setItem('tillsync.language', 'en');
      });
      await page.reload();
      await page.getByRole('dialog').getByText('lacks the right "screen"').waitFor();
      expect(await page.locator('.board').count()).toBe(0);
      expect((await remembered()).join()).not.toContain('key-of-till-1');
      await keyField().fill(localApiKey);
      await keyField().press('Enter');
      await level('green');
      await stage('Ready').getByText('None').waitFor();
    });

    it('asks another machine for it before it shows anything', async () => {
      store = await openStore({ localApiKey, host: '0.0.0.0' });
      const port = new URL(store.url).port;
      await look({}, `http://shop.test:${port}`);
      const dialog = page.getByRole('dialog');
      await dialog.waitFor();
      control().createOrder({ status: 'ready' });
      await dialog.getByLabel('Key', { exact: true }).fill(localApiKey);
      await dialog.getByRole('button', { name: 'Use the key' }).click();
      await level('green');
      await stage('Ready').locator('.card').waitFor();
      const { code } = control().createOrder({ status: 'ready' });
      await page.getByRole('button', { name: `#${code}` }).waitFor({ timeout: limitMs(5_000) });
    });
  });

  it('speaks Spanish to who prefers it, and English to who asks for it', async () => {
    await open({}, { locale: 'es-CL' });
    await level('green');
    expect(await verdict().textContent()).toContain('Todo está bien');
    expect(await page.locator('html').getAttribute('lang')).toBe('es');
    await page.getByRole('button', { name: 'English' }).click();
    await page.getByRole('heading', { name: 'All is well' }).waitFor();
    await page.reload();
    await page.getByRole('heading', { name: 'All is well' }).waitFor();
    expect(await page.locator('html').getAttribute('lang')).toBe('en');
  });

  it('tells in Spanish why a change was rejected', async () => {
    await open({}, { locale: 'es-CL' });
    await store.post('/stock', [{ externalId: 'NOT-THERE', qty: 3 }]);
    await level('amber');
    await verdict().getByRole('button').first().click();
    const change = page.locator('.change', { hasText: 'NOT-THERE' });
    await change.getByText('La plataforma no conoce ningún producto').waitFor();
    expect(await change.locator('.why').getAttribute('lang')).toBe('es');
  });

  it('is used by keyboard alone', async () => {
    await open();
    await level('green');
    const focused = () => page.evaluate(() => document.activeElement?.textContent?.trim() ?? '');
    await page.keyboard.press('Tab');
    expect(await focused()).toBe('Skip to the content');
    await page.keyboard.press('Enter');
    expect(await page.evaluate(() => document.activeElement?.id)).toBe('content');
    const places: string[] = [];
    for (let i = 0; i < 40 && !places.includes('searchbox'); i += 1) {
      await page.keyboard.press('Tab');
      const place = await page.evaluate(() =>
        document.activeElement?.id === 'search' ? 'searchbox' : document.activeElement?.textContent?.trim(),
      );
      const outline = await page.evaluate(() => {
        const element = document.activeElement?.closest('form[role=search]') ?? document.activeElement;
        return element === null ? '' : getComputedStyle(element).outlineStyle;
      });
      expect(outline, place).not.toBe('none');
      places.push(place ?? '');
    }
    expect(places.join('|')).toMatch(/Waiting.*To decide.*Rejected.*searchbox/);
  });

  const looks = [
    ['light', { colorScheme: 'light', viewport: { width: 1280, height: 900 } }],
    ['dark', { colorScheme: 'dark', viewport: { width: 1280, height: 900 } }],
    ['a phone', { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true }],
  ] as const;

  it.each(looks)('can be read by everyone: %s', async (_name, context) => {
    await open({}, { ...context, bypassCSP: true });
    await store.post('/stock', [{ externalId: 'NOT-THERE', qty: 3 }]);
    control().createOrder({ status: 'shippingError' });
    control().createOrder({ status: 'cancel' });
    const ofOneStore = { subsidiaryId: 'sub-1' };
    const taken = control().createOrder({ ...ofOneStore, status: 'payment-approved', isScheduled: true });
    await page.getByRole('switch').click();
    control().createOrder({ ...ofOneStore, status: 'picker-pending', isScheduled: false });
    await page.locator('.calls.some').waitFor();
    await store.post('/orders/ack', [taken.internalOrderId]);
    await page.locator('.card .wait').first().waitFor();
    await level('amber');
    await verdict().getByRole('button', { name: 'Show them' }).click();
    await page.locator('.change').waitFor();
    await page.getByText('As a table').click();
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    expect(wide).toBeLessThanOrEqual(0);
    await page.waitForTimeout(3_000);
    const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
    await page.evaluate(axe);
    const faults = await page.evaluate(async () => {
      const { axe } = window as unknown as { axe: typeof import('axe-core') };
      const { violations } = await axe.run(document);
      return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' ')}`);
    });
    expect(faults).toEqual([]);
  });
});

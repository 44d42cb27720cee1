import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { limitMs } from '../../support/shared-config.ts';
import { until } from '../../support/workplace.ts';
import {
  hasChromium,
  launchBrowser,
  type OpenedPage,
  openPage,
  openStore,
  type PageStore,
} from './browser-rig.ts';

/** Tones of one ring. */
const RING = 4;

let browser: Browser;
let store: PageStore;
let opened: OpenedPage;
let page: Page;

/** Sounds and notifications that the page requested from the browser. */
interface Heard {
  tones: number;
  soundIsOn: boolean;
  notices: { title: string; body: string; isOpen: boolean; click(): void }[];
}

/** Runs in the page. Records the tones and notifications that the page requests, and pretends that it has no focus. */
function listen(): void {
  const heard: Heard = { tones: 0, soundIsOn: false, notices: [] };
  Object.assign(globalThis, { heard });
  document.hasFocus = () => false;
  const create = AudioContext.prototype.createOscillator;
  AudioContext.prototype.createOscillator = function () {
    heard.tones += 1;
    heard.soundIsOn = this.state === 'running';
    return create.call(this);
  };
  globalThis.Notification = class extends Notification {
    constructor(title: string, options: NotificationOptions = {}) {
      super(title, options);
      const notice = {
        title,
        body: options.body ?? '',
        isOpen: true,
        click: () => this.dispatchEvent(new Event('click')),
      };
      heard.notices.push(notice);
      this.close = () => {
        notice.isOpen = false;
        super.close();
      };
    }
  };
}

const heardOn = (where: Page) =>
  where.evaluate(() => {
    const { tones, soundIsOn, notices } = (globalThis as unknown as { heard: Heard }).heard;
    return { tones, soundIsOn, notices: notices.map(({ title, body, isOpen }) => ({ title, body, isOpen })) };
  });
const heard = () => heardOn(page);
const callSwitch = () => page.getByRole('switch', { name: 'Call for new orders' });
const calls = () => page.locator('.calls');
const control = () => store.place.sandbox.control;
const newOrder = () => control().createOrder({ status: 'picker-pending', isScheduled: false });
const icon = () => page.locator('link[rel=icon]').getAttribute('href');

async function open() {
  store = await openStore({ name: 'Corner shop' });
  opened = await openPage(browser, store.url);
  ({ page } = opened);
  await page.context().grantPermissions(['notifications'], { origin: new URL(store.url).origin });
  await page.addInitScript(listen);
  await page.reload();
  await page.locator('.verdict-green').waitFor();
  await until('callbacks are asked for', () => control().webhook() !== null);
}

describe.skipIf(!hasChromium)('the page calls for new orders in Chromium', () => {
  beforeAll(async () => {
    browser = await launchBrowser();
  });
  afterAll(() => browser?.close());
  afterEach(async () => {
    await opened?.close();
    await store?.close();
  });

  it('is silent until it is switched on, then rings and notifies until somebody has seen the order', async () => {
    await open();
    const first = newOrder();
    await page.getByRole('button', { name: `#${first.code}` }).waitFor();
    expect(await callSwitch().getAttribute('aria-checked')).toBe('false');
    expect(await heard()).toEqual({ tones: 0, soundIsOn: false, notices: [] });
    expect([await page.title(), await icon()]).toEqual(['Corner shop – All is well', '/page/icon-green.svg']);

    await callSwitch().click();
    await expect.poll(async () => (await heard()).tones).toBe(RING);
    expect((await heard()).soundIsOn).toBe(true);
    // Orders that were on the page when the switch was turned on count as seen.
    expect(await calls().textContent()).not.toContain('#');

    const order = newOrder();
    await calls().getByText(`nobody has seen: #${order.code}`).waitFor();
    expect([await page.title(), await icon()]).toEqual([
      '(1) Corner shop – All is well',
      '/page/icon-green-new.svg',
    ]);
    await expect.poll(async () => (await heard()).tones).toBe(2 * RING);
    await expect.poll(async () => (await heard()).tones).toBe(3 * RING);
    const { notices } = await heard();
    expect(notices).toEqual([
      {
        title: `New order #${order.code}`,
        body: expect.stringMatching(/^(pickup|delivery), [\d,]+$/),
        isOpen: true,
      },
    ]);
    expect(JSON.stringify(notices)).not.toContain(order.user.lastName);

    await page.getByRole('button', { name: 'I have seen them' }).click();
    expect((await heard()).notices[0]?.isOpen).toBe(false);
    await page.waitForTimeout(9_000);
    expect((await heard()).tones).toBe(3 * RING);
    expect(await page.title()).toBe('Corner shop – All is well');
    expect(opened.complaints).toEqual([]);
  });

  it('remembers the switch and what was seen; a notification leads to its order', async () => {
    await open();
    await callSwitch().click();
    const seen = newOrder();
    await page.getByRole('button', { name: `#${seen.code}` }).click();
    await page.keyboard.press('Escape');
    const order = newOrder();
    await calls().getByText(`#${order.code}`).waitFor();
    await page.reload();
    await calls().getByText(`nobody has seen: #${order.code}`).waitFor();
    expect(await callSwitch().getAttribute('aria-checked')).toBe('true');
    await expect.poll(async () => (await heard()).notices.length).toBe(1);
    await page.evaluate(() => (globalThis as unknown as { heard: Heard }).heard.notices[0]?.click());
    await page.getByRole('dialog').getByText(order.internalOrderId).waitFor();
    await page.keyboard.press('Escape');
    expect(await page.title()).toBe('Corner shop – All is well');
    await callSwitch().click();
    await page.reload();
    await page.locator('.verdict-green').waitFor();
    expect(await callSwitch().getAttribute('aria-checked')).toBe('false');
  });

  it('calls again after the daemon was away, and no more once the POS took the order', async () => {
    await open();
    await callSwitch().click();
    await store.stop();
    await page.locator('.verdict-red').waitFor();
    expect([await page.title(), await icon()]).toEqual(['Corner shop – No connection', '/page/icon-red.svg']);
    const order = newOrder();
    await store.restart();
    await calls()
      .getByText(`#${order.code}`)
      .waitFor({ timeout: limitMs(30_000) });
    await expect.poll(async () => (await heard()).tones).toBeGreaterThan(RING);
    await store.post('/orders/ack', [order.internalOrderId]);
    await calls()
      .getByText(`#${order.code}`)
      .waitFor({ state: 'hidden', timeout: limitMs(10_000) });
    await page.getByRole('button', { name: `#${order.code}` }).click();
    await page.getByRole('dialog').getByText('POS took it').waitFor();
  });

  it('rings in one of two tabs, and what is seen in one is seen in both', async () => {
    await open();
    const other = await page.context().newPage();
    await other.addInitScript(listen);
    await other.goto(store.url);
    await other.locator('.verdict-green').waitFor();
    await page.bringToFront();
    await callSwitch().click();
    await expect.poll(() => other.getByRole('switch').getAttribute('aria-checked')).toBe('true');
    await other.mouse.click(5, 5);
    const order = newOrder();
    await calls().getByText(`#${order.code}`).waitFor();
    await other.locator('.calls').getByText(`#${order.code}`).waitFor();
    await page.waitForTimeout(9_500);
    const tones = (await heard()).tones + (await heardOn(other)).tones;
    // The switch rings once, then the page rings every eight seconds.
    expect(tones / RING).toBeGreaterThanOrEqual(2);
    expect(tones / RING).toBeLessThanOrEqual(3);
    await other.getByRole('button', { name: 'I have seen them' }).click();
    await expect.poll(() => page.title()).toBe('Corner shop – All is well');
  });
});

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Browser, Locator, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type Fares, letFare } from './branch-board.ts';
import {
  hasChromium,
  launchBrowser,
  type OpenedPage,
  openPage,
  openStore,
  type PageStore,
} from './browser-rig.ts';

const FIVE = ['B1', 'B2', 'B3', 'B4', 'B5'];
const AWAY: Fares = { seen: 134, behind: 12, behindFor: 120, waiting: 40, oldest: 133 };
const FARES = {
  B2: { finding: 'outbox.rejected', rejected: 3, waiting: 2, oldest: 1 },
  B3: AWAY,
  B4: null,
} as const satisfies Record<string, Fares | null>;

let browser: Browser;
let store: PageStore;
let opened: OpenedPage;
let page: Page;

async function open(names: readonly string[], fares: Record<string, Fares | null>, context = {}) {
  store = await openStore({ branches: names });
  await letFare(store, names, fares);
  opened = await openPage(browser, store.url, context);
  ({ page } = opened);
  await page.locator('.branches').waitFor();
}

const rows = () => page.locator('.branches tbody tr');
const row = (name: string) => rows().filter({ has: page.getByRole('rowheader', { name }) });
/** Returns the texts in an element, in the order of the document and with blanks between them. */
const textOf = (place: Locator) =>
  place.evaluate((element) => {
    const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    const found: string[] = [];
    while (texts.nextNode()) found.push(texts.currentNode.textContent?.trim() ?? '');
    return found.filter(Boolean).join(' ').replace(/\s+/g, ' ');
  });
const names = () =>
  page
    .locator('.branches tbody .name span')
    .evaluateAll((spans) => spans.map(({ firstChild }) => firstChild?.nextSibling?.textContent ?? ''));

describe.skipIf(!hasChromium)('the board of branches in Chromium', () => {
  beforeAll(async () => {
    browser = await launchBrowser();
  });
  afterAll(() => browser?.close());
  afterEach(async () => {
    await opened?.close();
    await store?.close();
  });

  it('has the worst branch first, with what is wrong and where to look', async () => {
    await open(FIVE, FARES);
    expect(await names()).toEqual(['B3', 'B2', 'B4', 'B1', 'B5']);
    const away = await textOf(row('B3'));
    expect(away).toMatch(
      /Act now\s+Nothing is heard of it\. It was heard last at .* What the hub has for it waits\./,
    );
    expect(away).toContain('Look at the branch: sudo tillsync doctor');
    expect(away).toMatch(/12\s+since .*40\s+since/s);
    expect(away).toContain('2 hr. ago');
    const refused = await textOf(row('B2'));
    expect(refused).toContain('rejected');
    expect(refused).toMatch(/branch doctor B2/);
    expect(await textOf(row('B4'))).toMatch(/Never joined\s+It was not invited yet\..*branch invite B4/s);
    expect(await textOf(row('B1'))).toMatch(/Fine\s+All is well/);
    expect(await page.getByRole('button', { name: 'Act now 1' }).count()).toBe(1);
    expect(opened.complaints).toEqual([]);
  });

  it('follows what branches tell', async () => {
    await open(FIVE, FARES);
    await letFare(store, ['B3']);
    await letFare(store, ['B5'], { B5: { finding: 'inbox.damaged', level: 'red' } });
    await expect.poll(names).toEqual(['B5', 'B2', 'B4', 'B1', 'B3']);
  });

  it('finds one among 500 by its name, by what is wrong, and by how bad it is', async () => {
    const all = Array.from({ length: 500 }, (_, i) => `B${i + 1}`);
    await open(all, { B77: AWAY, B301: { finding: 'inbox.locked' }, B499: null });
    await expect.poll(() => rows().count()).toBe(15);
    expect((await names()).slice(0, 4)).toEqual(['B77', 'B301', 'B499', 'B1']);
    const search = page.getByRole('searchbox', { name: 'Search branches' });
    await search.fill('b42');
    await page.getByText('11 found').waitFor();
    expect(await names()).toEqual(['B42', ...Array.from({ length: 10 }, (_, i) => `B42${i}`)]);
    await search.fill('keeps the inbox');
    await expect.poll(names).toEqual(['B301']);
    await search.fill('');
    await page.getByRole('button', { name: 'Never joined 1' }).click();
    await expect.poll(names).toEqual(['B499']);
    await search.fill('B1');
    await page.getByText('No branch is found.').waitFor();
    await search.fill('');
    await page.getByRole('button', { name: 'All 500' }).click();
    await page.getByRole('button', { name: '485 more' }).click();
    await expect.poll(() => rows().count()).toBe(500);
    const tookMs = await page.evaluate(async () => {
      const startMs = performance.now();
      const key = localStorage.getItem('tillsync.key') ?? '';
      const answer = await fetch('/v1/branches', { headers: { 'x-api-key': key } });
      if (!answer.ok) throw new Error(`answered ${answer.status}`);
      await answer.json();
      return performance.now() - startMs;
    });
    console.info(`500 branches are answered in ${Math.round(tookMs)} ms`);
    expect(opened.complaints).toEqual([]);
  });

  it('is worked by keyboard', async () => {
    await open(FIVE, FARES);
    const focused = () =>
      page.evaluate(
        () => document.activeElement?.id || document.activeElement?.textContent?.replace(/\s+/g, ' ').trim(),
      );
    await page.getByRole('searchbox', { name: 'Search branches' }).focus();
    const places: (string | undefined)[] = [];
    for (let i = 0; i < 5; i++) {
      await page.keyboard.press('Tab');
      places.push(await focused());
    }
    expect(places).toEqual(['All 5', 'Act now 1', 'Look today 1', 'Never joined 1', 'Fine 2']);
    await page.keyboard.press('Enter');
    await expect.poll(names).toEqual(['B1', 'B5']);
    expect(await page.getByRole('button', { name: 'Fine 2' }).getAttribute('aria-pressed')).toBe('true');
  });

  it('speaks Spanish', async () => {
    await open(FIVE, FARES, { locale: 'es-CL' });
    const text = await textOf(page.locator('.branches'));
    for (const told of [
      ...[
        'Sucursales',
        'Atender ya',
        'No se sabe nada de ella. Se supo de ella por última vez',
        'Lo que la central tiene para ella espera.',
      ],
      ...['Mire en la sucursal: sudo tillsync doctor', 'Todavía no fue invitada.', 'Todo está bien'],
    ]) {
      expect(text).toContain(told);
    }
    expect(text).not.toMatch(/Act now|rejected|heard/);
    expect(await page.locator('.branches td.told > span[lang=en]').count()).toBe(0);
  });

  it('is nowhere in a store that is no hub', async () => {
    store = await openStore();
    opened = await openPage(browser, store.url);
    ({ page } = opened);
    await page.locator('.verdict-green').waitFor();
    await page.waitForTimeout(6_000);
    expect(await page.locator('.branches').count()).toBe(0);
    expect(await page.getByText('Branches').count()).toBe(0);
    expect(opened.asked.filter((address) => address.endsWith('/v1/branches'))).toEqual([]);
    expect(opened.complaints).toEqual([]);
  });

  it('is not at a branch, whose own page asks for no tokens and shows the way to its hub', async () => {
    store = await openStore({ branch: 'B1' });
    store.daemon.services.mirror.health.adopt({
      ...{
        subject: 'orders.poll',
        lastOkAt: new Date().toISOString(),
        lastTryAt: null,
        state: 'ok',
        message: '',
      },
    });
    opened = await openPage(browser, store.url);
    ({ page } = opened);
    await page.locator('.verdict-green').waitFor();
    const flows = await page.locator('.flow h3').allTextContents();
    expect(flows.map((text) => text.trim())).toEqual(['Orders by polling', 'Connection to the hub']);
    expect(await page.locator('.branches').count()).toBe(0);
    expect(opened.complaints).toEqual([]);
  });

  const looks = [
    ['light', { colorScheme: 'light', viewport: { width: 1280, height: 900 } }],
    ['dark', { colorScheme: 'dark', viewport: { width: 1280, height: 900 } }],
    ['a phone', { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true }],
    ['a phone, dark', { colorScheme: 'dark', viewport: { width: 360, height: 740 }, isMobile: true }],
  ] as const;

  it.each(looks)('can be read by everyone: %s', async (_name, context) => {
    const many = Array.from({ length: 40 }, (_, i) => `B${i + 1}`);
    await open(
      many,
      { ...FARES, B40: { finding: 'clock.wrong', level: 'red', quarantined: 2 } },
      { ...context, bypassCSP: true },
    );
    await page
      .getByRole('button', { name: /^\d+ more$/ })
      .first()
      .click();
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    expect(wide).toBeLessThanOrEqual(0);
    const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
    await page.evaluate(axe);
    const faults = await page.evaluate(async () => {
      const { axe } = window as unknown as { axe: typeof import('axe-core') };
      const { violations } = await axe.run(document);
      return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' ')}`);
    });
    expect(faults).toEqual([]);
    const table = await page.locator('.branches').ariaSnapshot();
    expect(table).toMatch(/rowheader "B3 Act now"/);
    if (process.env.TILLSYNC_SHOTS) {
      await page.screenshot({ path: `${process.env.TILLSYNC_SHOTS}/${_name.replace(/\W+/g, '-')}.png` });
    }
  });
});

import { afterEach, beforeEach, expect, it } from 'vitest';
import { silentLog } from '../../src/core/log.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { type Daemon, startDaemon } from '../../src/daemon/daemon.ts';
import { commandsAt } from '../cli/invoke.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { limitMs } from '../support/shared-config.ts';
import { openWorkplace, SECRET, until, type Workplace } from '../support/workplace.ts';

let place: Workplace;
let daemon: Daemon;

beforeEach(async () => {
  place = await openWorkplace(37);
  daemon = await startDaemon({
    config: place.config,
    secrets: { refreshToken: place.refreshToken, webhookSecrets: [SECRET] },
    clock: systemClock,
    random: seededRandom(3),
    log: silentLog,
  });
  await until('the catalogue is swept', () => daemon.services.stores.read(({ lookup }) => lookup.isComplete));
});
afterEach(async () => {
  await daemon.stop();
  await place.close();
});

it(
  'an inventory of zeros is held by its share, released, and undone but for what was changed since',
  async () => {
    const at = commandsAt(place);
    const { control } = place.sandbox;
    const skus = control
      .products()
      .flatMap(({ children }) => children)
      .filter(({ stocks, integrations }) =>
        [stocks, integrations].every((list) =>
          list.some(({ subsidiaryId }: { subsidiaryId: string }) => subsidiaryId === 'sub-1'),
        ),
      )
      .map(({ sku }) => sku);
    const handOver = (qty: number, reference: string, of = skus) =>
      daemon.services.outbox.submit(
        of.map((sku) => ({
          kind: 'stock' as const,
          change: { sku: String(sku), subsidiaryId: 'sub-1', qty },
          reference,
        })),
        'http',
      );
    const has = (qty: number, of = skus) =>
      until(`the platform has ${qty}`, () => of.every((sku) => control.stockOf(sku, 'sub-1') === qty));
    await handOver(7, 'good');
    await has(7);
    const states = (await handOver(0, 'zeros')).map(({ state }) => state);
    // The number of zeros is below the absolute limit, so a guard holds them because of their share.
    expect(skus.length).toBeLessThan(100);
    expect(states.filter((state) => state === 'held').length).toBe(skus.length);
    expect((await at.run(['outbox', 'release', '--guard', 'zero-items'])).code).toBe(0);
    await has(0);
    // After two wrong submissions in a row, the undo restores the value before the first one.
    await handOver(1, 'zeros');
    await has(1);
    const [first = 0, ...others] = skus;
    await handOver(3, 'later', [first]);
    await has(3, [first]);

    const undo = ['outbox', 'undo', '--reference', 'zeros'];
    const preview = await at.json([...undo, '--dry-run']);
    expect(preview).toMatchObject({ code: 3, document: { left: 1, handedOver: 0 } });
    await has(1, others);
    expect((await at.json(undo)).document).toMatchObject({ left: 1, handedOver: others.length });
    await has(7, others);
    await has(3, [first]);
    await at.json(['outbox', 'undo', '--reference', 'zeros', '--force']);
    await has(7);
  },
  limitMs(60_000),
);

import { systemClock } from '../../src/core/system-clock.ts';
import type { Daemon } from '../../src/daemon/daemon.ts';
import type { Transport } from '../../src/platform/transport.ts';
import { seededRandom } from '../support/fake-clock.ts';
import type { BenchOptions, BenchResult } from './bench-result.ts';
import { openOutgoingPlace } from './outgoing-place.ts';

type TransportRequest = Parameters<Transport['send']>[0];

const PER_CALL = 100;
const PER_REQUEST = 250;

/** Submits many values for few targets during calls, and measures whether each call has as many items as it could. */
export async function measureCoalescing(options: BenchOptions): Promise<BenchResult[]> {
  const [changes, targets, gapMs] = options.quick ? [10_000, 500, 200] : [100_000, 5_000, 200];
  const sends: { items: number; dirty: number }[] = [];
  const place = await openOutgoingPlace({
    seed: 22,
    products: Math.ceil(targets * 0.9),
    onSend: (request, daemon) => {
      const items = itemsOf(request);
      if (items > 0) sends.push({ items, dirty: items + waitingIn(daemon) });
    },
  });
  try {
    options.progress(`${changes} changes for ${targets} targets while it sends`);
    const chosen = place.targets.slice(0, targets);
    if (chosen.length < targets) throw new Error(`Only ${chosen.length} targets`);
    const random = seededRandom(23);
    const wanted = new Map<string, number>();
    for (let n = 0; n < changes; n += PER_REQUEST) {
      // One request names each article once.
      const drawn = new Set<string>();
      while (drawn.size < PER_REQUEST) {
        drawn.add((chosen[Math.floor(random.next() * targets)] as { externalId: string }).externalId);
      }
      const some = [...drawn].map((externalId, i) => ({ externalId, qty: n + i + 1 }));
      for (const { externalId, qty } of some) wanted.set(externalId, qty);
      await place.post(some);
      await systemClock.sleep(gapMs);
    }
    await place.settled(targets * 20 + 30_000);
    const calls = place.stockCalls();
    const excess = sends.filter(({ items, dirty }) => items < Math.min(PER_CALL, dirty)).length;
    const wrong = chosen.filter(
      (target) => wanted.has(target.externalId) && place.qtyOf(target) !== wanted.get(target.externalId),
    );
    const carried = sends.reduce((sum, { items }) => sum + items, 0);
    const violations = place.sandbox.control.violations().length;
    return [
      {
        name: `${changes} changes for ${targets} targets: calls beyond what waited at each send demands`,
        ratio: excess + (calls.length - sends.length),
        bound: '<= 0',
        detail: `${calls.length} calls carried ${carried} values; ${violations} broke a limit`,
      },
      {
        name: 'targets whose last value is not on the platform',
        ratio: wrong.length,
        bound: '<= 0',
        detail: `of ${wanted.size}`,
      },
    ];
  } finally {
    await place.close();
  }
}

function itemsOf({ path, body }: TransportRequest): number {
  if (path === '/product/stock') return 1;
  if (path !== '/product/stock/batch') return 0;
  return (JSON.parse(body ?? '{}') as { products: unknown[] }).products.length;
}

const waitingIn = (daemon: Daemon) => daemon.services.outbox.counts().pending;

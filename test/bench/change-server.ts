import { ChangeSignal, type LocalApiOptions } from '../../src/api/api.ts';
import { localApi } from '../../src/api/local-api.ts';
import { createLocalServer } from '../../src/api/server.ts';
import { silentLog } from '../../src/core/log.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { PosLife } from '../../src/outbox/intake/pos-signs.ts';
import { OutboxService } from '../../src/outbox/sending/outbox.ts';
import { API_KEY } from '../support/api-key.ts';
import { NO_RECEIVERS } from '../support/no-receivers.ts';
import { openBenchStores } from './bench-stores.ts';

/**
 * Serves only the local API on a mirror with a catalogue: node change-server.ts DIRECTORY PRODUCTS. Prints its URL, and
 * closes the server and the mirror when standard input ends.
 */
const [directory = '', products = ''] = process.argv.slice(2);
const { mirror, stores } = await openBenchStores(directory, Number(products));
const limits = {
  endpointIntervalMs: 1000,
  ordersIntervalMs: 120_000,
  windowMs: 300_000,
  requestsPerWindow: 1000,
  ordersPerWindow: 100,
};
const outbox = new OutboxService({
  stores,
  guards: {
    zeroItemsMax: 100,
    zeroShareMax: 0.3,
    zeroItemsWindowMs: 600_000,
    priceFactorMax: 10,
    missingShareMax: 0.5,
  },
  holdBack: true,
});
const server = createLocalServer({
  host: '127.0.0.1',
  port: 0,
  clock: systemClock,
  log: silentLog,
  plugins: [
    localApi({
      receivers: NO_RECEIVERS,
      services: {
        config: {
          limits,
          storage: { directory, group: '' },
          shop: { name: 'Corner shop', currency: '' },
          hub: { nats: '' },
          link: { hub: '' },
          platform: { baseUrl: 'http://platform.test' },
          orders: { poll: '*/2 * * * *', timezone: 'America/Santiago' },
        },
        mirror,
        stores,
        outbox,
        posLife: new PosLife(mirror, systemClock),
        state: { ledger: { waits: () => [] } },
        platform: { tokens: { describe: () => ({}) as never } },
      } as unknown as LocalApiOptions['services'],
      apiKey: API_KEY,
      changes: new ChangeSignal(),
      version: '0',
      clock: systemClock,
      log: silentLog,
    }),
  ],
});
const { url } = await server.listen();
process.stdout.write(`${url}\n`);
process.stdin.resume().on('end', () => void server.close().then(() => mirror.close()));

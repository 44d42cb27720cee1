import { realpathSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { sampleNotification } from '../../support/order-samples.ts';
import { cleanDebian, type Suite } from './clean-debian.ts';
import { builtPackage, Machine } from './machine.ts';

const NODE = realpathSync('node_modules/.bin/node');
const SECRET = 'a-secret-of-the-shop';
const { TILLSYNC_WHOLE, TILLSYNC_NIGHTLY, TILLSYNC_FULL } = process.env;
// The emulator takes minutes of the processor, so CI leaves it to the night.
const isLeft = TILLSYNC_FULL !== undefined && TILLSYNC_NIGHTLY !== '1' && !TILLSYNC_WHOLE;
const SUITES: Suite[] = TILLSYNC_WHOLE ? ['trixie', 'bookworm'] : isLeft ? [] : ['trixie'];
if (isLeft) it.skip('arm64: runs at night');

const SYSTEMS = SUITES.map((suite) => ({
  suite,
  root: cleanDebian(suite, {
    architecture: 'arm64',
    packages: ['libgcc-s1', 'libstdc++6', 'mount', 'passwd', 'sqlite3'],
  }),
}));
for (const { suite, root } of SYSTEMS) {
  if (!root) {
    it.skip(`arm64 on ${suite}: takes root and apt-get install -y mmdebstrap arch-test qemu-user-static`);
  }
}

describe.each(SYSTEMS.filter((system) => system.root))(
  'on an arm64 Debian ($suite), every program of it under an emulator',
  ({ root }) => {
    let machine: Machine;

    beforeAll(async () => {
      machine = await Machine.start('plain', { root: root as string, file: builtPackage('arm64') });
    });

    afterAll(() => machine?.stop());

    const until = (condition: string) => machine.until(condition, 60_000);

    it('is installed', () => {
      expect(machine.run('dpkg --print-architecture; uname -m')).toBe('arm64\naarch64');
      machine.run(`dpkg -i /root/${path.basename(builtPackage('arm64'))}`);
      expect(machine.run('tillsync --version')).toMatch(/^\d+\.\d+\.\d+(\+\d+\.g[0-9a-f]{9})?$/);
      expect(machine.run('stat -c "%a %U:%G" /var/lib/tillsync')).toBe('2750 tillsync:tillsync');
    });

    it('mirrors what it polls and what is called back, for a point of sale with sqlite3', async () => {
      // The platform runs outside the emulator, because it is not tested here and would be very slow in an emulator.
      const often = ['--orders-interval', '1s', '--orders-every', '1s'];
      const platform = await machine.neighbour(
        [NODE, 'src/cli/main.ts', 'sandbox', '--json', '--port', '9393', ...often],
        /^\}/m,
      );
      const { refreshToken } = JSON.parse(platform) as { refreshToken: string };
      machine.run(`cat > /etc/tillsync/config.toml <<'END'
[platform]
base_url = "http://127.0.0.1:9393"
[orders]
poll = "*/2 * * * * *"
[limits]
orders_interval = "1s"
[[branches]]
subsidiary_id = "sub-1"
external_id = "B1"
END`);
      const asService = 'setpriv --reuid tillsync --regid tillsync --clear-groups env';
      machine.run(`echo ${refreshToken} | ${asService} tillsync auth set --config /etc/tillsync/config.toml`);
      machine.run(
        `setsid ${asService} TILLSYNC_WEBHOOK_SECRET=${SECRET} tillsync run < /dev/null > /run/tillsync.log 2>&1 & echo $! > /run/tillsync.pid`,
      );
      machine.run('useradd --system --groups tillsync pos; useradd --system stranger');
      const asPos = 'setpriv --reuid pos --regid pos --init-groups';
      const query = (sql: string) => `${asPos} sqlite3 -readonly /var/lib/tillsync/mirror.db "${sql}"`;
      until(`[ "$(${query("SELECT count(*) > 0 FROM order_events WHERE source = 'poll'")})" = 1 ]`);
      const body = JSON.stringify(sampleNotification(4711));
      const headers = ['-H', 'content-type: application/json', '-H', `x-webhook-secret: ${SECRET}`];
      const url = 'http://127.0.0.1:8787/webhook';
      const asked = ['curl', '-s', '-o', '/dev/null', '-w', '%{http_code}', ...headers, '-d', body, url];
      expect(await machine.neighbour(asked, /\d{3}/)).toBe('200');
      expect(
        machine.run(
          query(
            'SELECT e.source, o.code, o.amount_to_pay FROM order_events e JOIN orders o USING (order_id) WHERE o.code = 4711',
          ),
        ),
      ).toMatch(/^webhook\|4711\|15990(\.0)?$/);
      machine.run(
        `${asPos} sqlite3 /var/lib/tillsync/inbox/inbox.db "INSERT INTO stock_changes (external_id, qty, subsidiary_external_id) VALUES ('no-such-article', 1, 'B1')"`,
      );
      until(`[ "$(${query("SELECT count(*) FROM outbox WHERE body LIKE '%no-such-article%'")})" = 1 ]`);
      expect(machine.run('tillsync outbox list --json')).toContain('no-such-article');
      expect(
        machine.try(`setpriv --reuid stranger --clear-groups cat /var/lib/tillsync/mirror.db`).code,
      ).not.toBe(0);
    });

    it('ends when it is asked to, and leaves whole databases', () => {
      machine.run('kill -TERM $(cat /run/tillsync.pid)');
      // A zombie process still has a directory in /proc, but no `exe` in it.
      until('[ ! -e /proc/$(cat /run/tillsync.pid)/exe ]');
      expect(machine.run('sqlite3 /var/lib/tillsync/mirror.db "PRAGMA integrity_check"')).toBe('ok');
    });
  },
);

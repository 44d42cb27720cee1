import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';

/**
 * Everyday tests have an injected clock, because a bound in real time fails on a slow machine. Each file here reads the
 * real clock all the same, for a reason that no slow machine breaks.
 */
const STAMPS = 'opens files as a command does; the clock only stamps rows';
const OWN_SERVER =
  'waits in steps for its own server, with a limit that grows with the slowness of the machine';
const AGES = 'makes times that are hours away from now';
const REAL: Record<string, string> = {
  'cli/backup.test.ts': STAMPS,
  'cli/backup-origin.test.ts': STAMPS,
  'cli/before-upgrade.test.ts': STAMPS,
  'cli/busy-command.test.ts': 'its sleeps take no real time',
  'cli/calling.test.ts':
    'runs whole commands against a platform in this process; the interval that matters is an hour',
  'cli/catalog.test.ts': STAMPS,
  'cli/differential.test.ts': STAMPS,
  'cli/encrypted-backup.test.ts': STAMPS,
  'cli/init-rig.ts': STAMPS,
  'cli/inventory.test.ts': AGES,
  'cli/invoke.ts': 'runs a command as a person does, unless the test gives a clock',
  'cli/outbox.test.ts': AGES,
  'cli/pushing.test.ts': STAMPS,
  'conform/gate.test.ts': OWN_SERVER,
  'core/system-clock.test.ts': 'tests the real clock itself, with bounds of many times what it takes',
  'daemon/alarm-receivers.test.ts': OWN_SERVER,
  'daemon/damaged-mirror.test.ts': STAMPS,
  'daemon/installation.test.ts': STAMPS,
  'daemon/language.test.ts': OWN_SERVER,
  'daemon/told-after.test.ts': OWN_SERVER,
  'doctor/hub-checks.test.ts': AGES,
  'health/observability.test.ts': 'runs a whole daemon; nothing in it is judged by time',
  'hooks/event-receiver.ts': OWN_SERVER,
  'hooks/hooks.test.ts': OWN_SERVER,
  'hooks/prepared-orders.test.ts': OWN_SERVER,
  'hooks/receivers.test.ts': OWN_SERVER,
  'hooks/rejected-changes.test.ts': OWN_SERVER,
  'api/outcomes.test.ts': OWN_SERVER,
  'orders/http-client.ts': OWN_SERVER,
  'orders/mirror-process.ts': STAMPS,
  'orders/order-import.test.ts': 'gives a worker turns of the event loop',
  'orders/orders-due.test.ts': AGES,
  'outbox/inbox.test.ts': 'compares two waits of one run',
  'outbox/placed-lines.test.ts': STAMPS,
  'page/plain-rules.test.ts': AGES,
  'platform/http-transport.test.ts': 'the answer that never comes is waited for; nothing judges how long',
  'platform/proxy.test.ts': OWN_SERVER,
  'platform/token-races.test.ts': OWN_SERVER,
};

const TEST = import.meta.dirname;
/** Tiers with real processes, files and times of their own, and tools. */
const OTHER_TIERS = /^(bench|faults|hostile|integration|mutants|prove|recipes|slow|support)\//;
const CLOCK =
  /\bperformance\.now\b|\bDate\.now\(|\bsetTimeout\(|\bsystemClock\b|\bhrtime\b|\bsetTimeout as\b/;

it('no everyday test reads the real clock, but for those that say why', () => {
  const files = readdirSync(TEST, { recursive: true, encoding: 'utf8' }).filter(
    (name) => name.endsWith('.ts') && !OTHER_TIERS.test(name) && name !== 'real-clocks.test.ts',
  );
  const reading = files.filter((name) => CLOCK.test(readFileSync(path.join(TEST, name), 'utf8')));
  expect(reading.sort()).toEqual(Object.keys(REAL).sort());
});

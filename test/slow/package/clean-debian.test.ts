import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { debianWithServices } from './clean-debian.ts';
import { builtPackage, Machine } from './machine.ts';

const SYSTEMS = [
  { name: 'Debian 12', root: debianWithServices('bookworm') },
  { name: 'Debian 13', root: debianWithServices('trixie') },
];
for (const { name, root } of SYSTEMS) {
  if (!root) {
    it.skip(`a clean ${name}: mmdebstrap or its mirror is missing (apt-get install -y mmdebstrap)`);
  }
}

describe.each(SYSTEMS.filter((system) => system.root))('on a clean $name without a network', ({ root }) => {
  let machine: Machine;

  beforeAll(async () => {
    machine = await Machine.start('systemd', { root: root as string, file: builtPackage() });
  });

  afterAll(() => machine?.stop());

  it('takes an install, an init and a look at the page', () => {
    machine.run(`apt-get install -y /root/${path.basename(builtPackage())}`);
    machine.run(
      'systemd-run --unit=platform --property=StandardOutput=file:/run/platform.json tillsync sandbox --json --port 9100',
    );
    machine.until('grep -q "^}" /run/platform.json');
    const said = machine.run(`
      sed -n 's/.*"refreshToken": "\\(.*\\)".*/\\1/p' /run/platform.json |
      tillsync init --yes --token-stdin --base-url http://127.0.0.1:9100 --branch sub-1,B1 \\
        --callback-url http://127.0.0.1:8787/webhook --timezone America/Santiago`);
    const key = machine.run('cat /var/lib/tillsync/api-key');
    expect(said).toContain(`Status page: http://127.0.0.1:8788/#key=${key}`);
    expect(machine.run('systemctl is-active tillsync.service')).toBe('active');
    machine.until('test "$(stat -c %U /var/lib/tillsync/state.db)" = tillsync');
    // A clean machine has no curl; the packaged Node has fetch.
    const fetched = (address: string) =>
      machine.run(
        `/usr/lib/tillsync/node -e 'fetch("${address}", { headers: { "x-api-key": "${key}" } }).then((answer) => answer.text()).then((text) => console.log(text))'`,
      );
    expect(fetched('http://127.0.0.1:8788/')).toContain('<title>tillsync</title>');
    const verdict = () => JSON.parse(fetched('http://127.0.0.1:8788/v1/status')).verdict.level;
    for (let i = 0; i < 100 && verdict() !== 'green'; i++) machine.run('sleep 0.2');
    expect(fetched('http://127.0.0.1:8788/v1/status')).toContain('"level":"green"');
    const doctor = machine.try('tillsync doctor');
    expect([doctor.code, doctor.text]).toEqual([expect.toBeOneOf([0, 3]), expect.any(String)]);
  });
});

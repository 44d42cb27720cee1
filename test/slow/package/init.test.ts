import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { builtPackage, Machine } from './machine.ts';

const PLATFORM = 'http://127.0.0.1:9393';

describe('a machine on which the package was just installed', () => {
  let machine: Machine;

  beforeAll(async () => {
    machine = await Machine.start('systemd');
    machine.run(`dpkg -i ${builtPackage()}`);
    // Deletes the files of the service, so that `init` runs as root before the service has made them, as when a person
    // runs `init` right after the installation.
    machine.run('systemctl stop tillsync.service; rm -f /var/lib/tillsync/*.db* /var/lib/tillsync/inbox/*');
    machine.run(
      'setsid tillsync sandbox --port 9393 --orders-interval 1s < /dev/null > /root/platform.log 2>&1 &',
    );
    machine.until(`curl -sf ${PLATFORM}/_sandbox >/dev/null`, 30_000);
  });

  afterAll(() => machine?.stop());

  const owners = () =>
    machine
      .run('cd /var/lib/tillsync; stat -c "%U:%G %n" mirror.db mirror.db-wal state.db state.db-wal')
      .split('\n');

  it('is set up by one command, and runs', () => {
    machine.run(`curl -sf -X POST ${PLATFORM}/_sandbox/tokens > /root/pair.json`);
    const { code, text } = machine.try(
      `tillsync init --yes --token-stdin --base-url ${PLATFORM} --branch sub-1,B1 < /root/pair.json`,
    );
    expect([code, text]).toEqual([0, expect.stringContaining('tillsync.service is running')]);
    expect(machine.run('systemctl is-active tillsync.service; systemctl is-enabled tillsync.service')).toBe(
      'active\nenabled',
    );
    expect(owners().filter((line) => !line.startsWith('tillsync:tillsync '))).toEqual([]);
    expect(machine.run('stat -c "%a %U:%G" /etc/tillsync/config.toml')).toBe('644 root:root');
    expect(machine.run('curl -sf http://127.0.0.1:8788/healthz')).not.toBe('');
    expect(JSON.parse(machine.run('tillsync auth status --json'))).toMatchObject({ state: 'ok' });
  });

  it('listens elsewhere for callbacks once it is told so', () => {
    const words = '--callback-url http://127.0.0.1:8999/webhook --webhook-listen 127.0.0.1:8999';
    const report = JSON.parse(machine.run(`tillsync init --yes --json ${words} 2>/dev/null`));
    expect(report).toMatchObject({
      changed: true,
      keptAt: expect.stringContaining('/etc/tillsync/config.toml.bak-'),
      next: [],
    });
    const receiver = report.checks.filter(({ what }: { what: string }) => what === 'receiver');
    expect(receiver.map(({ ok }: { ok: boolean }) => ok)).toEqual([true, true, true]);
    expect(machine.run('systemctl show --value -p Listen tillsync.socket')).toContain('127.0.0.1:8999');
  });

  it('lets the group of the point of sale read what was there before', () => {
    machine.run('groupadd till; useradd --system --groups till till-user');
    machine.run('tillsync init --yes --group till');
    expect(machine.run('runuser -u till-user -- head -c 15 /var/lib/tillsync/mirror.db')).toBe(
      'SQLite format 3',
    );
    expect(machine.run('systemctl is-active tillsync.service')).toBe('active');
    // The API too: by the socket, which the set-up opened, and with the key.
    expect(machine.run('stat -c "%a %U:%G" /var/lib/tillsync/api-key')).toBe('640 tillsync:till');
    const status = 'http://localhost:8788/v1/status';
    const asPos = 'runuser -u till-user --';
    machine.run(`${asPos} curl -sf --unix-socket /run/tillsync/api.sock ${status}`);
    machine.run(`${asPos} sh -c 'curl -sf -H "x-api-key: $(cat /var/lib/tillsync/api-key)" ${status}'`);
    const other = 'runuser -u nobody -- curl -s -o /dev/null -w "%{http_code}"';
    expect(machine.try(`${other} --unix-socket /run/tillsync/api.sock ${status}`).text).toBe('000');
    expect(machine.try(`${other} ${status}`).text).toBe('401');
  });

  it('stores on another disk once it is told so', () => {
    const move = (from: string, to: string) =>
      machine.run(`systemctl stop tillsync.socket tillsync.service; mkdir -p /data; mv "${from}" "${to}"
        tillsync init --yes --directory "${to}"`);
    expect(move('/var/lib/tillsync', '/data/100% shop')).toContain('tillsync.service is running');
    expect(machine.run('curl -sf http://127.0.0.1:8788/healthz')).not.toBe('');
    expect(machine.run('ls "/data/100% shop"')).toContain('mirror.db-wal');
    expect(machine.run('ls /var/lib/tillsync 2>&1 || true')).toContain('No such file');
    expect(move('/data/100% shop', '/var/lib/tillsync')).toContain('tillsync.service is running');
  });

  it('is checked as the service sees it: its secrets, and whether it can read the file', () => {
    machine.run(
      'mkdir -m 700 -p /etc/credstore; echo a-key-of-the-shop > /etc/credstore/tillsync.local-api-key',
    );
    const well = machine.run('tillsync config check');
    expect(well).toContain('tillsync.service runs as tillsync, which can read it');
    expect(well).toMatch(/Tokens: stored/);
    expect(well).toContain('local-api-key');
    machine.run('chmod 0600 /etc/tillsync/config.toml');
    const { code, text } = machine.try('tillsync config check');
    expect([code, text]).toEqual([2, expect.stringContaining('the service user tillsync cannot read')]);
    expect(machine.try('tillsync doctor --offline --only config').code).toBe(2);
    const mended = /one that it can read: (sudo .*)/.exec(text)?.[1]?.replaceAll('sudo ', '') as string;
    machine.run(mended);
    machine.run('tillsync config check && rm /etc/credstore/tillsync.local-api-key');
  });

  it("has one remedy for a directory that became root's", () => {
    machine.run('systemctl stop tillsync.service; chown -R root:root /var/lib/tillsync');
    const doctor = machine.try('tillsync doctor --offline --only storage.files').text;
    expect(doctor).toContain('as whom tillsync.service runs');
    const [, mended = ''] = /-> sudo (chown .*)/.exec(doctor) ?? [];
    expect(mended).toMatch(/^chown -R -h tillsync:till \/var\/lib\/tillsync/);
    const { code, text } = machine.try('tillsync outbox retry 1');
    expect([code, text]).toEqual([
      1,
      expect.stringContaining('belongs to root, but the service runs as tillsync'),
    ]);
    machine.run(mended);
    expect(machine.run('tillsync doctor --offline --only storage.files')).toContain('are right');
    expect(machine.run('find /var/lib/tillsync ! -user tillsync')).toBe('');
    machine.run('systemctl start tillsync.service');
  });
});

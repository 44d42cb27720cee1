import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { publish } from '../../../config/package/repository.ts';
import { CHAIN, commandsOf, recipe } from './chain-recipe.ts';
import { debianPackage, debianWithServices, type Suite } from './clean-debian.ts';
import { MIRROR_DATE, writeSuite } from './debian-mirror.ts';
import { builtHubPackage, builtPackage, laterPackage, Machine } from './machine.ts';

const PLACE = '/root/hub';
const START = 'sudo systemctl enable tillsync-nats && sudo systemctl restart tillsync-nats';

const SYSTEMS = (['bookworm', 'trixie'] as Suite[]).map((suite) => ({
  suite,
  root: debianWithServices(suite),
  // Packages in the made-up mirror of each suite. nats-server needs libc, which every Debian has, and adduser.
  debian: {
    bookworm: [debianPackage('bookworm', 'nats-server')],
    trixie: ['nats-server', 'adduser'].map((name) => debianPackage('trixie', name)),
  },
}));
const TRIED = SYSTEMS.filter(({ root, debian }) => root && !Object.values(debian).flat().includes(undefined));
for (const { suite } of SYSTEMS.filter((system) => !TRIED.includes(system))) {
  it.skip(`a hub on ${suite}: mmdebstrap, Debian's mirror or its nats-server cannot be had`);
}

describe.each(TRIED)('a hub on a clean $suite', ({ suite, root, debian }) => {
  let machine: Machine;
  let place: string;

  beforeAll(async () => {
    place = mkdtempSync(path.join(tmpdir(), 'tillsync-hub-'));
    process.env.GNUPGHOME = path.join(place, 'gnupg');
    mkdirSync(process.env.GNUPGHOME, { mode: 0o700 });
    const hub = path.join(place, 'hub');
    const repository = path.join(hub, 'repository');
    publish({ directory: repository, debs: [builtPackage(), builtHubPackage()], date: MIRROR_DATE });
    for (const [name, debs] of Object.entries(debian)) {
      writeSuite(path.join(hub, 'debian'), name, debs as string[]);
    }
    const key = execFileSync('gpg', ['--batch', '--export']);
    writeFileSync(path.join(hub, 'debian-archive-keyring.gpg'), key);
    // Makes the certificates of the docs, and others: one that expires soon, one of another name and a renewed one.
    const make = recipe('openssl req -x509 -newkey')
      .split('\n')
      .filter((line) => !line.startsWith('sudo'));
    const certificates = path.join(hub, 'certificates');
    mkdirSync(certificates);
    execFileSync('sh', ['-ec', make.join('\n')], { cwd: certificates, stdio: 'ignore' });
    for (const [name, from, to] of [
      ['short', '-days 825', '-days 5'],
      ['other', /hub\.example\.com/g, 'other.example.com'],
      ['renewed', '-days 825', '-days 800'],
    ] as const) {
      const again = make.slice(1).join('\n').replaceAll('hub.pem', `${name}.pem`);
      const line = again.replaceAll('hub.key', `${name}.key`).replace(from, to);
      execFileSync('sh', ['-ec', line], { cwd: certificates, stdio: 'ignore' });
    }
    const later = path.join(place, 'later');
    mkdirSync(later);
    for (const [deb, change] of [
      [builtPackage(), () => {}],
      [builtHubPackage(), dependOn('0.9.0')],
    ] as const) {
      const made = laterPackage(deb, '0.9.0', change);
      const kept = path.join(later, path.basename(made));
      copyFileSync(made, kept);
      rmSync(path.dirname(made), { recursive: true });
    }
    execFileSync('cp', ['-r', later, hub]);
    machine = await Machine.start('systemd', { root: root as string, file: hub });
    machine.run(`chmod 755 /root; rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*
      cp ${PLACE}/debian-archive-keyring.gpg /usr/share/keyrings/
      install -D -m 644 ${PLACE}/repository/tillsync.asc /etc/apt/keyrings/tillsync.asc
      echo 'deb [signed-by=/etc/apt/keyrings/tillsync.asc] file:${PLACE}/repository stable main' > /etc/apt/sources.list.d/tillsync.list
      echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] file:${PLACE}/debian ${suite} main' > /etc/apt/sources.list.d/debian.list
      echo '127.0.0.1 hub.example.com' >> /etc/hosts
      apt-get update -qq`);
  });

  afterAll(async () => {
    await machine?.stop();
    execFileSync('gpgconf', ['--kill', 'gpg-agent']);
    delete process.env.GNUPGHOME;
    rmSync(place, { recursive: true, force: true });
  });

  const until = (condition: string) => machine.until(condition, 50_000);
  const property = (name: string, unit = 'tillsync-nats.service') =>
    machine.run(`systemctl show --value -p ${name} ${unit}`);
  const docsLines = (first: string) => machine.run(recipe(first).replaceAll('sudo ', ''));
  const listens = (port: number) =>
    machine.run(
      `grep -ci ':${port.toString(16)} 00000000:0000 0A' /proc/net/tcp /proc/net/tcp6 | grep -vc ':0$' || true`,
    );
  const hubChecks = (words = '') => {
    const { checks } = JSON.parse(machine.try(`tillsync doctor --json --only hub ${words}`).text) as {
      checks: { id: string; level: string; message: string; remedy: string | null }[];
    };
    return Object.fromEntries(checks.map(({ id, ...rest }) => [id, rest]));
  };
  const newestOrder = () =>
    machine.run(
      'tillsync order list --json --limit 1 --config /etc/tillsync/b1.toml | grep -m1 orderId || true',
    );

  it.runIf(suite === 'bookworm')(
    'is refused with the nats-server of Debian 12, and gets that of Debian 13 by the docs',
    () => {
      const refused = machine.try('apt-get install -y tillsync-hub');
      expect([refused.code, refused.text]).toEqual([
        100,
        expect.stringContaining('nats-server (>= 2.10.27)'),
      ]);
      machine.run(
        recipe("printf '%s\\n' 'Types: deb'")
          .replaceAll('sudo ', '')
          .replace('http://deb.debian.org/debian', `file:${PLACE}/debian`),
      );
      expect(machine.run('apt-get -s install adduser')).not.toContain('trixie');
    },
  );

  it('is installed in one step, and switches off the server that Debian starts', () => {
    const said = machine.run('apt-get install -y tillsync-hub');
    expect(said).toContain('nats-server.service of Debian was switched off');
    expect(said).toContain('sudo tillsync hub server-config');
    expect(machine.run('dpkg-query -W nats-server')).toMatch(/\t2\.10\.27/);
    expect(machine.run('systemctl is-enabled nats-server.service tillsync-nats.service || true')).toBe(
      'disabled\nenabled',
    );
    expect(property('ActiveState', 'nats-server.service')).toBe('inactive');
    expect([property('ActiveState'), listens(4222)]).toEqual(['inactive', '0']);
  });

  it('has a unit that systemd finds nothing to say about, and that exposes little', () => {
    const verified = machine.try('systemd-analyze verify --man=no tillsync-nats.service');
    expect([verified.code, verified.text]).toEqual([0, '']);
    const unit = '/lib/systemd/system/tillsync-nats.service';
    const { code, text } = machine.try(
      `systemd-analyze security --offline=true --threshold=15 --no-pager ${unit}`,
    );
    expect([code, text.split('\n').at(-1)]).toEqual([0, expect.stringContaining('exposure')]);
  });

  it('says what is missing until it is set up', () => {
    machine.run(
      'systemd-run --unit=platform --property=StandardOutput=file:/run/platform.json tillsync sandbox --json --port 9100 --orders-interval 1s --orders-every 1s',
    );
    until('grep -q "^}" /run/platform.json');
    machine.run(`sed -n 's/.*"refreshToken": "\\(.*\\)".*/\\1/p' /run/platform.json |
      tillsync init --yes --token-stdin --base-url http://127.0.0.1:9100 --branch sub-1,B1 --branch sub-2,B2 --branch sub-3 \\
        --callback-url http://127.0.0.1:8787/webhook --timezone America/Santiago`);
    machine.run(`printf '\\n[hub]\\nnats = "nats://127.0.0.1:4222"\\n' >> /etc/tillsync/config.toml`);
    expect(hubChecks()['hub.server']).toMatchObject({
      level: 'fail',
      remedy: 'Write it with: sudo tillsync hub server-config',
    });
  });

  it('serves branches of the same machine, and says that its server is to be restarted for others', () => {
    const said = machine.run('tillsync hub server-config --no-start');
    expect(said).toContain(START);
    machine.run(START.replaceAll('sudo ', ''));
    until('systemctl is-active -q tillsync-nats.service');
    machine.run(`sed -i '/^nats = /a public_url = "tls://hub.example.com:4222"' /etc/tillsync/config.toml
      cd ${PLACE}/certificates; ${recipe('sudo install -m 640').replaceAll('sudo ', '')}`);
    const [written = ''] = commandsOf('sudo tillsync hub server-config \\');
    machine.run(`${written.replace('sudo ', '')} --no-start`);
    machine.run('systemctl restart tillsync.service');
    expect(hubChecks()['hub.certificate']).toMatchObject({
      level: 'fail',
      remedy: `Start it anew: ${START}`,
    });
  });

  it('is set up with the commands of the docs', () => {
    docsLines('sudo tillsync hub server-config \\');
    expect(machine.run('stat -c "%a %U" /var/lib/tillsync/nats /var/lib/tillsync/nats/server.conf')).toBe(
      '2700 tillsync\n600 tillsync',
    );
    until('tillsync doctor --json --only hub | grep -q "The link works"');
    expect(hubChecks()).toMatchObject({
      hub: { level: 'ok' },
      'hub.server': { level: 'ok' },
      'hub.certificate': { level: 'ok' },
      'hub.way': { level: 'ok' },
    });
  });

  it('runs apart: as tillsync, without a look at tokens and orders, within limits', () => {
    const pid = property('MainPID');
    expect(machine.run(`stat -c %U /proc/${pid}`)).toBe('tillsync');
    expect(machine.run(`ls /proc/${pid}/root/var/lib/tillsync`)).toBe('nats');
    expect(machine.run(`grep 'Max open files' /proc/${pid}/limits`)).toContain('16384');
    expect(property('MemoryMax')).toBe(String(1024 ** 3));
  });

  it('takes a branch, and orders reach it', () => {
    const said = machine.run(`groupadd till
      tillsync branch invite B1 2> /dev/null | tillsync init --config /etc/tillsync/b1.toml --join - --group till`);
    expect(said).toContain('tillsync@b1.service is running, and starts with the machine.');
    expect(said).toMatch(/Status page: http:\/\/127\.0\.0\.1:87(89|9\d)\//);
    expect(machine.run('stat -c %G /var/lib/tillsync@b1/mirror.db')).toBe('till');
    expect(machine.run('stat -c "%a %G" /var/lib/tillsync@b1/api-key /run/tillsync@b1/api.sock')).toBe(
      '640 till\n660 till',
    );
    until('tillsync order list --json --config /etc/tillsync/b1.toml | grep -q orderId');
    const { checks } = JSON.parse(
      machine.try('tillsync doctor --json --only hub --config /etc/tillsync/b1.toml').text,
    );
    expect(checks).toMatchObject([
      { id: 'hub', level: 'ok' },
      { id: 'hub.way', level: 'ok' },
    ]);
  });

  it('shows a renewed certificate by itself, and disconnects nobody', () => {
    const pid = property('MainPID');
    const shown = () => hubChecks()['hub.certificate'];
    // Runs the hook as certbot calls it.
    const [, hook] = /--deploy-hook \\\n\s*'([^']*)'/.exec(CHAIN) ?? [];
    const put = (name: string) =>
      machine.run(`mkdir -p /run/lineage; cd ${PLACE}/certificates
        cp ${name}.pem /run/lineage/fullchain.pem; cp ${name}.key /run/lineage/privkey.pem
        export RENEWED_LINEAGE=/run/lineage; ${hook}`);
    put('renewed');
    until('tillsync doctor --json --only hub.certificate | grep -q \'"level": "ok"\'');
    put('short');
    until('tillsync doctor --json --only hub.certificate | grep -q "more days"');
    expect(shown()).toMatchObject({ level: 'warn', message: expect.stringContaining('4 more days') });
    put('other');
    expect(shown()).toMatchObject({
      level: 'fail',
      message: expect.stringContaining('is for DNS:other.example.com'),
    });
    put('hub');
    until('tillsync doctor --json --only hub.certificate | grep -q \'"level": "ok"\'');
    expect(property('MainPID')).toBe(pid);
  });

  it('is upgraded: server and branch come back by themselves, also after an update of nats-server alone', () => {
    const [pid, own] = [property('MainPID'), property('MainPID', 'tillsync.service')];
    machine.run(`dpkg -i ${PLACE}/later/*.deb`);
    expect(machine.run('dpkg-query -W tillsync-hub')).toBe('tillsync-hub\t0.9.0');
    expect([property('MainPID'), property('MainPID', 'tillsync.service')]).not.toEqual([pid, own]);
    const before = property('MainPID');
    machine.run(`dpkg -i ${PLACE}/debian/pool/nats-server_2.10*.deb`);
    until('systemctl is-active -q tillsync-nats.service');
    expect(property('MainPID')).not.toBe(before);
    expect(property('ActiveState', 'nats-server.service')).toBe('inactive');
    const last = newestOrder();
    until(
      `[ "$(tillsync order list --json --limit 1 --config /etc/tillsync/b1.toml | grep -m1 orderId)" != '${last}' ]`,
    );
  });

  it('tells how to start a server that was stopped, and does so with tillsync', () => {
    machine.run('systemctl stop tillsync-nats.service');
    expect(hubChecks('--offline')['hub.server']).toMatchObject({
      level: 'fail',
      message: expect.stringContaining(
        'The nats-server does not run. Nothing answers at nats://127.0.0.1:4222 (ECONNREFUSED).',
      ),
      remedy: expect.stringContaining(START),
    });
    machine.run('systemctl restart tillsync.service');
    until('systemctl is-active -q tillsync-nats.service');
  });

  it('runs again, as does the store, once both were removed and installed', () => {
    machine.run(`dpkg -r tillsync-hub tillsync; dpkg -i ${PLACE}/later/*.deb`);
    for (const unit of ['tillsync-nats', 'tillsync', 'tillsync@b1'])
      until(`systemctl is-active -q ${unit}.service`);
    until('tillsync doctor --json --only hub | grep -q "The link works"');
  });

  it('is purged without a trace, and leaves a nats-server alone that somebody set up', () => {
    machine.run('apt-get purge -y tillsync-hub');
    expect([property('ActiveState'), listens(4222)]).toEqual(['inactive', '0']);
    machine.run(
      'test ! -e /var/lib/tillsync/nats/jetstream && test -e /var/lib/tillsync/mirror.db && systemctl is-active -q tillsync.service',
    );
    expect(machine.run('find /etc /lib/systemd /var/lib/systemd -name "tillsync-nats*"')).toBe('');
    machine.run('echo "# ours" >> /etc/nats-server.conf; systemctl enable --now nats-server.service');
    const said = machine.run(`dpkg -i ${PLACE}/later/tillsync-hub*.deb`);
    expect(said).toContain('is in use and stays as it is');
    expect(property('ActiveState', 'nats-server.service')).toBe('active');
    expect(hubChecks('--offline')['hub.server']).toMatchObject({
      level: 'fail',
      message: expect.stringContaining('Another nats-server'),
    });
  });
});

/** Returns a change that makes the hub's package depend on this version of tillsync. */
function dependOn(version: string): (tree: string) => void {
  return (tree) =>
    void execFileSync('sed', [
      '-i',
      `s/tillsync (= [^)]*)/tillsync (= ${version})/`,
      path.join(tree, 'DEBIAN/control'),
    ]);
}

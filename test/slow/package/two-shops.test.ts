import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { publish } from '../../../config/package/repository.ts';
import { CHAIN, commandsOf, recipe } from './chain-recipe.ts';
import { cleanDebian, debianPackage, type Suite } from './clean-debian.ts';
import { MIRROR_DATE, writeSuite } from './debian-mirror.ts';
import { builtHubPackage, builtPackage, Machine } from './machine.ts';

/**
 * Types the commands of docs/chain.md, "Your first shop", as a person does at two Debian machines joined by a cable.
 */

/** Packages that every Debian has, but not the minimal one made here. */
const PACKAGES = ['systemd', 'systemd-sysv', 'dbus', 'sudo', 'ca-certificates'];
const OF_TRIXIE = ['nats-server', 'adduser'].map((name) => debianPackage('trixie', name));
const SYSTEMS = (['bookworm', 'trixie'] as Suite[]).map((suite) => ({
  suite,
  root: cleanDebian(suite, { packages: PACKAGES }),
  /** Commands that bring nats-server of Debian 13. */
  more: suite === 'bookworm' ? 3 : 0,
}));
const TRIED = SYSTEMS.filter(({ root }) => root && !OF_TRIXIE.includes(undefined));
for (const { suite } of SYSTEMS.filter((system) => !TRIED.includes(system))) {
  it.skip(`from one shop to two on ${suite}: mmdebstrap, Debian's mirror or its nats-server cannot be had`);
}
const PLACE = '/srv/install';
const ADDRESS = '10.9.0.1';

const said = (line: string, document = CHAIN) => {
  if (!document.includes(line)) throw new Error(`The document does not say: ${line}`);
  return line;
};

const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

describe.each(TRIED)('from one shop to two on $suite', ({ suite, more, root }) => {
  let place: string;
  let first: Machine;
  let second: Machine;
  const typed: string[] = [];

  /** Types a line at a terminal, as a user who may use sudo. `pasted` is the command's standard input. */
  const type = (machine: Machine, line: string, pasted?: string) => {
    typed.push(line);
    const paste = pasted === undefined ? '' : `printf '%s\\n' ${quoted(pasted)} | `;
    const { code, text } = machine.try(
      `cd /home/ana; ${paste}runuser -u ana -- env HOME=/home/ana USER=ana bash -c ${quoted(line)}`,
    );
    if (code === 0) return text;
    const log = machine.try('journalctl --no-pager -n 30').text;
    throw new Error(`${line}\nended with ${code}:\n${text}\n${log}`);
  };
  const storesAt = (machine: Machine, words: string) =>
    new Set(
      [
        ...machine
          .run(`tillsync order list --json --limit 20 ${words}`)
          .matchAll(/"storeExternalId": "(\w+)"/g),
      ].map(([, store]) => store),
    );

  beforeAll(async () => {
    place = mkdtempSync(path.join(tmpdir(), 'tillsync-two-shops-'));
    process.env.GNUPGHOME = path.join(place, 'gnupg');
    mkdirSync(process.env.GNUPGHOME, { mode: 0o700 });
    const install = path.join(place, 'install');
    publish({
      directory: path.join(install, 'repository'),
      debs: [builtPackage(), builtHubPackage()],
      date: MIRROR_DATE,
    });
    writeSuite(path.join(install, 'debian'), 'trixie', OF_TRIXIE as string[]);
    writeFileSync(path.join(install, 'archive.gpg'), execFileSync('gpg', ['--batch', '--export']));
    first = await Machine.start('systemd', { root: root as string, file: install });
    second = await Machine.start('systemd', { root: root as string, file: builtPackage() });
    first.cable(second, [`${ADDRESS}/24`, '10.9.0.2/24']);
    for (const machine of [first, second]) {
      machine.run(`rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*
        useradd --create-home --shell /bin/bash ana; echo 'ana ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/ana
        echo '${ADDRESS} hub.example.com' >> /etc/hosts; echo "127.0.1.1 $(hostname)" >> /etc/hosts`);
    }
    second.run('mv /root/tillsync_*.deb /home/ana/');
    // The signing key is installed already, as in a first shop that has worked for a long time.
    first.run(`mv /root/install ${PLACE}; cp ${PLACE}/archive.gpg /usr/share/keyrings/debian-archive-keyring.gpg
      install -D -m 644 ${PLACE}/repository/tillsync.asc /etc/apt/keyrings/tillsync.asc
      echo 'deb [signed-by=/etc/apt/keyrings/tillsync.asc] file:${PLACE}/repository stable main' > /etc/apt/sources.list.d/tillsync.list
      ${suite === 'trixie' ? `echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] file:${PLACE}/debian trixie main' > /etc/apt/sources.list.d/debian.list` : ''}
      apt-get update -qq; apt-get install -y -qq tillsync
      systemd-run --unit=platform --property=StandardOutput=file:/run/platform.json tillsync sandbox --json --port 9100 --orders-interval 1s --orders-every 1s`);
    first.until('grep -q "^}" /run/platform.json');
    first.run(`sed -n 's/.*"refreshToken": "\\(.*\\)".*/\\1/p' /run/platform.json |
      tillsync init --yes --token-stdin --base-url http://127.0.0.1:9100 --branch sub-1,B1 \\
        --callback-url http://127.0.0.1:8787/webhook --timezone America/Santiago`);
    first.until('tillsync order list --json --limit 1 | grep -q orderId');
  });

  afterAll(async () => {
    for (const machine of [first, second]) await machine?.stop();
    execFileSync('gpgconf', ['--kill', 'gpg-agent']);
    delete process.env.GNUPGHOME;
    rmSync(place, { recursive: true, force: true });
  });

  if (more > 0)
    it('brings nats-server of Debian 13 to Debian 12 with three commands', () => {
      const lines = commandsOf("printf '%s\\n' 'Types: deb'");
      expect(lines).toHaveLength(more);
      for (const line of lines)
        type(first, line.replace('http://deb.debian.org/debian', `file:${PLACE}/debian`));
    });

  it('makes the first machine the hub, with the edit of one file', () => {
    type(first, said('sudo apt-get install tillsync-hub').replace('install', 'install -y'));
    const edit = recipe(
      '[hub]\nnats = "nats://127.0.0.1:4222"\npublic_url = "tls://hub.example.com:4222"\n\n[[branches]]',
    );
    const [hub, ofFirst, ofSecond] = edit.trimEnd().split('\n\n');
    expect([ofFirst, ofSecond]).toEqual([expect.stringContaining('"B1"'), expect.stringContaining('"B2"')]);
    // The edit of the file in an editor counts as one command.
    typed.push('edit');
    const added = quoted(`${hub}\n\n${ofSecond}`);
    first.run(`printf '\\n%s\\n' ${added} >> /etc/tillsync/config.toml; tillsync config check`);
    for (const line of commandsOf('openssl req -x509 -newkey')) type(first, line);
    for (const line of commandsOf('sudo tillsync hub server-config \\')) type(first, line);
    // A newly installed Debian has no firewall.
    expect(first.try('command -v ufw').code).not.toBe(0);
    said('sudo ufw allow 4222/tcp');
    const isReached = 'is reached at tls://hub.example.com:4222';
    first.until(`tillsync doctor --json --only hub.way | grep -q '${isReached}'`, 60_000);
  });

  it('makes the shop on the first machine a branch, with one command', () => {
    // What the POS of B1 has read and acknowledged until then.
    const unbooked = 'tillsync order list --unbooked --branch B1 --json --limit 1';
    first.until(`${unbooked} | grep -q orderId`, 60_000);
    const [, acked] = /"orderId": "(.*?)"/.exec(first.run(unbooked)) ?? [];
    first.run(`tillsync order ack ${acked}`);
    const { counts } = JSON.parse(first.run('tillsync status --json')) as { counts: { events: number } };
    const add = commandsOf('sudo tillsync branch add B1 --here')[0] ?? '';
    const refused = first.try(`${add.replace('sudo ', '')} --local-listen 127.0.0.1:8788`);
    expect([refused.code, refused.text]).toEqual([2, expect.stringContaining('Port 8788 is already used')]);
    const left = 'ls -d /etc/tillsync/B1.* /var/lib/tillsync@B1; systemctl is-enabled tillsync@B1; true';
    expect(first.run(left)).not.toMatch(/^(\/|enabled)/m);
    first.run('systemctl stop tillsync-nats');
    const unanswered = first.try(add.replace('sudo ', ''));
    expect([unanswered.code, unanswered.text]).toEqual([
      1,
      expect.stringContaining('Nothing of branch B1 was kept on this machine.'),
    ]);
    expect(first.run(left)).not.toMatch(/^(\/|enabled)/m);
    expect(first.run('tillsync branch list')).toMatch(/B1 .*never/);
    first.run('systemctl start tillsync-nats');
    const told = type(first, add);
    expect(told).toContain('tillsync@B1.service is running, and starts with the machine.');
    expect(told).toContain('Its POS reads /var/lib/tillsync@B1/mirror.db');
    expect(first.run('stat -c "%a %U:%G" /var/lib/tillsync@B1')).toBe('2750 tillsync:tillsync');
    expect(first.run('stat -c "%a %U:%G" /var/lib/tillsync@B1/api-key /run/tillsync@B1/api.sock')).toBe(
      '640 tillsync:tillsync\n660 tillsync:tillsync',
    );
    const atBranch = 'tillsync --config /etc/tillsync/B1.toml';
    first.until(`${atBranch} order show ${acked} | grep -q 'Acknowledged by the POS'`, 60_000);
    const orders = first.run(`${atBranch} order list --json --limit 1000`);
    const seqs = [...orders.matchAll(/"seq": (\d+)/g)].map(([, seq]) => Number(seq));
    expect(Math.min(...seqs)).toBeGreaterThan(counts.events);
    const again = first.try(add.replace('sudo ', ''));
    expect([again.code, again.text]).toEqual([
      2,
      expect.stringContaining('tillsync@B1.service runs already. Nothing was changed.'),
    ]);
  });

  it('joins the second machine, where nothing but the package and a pasted line is needed', () => {
    const told = type(first, said('sudo tillsync branch invite B2'));
    const [invitation = ''] = told.split('\n');
    const operator = readFileSync('docs/operator.md', 'utf8');
    const install =
      operator.split('\n').find((line) => line.startsWith('sudo apt install ./tillsync_')) ?? '';
    type(second, install.replace('install', 'install -y'));
    const [join = ''] = commandsOf('sudo tillsync init --join -');
    const joined = type(second, join, invitation);
    expect(joined).toContain('tillsync.service is running, and starts with the machine.');
  });

  it('gives each shop its own orders, and doctor finds nothing wrong with the link at either', () => {
    second.until('tillsync order list --json --limit 1 | grep -q orderId', 60_000);
    const ofFirst = '--config /etc/tillsync/B1.toml';
    first.until(`tillsync order list ${ofFirst} --json --limit 1 | grep -q orderId`, 60_000);
    expect(storesAt(second, '')).toEqual(new Set(['B2']));
    expect(storesAt(first, ofFirst)).toEqual(new Set(['B1']));
    for (const [machine, looks] of [
      [first, ['hub.server', 'hub.certificate', 'hub.way']],
      [second, ['hub', 'hub.way']],
    ] as const) {
      const { text } = machine.try('tillsync doctor --json --only hub');
      const { checks } = JSON.parse(text) as { checks: { id: string; level: string; message: string }[] };
      const found = checks.filter(({ id }) => looks.some((look) => look === id));
      expect(found.map(({ id, level }) => `${id} ${level}`)).toEqual(looks.map((look) => `${look} ok`));
    }
  });

  it(`takes ten commands${more > 0 ? `, and ${more} more on Debian 12` : ''}`, () => {
    expect(typed).toHaveLength(10 + more);
    said('Ten commands for both machines');
    said('one more where a firewall runs');
    said('three more at a hub on Debian 12');
  });
});

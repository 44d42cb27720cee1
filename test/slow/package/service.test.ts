import {
  copyFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { builtPackage, laterPackage, Machine } from './machine.ts';

const SECRET = 'callback-secret-4711';
const URL = 'http://127.0.0.1:8787/webhook';
const NODE = realpathSync('node_modules/.bin/node');
const SENDER = path.resolve('test/slow/package/send-callbacks.ts');
const LATER = path.resolve('dist/test');

interface Sent {
  counts: Record<string, number>;
  worstMs: number;
}

let machine: Machine;
let said: string;
let later: string;
let broken: string;

beforeAll(async () => {
  mkdirSync(LATER, { recursive: true });
  const keep = (deb: string) => {
    const file = path.join(LATER, path.basename(deb));
    copyFileSync(deb, file);
    rmSync(path.dirname(deb), { recursive: true });
    return file;
  };
  later = keep(
    laterPackage(builtPackage(), '0.9.0', (tree) => {
      const migrations = path.join(tree, 'usr/lib/tillsync/db/mirror/migrations');
      const number = String(readdirSync(migrations).length + 1).padStart(4, '0');
      writeFileSync(
        path.join(migrations, `${number}-probe.sql`),
        'CREATE TABLE probe (id INTEGER PRIMARY KEY) STRICT;',
      );
    }),
  );
  broken = keep(
    laterPackage(builtPackage(), '0.9.1', (tree) => {
      writeFileSync(path.join(tree, 'usr/lib/tillsync/main.cjs'), 'process.exit(1);');
    }),
  );
  machine = await Machine.start('systemd');
  machine.run(`mkdir -m 700 -p /etc/credstore; echo ${SECRET} > /etc/credstore/tillsync.webhook-secret`);
  said = machine.run(`dpkg -i ${builtPackage()}`);
});

afterAll(async () => {
  await machine?.stop();
  rmSync(LATER, { recursive: true, force: true });
});

async function send(first: number, seconds: number): Promise<Sent> {
  return JSON.parse(
    await machine.background(`${NODE} ${SENDER} ${URL} ${SECRET} ${first} ${seconds}`),
  ) as Sent;
}

function property(name: string, unit = 'tillsync.service'): string {
  return machine.run(`systemctl show --value -p ${name} ${unit}`);
}

function ordersKept(): number {
  const report = JSON.parse(machine.run('tillsync order list --json --limit 1000')) as { orders: unknown[] };
  return report.orders.length;
}

function until(condition: string): void {
  machine.until(condition);
}

const IS_ACTIVE = 'systemctl is-active -q tillsync.service';

describe('the installed service', () => {
  it('waits for its set-up: it answers, and calls nobody', () => {
    until('curl -sf http://127.0.0.1:8788/healthz');
    const key = machine.run('cat /var/lib/tillsync/api-key');
    expect(said).toContain(`\nStatus page: http://127.0.0.1:8788/#key=${key}`);
    const status = 'http://127.0.0.1:8788/v1/status';
    expect(machine.try(`curl -s -o /dev/null -w '%{http_code}' ${status}`).text).toBe('401');
    expect(machine.run(`curl -sf -H 'x-api-key: ${key}' ${status}`)).toContain('setup.missing');
    expect(machine.run('journalctl --no-pager')).not.toContain(key);
    expect(machine.run('tillsync status')).toContain(
      'tillsync is not set up yet. To set it up, run: sudo tillsync init',
    );
    machine.run(
      'sed "s#https://api.example.com#https://platform.invalid#" /usr/share/doc/tillsync/config.sample.toml > /etc/tillsync/config.toml; systemctl restart tillsync.service',
    );
  });

  it('is running after the install, ready, with its secret, and starts at boot', async () => {
    expect(property('ActiveState')).toBe('active');
    expect(property('StatusText')).toContain('Running');
    expect(machine.run('systemctl is-enabled tillsync.service tillsync.socket')).toBe('enabled\nenabled');
    expect((await send(1, 1)).counts).toEqual({ 200: 20 });
  });

  it('serves the status page as it was packed', () => {
    const page = machine.run('curl -sf http://127.0.0.1:8788/');
    const script = /src="([^"]+\.js)"/.exec(page)?.[1];
    expect(script).toBeDefined();
    expect(machine.run(`curl -sf http://127.0.0.1:8788${script}`)).not.toBe('');
  });

  it('opens the inbox in a process of its own: bounded, without the listening sockets, first to go', () => {
    // Gives the store an address of the platform, because without one it is not set up and has no inbox.
    machine.run(
      'cp /etc/tillsync/config.toml /root/bare.toml; printf \'[platform]\\nbase_url = "http://127.0.0.1:9"\\n\' > /etc/tillsync/config.toml; systemctl restart tillsync.service',
    );
    const child = '/proc/$(pgrep -x tillsync-inbox)';
    until('pgrep -x tillsync-inbox');
    expect(machine.run(`cat ${child}/limits`)).toMatch(/Max cpu time +900 [\s\S]*Max data size +922746880 /);
    expect(machine.run(`cat ${child}/oom_score_adj`)).toBe('1000');
    const sockets = `ls -l ${child}/fd | grep -o 'socket:.[0-9]*' | grep -o '[0-9]*'`;
    expect(
      machine.run(`for n in $(${sockets}); do grep -h " $n " /proc/net/tcp /proc/net/tcp6; done; true`),
    ).toBe('');
    const insert = "INSERT INTO stock_changes (external_id, qty) VALUES ('A', 1)";
    const sqlite = path.resolve('node_modules/better-sqlite3');
    machine.run(
      `${NODE} -e "new (require('${sqlite}'))('/var/lib/tillsync/inbox/inbox.db').exec(process.argv[1])" "${insert}"`,
    );
    until('tillsync outbox list --json | grep -q inbox');
    expect(machine.run(`stat -c %U ${child}`)).toBe('tillsync');
    machine.run('kill -9 $(pgrep -x tillsync-inbox)');
    until('pgrep -x tillsync-inbox');
    expect(property('NRestarts')).toBe('0');
    expect(property('MemoryMax')).toBe(String(2 * 1024 ** 3));
    machine.run('cp /root/bare.toml /etc/tillsync/config.toml; systemctl restart tillsync.service');
  });

  it('runs the program of a hook in its sandbox, and hands it the secret of a hook that signs', () => {
    machine.run('cp /etc/tillsync/config.toml /root/without-hooks.toml');
    const program = '/usr/local/lib/tillsync/print-order';
    const script = [
      '#!/bin/sh',
      'cat > /var/lib/tillsync/event; id -un > /var/lib/tillsync/who; env > /var/lib/tillsync/environment',
      'ls /root /home/* > /dev/null 2>&1 && echo "sees home" >&2',
      'touch /etc/planted 2> /dev/null && echo "writes to /etc" >&2; touch /tmp/mine || exit 4',
      'getent hosts localhost > /dev/null || exit 5',
    ];
    machine.run(
      `mkdir -p /usr/local/lib/tillsync; cat > ${program} <<'END'\n${script.join('\n')}\nEND\nchmod 755 ${program}`,
    );
    machine.run(
      `printf '[[hooks]]\nname = "printer"\ncommand = ["${program}"]\n' >> /etc/tillsync/config.toml`,
    );
    machine.run('echo hook-secret-4712 > /etc/credstore/tillsync.hook-printer; systemctl daemon-reload');
    const unit = machine.run('systemctl cat tillsync.service');
    expect(unit).toContain('LoadCredential=hook-printer:tillsync.hook-printer');
    machine.run('systemctl restart tillsync.service');
    const tested = machine.run('tillsync hooks test printer');
    expect(tested).toContain('taken: the program ended with 0');
    expect(tested).not.toMatch(/sees home|writes to/);
    expect(JSON.parse(machine.run('cat /var/lib/tillsync/event'))).toMatchObject({ test: true });
    expect(machine.run('cat /var/lib/tillsync/who')).toBe('tillsync');
    expect(machine.run('cat /var/lib/tillsync/environment')).not.toMatch(/SECRET|CREDENTIALS|LISTEN_|NOTIFY/);
    expect(machine.run('tillsync config check')).toMatch(/Optional secrets .*hook-printer/);
    machine.run('rm /var/lib/tillsync/event /var/lib/tillsync/who /var/lib/tillsync/environment');
    machine.run(
      'cp /root/without-hooks.toml /etc/tillsync/config.toml; rm /etc/credstore/tillsync.hook-printer',
    );
    machine.run('systemctl daemon-reload; systemctl restart tillsync.service');
  });

  it('makes a differential backup by itself', () => {
    machine.run('cp /etc/tillsync/config.toml /root/without-backups.toml');
    machine.run(
      'sed -i \'s/^differential_every.*/differential_every = "1s"/\' /etc/tillsync/config.toml; systemctl restart tillsync.service',
    );
    // Notes a whole backup, which the service itself makes only five minutes after its start.
    const note = "INSERT OR REPLACE INTO marks (name, value) VALUES ('backup.noted', unixepoch() * 1000)";
    const sqlite = path.resolve('node_modules/better-sqlite3');
    machine.run(
      `${NODE} -e "new (require('${sqlite}'))('/var/lib/tillsync/mirror.db').exec(process.argv[1])" "${note}"`,
    );
    until('ls /var/lib/tillsync/backups | grep -q "differential.tar.gz$"');
    expect(machine.run('journalctl -u tillsync.service')).not.toContain('a differential backup failed');
    machine.run('rm -r /var/lib/tillsync/backups; cp /root/without-backups.toml /etc/tillsync/config.toml');
    machine.run('systemctl restart tillsync.service');
  });

  it('keeps its files to itself and to its group', () => {
    const modes = machine.run(
      'cd /var/lib/tillsync; stat -c "%a %U:%G %n" . inbox mirror.db mirror.db-wal mirror.db-shm state.db api-key',
    );
    expect(modes.split('\n')).toEqual([
      '2750 tillsync:tillsync .',
      '2770 tillsync:tillsync inbox',
      '640 tillsync:tillsync mirror.db',
      '640 tillsync:tillsync mirror.db-wal',
      '640 tillsync:tillsync mirror.db-shm',
      '600 tillsync:tillsync state.db',
      '640 tillsync:tillsync api-key',
    ]);
    machine.run('useradd --system -G tillsync pos; useradd --system stranger');
    expect(machine.try('runuser -u pos -- head -c 15 /var/lib/tillsync/mirror.db').text).toBe(
      'SQLite format 3',
    );
    expect(machine.try('runuser -u pos -- cat /var/lib/tillsync/api-key').text).toMatch(/^[\w-]{32}$/);
    expect(machine.try('runuser -u pos -- cat /var/lib/tillsync/state.db').code).not.toBe(0);
    for (const name of ['mirror.db', 'api-key']) {
      expect(machine.try(`runuser -u stranger -- cat /var/lib/tillsync/${name}`).code).not.toBe(0);
    }
    expect(machine.run('cat /proc/$(systemctl show --value -p MainPID tillsync)/environ')).not.toContain(
      SECRET,
    );
  });

  it('lets callbacks wait through a restart, and answers every one', async () => {
    const before = ordersKept();
    const sending = send(1_000, 4);
    machine.run('sleep 1; systemctl restart tillsync.service; sleep 1; systemctl restart tillsync.service');
    expect((await sending).counts).toEqual({ 200: 80 });
    expect(ordersKept()).toBe(before + 80);
  });

  it('comes back after a kill, and answers what came meanwhile', async () => {
    machine.run(`kill -KILL ${property('MainPID')}`);
    const sent = await send(2_000, 1);
    expect(sent.counts).toEqual({ 200: 20 });
    expect(property('NRestarts')).not.toBe('0');
  });

  it('has a compile cache that a kill does not take away', () => {
    expect(Number(machine.run('find /var/cache/tillsync -type f -size +100k | wc -l'))).toBeGreaterThan(0);
  });

  it('is started anew when its event loop gives no sign of life', () => {
    machine.run(
      'mkdir -p /run/systemd/system/tillsync.service.d; printf "[Service]\\nWatchdogSec=5\\nTimeoutStopSec=1\\nRestartSec=0\\n" > /run/systemd/system/tillsync.service.d/quick.conf; systemctl daemon-reload; systemctl restart tillsync.service',
    );
    const pid = property('MainPID');
    machine.run('sleep 8');
    expect(property('MainPID')).toBe(pid);
    machine.run(`kill -STOP ${pid}`);
    until(`[ "$(systemctl show --value -p MainPID tillsync)" != ${pid} ] && ${IS_ACTIVE}`);
    machine.run(
      'rm -r /run/systemd/system/tillsync.service.d; systemctl daemon-reload; systemctl restart tillsync',
    );
  });

  it('listens where the configuration says, and on the old address until the socket follows', async () => {
    machine.run(
      'sed -i "s/127.0.0.1:8787/127.0.0.1:9797/" /etc/tillsync/config.toml; systemctl restart tillsync.service',
    );
    const status = (port: number) =>
      machine.try(`curl -s -o /dev/null -w '%{http_code}' -X POST http://127.0.0.1:${port}/webhook`).text;
    expect([status(8787), status(9797)]).toEqual(['401', '401']);
    machine.run(
      'systemctl daemon-reload; systemctl stop tillsync.service; systemctl restart tillsync.socket; systemctl start tillsync.service',
    );
    expect([status(8787), status(9797)]).toEqual(['000', '401']);
    machine.run(
      'sed -i "s/127.0.0.1:9797/127.0.0.1:8787/" /etc/tillsync/config.toml; systemctl daemon-reload; systemctl stop tillsync.service; systemctl restart tillsync.socket; systemctl start tillsync.service',
    );
  });

  it('moves its socket for every form of TOML, and reloads beside a file that cannot be read', () => {
    const socket = '/run/systemd/generator/tillsync.socket.d/50-webhook-listen.conf';
    const generate = '/lib/systemd/system-generators/tillsync-generator';
    machine.run('cp /etc/tillsync/config.toml /root/kept.toml');
    machine.run(
      `printf 'webhook = { listen = "127.0.0.1:9797" }\nstorage.directory = "/srv/data"\n' > /etc/tillsync/config.toml; systemctl daemon-reload`,
    );
    expect(machine.run(`cat ${socket}`)).toContain('ListenStream=127.0.0.1:9797');
    expect(property('ReadWritePaths')).toContain('/srv/data');
    machine.run('printf "[webhook\n" > /etc/tillsync/config.toml; systemctl daemon-reload');
    expect(machine.try(`cat ${socket}`).code).not.toBe(0);
    // As systemd runs it on Debian 13: nothing may be written but the units, and there is no home.
    const sandboxed = `mkdir -p /run/units; unshare --mount sh -c 'mount -o bind /run/units /run/units; mount -o remount,ro,bind /; mount -t tmpfs -o ro none /tmp; env -i ${generate} /run/units'`;
    expect(machine.run(sandboxed)).toMatch(/^\/etc\/tillsync\/config.toml: found .* at line 1, .*$/);
    machine.run('cp /root/kept.toml /etc/tillsync/config.toml; systemctl daemon-reload');
    expect(machine.run(`${sandboxed}; ls -R /run/units`)).toContain('50-webhook-listen.conf');
    expect(machine.run(`cat ${socket}`)).toContain('ListenStream=127.0.0.1:8787');
  });

  it.each(['0.0.0.0', '[::]'])('listens for everybody on %s with both of its listeners', async (host) => {
    const status = (port: number, path: string) =>
      machine.try(`curl -s -o /dev/null -w '%{http_code}' -X GET http://10.99.0.1:${port}${path}`).text;
    machine.run(
      'ip address replace 10.99.0.1/32 dev lo; echo key-4711 > /etc/credstore/tillsync.local-api-key',
    );
    machine.run('cp /etc/tillsync/config.toml /root/kept.toml');
    // The socket unit stays unchanged, so the service opens this address itself.
    machine.run(
      `sed -i 's/127.0.0.1:8787/${host}:9797/; s/127.0.0.1:8788/${host}:8788/' /etc/tillsync/config.toml; systemctl restart tillsync.service`,
    );
    expect([status(9797, '/webhook'), status(8788, '/healthz')]).toEqual(['405', '200']);
    // A command beside the service gets the service's secrets too, such as its API key.
    expect(machine.try('tillsync outbox discard 999999').text).toContain('999999');
    const handedIn = 'tar -xzOf /root/b.tar.gz --wildcards "*/configuration.json"';
    const bundled = machine.run(`tillsync bundle /root/b.tar.gz > /dev/null; ${handedIn}; rm /root/b.tar.gz`);
    expect(bundled).toContain('webhook-secret: yes');
    expect(bundled).not.toContain('no local-api-key');
    expect(bundled).not.toContain('key-4711');
    machine.run(
      'systemctl daemon-reload; systemctl stop tillsync.service; systemctl restart tillsync.socket; systemctl start tillsync.service',
    );
    expect([status(9797, '/webhook'), status(8788, '/healthz')]).toEqual(['405', '200']);
    machine.run(
      'cp /root/kept.toml /etc/tillsync/config.toml; rm /etc/credstore/tillsync.local-api-key; systemctl daemon-reload; systemctl stop tillsync.service; systemctl restart tillsync.socket; systemctl start tillsync.service',
    );
  });

  it.each([
    ['operator', 'To open the page from another machine'],
    ['operador', 'Para abrir la página desde otro equipo'],
  ])('shows its page to another machine after the steps of docs/%s.md, in their order', (name, first) => {
    machine.run('ip address replace 192.168.1.5/32 dev lo; cp /etc/tillsync/config.toml /root/kept.toml');
    const [, section = ''] = readFileSync(`docs/${name}.md`, 'utf8').split(first);
    const steps = section.split('\n### ')[0]?.matchAll(/```(sh|toml)\n(.*?)```/gs) ?? [];
    for (const [, kind, text = ''] of steps) {
      const listen = /^listen = .*$/m.exec(text)?.[0];
      if (kind === 'sh') machine.run(text.replaceAll('sudo ', ''));
      else machine.run(`sed -i '/^\\[local\\]/,/^listen/s/^listen.*/${listen}/' /etc/tillsync/config.toml`);
    }
    until('curl -sf -o /dev/null http://192.168.1.5:8788/');
    machine.run('cp /root/kept.toml /etc/tillsync/config.toml');
    machine.run('systemctl restart tillsync.service');
  });

  it('tells which secrets a backup did not bring along, and where they belong', () => {
    machine.run(`cd /etc/credstore; cp /etc/tillsync/config.toml /root/kept.toml
      printf '[[hooks]]\nname = "pos"\nurl = "https://pos.invalid"\n' >> /etc/tillsync/config.toml
      echo https://alarms.invalid/4713 > tillsync.alarm-url; echo key-4713 > tillsync.hook-pos
      tillsync backup /root/moved.tar.gz; rm tillsync.alarm-url tillsync.hook-pos
      systemctl stop tillsync.socket tillsync.service`);
    const text = machine.run('tillsync restore /root/moved.tar.gz');
    expect(text).toContain('/etc/credstore/tillsync.alarm-url, /etc/credstore/tillsync.hook-pos, and run');
    expect(text).not.toMatch(/webhook-secret|4713/);
    machine.run('cp /root/kept.toml /etc/tillsync/config.toml; systemctl start tillsync.service');
  });

  it('runs a second company beside the first', () => {
    machine.run(
      'sed "s#/var/lib/tillsync#/var/lib/tillsync@shop2#; s/:8787/:8797/; s/:8788/:8798/" /etc/tillsync/config.toml > /etc/tillsync/shop2.toml; systemctl daemon-reload; systemctl enable --now tillsync@shop2.service',
    );
    expect(property('ActiveState', 'tillsync@shop2.service')).toBe('active');
    expect(property('Listen', 'tillsync@shop2.socket')).toContain('127.0.0.1:8797');
    expect(machine.run('stat -c "%a %U" /var/lib/tillsync@shop2 /var/lib/tillsync@shop2/inbox')).toBe(
      '2750 tillsync\n2770 tillsync',
    );
  });

  it('is upgraded at work: no callback is refused, the schema follows, a copy of the old mirror is kept', async () => {
    const before = ordersKept();
    const pids = ['tillsync.service', 'tillsync@shop2.service'].map((unit) => property('MainPID', unit));
    const sending = send(3_000, 8);
    machine.run(`sleep 1; dpkg -i ${later}`);
    expect((await sending).counts).toEqual({ 200: 160 });
    expect(ordersKept()).toBe(before + 160);
    expect(machine.run('dpkg-query -W tillsync')).toBe('tillsync\t0.9.0');
    expect(property('MainPID')).not.toBe(pids[0]);
    expect(property('MainPID', 'tillsync@shop2.service')).not.toBe(pids[1]);
    machine.run(
      'test -f /var/lib/tillsync/mirror.db.before-upgrade && grep -q probe /var/lib/tillsync/mirror.db*',
    );
  });

  it('does not start in an upgrade what the operator stopped', () => {
    machine.run(`systemctl stop tillsync.socket tillsync.service; dpkg -i ${later}`);
    expect(property('ActiveState')).toBe('inactive');
    machine.run('systemctl start tillsync.socket tillsync.service');
  });

  it('can be upgraded to a version that does not start, and out of it', () => {
    machine.run(`dpkg -i ${broken}`);
    expect(machine.try(IS_ACTIVE).code).not.toBe(0);
    machine.run(`dpkg -i ${later}`);
    until(IS_ACTIVE);
  });

  it('refuses to run on a newer mirror after a downgrade, and leaves it untouched', () => {
    machine.run(`dpkg -i ${builtPackage()}`);
    until('journalctl -u tillsync.service | grep -q "written by a newer tillsync"');
    machine.run(`dpkg -i ${later}`);
    until(IS_ACTIVE);
    expect(ordersKept()).toBeGreaterThan(0);
  });

  it('runs again once it was removed and installed, with its further companies', async () => {
    const before = ordersKept();
    machine.run(`dpkg -r tillsync; dpkg -i ${later}`);
    until(IS_ACTIVE);
    until('systemctl is-active -q tillsync@shop2.service');
    expect((await send(4_000, 1)).counts).toEqual({ 200: 20 });
    expect(ordersKept()).toBe(before + 20);
  });

  it('stays stopped where it was switched off before it was removed', () => {
    const units = 'tillsync.socket tillsync.service tillsync@shop2.service';
    machine.run(`systemctl disable --now ${units}; dpkg -r tillsync; dpkg -i ${later}`);
    expect(machine.try(`systemctl is-active ${units}`).text).toBe('inactive\ninactive\ninactive');
    machine.run(`systemctl enable --now ${units}`);
  });

  it('keeps configuration and storage when it is removed, and nothing when it is purged', () => {
    machine.run('dpkg -r tillsync');
    expect(machine.try('pgrep -u tillsync').code).not.toBe(0);
    machine.run(
      'test -f /etc/tillsync/config.toml && test -f /var/lib/tillsync/mirror.db && test ! -e /usr/bin/tillsync',
    );
    machine.run('rm /etc/tillsync/shop2.toml; dpkg -P tillsync');
    expect(
      machine.run('ls -d /etc/tillsync /var/lib/tillsync* /var/cache/tillsync* 2>/dev/null || true'),
    ).toBe('/var/lib/tillsync@shop2');
    expect(
      machine.run(
        'find /etc/systemd /run/systemd/system -name "tillsync*"; dpkg -l tillsync | grep -c ^ii || true',
      ),
    ).not.toMatch(/multi-user|sockets\.target/);
  });
});

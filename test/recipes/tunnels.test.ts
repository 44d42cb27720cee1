import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Machine } from '../slow/package/machine.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { MAIN, NODE, SECRET } from '../support/workplace.ts';

const TUNNEL = path.join(import.meta.dirname, 'tunnel');
const PROXY = path.join(import.meta.dirname, 'proxy/nginx.conf');
const isRoot = process.getuid?.() === 0;
const lacks = (...programs: string[]) => !isRoot || programs.some((program) => !existsSync(program));
const WITHOUT_SSH = lacks('/usr/sbin/sshd', '/usr/sbin/nginx');
const WITHOUT_WIREGUARD = lacks('/usr/bin/wg-quick', '/usr/bin/wireguard-go', '/usr/sbin/nginx');
if (WITHOUT_SSH)
  console.warn('Not tested: the tunnel by SSH. It takes root and: apt install openssh-server nginx');
if (WITHOUT_WIREGUARD)
  console.warn(
    'Not tested: the tunnel by WireGuard. It takes root and: apt install wireguard-tools wireguard-go nginx',
  );

let machine: Machine;

beforeEach(async () => {
  if (isRoot) machine = await Machine.start('systemd');
});

afterEach(() => machine?.stop());

const until = (condition: string) => machine.until(condition, 30_000);
const file = (name: string) => readFileSync(path.join(TUNNEL, name), 'utf8');
const write = (place: string, content: string, mode = '644') =>
  machine.run(
    `mkdir -p $(dirname ${place}); cat > ${place} <<'END'\n${content}\nEND\nchmod ${mode} ${place}`,
  );

/**
 * Starts nginx on the public server with the configuration that the guide links; it forwards to `leadsTo`. `under` is
 * the prefix that makes a command run on that server.
 */
function startProxy(under: string, leadsTo: string): void {
  const directory = '/etc/letsencrypt/live/shop.example.com';
  machine.run(`mkdir -p ${directory}; cd ${directory}; openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=shop.example.com \
    -addext subjectAltName=DNS:shop.example.com -keyout privkey.pem -out fullchain.pem 2>/dev/null`);
  const shown = readFileSync(PROXY, 'utf8').replace('127.0.0.1:8787', leadsTo);
  write('/root/nginx.conf', `events {}\nhttp { access_log off;\n${shown}\n}`);
  // nginx stays running and must not hold the output of the command, or the command would not end.
  machine.run(`${under} nginx -c /root/nginx.conf < /dev/null > /run/nginx.log 2>&1`);
}

/** Starts a platform that calls the public address, and the shop's tillsync, which polls once a year. */
function startShop(listen: string): void {
  const config = `[webhook]
listen = "${listen}"
callback_url = "https://shop.example.com/webhook"
[platform]
base_url = "http://127.0.0.1:9393"
[storage]
directory = "/var/lib/shop"
[orders]
poll = "0 0 1 1 *"
[[branches]]
subsidiary_id = "sub-1"
external_id = "B1"`;
  write('/root/config.toml', config);
  const trust = 'NODE_EXTRA_CA_CERTS=/etc/letsencrypt/live/shop.example.com/fullchain.pem';
  machine.run(
    `${trust} setsid ${NODE} ${MAIN} sandbox --json --port 9393 --orders-every 1s --orders-interval 1s < /dev/null > /run/platform.json 2> /run/platform.log &`,
  );
  until('grep -q "^}" /run/platform.json');
  machine.run(
    `sed -n 's/.*"refreshToken": "\\(.*\\)".*/\\1/p' /run/platform.json | ${NODE} ${MAIN} auth set --config /root/config.toml`,
  );
  machine.run(
    `TILLSYNC_WEBHOOK_SECRET=${SECRET} setsid ${NODE} ${MAIN} run --config /root/config.toml < /dev/null > /run/shop.log 2>&1 &`,
  );
}

/** Waits until more than `known` callbacks have arrived; returns their number. */
function awaitCallbacks(known: number): number {
  const script = `const { DatabaseSync } = require('node:sqlite');
    const began = Date.now();
    (function look() {
      let count = 0;
      try {
        const db = new DatabaseSync('/var/lib/shop/mirror.db', { readOnly: true });
        count = db.prepare("SELECT count(*) AS n FROM order_events WHERE source = 'webhook'").get().n;
        db.close();
      } catch {}
      if (count > ${known}) console.log(count);
      else if (Date.now() - began > 90000) process.exit(1);
      else setTimeout(look, 200);
    })();`;
  write('/root/look.cjs', script);
  const { code, text } = machine.try(`${NODE} --no-warnings /root/look.cjs`);
  if (code !== 0) throw new Error(`no callback came: ${machine.try('tail -n 20 /run/shop.log').text}`);
  return Number(text);
}

/** Checks that requests to the public address reach tillsync, which accepts only callbacks with the right secret. */
function expectSecretToDecide(): void {
  const status = (secret: string, place = '/webhook') =>
    machine.run(
      `curl -sk -o /dev/null -w '%{http_code}' --resolve shop.example.com:443:$(getent hosts shop.example.com | cut -d ' ' -f 1) \
       -H 'content-type: application/json' -H 'x-webhook-secret: ${secret}' -d '${JSON.stringify(sampleNotification(77))}' https://shop.example.com${place}`,
    );
  expect(status(SECRET)).toBe('200');
  expect(status('another secret')).toBe('401');
  expect(status(SECRET, '/v1/status')).toBe('404');
}

// Each test starts and stops a whole machine.
vi.setConfig({ testTimeout: 300_000 });

describe('a tunnel by SSH', () => {
  it.skipIf(WITHOUT_SSH)('brings callbacks, comes back when it is cut, and opens nothing else', () => {
    machine.run('echo 127.0.0.1 shop.example.com >> /etc/hosts');
    machine.run(`useradd --system --create-home --shell /usr/sbin/nologin tunnel
      useradd --system --create-home --home-dir /var/lib/tillsync-tunnel tillsync-tunnel
      runuser -u tillsync-tunnel -- ssh-keygen -q -t ed25519 -N '' -f /var/lib/tillsync-tunnel/key
      install -d -m 700 -o tunnel /home/tunnel/.ssh
      install -m 600 -o tunnel /var/lib/tillsync-tunnel/key.pub /home/tunnel/.ssh/authorized_keys`);
    write('/etc/ssh/sshd_config.d/tillsync-tunnel.conf', file('sshd-tunnel.conf'));
    machine.run('mkdir -p /run/sshd; ssh-keygen -A; /usr/sbin/sshd -t; /usr/sbin/sshd');
    machine.run(`runuser -u tillsync-tunnel -- mkdir -m 700 /var/lib/tillsync-tunnel/.ssh
      ssh-keyscan -t ed25519 shop.example.com 2>/dev/null > /var/lib/tillsync-tunnel/.ssh/known_hosts`);
    // Both ends are on this machine, so the shop's end has its own address.
    const unit = file('tillsync-tunnel.service').replace(':127.0.0.1:8787', ':127.0.0.2:8787');
    write('/etc/systemd/system/tillsync-tunnel.service', unit);
    expect(machine.try('systemd-analyze verify tillsync-tunnel.service').text).toBe('');
    machine.run('systemctl daemon-reload; systemctl start tillsync-tunnel.service');
    startProxy('', '127.0.0.1:8787');
    startShop('127.0.0.2:8787');
    awaitCallbacks(0);
    expectSecretToDecide();

    machine.run('kill -KILL $(systemctl show --value -p MainPID tillsync-tunnel)');
    until(
      '[ "$(systemctl show --value -p NRestarts tillsync-tunnel)" -gt 0 ] && ss -ltn | grep -q 127.0.0.1:8787',
    );
    awaitCallbacks(awaitCallbacks(0));

    const asShop =
      'runuser -u tillsync-tunnel -- ssh -i /var/lib/tillsync-tunnel/key -o BatchMode=yes -o ExitOnForwardFailure=yes';
    expect(
      machine.try(`timeout 5 ${asShop} -N -R 127.0.0.1:9999:127.0.0.1:22 tunnel@shop.example.com`).text,
    ).toContain('remote port forwarding failed');
    expect(machine.try(`${asShop} tunnel@shop.example.com id`).text).not.toContain('uid=');
  });
});

describe('a tunnel by WireGuard', () => {
  it.skipIf(WITHOUT_WIREGUARD)('brings callbacks to a shop that only calls out itself', () => {
    // A network namespace of its own stands for the public server; the shop reaches it over a virtual cable.
    machine.run(`mkdir -p /dev/net; [ -e /dev/net/tun ] || mknod /dev/net/tun c 10 200
      setsid unshare --net sleep infinity < /dev/null > /dev/null 2>&1 & echo $! > /run/server.pid`);
    const onServer = 'nsenter --net -t $(cat /run/server.pid)';
    until(`[ "$(readlink /proc/$(cat /run/server.pid)/ns/net)" != "$(readlink /proc/self/ns/net)" ]`);
    machine.run(`ip link add line type veth peer name line-server; ip link set line-server netns $(cat /run/server.pid)
      ip address add 203.0.113.2/24 dev line; ip link set line up
      ${onServer} ip address add 203.0.113.1/24 dev line-server; ${onServer} ip link set line-server up; ${onServer} ip link set lo up
      echo 203.0.113.1 shop.example.com >> /etc/hosts`);
    machine.run(`umask 077; mkdir -p /etc/wireguard; cd /etc/wireguard
      for end in server shop; do wg genkey > $end.key; wg pubkey < $end.key > $end.pub; done`);
    for (const [end, other] of [
      ['server', 'shop'],
      ['shop', 'server'],
    ] as const) {
      const key = machine.run(`cat /etc/wireguard/${other}.pub`);
      const text = file(`wg-${end}.conf`)
        .replace(/PUBLIC_KEY_OF_THE_\w+/, key)
        // Both ends share this machine's files, so their private keys need different names.
        .replace('private.key', `${end}.key`);
      write(`/etc/wireguard/wg-${end}.conf`, text, '600');
      machine.run(
        `WG_QUICK_USERSPACE_IMPLEMENTATION=wireguard-go ${end === 'server' ? onServer : ''} wg-quick up wg-${end}`,
      );
    }
    startProxy(onServer, '10.87.0.2:8787');
    startShop('10.87.0.2:8787');
    awaitCallbacks(0);
    expectSecretToDecide();
    expect(machine.run('tail -n 3 /run/shop.log')).not.toContain(SECRET);
  });
});

describe('a tunnel by cloudflared', () => {
  it('has a configuration of the documented form, which was not run: cloudflared is in no Debian', () => {
    const [head = '', rules = ''] = file('cloudflared.yml').split('ingress:');
    const [, id] = /^tunnel: (\S+)$/m.exec(head) ?? [];
    expect(head).toContain(`credentials-file: /etc/cloudflared/${id}.json`);
    const listed = rules.trim().split(/^ *- /m).filter(Boolean);
    const [, pattern = ''] = /path: (.*)$/m.exec(listed[0] ?? '') ?? [];
    expect([new RegExp(pattern).test('/webhook'), new RegExp(pattern).test('/v1/status')]).toEqual([
      true,
      false,
    ]);
    expect(listed[0]).toMatch(/^hostname: shop\.example\.com\n/);
    // cloudflared refuses a file without a last rule for all other requests.
    expect(listed.at(-1)?.trim()).toBe('service: http_status:404');
    if (spawnSync('cloudflared', ['--version']).status === 0) {
      execFileSync('cloudflared', [
        '--config',
        path.join(TUNNEL, 'cloudflared.yml'),
        'tunnel',
        'ingress',
        'validate',
      ]);
    }
  });
});

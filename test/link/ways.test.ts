import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { rootCertificates } from 'node:tls';
import { describe, expect, it, onTestFinished } from 'vitest';
import { readConfig } from '../../src/config/config.ts';
import { HELLO_ANSWER } from '../../src/link/link.ts';
import { announcementOf } from '../../src/link/server-file.ts';
import { BranchWays, type KeptWays, stampOf } from '../../src/link/ways.ts';
import { helloAnswerOf } from '../support/hello.ts';

const [OLD, NEW] = ['tls://hub.example.com:4222', 'tls://hub2.example.com:4222'];
const PEM = `-----BEGIN CERTIFICATE-----
MIIBSjCB8aADAgECAgkA1f3QxX4sEx4wCgYIKoZIzj0EAwIwADAeFw0yNjAxMDEw
-----END CERTIFICATE-----`;

function branchWays(urls: string[] = [OLD]) {
  let kept: KeptWays = { announced: null, worked: null };
  const store = {
    read: () => kept,
    keep: (ways: KeptWays) => {
      kept = structuredClone(ways);
    },
  };
  const open = () => new BranchWays({ urls, authorities: ['own'] }, store);
  return { open, ways: open() };
}

const used = (url: string) => ({ url, authorities: ['own'] });
const urls = (ways: BranchWays) => ways.list().map(({ url }) => url);

describe('the ways from a branch to its hub', () => {
  it('are those of the configuration, and then what the hub announced, also after a restart', () => {
    const { ways, open } = branchWays([OLD, 'tls://spare.example.com:4222']);
    expect(urls(ways)).toEqual([OLD, 'tls://spare.example.com:4222']);
    const announcement = { addresses: [OLD, NEW], authorities: ['known'] };
    expect(ways.heard(used(OLD), announcement)).toBeNull();
    expect(urls(open())).toEqual([OLD, NEW, 'tls://spare.example.com:4222']);
    expect(open().list()[0]?.authorities).toEqual(['own', 'known']);
    expect(open().told()).toEqual({ stamp: stampOf(announcement), refused: null });
  });

  it('stay as they are with a hub that announces nothing', () => {
    const { ways } = branchWays();
    ways.heard(used(OLD), { addresses: [NEW], authorities: [] });
    expect(ways.heard(used(OLD), null)).toBeNull();
    expect(urls(ways)).toEqual([OLD, NEW]);
  });

  it('never lose the one that worked, with what it was trusted by', () => {
    const { ways } = branchWays([]);
    ways.heard({ url: OLD, authorities: ['first'] }, { addresses: [NEW], authorities: [] });
    expect(ways.list()).toEqual([
      { url: OLD, authorities: ['own'] },
      { url: NEW, authorities: ['own'] },
      { url: OLD, authorities: ['first'] },
    ]);
    ways.heard(used(NEW), { addresses: [NEW], authorities: [] });
    expect(urls(ways)).toEqual([NEW]);
  });

  it.each([
    [
      'no address',
      { addresses: ['http://hub.example.com'], authorities: [] },
      /"http:\/\/hub\.example\.com"/,
    ],
    ['an address of no host', { addresses: ['tls://'], authorities: [] }, /"tls:\/\/", which is no address/],
    [
      'a thousand',
      { addresses: Array.from({ length: 1_000 }, () => OLD), authorities: [] },
      /announces 1000 addresses; 8/,
    ],
    ['clear text', { addresses: ['nats://127.0.0.1:4222'], authorities: [] }, /in clear text/],
    [
      'an authority that is none',
      { addresses: [OLD], authorities: ['known', PEM] },
      /number 2 cannot be read/,
    ],
    ['too many authorities', { addresses: [OLD], authorities: Array(9).fill('known') }, /9 authorities; 8/],
    ['something else', { addresses: 'x' }, /cannot be read/],
    ['a number', 7, /cannot be read/],
  ])('refuse %s by name, and are as they were', (_, given, why) => {
    const { ways } = branchWays();
    ways.heard(used(OLD), { addresses: [OLD, NEW], authorities: [] });
    const { stamp } = ways.told() ?? {};
    expect(ways.heard(used(OLD), given)).toMatch(why);
    expect(urls(ways)).toEqual([OLD, NEW]);
    expect(ways.told()).toMatchObject({ stamp, refused: expect.stringMatching(why) });
    expect(ways.heard(used(OLD), { addresses: [OLD], authorities: [] })).toBeNull();
    expect(ways.told()?.refused).toBeNull();
  });

  it('are read all the same in an answer with absurd ones', () => {
    const answer = helloAnswerOf({ upTo: 3, ways: { addresses: [7] } });
    expect(HELLO_ANSWER.safeParse(answer).data?.upTo).toBe(3);
  });

  it.each([
    ['announce = ["http://hub.example.com"]', 'hub.announce'],
    [
      `announce = ${JSON.stringify(Array.from({ length: 1_000 }, (_, i) => `tls://h${i}:4222`))}`,
      'hub.announce',
    ],
    [`announce = ["${NEW}", "${NEW}"]`, 'hub.announce'],
    ['announce_ca_files = ["ca.pem"]', 'hub.announce_ca_files'],
  ])('are refused at the hub: %s', (line, key) => {
    const text = `[platform]\nbase_url = "http://p.test"\n[hub]\nnats = "nats://127.0.0.1:4222"\n${line}\n[[branches]]\nexternal_id = "B1"`;
    const read = readConfig({ file: 'hub.toml', env: {}, text });
    expect('faults' in read && read.faults.map((fault) => fault.key)).toEqual([key]);
  });

  it('are announced with the certificates of a file alone, and not with the private key beside them', () => {
    const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-ways-'));
    onTestFinished(() => rmSync(directory, { recursive: true }));
    const file = path.join(directory, 'ca.pem');
    const key = '-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA==\n-----END PRIVATE KEY-----\n';
    const announced = (text: string) => {
      writeFileSync(file, text);
      const hub = { nats: OLD, publicUrl: '', announce: [], announceCaFiles: [file] };
      return announcementOf(hub, undefined);
    };
    const [first = '', second = ''] = rootCertificates;
    const { announcement, faults } = announced(`${first}\n${key}${second}\n`);
    expect(announcement.authorities).toEqual([`${first}\n${second}\n`]);
    expect(faults).toEqual([]);
    expect(announced(key)).toMatchObject({
      announcement: { authorities: [] },
      faults: [expect.stringMatching(/^hub.announce_ca_files: .*ca.pem holds no certificate/)],
    });
  });

  it.each([
    ['"tls://a:4222"', { hub: 'tls://a:4222', otherHubs: [] }],
    ['["tls://a:4222", "tls://b:4222"]', { hub: 'tls://a:4222', otherHubs: ['tls://b:4222'] }],
  ])('stand in link.hub, one or a list: %s', (value, link) => {
    const read = readConfig({ file: 'branch.toml', env: {}, text: `[link]\nhub = ${value}\nbranch = "B1"` });
    expect(read).toMatchObject({ config: { link } });
    const env = { TILLSYNC_LINK_HUB: value.replace(/^"|"$/g, ''), TILLSYNC_LINK_BRANCH: 'B1' };
    expect(readConfig({ file: 'branch.toml', env, text: '' })).toMatchObject({ config: { link } });
  });
});

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { rootCertificates } from 'node:tls';
import { describe, expect, it, onTestFinished } from 'vitest';
import { readConfig } from '../../src/config/config.ts';
import { readAuthorities } from '../../src/link/server-look.ts';
import { Ways } from '../../src/link/ways.ts';

const [A, B, C] = ['tls://a.example.com:4222', 'tls://b.example.com:4222', 'tls://c.example.com:4222'];

describe('the ways from a branch to its hub', () => {
  it('are tried in turn, and first the one that worked last', () => {
    const ways = new Ways([A, B, C]);
    expect(ways.list()).toEqual([A, B, C]);
    ways.noteWorked(B);
    expect(ways.list()).toEqual([B, A, C]);
  });

  it('end with the one whose server answered while no hub did, until another one fails so too', () => {
    const ways = new Ways([A, B, C]);
    expect(ways.giveUp()).toBe(false);
    ways.noteWorked(A);
    expect(ways.giveUp()).toBe(true);
    expect(ways.list()).toEqual([B, C, A]);
    ways.noteWorked(C);
    expect(ways.list()).toEqual([C, B, A]);
    ways.giveUp();
    expect(ways.list()).toEqual([A, B, C]);
  });

  it('are not given up where there is one alone', () => {
    const ways = new Ways([A]);
    ways.noteWorked(A);
    expect(ways.giveUp()).toBe(false);
    expect(ways.list()).toEqual([A]);
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

  it.each([
    '["http://hub.example.com"]',
    `["${A}", "${A}"]`,
    JSON.stringify(Array.from({ length: 9 }, (_, n) => `tls://h${n}:4222`)),
  ])('are refused in link.hub: %s', (value) => {
    const read = readConfig({ file: 'branch.toml', env: {}, text: `[link]\nhub = ${value}\nbranch = "B1"` });
    expect('faults' in read && read.faults.map(({ key }) => key)).toEqual(['link.hub']);
  });

  it('are invited with the certificates of a file alone, and not with the private key beside them', () => {
    const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-ways-'));
    onTestFinished(() => rmSync(directory, { recursive: true }));
    const file = path.join(directory, 'ca.pem');
    const key = '-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA==\n-----END PRIVATE KEY-----\n';
    const [first = '', second = ''] = rootCertificates;
    writeFileSync(file, `${first}\n${key}${second}\n`);
    expect(readAuthorities(file)).toBe(`${first}\n${second}\n`);
    writeFileSync(file, key);
    expect(() => readAuthorities(file)).toThrow(/ca.pem holds no certificate/);
  });
});

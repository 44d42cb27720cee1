import {
  chmodSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parse } from 'smol-toml';
import { describe, expect, test } from 'vitest';
import { sampleConfig } from '../../config/package/configuration.ts';
import { replaceFile, setBranches, setKey } from '../../src/config/edit.ts';

/** Returns the lines that only one of the two texts has. */
function difference(before: string, after: string): { gone: string[]; come: string[] } {
  const [a, b] = [before.split('\n'), after.split('\n')];
  return { gone: a.filter((line) => !b.includes(line)), come: b.filter((line) => !a.includes(line)) };
}

describe('a key', () => {
  test('changes in its own line, and its comment stays', () => {
    const text =
      '# top\n[webhook]\n enabled = true   # by phone: no\nlisten = "a:1"\n[orders]\nlisten = "b"\n';
    expect(setKey(text, 'webhook', 'enabled', false)).toBe(
      text.replace('enabled = true ', 'enabled = false '),
    );
    expect(setKey(text, 'orders', 'listen', 'c#"d')).toBe(text.replace('"b"', '"c#\\"d"'));
    expect(setKey(text, 'webhook', 'listen', 'a:1')).toBe(text);
  });

  test('of the sample changes nothing else', () => {
    const after = setKey(sampleConfig(), 'platform', 'base_url', 'https://shop.test');
    expect(difference(sampleConfig(), after)).toEqual({
      gone: ['base_url = "https://api.example.com"'],
      come: ['base_url = "https://shop.test"'],
    });
  });

  test('that is not there yet comes into its section, and a section to the end', () => {
    expect(setKey('[orders]\npoll = "x"\n', 'orders', 'timezone', 'UTC')).toBe(
      '[orders]\ntimezone = "UTC"\npoll = "x"\n',
    );
    expect(setKey('[orders]\npoll = "x"', 'storage', 'group', 'pos')).toBe(
      '[orders]\npoll = "x"\n\n[storage]\ngroup = "pos"\n',
    );
    expect(setKey('', 'storage', 'group', 'pos')).toBe('[storage]\ngroup = "pos"\n');
  });

  test.each([
    'orders.timezone = "UTC"\n',
    'orders = { timezone = "UTC" }\n',
    '[orders]\ntimezone = """\nUTC"""\n',
    'note = """\n[orders]\ntimezone = "UTC"\n"""\n[orders]\ntimezone = "UTC"\n',
  ])('written in a way of its own is left to a person: %j', (text) => {
    expect(() => setKey(text, 'orders', 'timezone', 'America/Lima')).toThrow(
      /orders\.timezone cannot be set/,
    );
  });
});

describe('branches', () => {
  test('of the sample are replaced where they stood', () => {
    const after = setBranches(sampleConfig(), [{ subsidiaryId: 's-9' }, { externalId: 'B9' }]);
    expect(difference(sampleConfig(), after)).toEqual({
      gone: ['subsidiary_id = "sub-1"', 'external_id = "B1"'],
      come: ['subsidiary_id = "s-9"', 'external_id = "B9"'],
    });
    expect(after.indexOf('[[branches]]')).toBeLessThan(after.indexOf('[outbox]'));
  });

  test('that stay keep their comments, one that goes takes only its own lines', () => {
    const text =
      '[[branches]] # centre\nsubsidiary_id = "a" # till 1\n\n[[branches]]\nexternal_id = "B"\n\n# the rest\n[log]\nlevel = "info"\n';
    const after = setBranches(text, [{ subsidiaryId: 'a', externalId: 'A' }, { subsidiaryId: 'c' }]);
    expect(after).toContain('[[branches]] # centre\nsubsidiary_id = "a" # till 1\nexternal_id = "A"\n');
    expect(after).toContain('# the rest\n[log]\n');
    expect(parse(after).branches).toEqual([{ subsidiary_id: 'a', external_id: 'A' }, { subsidiary_id: 'c' }]);
    expect(setBranches(text, [{ subsidiaryId: 'a' }, { externalId: 'B' }])).toBe(text);
  });

  test('come to a file that has none', () => {
    expect(parse(setBranches('[log]\nlevel = "info"\n', [{ externalId: 'B' }]))).toEqual({
      log: { level: 'info' },
      branches: [{ external_id: 'B' }],
    });
    expect(setBranches('', [{ externalId: 'B' }])).toContain('[[branches]]\nexternal_id = "B"\n');
    expect(() => setBranches('branches = [{ external_id = "A" }]\n', [{ externalId: 'B' }])).toThrow(
      /branches/,
    );
  });
});

const AT = Date.parse('2026-01-02T03:04:05.678Z');

describe('the file', () => {
  test('keeps every text before, even of the same second', () => {
    const file = join(mkdtempSync(join(tmpdir(), 'tillsync-replace-')), 'a.toml');
    const kept = ['one', 'two', 'three'].map((text) => replaceFile(file, text, () => {}, AT).keptAt);
    expect(kept).toEqual([null, `${file}.bak-20260102T030405Z`, `${file}.bak-20260102T030405Z-2`]);
    expect(kept.slice(1).map((name) => readFileSync(String(name), 'utf8'))).toEqual(['one', 'two']);
  });

  test('is replaced whole, with mode and link kept and the text before beside it', () => {
    const directory = mkdtempSync(join(tmpdir(), 'tillsync-replace-'));
    const file = join(directory, 'real.toml');
    writeFileSync(file, 'old');
    chmodSync(file, 0o640);
    const link = join(directory, 'link.toml');
    symlinkSync(file, link);
    const seen: string[] = [];
    const judge = (part: string) => seen.push(readFileSync(part, 'utf8'));
    const result = replaceFile(link, 'new', judge, AT);
    expect(result).toEqual({ changed: true, keptAt: `${file}.bak-20260102T030405Z` });
    expect([
      readFileSync(file, 'utf8'),
      readFileSync(`${file}.bak-20260102T030405Z`, 'utf8'),
      ...seen,
    ]).toEqual(['new', 'old', 'new']);
    expect(statSync(file).mode & 0o777).toBe(0o640);
    expect(replaceFile(link, 'new', judge, AT)).toEqual({ changed: false, keptAt: null });
    expect(readdirSync(directory).sort()).toEqual([
      'link.toml',
      'real.toml',
      'real.toml.bak-20260102T030405Z',
    ]);
  });

  test('that is judged unfit stays as it was, without a trace', () => {
    const directory = mkdtempSync(join(tmpdir(), 'tillsync-replace-'));
    const file = join(directory, 'config.toml');
    writeFileSync(file, 'old');
    const judge = () => {
      throw new Error('unfit');
    };
    expect(() => replaceFile(file, 'new', judge, AT)).toThrow();
    expect([readFileSync(file, 'utf8'), readdirSync(directory)]).toEqual(['old', ['config.toml']]);
  });
});
